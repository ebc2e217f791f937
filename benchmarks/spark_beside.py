"""The same work through our data source and through Spark's connector for Kafka, in one session; figures as JSON.

Started by `benchmarks.spark` in a process of its own, with a pyspark before its path that the connector fits.

What counts is the processor time of the JVM and its Python workers; the brokers' does not. The two sides take turns:
first some rounds that do not count, in which the JVM compiles, then those whose median does.
"""

import argparse
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.report import middle
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.spark.pipelines.archive import archive
from kourou.spark.pipelines.running import Runner
from kourou.spark.session import session
from kourou.spark.wire import Access, Link

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

TOPIC = "SparkBench"
SINK_TOPIC = "SparkBenchSink"
LIVE_TOPIC = "SparkBenchLive"
QUEUES = 8
ROUNDS = 3
BODY_SIZE = 1024
RATE = 200
"""Messages a second that a stream of small batches has to keep up with."""


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


class Meter:
    """Takes the processor time of work in a session."""

    def __init__(self, spark: "SparkSession", warm_up: int) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._jvm = int(jvm.java.lang.ProcessHandle.current().pid())
        self._warm_up = warm_up

    def rates(self, rows: int, *works: Callable[[], object]) -> list[float]:
        """Rows per CPU-second of each: the median of some rounds, in turns, after some that do not count."""
        found: list[list[float]] = [[] for _ in works]
        for number in range(self._warm_up + ROUNDS):
            for work, rates in zip(works, found, strict=True):
                begin = tree_cpu_s(self._jvm)
                work()
                if number >= self._warm_up:
                    rates.append(rows / max(tree_cpu_s(self._jvm) - begin, 1e-9))
        return [middle(rates) for rates in found]


def drain(frame: "DataFrame") -> None:
    frame.write.format("noop").mode("overwrite").save()


# ── The two sides ───────────────────────────────────────────────────────────────────────────────────────────────────


class Side(Protocol):
    """A connector, and how the same work is asked of it."""

    name: str

    def reader(self, topic: str) -> "DataFrame": ...
    def stream(self, topic: str) -> "DataStreamReader": ...
    def writer(self, frame: "DataFrame", topic: str) -> "DataFrameWriter": ...
    def archive(self, lake: Path) -> None: ...
    def producing(self, topic: str) -> Callable[[int], None]: ...


LIKE_KAFKA = "topic,queue_id,queue_offset,keys,body,store_timestamp"
"""The columns that a row of Kafka's has."""


class Ours:
    """With the columns that Kafka's connector gives, or with all 21."""

    def __init__(self, spark: "SparkSession", namesrv: str, columns: str = LIKE_KAFKA) -> None:
        self.name = "rocketmq" if columns else "rocketmq, all columns"
        self._spark = spark
        self._namesrv = namesrv
        self._columns = columns

    def reader(self, topic: str) -> "DataFrame":
        reader = self._spark.read.format("rocketmq").option("namesrv", self._namesrv).option("topics", topic)
        return reader.option("columns", self._columns).load()

    def stream(self, topic: str) -> "DataStreamReader":
        reader = self._spark.readStream.format("rocketmq").option("namesrv", self._namesrv)
        return reader.option("topics", topic).option("columns", self._columns).option("startingOffsets", "earliest")

    def writer(self, frame: "DataFrame", topic: str) -> "DataFrameWriter":
        writer = frame.selectExpr("value as body", "key as keys").write.format("rocketmq").mode("append")
        return writer.option("namesrv", self._namesrv).option("topic", topic)

    def archive(self, lake: Path) -> None:
        archive(TOPIC, lake, namesrv=self._namesrv, runner=Runner(spark=self._spark))

    def producing(self, topic: str) -> Callable[[int], None]:
        return message_sender(self._namesrv, topic)


