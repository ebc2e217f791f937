"""Topics as DataFrames: rows per CPU-second of Spark's own processes.

`python -m benchmarks.spark [--quick] [--no-spark]`

    decode    records of a pull answer or a log into Arrow batches, in this process
    scan      format("rocketmq-store") over files with 1 KiB bodies, through Spark
    read      format("rocketmq") from a broker in another process, through Spark
    write     format("rocketmq") to that broker, through Spark

The processor time of the JVM and all its Python workers counts, the broker's does not. The first query of a JVM is not
counted; the median of three others is.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import Bar, Result, middle, print_where, table, where
from kourou.protocol.hosts import encode_host
from kourou.protocol.record import Scanner, encode_filler, encode_record
from kourou.spark.columns import COLUMNS
from kourou.spark.rows import FULL, RowBuilder, Rows, make_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS, QUICK_ROWS = 400_000, 20_000
ROUNDS = 3
BODY_SIZE = 1024
SEGMENT = 64 * 1024 * 1024
TOPIC = "SparkBench"
SCAN_BAR = 200_000
"""Rows per CPU-second that a scan has to reach at 1 KiB."""


def record(number: int, at: int, body_size: int) -> bytes:
    host = encode_host("127.0.0.1:10911")
    text = f"TAGS\x01paid\x02KEYS\x01order-{number}\x02UNIQ_KEY\x017F0000010A2B4B1AC6927C5A{number:08X}\x02"
    return encode_record(
        topic=TOPIC,
        body=bytes(body_size),
        queue_id=number % 8,
        queue_offset=number // 8,
        physical_offset=at,
        born_ms=1_700_000_000_000,
        born_host=host,
        stored_ms=1_700_000_000_001 + number // 100,
        store_host=host,
        raw_properties=text.encode(),
    )


def write_store(root: Path, rows: int) -> None:
    """Files of a log as a broker leaves them."""
    folder = root / "commitlog"
    folder.mkdir()
    start, content = 0, bytearray()
    for number in range(rows):
        made = record(number, start + len(content), BODY_SIZE)
        if len(content) + len(made) + 8 > SEGMENT:
            content += encode_filler(SEGMENT - len(content))
            (folder / f"{start:020}").write_bytes(bytes(content).ljust(SEGMENT, b"\0"))
            start += SEGMENT
            content = bytearray()
            made = record(number, start, BODY_SIZE)
        content += made
    (folder / f"{start:020}").write_bytes(bytes(content).ljust(SEGMENT, b"\0"))


# ── Decoding alone ──────────────────────────────────────────────────────────────────────────────────────────────────


def decode_figures(quick: bool) -> dict[str, float]:
    """Rows per CPU-second by kind of decoder and size of body."""
    figures = {}
    kinds: dict[str, Callable[[tuple[str, ...]], RowBuilder]] = {"plain": Rows}
    if type(make_rows(("body",))) is not Rows:
        kinds["compiled"] = make_rows
    for size in (128, BODY_SIZE):
        data = b"".join(record(number, 0, size) for number in range(2000))
        for name, kind in kinds.items():
            rounds = 3 if quick or name == "plain" else 30
            figures[f"{name}, {size} B"] = 2000 / middle(_decode_s(kind, data) for _ in range(rounds))
    return figures


def _decode_s(kind: Callable[[tuple[str, ...]], RowBuilder], data: bytes) -> float:
    builder = kind(tuple(COLUMNS))
    begin = time.process_time()
    scanner = Scanner(data)
    while builder.fill(scanner, len(data)) == FULL:
        builder.finish()
    builder.finish()
    return time.process_time() - begin


# ── Through Spark ───────────────────────────────────────────────────────────────────────────────────────────────────


def tree_cpu_s(root: int) -> float:
    """Processor time of a process and all that descend from it, those that ended included."""
    children: dict[int, list[int]] = {}
    times: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        times[pid] = sum(map(int, fields[11:15])) / tick
    todo, total = [root], 0.0
    while todo:
        pid = todo.pop()
        total += times.get(pid, 0.0)
        todo += children.get(pid, [])
    return total


def rate(jvm: int, rows: int, work: Callable[[], object]) -> float:
    """Rows per CPU-second of Spark: the median of some rounds after one that does not count."""
    work()
    rates = []
    for _ in range(ROUNDS):
        begin = tree_cpu_s(jvm)
        work()
        rates.append(rows / max(tree_cpu_s(jvm) - begin, 1e-9))
    return middle(rates)


def drain(frame: "DataFrame") -> None:
    frame.write.format("noop").mode("overwrite").save()


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """`kourou run` in a process of its own; the address of its name server."""
    ready = folder / "ready.json"
    ports = ["--namesrv-port", "0", "--port", "0"]
    command = [
        sys.executable,
        "-m",
        "kourou",
        "run",
        *ports,
        "--store",
        str(folder / "store"),
        "--ready-file",
        str(ready),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while not ready.exists():
            if process.poll() is not None:
                raise RuntimeError("kourou run did not start")
            time.sleep(0.05)
        yield json.loads(ready.read_text())["namesrv"]
    finally:
        process.terminate()
        process.wait()


def spark_figures(spark: "SparkSession", rows: int, folder: Path) -> dict[str, float]:
    from tests.spark.brokers import create_topic

    jvm = spark.sparkContext._jvm
    assert jvm is not None
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    (folder / "log").mkdir()
    write_store(folder / "log", rows)
    figures = {}
    scan = spark.read.format("rocketmq-store").option("splitSize", "64m").load(str(folder / "log"))
    figures["scan"] = rate(pid, rows, lambda: drain(scan))
    with broker(folder) as namesrv:
        create_topic(namesrv, TOPIC, 8)
        made = spark.range(rows).selectExpr(f"repeat('x', {BODY_SIZE}) as body", "concat('k', id) as keys")
        sink = made.write.format("rocketmq").mode("append").option("namesrv", namesrv).option("topic", TOPIC)
        figures["write"] = rate(pid, rows, sink.save)
        reader = spark.read.format("rocketmq").option("namesrv", namesrv).option("topics", TOPIC)
        stored = rows * (ROUNDS + 1)
        figures["read"] = rate(pid, stored, lambda: drain(reader.load()))
    return figures


def run(quick: bool, with_spark: bool = True) -> Result:
    figures = decode_figures(quick)
    lines = [(f"decode, {name}", f"{value:,.0f}") for name, value in figures.items()]
    bars = []
    if with_spark:
        from kourou.spark.session import session

        rows = QUICK_ROWS if quick else ROWS
        with tempfile.TemporaryDirectory() as folder:
            spark = session("kourou-bench", "local[2]", {"spark.ui.enabled": "false"})
            try:
                through = spark_figures(spark, rows, Path(folder))
            finally:
                spark.stop()
        lines += [(f"{name}, {BODY_SIZE} B", f"{value:,.0f}") for name, value in through.items()]
        bars.append(Bar("CPU of a store scan", 1e6 / through["scan"], 1e6 / SCAN_BAR, "µs per row"))
        figures |= through
    text = [table(["rows per CPU-second", ""], lines)]
    reason = "too few rows to tell" if quick else None
    return Result("Spark", text, bars, {"rows_per_cpu_second": figures}, reason)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Rows per CPU-second through Spark.")
    parser.add_argument("--quick", action="store_true", help="a short run, to try it")
    parser.add_argument("--no-spark", action="store_true", help="decoding alone")
    options = parser.parse_args()
    print_where(where())
    run(options.quick, not options.no_spark).print()
