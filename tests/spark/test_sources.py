"""The data sources as Spark calls them, without a Spark: planning here, pickled to a task, read there."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import datasource
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kourou.embedded import EmbeddedThread
from kourou.spark import wire
from kourou.spark.cluster import Cluster
from kourou.spark.columns import COLUMNS, arrow_schema
from kourou.spark.errors import DataLossError, OptionError
from kourou.spark.formats import RocketmqSource, StoreSource
from kourou.spark.source import StreamReader, commit_progress

from .brokers import ACCESS, create_topic, pull_all, send

TYPES: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
}


def schema(text: str) -> StructType:
    """Spark's own parser of schemas is in the JVM."""
    return StructType([StructField(name, TYPES[kind]) for name, kind in (part.split(" ") for part in text.split(", "))])


@pytest.fixture(autouse=True)
def _connections() -> Iterator[None]:
    yield
    wire.close_all()


@pytest.fixture
def cluster(broker: EmbeddedThread) -> Cluster:
    return Cluster((broker.namesrv,), ACCESS, 5.0)


def fill(broker: EmbeddedThread, cluster: Cluster, topic: str, counts: list[int]) -> None:
    create_topic(broker.namesrv, topic, len(counts))
    for queue, count in enumerate(counts):
        send(cluster, topic, [b"%d/%d" % (queue, number) for number in range(count)], queue=queue)


def source(broker: EmbeddedThread, **options: object) -> RocketmqSource:
    return RocketmqSource({"namesrv": broker.namesrv, "retryTimeout": "5s", **{k: str(v) for k, v in options.items()}})


def read(reader: Any, partitions: Any) -> pa.Table:
    """As tasks do: everything comes through a pickle."""
    batches = []
    for partition in partitions:
        assert isinstance(partition, datasource.InputPartition)
        reader, partition = cloudpickle.loads(cloudpickle.dumps((reader, partition)))  # type: ignore[no-untyped-call]
        batches += list(reader.read(partition))
    return pa.Table.from_batches(batches) if batches else pa.table({})


def batch(found: RocketmqSource | StoreSource) -> pa.Table:
    reader = found.reader(schema(found.schema()))
    return read(reader, reader.partitions())


def test_names() -> None:
    import pyspark_rocketmq
    import pyspark_rocketmq_store

    assert pyspark_rocketmq.DefaultSource.name() == "rocketmq"
    assert pyspark_rocketmq_store.DefaultSource.name() == "rocketmq-store"


def test_a_batch(broker: EmbeddedThread, cluster: Cluster) -> None:
    fill(broker, cluster, "batch", [120, 0, 77])
    table = batch(source(broker, topics="batch", maxRecordsPerPartition=50))
    assert table.schema.equals(arrow_schema(COLUMNS))
    key = "commit_log_offset"
    assert table.sort_by(key).to_pylist() == sorted(pull_all(cluster, "batch"), key=lambda row: row[key])


def test_store_and_topic_give_the_same(broker: EmbeddedThread, cluster: Cluster) -> None:
    fill(broker, cluster, "same", [80, 90])
    stored = batch(
        StoreSource({"path": str(broker.store), "topics": "same", "brokerName": "broker-a", "splitSize": "4k"})
    )
    assert stored.equals(batch(source(broker, topics="same")).sort_by("commit_log_offset"))


def test_columns_and_schemas(broker: EmbeddedThread, cluster: Cluster) -> None:
    fill(broker, cluster, "columns", [3])
    assert batch(source(broker, path="columns", columns="body, queue_offset")).column_names == ["body", "queue_offset"]
    reader = source(broker, topics="columns").reader(schema("queue_offset bigint"))
    assert read(reader, reader.partitions()).to_pydict() == {"queue_offset": [0, 1, 2]}
    with pytest.raises(OptionError, match="column body has type binary, not string"):
        source(broker, topics="columns").reader(schema("body string"))


def offsets(topic: str, *ends: int) -> dict[str, Any]:
    return {topic: {"broker-a": {str(queue): end for queue, end in enumerate(ends)}}}


