"""The data sources in a real Spark, against a real broker of ours."""

import contextlib
import io
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kourou.embedded import EmbeddedThread
from kourou.spark.cluster import Cluster
from kourou.spark.columns import COLUMNS
from kourou.spark.session import reason

from .brokers import create_topic, pull_all, send

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]


def fill(broker: EmbeddedThread, cluster: Cluster, topic: str, queues: int = 3, count: int = 200) -> None:
    create_topic(broker.namesrv, topic, queues)
    for queue in range(queues):
        bodies = [f"{topic} {queue} {number}".encode() for number in range(count)]
        send(cluster, topic, bodies, queue=queue, tags=["red", "green"])


def as_rows(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in frame.collect()), key=lambda row: (row["topic"], row["commit_log_offset"]))


def expected(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    rows = pull_all(cluster, topic)
    for row in rows:
        row["properties"] = dict(row["properties"])
        row["body"] = bytearray(row["body"])
        for name in ("born_timestamp", "store_timestamp"):
            row[name] = row[name].replace(tzinfo=None)
    return sorted(rows, key=lambda row: row["commit_log_offset"])


def live(spark: SparkSession, broker: EmbeddedThread, topics: str, **options: object) -> DataFrame:
    reader = spark.read.format("rocketmq").option("namesrv", broker.namesrv).option("topics", topics)
    for name, value in options.items():
        reader = reader.option(name, str(value).lower() if isinstance(value, bool) else str(value))
    return reader.load()


def test_a_batch_has_every_message(spark: SparkSession, broker: EmbeddedThread, cluster: Cluster) -> None:
    fill(broker, cluster, "batch")
    frame = live(spark, broker, "batch", minPartitions=4)
    assert frame.columns == list(COLUMNS)
    rows = as_rows(frame)
    assert len(rows) == 600
    assert rows == expected(cluster, "batch")
    assert frame.rdd.getNumPartitions() >= 4


def test_the_store_has_the_same_rows(
    spark: SparkSession, broker: EmbeddedThread, cluster: Cluster, tmp_path: Path
) -> None:
    """While the broker runs, and from a copy."""
    fill(broker, cluster, "stored", queues=2, count=300)
    wanted = expected(cluster, "stored")
    copy = shutil.copytree(broker.store, tmp_path / "copy")
    for folder, split in ((broker.store, "64m"), (copy, "8k")):
        reader = spark.read.format("rocketmq-store").option("topics", "stored").option("splitSize", split)
        rows = as_rows(reader.option("brokerName", "broker-a").load(str(folder)))
        assert rows == wanted


def test_damage_in_a_store_is_reported(
    spark: SparkSession, broker: EmbeddedThread, cluster: Cluster, tmp_path: Path
) -> None:
    fill(broker, cluster, "damaged", queues=1, count=20)
    wanted = expected(cluster, "damaged")
    copy = shutil.copytree(broker.store, tmp_path / "copy")
    file = next(path for path in sorted((copy / "commitlog").iterdir()))
    with file.open("r+b") as log:
        log.seek(wanted[5]["commit_log_offset"] + 88)
        log.write(b"XX")
        log.seek(wanted[9]["commit_log_offset"])
        log.write(b"\xff" * 8)
    reader = spark.read.format("rocketmq-store").option("verify", "crc")
    frame = reader.load(str(copy))
    told = sorted((row.commit_log_offset, row.corrupt) for row in frame.filter("corrupt is not null").collect())
    assert [offset for offset, _ in told] == [wanted[5]["commit_log_offset"], wanted[9]["commit_log_offset"]]
    assert "CRC" in told[0][1]
    assert "magic" in told[1][1]
    with pytest.raises(Exception, match="damaged record") as failed:
        spark.read.format("rocketmq-store").load(str(copy)).count()
    assert f"offset {wanted[9]['commit_log_offset']}" in reason(failed.value)


def test_columns_and_places(spark: SparkSession, broker: EmbeddedThread, cluster: Cluster) -> None:
    fill(broker, cluster, "places", queues=2, count=50)
    assert live(spark, broker, "places", columns="body,queue_id").columns == ["body", "queue_id"]
    offsets = json.dumps({"places": {"broker-a": {"0": 10, "1": -1}}})
    ends = json.dumps({"places": {"broker-a": {"0": 13}}})
    rows = live(spark, broker, "places", startingOffsets=offsets, endingOffsets=ends).collect()
    assert sorted(row.queue_offset for row in rows) == [10, 11, 12]
    tagged = live(spark, broker, "places", tags="green", columns="queue_offset").collect()
    assert sorted({row.queue_offset % 2 for row in tagged}) == [1]
    moment = expected(cluster, "places")[60]["store_timestamp"].isoformat() + "Z"
    early = live(spark, broker, "places", endingTimestamp=moment).count()
    late = live(spark, broker, "places", startingTimestamp=moment).count()
    assert early + late == 100
    assert late > 0
    pushed = live(spark, broker, "places", pushdown=True)
    narrow = pushed.filter("queue_id = 1 and queue_offset >= 45 and tags like 'r%d'")
    with contextlib.redirect_stdout(io.StringIO()) as told:
        narrow.explain(mode="formatted")
    shown = next(line for line in told.getvalue().splitlines() if "PushedFilters" in line)
    assert "EqualTo(queue_id,1)" in shown and "GreaterThanOrEqual(queue_offset,45)" in shown and "tags" not in shown
    assert narrow.count() == pushed.filter("queue_id = 1 and queue_offset >= 45 and tags = 'red'").count() > 0
    assert pushed.filter("queue_id = 1 and queue_offset >= 45").count() == 5
    named = live(spark, broker, "places").selectExpr("properties['KEYS'] as k").collect()
    assert {row.k for row in named} == {f"k{number}" for number in range(50)}


def run(
    spark: SparkSession,
    broker: EmbeddedThread,
    topic: str,
    checkpoint: Path,
    take: Callable[[DataFrame, int], None],
    **options: object,
) -> list[dict[str, Any]]:
    """One availableNow run; the progress of its batches."""
    reader = spark.readStream.format("rocketmq").option("namesrv", broker.namesrv).option("topics", topic)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    writer = reader.load().writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert query.exception() is None
    return [json.loads(progress.json) for progress in query.recentProgress]


def test_a_stream_goes_on_where_it_was(
    spark: SparkSession, broker: EmbeddedThread, cluster: Cluster, tmp_path: Path
) -> None:
    fill(broker, cluster, "stream", queues=3, count=100)
    batches: dict[int, list[bytes]] = {}

    def take(frame: DataFrame, number: int) -> None:
        batches[number] = [bytes(row.body) for row in frame.collect()]

    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 120, "group": "spark-stream"}
    run(spark, broker, "stream", tmp_path / "state", take, **options)
    assert [len(batch) for batch in batches.values()] == [120, 120, 60]
    send(cluster, "stream", [b"later"] * 7, queue=2)
    run(spark, broker, "stream", tmp_path / "state", take, **options)
    assert len(batches) == 4
    found = sorted(body for batch in batches.values() for body in batch)
    assert found == sorted(bytes(row["body"]) for row in pull_all(cluster, "stream"))
    queues = cluster.route("stream").readable
    stands = cluster.committed(queues, "spark-stream")  # the run before this one, and all but the last batch of this
    assert sum(at or 0 for at in stands.values()) >= 300


