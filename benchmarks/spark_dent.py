"""Do normal clients notice that Spark reads? Latencies of a steady producer, alone and beside a reader of a backlog.

    python -m benchmarks.spark_dent --namesrv HOST:PORT --topic TOPIC --seconds 20      latencies as JSON

One message after the other, each when it is due; what counts is the time from when it was due until it is stored. Spark
has half of the processors, broker and producer have the other half, since Spark would be on other machines; what is
left is what it asks of the broker. (To give Spark the time that nobody else wants, on all processors, is not enough:
four threads of that class which only compute make the p99 three times as long.)

A virtual machine stands still for milliseconds whenever the one below has other things to do, and one such stop decides
the p99 of a round, with a reader or without. So besides that there is the p99 of each second of a round, and how much
of the processors' time was taken away in it.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.report import quantile
from benchmarks.spark_beside import message_sender

RATE = 1000
WARM_UP_S = 1.0
ROUND_S = 3.0
"""Many short rounds, whose median counts: few of them have one of the machine's stops."""


def pace(namesrv: str, topic: str, seconds: float) -> dict[str, Any]:
    """Latencies in ms of a producer that sends a message each millisecond."""
    produce = message_sender(namesrv, topic)
    found: list[int] = []
    taken: list[float] = [taken_away_s()]
    begin = time.perf_counter_ns()
    number = 0
    while number < RATE * (WARM_UP_S + seconds):
        due = begin + number * 1_000_000_000 // RATE
        early = due - time.perf_counter_ns()
        if early > 0:
            time.sleep(early / 1e9)
        produce(number)
        if number >= RATE * WARM_UP_S:
            found.append(time.perf_counter_ns() - due)
        number += 1
        if number % RATE == 0:
            taken.append(taken_away_s())
    parts = [found[at : at + RATE] for at in range(0, len(found), RATE)]
    losses = [after - before for before, after in pairwise(taken)][int(WARM_UP_S) :]
    return {
        "p50": quantile(found, 0.5) / 1e6,
        "p99": quantile(found, 0.99) / 1e6,
        "seconds": [[quantile(part, 0.99) / 1e6, loss] for part, loss in zip(parts, losses, strict=False)],
    }


def taken_away_s() -> float:
    """Processor time that the host took from this machine while processes waited for it."""
    with Path("/proc/stat").open() as file:
        return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


def _run_pace(namesrv: str, topic: str, seconds: float) -> dict[str, Any]:
    """In a process of its own, as a client is."""
    words = ["--namesrv", namesrv, "--topic", topic, "--seconds", str(seconds)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.spark_dent", *words], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def dent(
    namesrv: str, broker: int, topic: str, rows: int, folder: Path, environment: Mapping[str, str], rounds: int
) -> dict[str, object]:
    """Rounds without a reader and with one, in turns, while Spark is there all the time. `broker`: its process.

    Between them, one in which Spark only computes: what a busy machine does to a producer anyhow.
    """
    folder.mkdir()
    ours = sorted(os.sched_getaffinity(0))
    theirs = [ours.pop() for _ in range(len(ours) // 2)] or ours
    for thread in Path(f"/proc/{broker}/task").iterdir():
        os.sched_setaffinity(int(thread.name), ours)
    words = ["--namesrv", namesrv, "--folder", str(folder), "--rows", str(rows)]
    command = [sys.executable, "-m", "benchmarks.spark_beside", *words]
    with (folder / "output.txt").open("w") as output:
        spark = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, preexec_fn=lambda: _step_back(theirs)
        )
    os.sched_setaffinity(0, ours)
    try:
        _wait_for(folder / "ready", spark)
        alone: list[dict[str, Any]] = []
        busy: list[dict[str, Any]] = []
        beside: list[dict[str, Any]] = []
        for _ in range(rounds):
            alone.append(_run_pace(namesrv, topic, ROUND_S))
            for word, answer, found in (("compute", "computing", busy), ("read", "reading", beside)):
                (folder / word).touch()
                _wait_for(folder / answer, spark)
                found.append(_run_pace(namesrv, topic, ROUND_S))
                (folder / word).unlink()
                _wait_gone(folder / answer, spark)
        (folder / "enough").touch()
        spark.wait(60)
        speed = json.loads((folder / "figures.json").read_text())["rows_per_s"]
    finally:
        os.sched_setaffinity(0, {*ours, *theirs})
        spark.kill()
        spark.wait()
    return {"alone_ms": alone, "busy_ms": busy, "beside_ms": beside, "read_rows_per_s": speed}


def _step_back(processors: Iterable[int]) -> None:
    os.sched_setaffinity(0, processors)
    # For a machine with a single one.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _wait_for(path: Path, spark: "subprocess.Popen[bytes]") -> None:
    while not path.exists():
        if spark.poll() is not None:
            raise RuntimeError(f"Spark ended: {(path.parent / 'output.txt').read_text()[-2000:]}")
        time.sleep(0.05)


def _wait_gone(path: Path, spark: "subprocess.Popen[bytes]") -> None:
    while path.exists() and spark.poll() is None:
        time.sleep(0.05)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Latencies of a steady producer.")
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    print(json.dumps(pace(options.namesrv, options.topic, options.seconds)))