def test_places(broker: EmbeddedThread, cluster: Cluster) -> None:
    fill(broker, cluster, "places", [10, 10])

    def found(**options: object) -> list[tuple[int, int]]:
        table = batch(source(broker, topics="places", columns="queue_id,queue_offset", **options))
        return sorted(zip(*table.to_pydict().values(), strict=True))

    start, end = json.dumps(offsets("places", 8, -1)), json.dumps(offsets("places", -1, 3))
    assert found(startingOffsets=start) == [(0, 8), (0, 9)]
    assert found(startingOffsets=start, endingOffsets=end) == [(0, 8), (0, 9)]
    assert found(startingOffsets="latest") == []
    assert len(found(endingTimestamp=1)) == 0
    assert len(found(startingTimestamp=1)) == 20
    cluster.commit(dict.fromkeys(cluster.route("places").readable, 9), "places-group")
    assert found(startingOffsets="group", group="places-group") == [(0, 9), (1, 9)]
    with pytest.raises(OptionError, match="which is not read"):
        found(startingOffsets=json.dumps(offsets("elsewhere", 1)))
    with pytest.raises(OptionError, match="has no queue 7 on broker broker-a"):
        batch(source(broker, assign='{"places": {"broker-a": [7]}}'))
    one = batch(source(broker, assign='{"places": {"broker-a": [1]}}', columns="queue_id"))
    assert one.to_pydict() == {"queue_id": [1] * 10}


def test_filters_narrow_what_is_read(broker: EmbeddedThread, cluster: Cluster) -> None:
    fill(broker, cluster, "narrow", [30, 30])
    reader: Any = source(broker, topics="narrow", pushdown="true", columns="queue_id,queue_offset").reader(
        schema("queue_id int, queue_offset bigint")
    )
    filters = [
        datasource.EqualTo(("queue_id",), 1),
        datasource.GreaterThan(("queue_offset",), 20),
        datasource.LessThanOrEqual(("queue_offset",), 24),
        datasource.StringContains(("tags",), "x"),
    ]
    assert list(reader.pushFilters(filters)) == filters[3:]  # the others are followed, and shown in Spark's plan
    table = read(reader, reader.partitions())
    assert set(table["queue_id"].to_pylist()) == {1}
    assert set(table["queue_offset"].to_pylist()) == {21, 22, 23, 24}
    plain = source(broker, topics="narrow").reader(schema("queue_id int"))
    assert "pushFilters" not in type(plain).__dict__


def test_store_times_narrow_what_is_read(broker: EmbeddedThread, cluster: Cluster) -> None:
    fill(broker, cluster, "narrow-times", [20])
    times = [row["store_timestamp"] for row in pull_all(cluster, "narrow-times")]
    moment = times[10]
    kinds = {
        datasource.GreaterThan: [one for one in times if one > moment],
        datasource.GreaterThanOrEqual: [one for one in times if one >= moment],
        datasource.LessThan: [one for one in times if one < moment],
        datasource.LessThanOrEqual: [one for one in times if one <= moment],
        datasource.EqualTo: [one for one in times if one == moment],
    }
    for kind, expected in kinds.items():
        reader: Any = source(broker, topics="narrow-times", pushdown="true").reader(schema("store_timestamp timestamp"))
        assert list(reader.pushFilters([kind(("store_timestamp",), moment)])) == []
        found = [row["store_timestamp"] for row in read(reader, reader.partitions()).to_pylist()]
        assert found == expected, kind


def test_times_by_topic(broker: EmbeddedThread, cluster: Cluster) -> None:
    times: dict[str, list[int]] = {}
    for topic in ("time-a", "time-b", "time-c"):
        fill(broker, cluster, topic, [10])
        rows = pull_all(cluster, topic)
        times[topic] = [round(row["store_timestamp"].timestamp() * 1000) for row in rows]
    wanted = {"time-a": times["time-a"][3], "time-b": times["time-b"][-1] + 1}
    reader = source(
        broker, topics="time-a,time-b,time-c", startingTimestamp=json.dumps(wanted), columns="topic,store_timestamp"
    ).reader(schema("topic string, store_timestamp timestamp"))
    table = read(reader, reader.partitions())
    counts = Counter(table["topic"].to_pylist())
    assert counts == {"time-a": sum(one >= wanted["time-a"] for one in times["time-a"]), "time-c": 10}
    reader = source(
        broker, topics="time-a,time-b", endingTimestamp=json.dumps({"time-a": times["time-a"][0]}), columns="topic"
    ).reader(schema("topic string"))
    assert Counter(read(reader, reader.partitions())["topic"].to_pylist()) == {"time-b": 10}
    other = source(broker, topics="time-a", startingTimestamp='{"elsewhere": 1}').reader(schema("topic string"))
    with pytest.raises(OptionError, match="a time is given for topic elsewhere, which is not read"):
        other.partitions()