def test_a_sink_and_back(spark: SparkSession, broker: EmbeddedThread, cluster: Cluster, tmp_path: Path) -> None:
    create_topic(broker.namesrv, "written", queues=4)
    frame = spark.range(1000).selectExpr(
        "concat('body ', id) as body",
        "concat('tag', id % 3) as tags",
        "array(concat('k', id)) as keys",
        "map('n', string(id)) as properties",
        "concat('o', id % 5) as ordering_key",
    )
    frame.write.format("rocketmq").mode("append").option("namesrv", broker.namesrv).save("written")
    rows = pull_all(cluster, "written")
    assert sorted(int(dict(row["properties"])["n"]) for row in rows) == list(range(1000))
    assert len({row["unique_key"] for row in rows}) == 1000
    create_topic(broker.namesrv, "copied", queues=2)
    source = spark.readStream.format("rocketmq").option("namesrv", broker.namesrv).option("topics", "written")
    for state in ("one", "two"):  # two queries, each with a life of its own, give the same keys to the same messages
        query = (
            source.option("startingOffsets", "earliest")
            .load()
            .drop("unique_key")
            .writeStream.format("rocketmq")
            .option("namesrv", broker.namesrv)
            .option("topic", "copied")
            .option("checkpointLocation", str(tmp_path / state))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        assert query.exception() is None
    copies = pull_all(cluster, "copied")
    assert len(copies) == 2000
    assert len({row["unique_key"] for row in copies}) == 1000
    assert {bytes(row["body"]) for row in copies} == {bytes(row["body"]) for row in rows}


def test_micro_batches_fill_all_queues(
    spark: SparkSession, broker: EmbeddedThread, cluster: Cluster, tmp_path: Path
) -> None:
    fill(broker, cluster, "drops", queues=1, count=40)
    create_topic(broker.namesrv, "buckets", queues=4)
    source = spark.readStream.format("rocketmq").option("namesrv", broker.namesrv).option("topics", "drops")
    query = (
        source.option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 10)
        .load()
        .writeStream.format("rocketmq")
        .option("namesrv", broker.namesrv)
        .option("topic", "buckets")
        .option("checkpointLocation", str(tmp_path / "state"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    assert Counter(row["queue_id"] for row in pull_all(cluster, "buckets")) == {0: 10, 1: 10, 2: 10, 3: 10}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topics": "nowhere"}, "topic 'nowhere' does not exist at"),
        ({"topic": "batch"}, "no option topic: did you mean topics?"),
        ({}, "no topics are given"),
        ({"topics": "a", "topicPattern": "b"}, "options topics and topicPattern can't be combined"),
        ({"topicPattern": "("}, "option topicPattern is not a valid regular expression"),
        ({"topics": "a", "startingOffsets": "soon"}, "option startingOffsets must be earliest, latest, group or JSON"),
        ({"topics": "a", "startingOffsets": "{oops"}, "option startingOffsets is not valid JSON"),
        ({"topics": "a", "columns": "nothing"}, "no column nothing"),
        ({"topics": "a", "namesrv": "nowhere"}, "option namesrv: 'nowhere' is not host:port"),
        ({"topics": "a", "namesrv": "127.0.0.1:1", "retryTimeout": "100ms"}, "no name server answers: 127.0.0.1:1"),
        ({"topics": "a", "failOnDataLoss": "maybe"}, "option failOnDataLoss must be true or false"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value[:24],
)
def test_mistakes_are_told_in_one_line(
    spark: SparkSession, broker: EmbeddedThread, options: dict[str, str], said: str
) -> None:
    reader = spark.read.format("rocketmq").options(**{"namesrv": broker.namesrv, **options})
    with pytest.raises(Exception) as failed:
        reader.load().count()
    assert said in reason(failed.value)
    assert "\n" not in reason(failed.value)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        ("id as nonsense", "no column nonsense in a message"),
        ("'x' as tags", "a message needs a column body"),
        ("id as body", "column body has type binary or string, not bigint"),
        ("string(null) as body", "can't be sent: its body is null"),
    ],
)
def test_a_sink_s_mistakes(
    spark: SparkSession, broker: EmbeddedThread, cluster: Cluster, frame: str, said: str
) -> None:
    create_topic(broker.namesrv, "mistaken")
    writer = spark.range(1).selectExpr(frame).write.format("rocketmq").mode("append")
    with pytest.raises(Exception) as failed:
        writer.option("namesrv", broker.namesrv).option("topic", "mistaken").save()
    assert said in reason(failed.value)


def test_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    from kourou.spark.errors import SparkError
    from kourou.spark.session import check_installation

    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(SparkError, match="Java was not found: Spark needs Java 17 or later"):
        check_installation()
