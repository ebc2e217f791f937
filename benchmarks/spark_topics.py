"""What a trigger over many topics costs: round trips and time of asking for routes and the ends of queues.

    python -m benchmarks.spark_topics [--topics 1000] [--queues 4] [--rounds 5]

A name server and a broker in a process of their own on loopback; the driver's side of a stream in this one, without
Spark. A round trip is a piece of requests that is written before an answer is awaited.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from benchmarks.report import middle, print_where, table, where
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.spark import source
from kourou.spark.cluster import Cluster
from kourou.spark.options import Options
from kourou.spark.reading_settings import READ_OPTIONS, read_settings
from kourou.spark.wire import Access, Link

START_S = 60.0
CREATED_AT_A_TIME = 200


def measure(namesrv: str, topics: int, queues: int, rounds: int) -> list[tuple[int, int, float]]:
    """Round trips, requests and seconds of each trigger."""
    names = [f"many-{number:05d}" for number in range(topics)]
    _create(namesrv, names, queues)
    options = {"namesrv": namesrv, "topics": ",".join(names), "startingOffsets": "earliest"}
    reader = source.StreamReader(read_settings(Options(options, READ_OPTIONS), streaming=True))
    begin = reader.initialOffset()
    trips = requests = 0
    plain = Link.send

    def counted(link: Link, *commands: Command) -> list[int]:
        nonlocal trips, requests
        trips += 1
        requests += len(commands)
        return plain(link, *commands)

    setattr(Link, "send", counted)  # noqa: B010
    found: list[tuple[int, int, float]] = []
    for _ in range(rounds):
        trips = requests = 0
        began = time.perf_counter()
        end = reader.latestOffset(begin, ReadAllAvailable())
        reader.partitions(begin, end)
        found.append((trips, requests, time.perf_counter() - began))
    return found


def _create(namesrv: str, names: list[str], queues: int) -> None:
    cluster = Cluster((namesrv,), Access())
    link = Link(_broker(namesrv), Access(timeout=START_S))
    for at in range(0, len(names), CREATED_AT_A_TIME):
        commands = [_creation(name, queues) for name in names[at : at + CREATED_AT_A_TIME]]
        for answer in link.ask_all(commands):
            if answer.code != ResponseCode.SUCCESS:
                raise SystemExit(f"a topic can't be created: {answer.remark}")
    deadline = time.monotonic() + START_S
    while set(names) - set(cluster.topics(".*")):
        if time.monotonic() > deadline:
            raise SystemExit("the name server does not know all topics")
        time.sleep(0.05)


def _creation(name: str, queues: int) -> Command:
    ext = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": "",
    }
    return Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=ext)


def _broker(namesrv: str) -> str:
    from kourou.protocol.bodies import ClusterInfo

    answer = Link(namesrv, Access()).ask(Command(RequestCode.GET_BROKER_CLUSTER_INFO))
    [broker] = ClusterInfo.decode(bytes(answer.body)).broker_addr_table.values()
    return str(broker.broker_addrs[0])


def _start(folder: Path) -> tuple["subprocess.Popen[bytes]", str]:
    ready = folder / "ready.json"
    words = [
        "run",
        "--no-console",
        "--namesrv-port",
        "0",
        "--port",
        "0",
        "--store",
        str(folder / "store"),
        "--ready-file",
        str(ready),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "kourou", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + START_S
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("the broker does not start")
        time.sleep(0.05)
    facts: dict[str, Any] = json.loads(ready.read_text())
    return process, str(facts["namesrv"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_topics", description=__doc__)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print_where(where())
    with tempfile.TemporaryDirectory(prefix="kourou-topics-") as folder:
        process, namesrv = _start(Path(folder))
        try:
            found = measure(namesrv, options.topics, options.queues, options.rounds)
        finally:
            process.terminate()
            process.wait(30)
    trips, requests, _ = found[-1]
    seconds = middle(one[2] for one in found)
    head = ["topics", "queues each", "round trips", "requests", "ms a trigger"]
    print(table(head, [[f"{options.topics}", f"{options.queues}", f"{trips}", f"{requests}", f"{seconds * 1000:.0f}"]]))


if __name__ == "__main__":
    main()
