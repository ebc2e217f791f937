"""Topics as DataFrames, beside Spark's connector for Kafka: rows per CPU-second of Spark's own processes.

    decode     records of a pull answer or a log into Arrow batches, in this process
    scan       format("rocketmq-store") over files with 1 KiB bodies
    read       a topic as a batch
    available  a topic as a stream that ends when all is read, in four batches
    write      rows to a topic
    archive    a topic into Parquet files by topic, date and hour
    live       200 messages a second over 8 queues: how long a small batch takes
    dent       the latency of a producer of 1,000 messages a second while Spark reads a backlog

Both sides run in the same session (`spark_beside.py`), each with a single broker in a process of its own. The processor
time of the JVM and all its Python workers counts, the brokers' does not. Rows have bodies of 1 KiB, and where they are
compared, the columns that Kafka's have.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.waiting import GaveUpError

from benchmarks.report import ROOT, Bar, Result, middle, table
from benchmarks.servers import start_kourou_broker
from benchmarks.spark_beside import BODY_SIZE, LIVE_TOPIC, QUEUES, SINK_TOPIC, TOPIC
from benchmarks.spark_dent import dent
from benchmarks.spark_kafka import Kafka, jars, spark_home
from kourou.protocol.hosts import encode_host
from kourou.protocol.record import Scanner, encode_filler, encode_record
from kourou.spark.columns import COLUMNS
from kourou.spark.rows import FULL, RowBuilder, Rows, make_rows

ROWS, QUICK_ROWS = 600_000, 10_000
SCAN_ROWS = 2_400_000  # 3 GiB: what a query costs before its first row hardly counts
WARM_UP, QUICK_WARM_UP = 6, 1
SEGMENT = 64 * 1024 * 1024
SCAN_BAR = 200_000
"""Rows per CPU-second that a scan has to reach at 1 KiB."""

BARS = {"read": 1.3, "available": 1.0, "write": 1.3, "archive": 1.5}
"""How many times the rows per CPU-second of Kafka's connector ours has to reach."""

LIVE_BAR = 1.3
"""How many times as long as Kafka's a small batch may take."""

DENT_BAR = 2.0
"""The limit of the ratio between the p99 of a producer with and without readers."""

DENT_ROUNDS = 21
"""Rounds of such a producer without a reader, and as many with one."""

DISTURBED_S = 0.01
"""Seconds of processor time, of one second, beyond which the machine below has disturbed it."""


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


