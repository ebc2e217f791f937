"""What goes wrong around a stream: brokers restart, workers die, data is gone. Nothing may be missing."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kourou.embedded import EmbeddedThread
from kourou.spark import wire
from kourou.spark.cluster import Cluster
from kourou.spark.session import reason

from .brokers import ACCESS, create_topic, pull_all, send

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]

PATIENCE_S = 120
SMALL = {"mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 20 * 50}
"""Files of a store, so that there are some."""


class Restartable:
    """A broker that restarts at the same address with its files."""

    def __init__(self, store: Path, properties: dict[str, Any] | None = None) -> None:
        self._store = store
        self._properties = properties or {}
        self._running = EmbeddedThread(store=store, properties=self._properties)
        self._running.start()
        self.namesrv = self._running.namesrv
        self._ports: dict[str, Any] = {
            "namesrv_port": int(self.namesrv.split(":")[1]),
            "port": int(self._running.address.split(":")[1]),
        }
        self.cluster = Cluster((self.namesrv,), ACCESS, 30.0)

    def stop(self) -> None:
        self._running.stop()
        wire.close_all()

    def start(self) -> None:
        self._running = EmbeddedThread(store=self._store, properties=self._properties, **self._ports)
        self._running.start()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Restartable]:
    made = Restartable(tmp_path / "store", SMALL)
    yield made
    made.stop()
    wire.close_all()


def fill(broker: Restartable, topic: str, queues: int = 3, count: int = 200) -> None:
    create_topic(broker.namesrv, topic, queues)
    more(broker, topic, queues, count)


def more(broker: Restartable, topic: str, queues: int = 3, count: int = 200) -> None:
    for queue in range(queues):
        send(broker.cluster, topic, [b"%d/%d" % (queue, number) for number in range(count)], queue=queue)


Rows = list[tuple[int, int]]
"""Queues and offsets."""


class Reader:
    """A query whose batches are remembered by their number, as a sink that can repeat a batch keeps them."""

    def __init__(self, spark: SparkSession, broker: Restartable, topic: str, state: Path, **options: object) -> None:
        self._spark = spark
        self._broker = broker
        self._topic = topic
        self._state = state
        self._options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 120, **options}
        self.batches: dict[int, Rows] = {}
        self.before: Callable[[int], None] = lambda _: None

    def start(self, **trigger: Any) -> StreamingQuery:
        reader = self._spark.readStream.format("rocketmq").option("namesrv", self._broker.namesrv)
        for name, value in {"topics": self._topic, **self._options}.items():
            reader = reader.option(name, str(value))

        def take(frame: DataFrame, number: int) -> None:
            self.before(number)
            self.batches[number] = [(row.queue_id, row.queue_offset) for row in frame.collect()]

        writer = reader.load().writeStream.foreachBatch(take).option("checkpointLocation", str(self._state))
        return writer.trigger(**trigger or {"availableNow": True}).start()

    def run(self) -> BaseException | None:
        query = self.start()
        try:
            query.awaitTermination(PATIENCE_S)
        except Exception as error:
            return error
        return None

    @property
    def rows(self) -> Rows:
        return sorted(row for batch in self.batches.values() for row in batch)


def everything(broker: Restartable, topic: str) -> Rows:
    return sorted((row["queue_id"], row["queue_offset"]) for row in pull_all(broker.cluster, topic))


def when_a_task_runs(spark: SparkSession, act: Callable[[], None]) -> threading.Thread:
    """Do something as soon as a task of Spark's is under way."""
    tracker = spark.sparkContext.statusTracker()

    def is_active(stage: int) -> bool:
        info = tracker.getStageInfo(stage)
        return info is not None and info.numActiveTasks > 0

    def watch() -> None:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and not any(map(is_active, tracker.getActiveStageIds())):
            pass
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def worker_processes(spark: SparkSession) -> list[int]:
    """Python workers of a session: the children of the daemons that the JVM has started."""
    jvm: Any = spark.sparkContext._jvm
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    java = int(jvm.java.lang.ProcessHandle.current().pid())
    daemons = {pid for pid, parent in parents.items() if parent == java}
    return [pid for pid, parent in parents.items() if parent in daemons]


@pytest.mark.slow
def test_a_broker_that_restarts_under_a_query(spark: SparkSession, broker: Restartable, tmp_path: Path) -> None:
    """While tasks want to read, the broker does not answer; the query continues when it is back."""
    fill(broker, "restarted")
    reader = Reader(spark, broker, "restarted", tmp_path / "state")
    back: list[threading.Thread] = []

    def stop_once(number: int) -> None:
        if number == 1 and not back:
            broker.stop()
            back.append(when_a_task_runs(spark, broker.start))

    reader.before = stop_once
    assert reader.run() is None
    back[0].join()
    assert len(reader.batches) == 5
    assert reader.rows == everything(broker, "restarted")