class Theirs:
    name = "kafka"

    def __init__(self, spark: "SparkSession", address: str) -> None:
        self._spark = spark
        self._address = address

    def reader(self, topic: str) -> "DataFrame":
        reader = self._spark.read.format("kafka").option("kafka.bootstrap.servers", self._address)
        return reader.option("subscribe", topic).load()

    def stream(self, topic: str) -> "DataStreamReader":
        reader = self._spark.readStream.format("kafka").option("kafka.bootstrap.servers", self._address)
        return reader.option("subscribe", topic).option("startingOffsets", "earliest")

    def writer(self, frame: "DataFrame", topic: str) -> "DataFrameWriter":
        writer = frame.write.format("kafka").mode("append").option("kafka.bootstrap.servers", self._address)
        # With idempotence, its producer waits for ever where a busy machine has let a request time out.
        return writer.option("topic", topic).option("kafka.enable.idempotence", "false")

    def archive(self, lake: Path) -> None:
        """As one does it with Spark: partitions by topic, date and hour, as ours has them, and the same compression."""
        frame = self.reader(TOPIC).selectExpr("*", "date(timestamp) as date", "hour(timestamp) as hour")
        writer = frame.write.partitionBy("topic", "date", "hour").option("compression", "zstd").mode("overwrite")
        writer.option("parquet.compression.codec.zstd.level", "1").parquet(str(lake))

    def producing(self, topic: str) -> Callable[[int], None]:
        jvm: Any = self._spark.sparkContext._jvm
        settings = jvm.java.util.Properties()
        serializer = "org.apache.kafka.common.serialization.StringSerializer"
        settings.put("bootstrap.servers", self._address)
        settings.put("key.serializer", serializer)
        settings.put("value.serializer", serializer)
        clients = jvm.org.apache.kafka.clients.producer
        producer = clients.KafkaProducer(settings)

        def produce(number: int) -> None:
            producer.send(clients.ProducerRecord(topic, number % QUEUES, f"k{number}", "x" * 100))

        return produce


def message_sender(namesrv: str, topic: str) -> Callable[[int], None]:
    """Sends message number n to queue n modulo 8, and waits until it is stored."""
    from kourou.spark.cluster import Cluster

    route = Cluster((namesrv,), Access()).route(topic)
    [broker] = route.brokers.values()
    link = Link(broker[0], Access())

    def produce(number: int) -> None:
        ext = {"a": "bench", "b": topic, "c": "TBW102", "d": "4", "e": str(number % QUEUES), "f": "0"}
        ext |= {"g": "1700000000000", "h": "0", "i": f"KEYS\x01k{number}\x02", "j": "0", "k": "false", "m": "false"}
        answer = link.ask(Command(RequestCode.SEND_MESSAGE_V2, ext=ext, body=b"x" * 100))
        if answer.code != ResponseCode.SUCCESS:
            raise RuntimeError(f"the broker refuses a message: {answer.remark}")

    return produce


# ── The work ────────────────────────────────────────────────────────────────────────────────────────────────────────


def source_frame(spark: "SparkSession", rows: int) -> "DataFrame":
    """Keys, and bodies of 1 KiB that compress about as well as JSON with ids in it does."""
    fields = """transform(sequence(1, 22), i -> concat('"name', i, '":"', md5(string(id * i)), '"'))"""
    body = f"left(array_join({fields}, ','), {BODY_SIZE})"
    return spark.range(rows).selectExpr("concat('k', id) as key", f"{body} as value")