# ── Streams ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def stream(broker: EmbeddedThread, **options: object) -> StreamReader:
    reader = source(broker, columns="queue_id,queue_offset", **options).streamReader(
        schema("queue_id int, queue_offset bigint")
    )
    assert isinstance(reader, StreamReader)
    return reader


def test_a_stream_from_its_start(broker: EmbeddedThread, cluster: Cluster) -> None:
    fill(broker, cluster, "flow", [10, 30])
    reader = stream(broker, topics="flow", startingOffsets="earliest", maxOffsetsPerTrigger=20)
    at = reader.initialOffset()
    assert at == offsets("flow", 0, 0)
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    first = reader.latestOffset(at, ReadMaxRows(20))
    assert first == offsets("flow", 5, 15)
    assert read(reader, reader.partitions(at, first)).num_rows == 20
    assert reader.latestOffset(at, ReadAllAvailable()) == offsets("flow", 10, 30)
    assert reader.reportLatestOffset() == offsets("flow", 10, 30)
    assert reader.partitions(first, first) == []


def test_a_stream_from_the_end(broker: EmbeddedThread, cluster: Cluster) -> None:
    fill(broker, cluster, "tail", [4])
    reader = stream(broker, topics="tail")
    at = reader.initialOffset()
    assert at == offsets("tail", 4)
    send(cluster, "tail", [b"new"] * 3)
    end = reader.latestOffset(at, reader.getDefaultReadLimit())
    assert read(reader, reader.partitions(at, end))["queue_offset"].to_pylist() == [4, 5, 6]


def test_available_now_is_bounded(broker: EmbeddedThread, cluster: Cluster) -> None:
    fill(broker, cluster, "bounded", [10])
    reader = stream(
        broker, topics="bounded", startingOffsets="earliest", maxOffsetsPerTrigger=6, minOffsetsPerTrigger=99
    )
    at = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    send(cluster, "bounded", [b"too late"] * 5)
    seen = []
    while (end := reader.latestOffset(at, ReadMaxRows(6))) != at:
        seen.append(end)
        at = end
    assert seen == [offsets("bounded", 6), offsets("bounded", 10)]


def test_queues_that_appear_are_read_from_their_start(broker: EmbeddedThread, cluster: Cluster) -> None:
    fill(broker, cluster, "growing", [5])
    reader = stream(broker, topics="growing", startingOffsets="latest")
    at = reader.initialOffset()
    create_topic(broker.namesrv, "growing", 2)
    send(cluster, "growing", [b"x"] * 3, queue=1)
    end = reader.latestOffset(at, ReadAllAvailable())
    assert end == offsets("growing", 5, 3)
    assert read(reader, reader.partitions(at, end))["queue_id"].to_pylist() == [1, 1, 1]


def test_a_stream_waits_until_enough_is_there(broker: EmbeddedThread, cluster: Cluster) -> None:
    fill(broker, cluster, "waiting", [0])
    found = stream(broker, topics="waiting", minOffsetsPerTrigger=5, maxTriggerDelay="60s")
    now = [0.0]
    reader = StreamReader(found._settings, clock=lambda: now[0])
    at = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    send(cluster, "waiting", [b"x"] * 3)
    assert reader.latestOffset(at, limit) == at
    now[0] = 61.0
    assert reader.latestOffset(at, limit) == offsets("waiting", 3)
    send(cluster, "waiting", [b"x"] * 3)
    assert reader.latestOffset(at, limit) == offsets("waiting", 6)


def test_a_limit_in_bytes(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "sized")
    send(cluster, "sized", [bytes(1000)] * 50)
    reader = stream(broker, topics="sized", startingOffsets="earliest", maxBytesPerTrigger="12k")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(12 * 1024)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert 8 <= end["sized"]["broker-a"]["0"] <= 12