@pytest.mark.slow
def test_workers_that_die(spark: SparkSession, broker: Restartable, tmp_path: Path) -> None:
    """The query fails, since a local Spark does not repeat tasks; its next run reads the missing messages, once."""
    fill(broker, "killed")
    reader = Reader(spark, broker, "killed", tmp_path / "state")
    killed: list[int] = []
    threads: list[threading.Thread] = []

    def kill() -> None:
        for pid in worker_processes(spark):
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    def kill_once(number: int) -> None:
        if number == 2 and not threads:
            broker.stop()  # so that tasks last until they are killed
            threads.append(when_a_task_runs(spark, kill))

    reader.before = kill_once
    failure = reader.run()
    threads[0].join()
    assert killed
    assert failure is not None
    assert sorted(reader.batches) == [0, 1]
    broker.start()
    more(broker, "killed", count=10)
    assert reader.run() is None
    assert reader.rows == everything(broker, "killed")


@pytest.mark.slow
def test_a_query_that_is_stopped_anywhere(spark: SparkSession, broker: Restartable, tmp_path: Path) -> None:
    """Stopped in the middle of a batch, again and again; each life goes on from the checkpoint."""
    fill(broker, "stopped")
    reader = Reader(spark, broker, "stopped", tmp_path / "state", maxOffsetsPerTrigger=50)
    for stop_at in (1, 3, 4):
        begun = threading.Event()
        reader.before = lambda number, stop_at=stop_at, begun=begun: begun.set() if number >= stop_at else None  # type: ignore[misc]
        query = reader.start(processingTime="0 seconds")
        assert begun.wait(PATIENCE_S)
        query.stop()
        more(broker, "stopped", count=5)
    reader.before = lambda _: None
    assert reader.run() is None
    assert reader.rows == everything(broker, "stopped")


@pytest.mark.slow
def test_a_name_server_that_restarts_between_batches(spark: SparkSession, broker: Restartable, tmp_path: Path) -> None:
    """The source has a broken connection, and for a while the broker does not answer."""
    fill(broker, "between", queues=1, count=20)
    reader = Reader(spark, broker, "between", tmp_path / "state")
    query = reader.start(processingTime="0 seconds")
    while len(reader.rows) < 20:
        assert query.exception() is None
    broker.stop()
    broker.start()
    more(broker, "between", queues=1, count=20)
    while len(reader.rows) < 40:
        assert query.exception() is None
    query.stop()
    assert reader.rows == everything(broker, "between")


def test_retention_overtakes_a_query(spark: SparkSession, broker: Restartable, tmp_path: Path) -> None:
    create_topic(broker.namesrv, "old")
    send(broker.cluster, "old", [bytes(2000)] * 120)
    reader = Reader(spark, broker, "old", tmp_path / "state", maxOffsetsPerTrigger=5)
    query = reader.start(processingTime="1 hour")
    while query.lastProgress is None:
        assert query.exception() is None
    query.stop()
    broker.stop()
    sorted((tmp_path / "store" / "commitlog").iterdir())[0].unlink()
    broker.start()
    [kept] = broker.cluster.starts(broker.cluster.route("old").readable).values()
    failure = reader.run()
    assert failure is not None
    assert reason(failure) == (
        f"topic old, broker broker-a, queue 0: messages 5 to {min(kept, 10) - 1} have expired; expected offset 5, "
        f"but the first message is at {min(kept, 10)}. They expired before they were read "
        "(failOnDataLoss=false continues without them)"
    )
    lenient = Reader(spark, broker, "old", tmp_path / "state", failOnDataLoss="false")
    assert lenient.run() is None
    assert lenient.rows == [(0, number) for number in range(kept, 120)]


@pytest.mark.parametrize("split_size", [1024, 5000, 60_000, "1g"])
def test_a_store_that_is_written_to(
    spark: SparkSession, broker: Restartable, tmp_path: Path, split_size: int | str
) -> None:
    """A scan has the records up to some place, all of them and each once, and those that were there when it began."""
    fill(broker, "growing", count=50)
    over = threading.Event()

    def write() -> None:
        for _ in range(20):  # splits of 1 KiB are many soon
            more(broker, "growing", count=5)
            if over.wait(0.1):
                break

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write)
        try:
            before = everything(broker, "growing")
            reader = (
                spark.read.format("rocketmq-store").option("topics", "growing").option("splitSize", str(split_size))
            )
            frame = reader.option("columns", "queue_id,queue_offset,commit_log_offset").load(str(tmp_path / "store"))
            found = sorted((row.commit_log_offset, row.queue_id, row.queue_offset) for row in frame.collect())
        finally:
            over.set()
        writing.result()
    stored = sorted(
        (row["commit_log_offset"], row["queue_id"], row["queue_offset"]) for row in pull_all(broker.cluster, "growing")
    )
    assert found == stored[: len(found)]
    assert len(found) >= len(before)


def test_a_stream_tells_how_far_behind_it_is(spark: SparkSession, broker: Restartable, tmp_path: Path) -> None:
    fill(broker, "behind", queues=2, count=100)
    reader = Reader(spark, broker, "behind", tmp_path / "state", maxOffsetsPerTrigger=80)
    query = reader.start()
    query.awaitTermination(PATIENCE_S)
    assert query.exception() is None
    first = json.loads(query.recentProgress[0].json)["sources"][0]
    assert json.loads(json.dumps(first["latestOffset"])) == {"behind": {"broker-a": {"0": 100, "1": 100}}}
    assert sum(first["endOffset"]["behind"]["broker-a"].values()) == 80