def run_available(side: Side, rows: int, state: Path) -> None:
    """One availableNow run from the start of the topic, in batches of a quarter."""
    shutil.rmtree(state, ignore_errors=True)
    stream = side.stream(TOPIC).option("maxOffsetsPerTrigger", str(rows // 4)).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(state))
    running = query.trigger(availableNow=True).start()
    running.awaitTermination()
    if sum(progress.numInputRows for progress in running.recentProgress) != rows:
        raise RuntimeError(f"{side.name}: a stream has not read all {rows} rows")


@contextmanager
def production(produce: Callable[[int], None]) -> Iterator[None]:
    """Messages come at a steady rate meanwhile."""
    over = threading.Event()

    def work() -> None:
        begin, number = time.monotonic(), 0
        while not over.is_set():
            produce(number)
            number += 1
            over.wait(max(begin + number / RATE - time.monotonic(), 0))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def batch_times_ms(side: Side, state: Path, warm_up_s: float, seconds: float) -> list[int]:
    """How long each small batch took, once it is warm."""
    shutil.rmtree(state, ignore_errors=True)
    found: list[int] = []
    with production(side.producing(LIVE_TOPIC)):
        query = (
            side.stream(LIVE_TOPIC).load().writeStream.format("noop").option("checkpointLocation", str(state)).start()
        )
        try:
            begin = time.monotonic()
            last = -1
            while time.monotonic() < begin + warm_up_s + seconds:
                time.sleep(0.02)
                progress = query.lastProgress
                if progress is None or progress.batchId == last or time.monotonic() < begin + warm_up_s:
                    continue
                last = progress.batchId
                if progress.numInputRows:
                    found.append(int(progress.durationMs["triggerExecution"]))
        finally:
            query.stop()
    return found


def compare(spark: "SparkSession", options: argparse.Namespace) -> dict[str, object]:
    meter = Meter(spark, options.warm_up)
    rows, folder = options.rows, Path(options.folder)
    sides: list[Side] = [Ours(spark, options.namesrv), Theirs(spark, options.kafka)]
    figures: dict[str, object] = {}

    def tell(name: str, values: list[float], *more: str) -> None:
        figures[name] = dict(zip([*(side.name for side in sides), *more], values, strict=True))
        print(name, [f"{value:,.0f}" for value in values], flush=True)

    if options.scan:
        scan = spark.read.format("rocketmq-store").option("splitSize", "128m").load(options.scan)
        figures["scan"] = {"rocketmq": meter.rates(options.scan_rows, lambda: drain(scan))[0]}
        print(figures["scan"], flush=True)
    wanted = options.only.split(",") if options.only else ["write", "read", "available", "archive", "live"]
    frame = source_frame(spark, rows)
    for side in sides:
        side.writer(frame, TOPIC).save()
    if "write" in wanted:
        fewer = rows // 2  # they add up on both disks
        plain = spark.range(fewer).selectExpr("concat('k', id) as key", f"repeat('x', {BODY_SIZE}) as value")
        tell("write", meter.rates(fewer, *(side.writer(plain, SINK_TOPIC).save for side in sides)))
    if "read" in wanted:
        whole = Ours(spark, options.namesrv, "")
        reads = (lambda side=side: drain(side.reader(TOPIC)) for side in (*sides, whole))
        tell("read", meter.rates(rows, *reads), whole.name)
    if "available" in wanted:
        runs = [lambda side=side: run_available(side, rows, folder / f"state-{side.name}") for side in sides]
        tell("available", meter.rates(rows, *runs))
    if "archive" in wanted:
        tell("archive", meter.rates(rows, *(lambda side=side: archived(side, folder) for side in sides)))
    if "live" in wanted:
        for side in sides:  # the topic has to be there before it is read
            side.producing(LIVE_TOPIC)(0)
        times = [
            batch_times_ms(side, folder / f"live-{side.name}", options.live_warm_up, options.live) for side in sides
        ]
        tell("live", [middle(each) for each in times])
    return figures


def archived(side: Side, folder: Path) -> None:
    lake = folder / f"lake-{side.name}"
    shutil.rmtree(lake, ignore_errors=True)
    side.archive(lake)


def read_when_told(spark: "SparkSession", options: argparse.Namespace) -> dict[str, object]:
    """Read the backlog again and again while a file `read` is there, until a file `enough` is.

    While a file `compute` is there, compute something that no broker is asked for.
    """
    side, folder = Ours(spark, options.namesrv), Path(options.folder)
    for _ in range(options.warm_up):
        drain(side.reader(TOPIC))
    (folder / "ready").touch()
    rounds, seconds = 0, 0.0
    while not (folder / "enough").exists():
        if (folder / "read").exists():
            (folder / "reading").touch()
            begin = time.monotonic()
            drain(side.reader(TOPIC))
            seconds += time.monotonic() - begin
            rounds += 1
        elif (folder / "compute").exists():
            (folder / "computing").touch()
            drain(spark.range(20_000_000).selectExpr("max(xxhash64(id))"))
        else:
            (folder / "reading").unlink(missing_ok=True)
            (folder / "computing").unlink(missing_ok=True)
            time.sleep(0.05)
    return {"rows_per_s": options.rows * rounds / max(seconds, 1e-9)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--kafka", help="its address; without it, the backlog is read when a file asks for it")
    parser.add_argument("--jars", default="", help="the connector's")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--scan", help="a store to scan")
    parser.add_argument("--scan-rows", type=int, default=0)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--warm-up", type=int, default=6)
    parser.add_argument("--live", type=float, default=20.0)
    parser.add_argument("--live-warm-up", type=float, default=20.0)
    parser.add_argument("--only", help="some of write,read,available,archive,live")
    options = parser.parse_args()
    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "2g"}
    if options.jars:
        settings["spark.driver.extraClassPath"] = ":".join(map(str, sorted(Path(options.jars).glob("*.jar"))))
    spark = session("kourou-bench", "local[2]", settings)
    try:
        figures = compare(spark, options) if options.kafka else read_when_told(spark, options)
        figures["spark"] = spark.version
        (Path(options.folder) / "figures.json").write_text(json.dumps(figures))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
