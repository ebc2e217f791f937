"""Reads and writes at the edges of what there is: nothing to read, too much asked for, messages of the largest size."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import _parse_datatype_string

from kourou.embedded import EmbeddedThread
from kourou.spark.cluster import Cluster
from kourou.spark.errors import DataLossError, OptionError, SparkError
from kourou.spark.formats import RocketmqSource
from kourou.spark.messages import BODY_SIZE_MAX, Draft, Drafts
from kourou.spark.options import Options
from kourou.spark.pipelines.dedup import dedup
from kourou.spark.pipelines.dlq import redrive
from kourou.spark.pipelines.running import PipelineError, Runner
from kourou.spark.pipelines.transform import transform
from kourou.spark.positions import parse_assignment, parse_offsets
from kourou.spark.pulling import Patience
from kourou.spark.sending import Sender
from kourou.spark.session import reason

from .brokers import create_topic, pull_all, send

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]


# ── In a real Spark ─────────────────────────────────────────────────────────────────────────────────────────────────


def live(spark: SparkSession, broker: EmbeddedThread, topic: str, **options: str) -> DataFrame:
    return spark.read.format("rocketmq").options(namesrv=broker.namesrv, **options).load(topic)


def test_an_empty_read_has_no_rows(spark: SparkSession, broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "nothing", 2)
    assert live(spark, broker, "nothing").collect() == []
    send(cluster, "nothing", [b"x"])
    assert live(spark, broker, "nothing", startingOffsets="latest").count() == 0
    assert live(spark, broker, "nothing", pushdown="true").where("queue_id = 7").count() == 0
    store = spark.read.format("rocketmq-store").option("startingTimestamp", "2999-01-01")
    assert store.load(str(broker.store)).collect() == []


def test_what_a_store_is_not_for(spark: SparkSession, broker: EmbeddedThread) -> None:
    stream = spark.readStream.format("rocketmq-store").load(str(broker.store)).writeStream.format("noop")
    with pytest.raises(Exception) as failed:
        stream.trigger(availableNow=True).start().awaitTermination()
    assert reason(failed.value).startswith("format rocketmq-store can't be streamed")
    with pytest.raises(Exception) as failed:
        spark.range(1).write.format("rocketmq-store").mode("append").save(str(broker.store))
    assert reason(failed.value).startswith("format rocketmq-store can't be written")


def test_the_reason_is_what_python_raised(spark: SparkSession) -> None:
    def refuse(_: object) -> str:
        raise ValueError("no such thing")

    from pyspark.sql import functions as F  # noqa: N812

    with pytest.raises(Exception) as failed:
        spark.range(1).select(F.udf(refuse, "string", useArrow=False)("id")).collect()
    assert reason(failed.value) == "ValueError: no such thing"
    with pytest.raises(Exception) as failed:
        spark.sql("SELECT nothing FROM range(1)")
    assert reason(failed.value).startswith("[UNRESOLVED_COLUMN")


# ── Offsets and times ───────────────────────────────────────────────────────────────────────────────────────────────


def test_an_end_that_no_queue_has(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "short")
    send(cluster, "short", [b"x"] * 5)
    kind: Any = _parse_datatype_string("queue_offset bigint")
    asked = {
        "namesrv": broker.namesrv,
        "topics": "short",
        "columns": "queue_offset",
        "endingOffsets": json.dumps({"short": {"broker-a": {"0": 6}}}),
    }
    with pytest.raises(DataLossError, match="queue 0 ends at offset 5, and endingOffsets asks for 6"):
        RocketmqSource(asked).reader(kind).partitions()
    reader: Any = RocketmqSource({**asked, "failOnDataLoss": "false"}).reader(kind)
    [task] = reader.partitions()
    assert pa.Table.from_batches(reader.read(task))["queue_offset"].to_pylist() == [0, 1, 2, 3, 4]
    assert list(reader.read(InputPartition(None))) == []


def test_a_start_that_no_queue_has(broker: EmbeddedThread, cluster: Cluster) -> None:
    """A stream that begins there would treat the queue as deleted and created again."""
    create_topic(broker.namesrv, "early")
    send(cluster, "early", [b"x"] * 3)
    offsets = json.dumps({"early": {"broker-a": {"0": 5000}}})
    options = {"namesrv": broker.namesrv, "topics": "early", "startingOffsets": offsets}
    schema: Any = _parse_datatype_string("body BINARY")
    with pytest.raises(DataLossError, match="ends at offset 3, and startingOffsets asks for 5000"):
        RocketmqSource(options).streamReader(schema).initialOffset()
    forgiving = RocketmqSource({**options, "failOnDataLoss": "false"}).streamReader(schema)
    assert forgiving.initialOffset() == {"early": {"broker-a": {"0": 3}}}


@pytest.mark.parametrize("name", ["tlsTrust", "tlsCert", "tlsKey"])
def test_a_file_that_is_not_there(broker: EmbeddedThread, name: str) -> None:
    options = {"namesrv": broker.namesrv, "topics": "any", "tls": "true", name: "/nowhere/x.pem"}
    with pytest.raises(OptionError, match=f"option {name}: file /nowhere/x.pem does not exist"):
        RocketmqSource(options).schema()


def test_a_time_to_deliver_at_that_is_too_far_away(broker: EmbeddedThread, cluster: Cluster) -> None:
    """Reported at once, because a retry would not help."""
    create_topic(broker.namesrv, "timers")
    row = pa.record_batch({"body": [b"x"], "deliver_at": pa.array([2**51], pa.timestamp("us", "UTC"))})
    patience = Patience(60.0, sleep=lambda _: pytest.fail("tried again"))
    with pytest.raises(SparkError, match="timer message illegal"):
        Sender(cluster, "G", patience).send(Drafts("timers", "job/0").of(row))


@pytest.mark.parametrize("offset", ["1.5", "true", "null", '"1"'])
def test_offsets_are_whole_numbers(offset: str) -> None:
    with pytest.raises(OptionError, match="option startingOffsets must look like"):
        parse_offsets(f'{{"t": {{"b": {{"0": {offset}}}}}}}', "startingOffsets")


def test_a_queue_is_assigned_once() -> None:
    assert [queue.queue_id for queue in parse_assignment('{"t": {"b": [1, 0, 1]}}')] == [0, 1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"t": {"b": "01"}}', "must look like"),
        ('{"t": {"b": [0.5]}}', "must look like"),
        ('{"t": {"b": []}}', "contains no queue"),
        ("{}", "contains no queue"),
    ],
)
def test_assignments_that_are_none(text: str, said: str) -> None:
    with pytest.raises(OptionError, match=f"option assign {said}"):
        parse_assignment(text)


def test_a_time_that_brokers_can_t_take() -> None:
    with pytest.raises(OptionError, match="option time must be milliseconds since 1970"):
        Options({"time": "9" * 20}, ["time"]).time_ms("time")


def test_a_topic_that_may_not_be_read(broker: EmbeddedThread, cluster: Cluster) -> None:
    """As those of dead letters are at first."""
    create_topic(broker.namesrv, "closed", perm=2)
    kind: Any = _parse_datatype_string("queue_offset bigint")
    asked = {"namesrv": broker.namesrv, "topics": "closed", "columns": "queue_offset"}
    with pytest.raises(OptionError, match="topic closed is not readable"):
        RocketmqSource(asked).reader(kind).partitions()
    stream = RocketmqSource(asked).streamReader(kind)
    with pytest.raises(OptionError, match="topic closed is not readable"):
        stream.initialOffset()
    create_topic(broker.namesrv, "closed")
    start = stream.initialOffset()
    create_topic(broker.namesrv, "closed", perm=2)
    assert stream.latestOffset(start, ReadAllAvailable()) == start  # one that runs waits


# ── Large messages ──────────────────────────────────────────────────────────────────────────────────────────────────


def drafts_of(*bodies: bytes) -> list[Draft]:
    return list(Drafts("largest", "job/0").of(pa.record_batch({"body": pa.array(bodies, pa.binary())})))


def test_the_largest_message_goes_alone_and_in_its_order(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "largest")
    bodies = [b"before", b"x" * BODY_SIZE_MAX, b"after"]
    sender = Sender(cluster, "tests", Patience(5.0))
    sender.send(drafts_of(*bodies))
    assert (sender.sent.messages, sender.sent.requests) == (3, 3)
    assert [row["body"] for row in pull_all(cluster, "largest")] == bodies


# ── Pipelines ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_checkpoint_belongs_to_one_query(
    spark: SparkSession, broker: EmbeddedThread, cluster: Cluster, tmp_path: Path
) -> None:
    for topic in ("claimed", "claimed-out"):
        create_topic(broker.namesrv, topic)
    send(cluster, "claimed", [b"x"] * 3)
    given: dict[str, Any] = {"checkpoint": tmp_path / "c", "namesrv": broker.namesrv, "runner": Runner(spark=spark)}
    bad = "SELECT string(null) AS body FROM messages"
    with pytest.raises(PipelineError, match="its body is null"):
        transform("claimed", "claimed-out", sql=bad, **given)
    sql = "SELECT body FROM messages"
    (tmp_path / "c" / ".kourou.json.tmp").write_bytes(b'{"pipe')  # of a run that was killed as it wrote it
    assert transform("claimed", "claimed-out", sql=sql, **given).written.rows == 3  # nothing was done before
    assert not (tmp_path / "c" / ".kourou.json.tmp").exists()
    assert json.loads((tmp_path / "c" / "kourou.json").read_bytes())["sql"] == sql
    assert transform("claimed", "claimed-out", sql=sql, **given).written.rows == 0
    with pytest.raises(PipelineError, match="belongs to a run with sql 'SELECT body FROM messages': use another"):
        transform("claimed", "claimed-out", sql=bad, **given)
    with pytest.raises(PipelineError, match="belongs to a run with topics 'claimed': use another"):
        transform("claimed-out", "claimed-out", sql=sql, **given)
    with pytest.raises(PipelineError, match="belongs to a run with pipeline 'transform'"):
        dedup("claimed", "claimed-out", **given)
    (tmp_path / "file").touch()
    with pytest.raises(PipelineError, match="file"):
        transform("claimed", "claimed-out", sql=sql, **{**given, "checkpoint": tmp_path / "file"})


def test_letters_among_those_that_were_redriven(
    spark: SparkSession, broker: EmbeddedThread, cluster: Cluster, tmp_path: Path
) -> None:
    """They go in few batches, however scattered they lie."""
    for topic in ("%DLQ%scattered", "%DLQ%others", "scattered-out"):
        create_topic(broker.namesrv, topic)
    send(cluster, "%DLQ%scattered", [b"%d" % number for number in range(30)], tags=["red", "green", "blue"])
    given: dict[str, Any] = {"target": "scattered-out", "namesrv": broker.namesrv, "runner": Runner(spark=spark)}
    first = redrive("scattered", tmp_path, where="tags = 'green'", **given)
    assert first.written.rows == 10
    second = redrive("scattered", tmp_path, batch_rows=16, **given)
    assert (second.read.rows, second.written.rows, second.batches) == (20, 20, 2)
    assert second.skipped == {"redriven before": 10}
    assert redrive("scattered", tmp_path, **given).written.rows == 0
    assert redrive("others", tmp_path, **given).skipped == {}
    bodies = [int(row["body"]) for row in pull_all(cluster, "scattered-out")]
    assert sorted(bodies) == list(range(30))
    assert bodies[10:] == [number for number in range(30) if number % 3 != 1]