def spark_figures(quick: bool, only: str | None, folder: Path) -> dict[str, Any]:
    """What the session with both sides found out. Raises MissingToolError, GaveUpError."""
    from tests.spark.brokers import create_topic

    rows, scan_rows = (QUICK_ROWS, QUICK_ROWS) if quick else (ROWS, SCAN_ROWS)
    path = os.pathsep.join([str(spark_home()), str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # nor is an installed Kourou compiled for every task
    connector = str(jars("spark-kafka"))
    work = folder / "work"
    work.mkdir()
    kafka = Kafka(folder / "kafka", QUEUES)
    try:
        broker = start_kourou_broker(folder / "kourou", "ASYNC_FLUSH")
        try:
            for topic in (TOPIC, SINK_TOPIC, LIVE_TOPIC):
                create_topic(broker.address, topic, QUEUES)
            words = ["--namesrv", broker.address, "--kafka", kafka.address, "--jars", connector]
            words += ["--folder", str(work), "--rows", str(rows)]
            words += ["--warm-up", str(QUICK_WARM_UP if quick else WARM_UP)]
            if quick:
                words += ["--live", "5", "--live-warm-up", "5"]
            if only is None or "scan" in only:
                write_store(folder, scan_rows)
                words += ["--scan", str(folder), "--scan-rows", str(scan_rows)]
            if only is not None:
                words += ["--only", only]
            command = [sys.executable, "-m", "benchmarks.spark_beside", *words]
            with (work / "errors.txt").open("w") as errors:
                done = subprocess.run(command, env=environment, stderr=errors)
            if done.returncode:
                raise GaveUpError(f"Spark failed:\n{(work / 'errors.txt').read_text()[-3000:]}")
            found: dict[str, Any] = json.loads((work / "figures.json").read_text())
            kafka.stop()
            if only is None or "dent" in only:
                rounds = 3 if quick else DENT_ROUNDS
                work = folder / "dent"
                found["dent"] = dent(broker.address, broker.process.pid, LIVE_TOPIC, rows, work, environment, rounds)
        finally:
            broker.stop()
    finally:
        kafka.stop()
    return found


def spark_bars(found: dict[str, Any]) -> list[Bar]:
    """A bar for whatever was measured."""
    bars = []
    if "scan" in found:
        bars.append(Bar("CPU of a store scan", 1e6 / found["scan"]["rocketmq"], 1e6 / SCAN_BAR, "µs per row"))
    for name, limit in BARS.items():
        if name in found:
            ours, theirs = found[name]["rocketmq"], found[name]["kafka"]
            bars.append(Bar(f"CPU per row, {name}, ours beside Kafka's", theirs / ours, round(1 / limit, 2), "times"))
    if "live" in found:
        ours, theirs = found["live"]["rocketmq"], found["live"]["kafka"]
        bars.append(Bar("time of a small batch, ours beside Kafka's", ours / theirs, LIVE_BAR, "times"))
    if "dent" in found:
        alone, beside = (middle(each["p99"] for each in found["dent"][name]) for name in ("alone_ms", "beside_ms"))
        bars.append(Bar("p99 of a producer while Spark reads", beside / alone, DENT_BAR, "times without"))
    return bars


def spark_lines(found: dict[str, Any]) -> list[str]:
    rows = [("scan", f"{found['scan']['rocketmq']:,.0f}", "", "")] if "scan" in found else []
    for name in BARS:
        if name in found:
            ours, theirs = found[name]["rocketmq"], found[name]["kafka"]
            rows.append((name, f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.2f}"))
    if "read" in found:
        whole, theirs = found["read"]["rocketmq, all columns"], found["read"]["kafka"]
        rows.append(("read, all 21 columns", f"{whole:,.0f}", f"{theirs:,.0f}", f"{whole / theirs:.2f}"))
    text = ["", table([f"rows per CPU-second, Spark {found['spark']}", "rocketmq", "kafka", "ratio"], rows)]
    if "live" in found:
        ours, theirs = found["live"]["rocketmq"], found["live"]["kafka"]
        text += ["", f"a small batch, {QUEUES} queues: {ours:.0f} ms, Kafka's {theirs:.0f} ms"]
    if "dent" in found:
        labels = {"alone_ms": "alone", "busy_ms": "while Spark computes", "beside_ms": "while Spark reads"}
        for name, label in labels.items():
            each = found["dent"][name]
            p50, p99 = (middle(one[share] for one in each) for share in ("p50", "p99"))
            seconds = [second for one in each for second in one["seconds"]]
            undisturbed = [latency for latency, taken_s in seconds if taken_s <= DISTURBED_S]
            text.append(
                f"a producer {label}: p50 {p50:.2f} ms, p99 {p99:.2f} ms; in seconds that the machine below let alone, "
                f"{len(undisturbed)} of {len(seconds)}: p99 {middle(undisturbed):.2f} ms"
            )
        text.append(f"Spark read {found['dent']['read_rows_per_s']:,.0f} rows a second, also between the rounds")
    return text


def run(options: argparse.Namespace) -> Result:
    figures = decode_figures(options.quick)
    lines = [(f"decode, {name}", f"{value:,.0f}") for name, value in figures.items()]
    text = [table(["rows per CPU-second", ""], lines)]
    with tempfile.TemporaryDirectory() as folder:
        found = spark_figures(options.quick, options.spark_only, Path(folder))
    text += spark_lines(found)
    reason = "too few rows to tell" if options.quick else None
    return Result("Spark", text, spark_bars(found), {"decode": figures, **found}, reason)


def add_options(parser: Any) -> None:
    parser.add_argument(
        "--spark-only", metavar="NAMES", help="some of scan,write,read,available,archive,live,dent (default: all)"
    )