def test_a_topic_that_was_created_again(broker: EmbeddedThread, cluster: Cluster) -> None:
    fill(broker, cluster, "anew", [5])
    reader = stream(broker, topics="anew")
    with pytest.raises(DataLossError, match="ends at offset 5, but was read up to 50 before"):
        reader.partitions(offsets("anew", 50), offsets("anew", 5))
    lenient = stream(broker, topics="anew", failOnDataLoss="false")
    assert read(lenient, lenient.partitions(offsets("anew", 50), offsets("anew", 5))).num_rows == 5


def test_a_group_sees_how_far_a_stream_is(broker: EmbeddedThread, cluster: Cluster) -> None:
    fill(broker, cluster, "lag", [9])
    reader = stream(broker, topics="lag", startingOffsets="earliest", group="lag-group")
    queues = cluster.route("lag").readable
    reader.commit(offsets("lag", 4))
    assert list(cluster.committed(queues, "lag-group").values()) == [4]
    reader.latestOffset(offsets("lag", 6), ReadAllAvailable())  # a run begins where the last one ended
    assert list(cluster.committed(queues, "lag-group").values()) == [6]
    given = {"namesrv": broker.namesrv, "topics": "lag", "group": "lag-group"}
    commit_progress(offsets("lag", 9), given)
    assert list(cluster.committed(queues, "lag-group").values()) == [9]


def test_retention_overtakes_the_reader(tmp_path: Path) -> None:
    """Segments of the log are expired before they were read: an error that names them, or the remaining rows."""
    small = {"mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 20 * 50}
    with EmbeddedThread(store=tmp_path / "store", properties=small) as broker:
        cluster = Cluster((broker.namesrv,), ACCESS, 5.0)
        create_topic(broker.namesrv, "old")
        send(cluster, "old", [bytes(2000)] * 120)
        ports: dict[str, Any] = {
            "namesrv_port": int(broker.namesrv.split(":")[1]),
            "port": int(broker.address.split(":")[1]),
        }
    wire.close_all()
    first = sorted((tmp_path / "store" / "commitlog").iterdir())[0]
    first.unlink()
    with EmbeddedThread(store=tmp_path / "store", properties=small, **ports) as broker:
        cluster = Cluster((broker.namesrv,), ACCESS, 5.0)
        [kept] = cluster.starts(cluster.route("old").readable).values()
        assert kept > 0
        reader = stream(broker, topics="old")
        with pytest.raises(DataLossError, match=rf"expected offset 0, but the first message is at {kept}"):
            read(reader, reader.partitions(offsets("old", 0), offsets("old", 120)))
        lenient = stream(broker, topics="old", failOnDataLoss="false")
        found = read(lenient, lenient.partitions(offsets("old", 0), offsets("old", 120)))
        assert found["queue_offset"].to_pylist() == list(range(kept, 120))
        with pytest.raises(DataLossError, match=rf"but the first message is at {kept}"):
            batch(source(broker, topics="old", startingOffsets=json.dumps(offsets("old", 0))))
        wire.close_all()


def test_formats_are_found_without_importing_what_they_need() -> None:
    """Spark looks for them in a new process for every streaming query, also for those of other formats."""
    code = (
        "import sys, pyspark_rocketmq, pyspark_rocketmq_store\n"
        "print(pyspark_rocketmq.DefaultSource.name(), pyspark_rocketmq_store.DefaultSource.name())\n"
        "print(*[name for name in sys.modules if name.startswith('kourou.') or name in ('msgspec', 'ssl')])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [
        "rocketmq rocketmq-store",
        "kourou._backend kourou._version kourou.spark kourou.spark.formats",
    ]


def test_a_group_that_the_broker_does_not_know_is_named(broker: EmbeddedThread, cluster: Cluster) -> None:
    """It used to be reported as a filter that the broker refuses."""
    fill(broker, cluster, "of-a-group", [1])
    one = source(broker, topics="of-a-group", group="not a group")
    reader = one.reader(schema(one.schema()))
    with pytest.raises(OptionError, match=r"the group of option group does not exist.*updateSubGroup") as caught:
        read(reader, reader.partitions())
    assert "\n" not in str(caught.value)
