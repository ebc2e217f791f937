"""The pipelines in a real Spark, against a real broker of ours."""

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from kourou.embedded import EmbeddedThread
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import ConsumerSendMsgBack
from kourou.spark.cluster import Cluster
from kourou.spark.columns import COLUMNS
from kourou.spark.errors import OptionError
from kourou.spark.pipelines.archive import archive
from kourou.spark.pipelines.archive_store import archive_store
from kourou.spark.pipelines.compact import compact
from kourou.spark.pipelines.dedup import dedup
from kourou.spark.pipelines.dlq import redrive, triage
from kourou.spark.pipelines.folders import DiskFolder
from kourou.spark.pipelines.lake import Lake, read_lake, reading
from kourou.spark.pipelines.ledger import Commit, Ledger
from kourou.spark.pipelines.progress import BatchProgress
from kourou.spark.pipelines.replay import replay
from kourou.spark.pipelines.report import RunReport
from kourou.spark.pipelines.running import PipelineError, Runner
from kourou.spark.pipelines.transform import transform
from kourou.spark.wire import Link

from .brokers import ACCESS, create_topic, first_queue, pull_all, send, wait_for_messages
from .test_pipelines_frame import Kept
from .test_pipelines_lake import archive_once
from .test_spark import expected, fill

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]


@pytest.fixture
def runner(spark: SparkSession) -> Runner:
    return Runner(spark=spark)


class StopAfter(Kept):
    """Asks to stop when so many batches are done."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.stop = threading.Event()
        self._count = count

    def batch(self, progress: BatchProgress) -> None:
        super().batch(progress)
        if len(self.batches) == self._count:
            self.stop.set()


def lake_rows(spark: SparkSession, lake: Path) -> list[dict[str, Any]]:
    rows = [row.asDict() for row in read_lake(spark, lake).drop("date", "hour").collect()]
    return sorted(rows, key=lambda row: (row["topic"], row["commit_log_offset"]))


def plain_places(lake: Path) -> list[tuple[str, str, int, int]]:
    """The files for a reader that only lists the folders of the lake."""
    table = ds.dataset(lake, partitioning="hive", format="parquet").to_table(
        columns=["topic", "broker", "queue_id", "queue_offset"]
    )
    return sorted((str(r["topic"]), r["broker"], r["queue_id"], r["queue_offset"]) for r in table.to_pylist())


def live_places(cluster: Cluster, *topics: str) -> list[tuple[str, str, int, int]]:
    rows = [row for topic in topics for row in pull_all(cluster, topic)]
    return sorted((row["topic"], row["broker"], row["queue_id"], row["queue_offset"]) for row in rows)


# ── Archives ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lake_has_what_the_topics_have(
    spark: SparkSession, broker: EmbeddedThread, cluster: Cluster, runner: Runner, tmp_path: Path
) -> None:
    fill(broker, cluster, "lake-a", queues=3, count=200)
    fill(broker, cluster, "lake-b", queues=1, count=50)
    lake = tmp_path / "lake"
    kept = Kept()
    report = archive(
        "lake-a,lake-b", lake, namesrv=broker.namesrv, batch_rows=300, runner=Runner(spark=spark, watch=kept)
    )
    assert (report.read.rows, report.written.rows, report.batches, report.stopped) == (650, 650, 3, "end")
    assert [batch.lag for batch in kept.batches] == [350, 50, 0]
    assert {chart.title for chart in report.charts} == {"Messages by topic", "Messages per second", "Lag"}
    assert report.charts[0].series == {"messages": [600, 50]}
    assert report.to_offsets == {
        "lake-a": {"broker-a": {"0": 200, "1": 200, "2": 200}},
        "lake-b": {"broker-a": {"0": 50}},
    }
    assert report.read.bytes > 650 * 100 and report.written.bytes > 0
    assert report.from_time is not None and report.to_time is not None and report.from_time <= report.to_time
    assert lake_rows(spark, lake) == expected(cluster, "lake-a") + expected(cluster, "lake-b")
    assert read_lake(spark, lake).columns == [*COLUMNS, "date", "hour"]
    again = archive("lake-a,lake-b", lake, namesrv=broker.namesrv, runner=runner)
    assert (again.read.rows, again.batches) == (0, 0)
    send(cluster, "lake-a", [b"later"] * 5, queue=1)
    more = archive("lake-a,lake-b", lake, namesrv=broker.namesrv, runner=runner)
    assert more.written.rows == 5
    assert more.from_offsets["lake-a"]["broker-a"]["1"] == 200
    assert plain_places(lake) == live_places(cluster, "lake-a", "lake-b")


def test_rows_of_a_lake_go_back_to_a_topic(
    spark: SparkSession, broker: EmbeddedThread, cluster: Cluster, runner: Runner, tmp_path: Path
) -> None:
    fill(broker, cluster, "there", queues=2, count=30)
    create_topic(broker.namesrv, "and-back", queues=2)
    archive("there", tmp_path / "lake", namesrv=broker.namesrv, runner=runner)
    for frame in (read_lake(spark, tmp_path / "lake"), spark.read.parquet(str(tmp_path / "lake"))):
        frame.write.format("rocketmq").mode("append").option("namesrv", broker.namesrv).save("and-back")
    found = pull_all(cluster, "and-back")
    assert Counter(row["body"] for row in found) == Counter(2 * [row["body"] for row in pull_all(cluster, "there")])


def test_an_archive_stops_between_batches_and_goes_on(
    spark: SparkSession, broker: EmbeddedThread, cluster: Cluster, runner: Runner, tmp_path: Path
) -> None:
    fill(broker, cluster, "stopping", queues=2, count=100)
    lake, watch = tmp_path / "lake", StopAfter(2)
    stopped = archive(
        "stop.*",
        lake,
        namesrv=broker.namesrv,
        pattern=True,
        once=False,
        every="1h",
        batch_rows=60,
        runner=Runner(spark=spark, watch=watch, stop=watch.stop),
    )
    assert (stopped.stopped, stopped.written.rows, stopped.batches) == ("asked", 120, 2)
    assert len(plain_places(lake)) == 120
    archive("stopping", lake, namesrv=broker.namesrv, options={"group": "lake-group"}, runner=runner)
    assert plain_places(lake) == live_places(cluster, "stopping")
    queues = cluster.route("stopping").readable
    assert cluster.committed(queues, "lake-group") == dict.fromkeys(queues, 100)


def test_an_archive_begins_where_it_is_told_to_once(
    broker: EmbeddedThread, cluster: Cluster, runner: Runner, tmp_path: Path
) -> None:
    """`latest` applies to the first run; messages between two runs are not lost."""
    fill(broker, cluster, "latest", queues=2, count=10)
    lake, options = tmp_path / "lake", {"startingOffsets": "latest"}
    assert archive("latest", lake, namesrv=broker.namesrv, options=options, runner=runner).written.rows == 0
    send(cluster, "latest", [b"between"] * 4, queue=1)
    assert archive("latest", lake, namesrv=broker.namesrv, options=options, runner=runner).written.rows == 4


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_a_lake_that_is_compacted(
    spark: SparkSession, broker: EmbeddedThread, cluster: Cluster, runner: Runner, tmp_path: Path, form: str
) -> None:
    """By batches that are small; the rows stay as they were, and a replay reads them."""
    topic, copy, lake = f"small-{form}", f"again-{form}", tmp_path / "lake"
    fill(broker, cluster, topic, queues=2, count=60)
    assert archive(topic, lake, namesrv=broker.namesrv, batch_rows=30, format=form, runner=runner).batches == 4
    assert lake_rows(spark, lake) == expected(cluster, topic)
    report = compact(lake, runner=runner)
    assert (report.read.rows, report.written.rows, report.stopped) == (120, 120, "end")
    [[_, small, merged, *_]] = report.tables[0].rows
    assert isinstance(small, int) and small >= 4 and merged == len(list(lake.glob("topic=*/date=*/hour=*")))
    assert lake_rows(spark, lake) == expected(cluster, topic)
    assert compact(lake, topics=topic, runner=runner).batches == 0
    send(cluster, topic, [b"later"] * 5)
    assert archive(topic, lake, namesrv=broker.namesrv, runner=runner).written.rows == 5
    assert lake_rows(spark, lake) == expected(cluster, topic)
    create_topic(broker.namesrv, copy, 2)
    assert replay(lake, copy, namesrv=broker.namesrv, runner=runner).written.rows == 125
    if form == "delta":
        assert read_lake(spark, lake, version=0).count() == 0
        assert [read_lake(spark, lake, version=at).count() for at in (1, 4, 5)] == [30, 120, 120]
        assert "replaced files were deleted" in compact(lake, vacuum=0, runner=runner).notes[0]
        assert lake_rows(spark, lake) == expected(cluster, topic)
    else:
        assert plain_places(lake) == live_places(cluster, topic)
        with pytest.raises(OptionError, match="has no versions"):
            read_lake(spark, lake, version=1)
        with pytest.raises(PipelineError, match="does not keep replaced files"):
            compact(lake, vacuum=0, runner=runner)


def test_a_compaction_beside_another_or_beside_a_reader(
    broker: EmbeddedThread, cluster: Cluster, runner: Runner, tmp_path: Path
) -> None:
    fill(broker, cluster, "beside", queues=1, count=20)
    lake = tmp_path / "lake"
    archive("beside", lake, namesrv=broker.namesrv, batch_rows=5, runner=runner)
    folder = DiskFolder(lake)
    with (
        folder.lock("_kourou/compact.lock", wait=False),
        pytest.raises(PipelineError, match="another run is compacting"),
    ):
        compact(lake, runner=runner)
    with reading(lake):
        report = compact(lake, runner=runner)
    assert report.notes == ["a replay is reading this lake: files that it may need were not replaced"]
    assert (report.written.rows, sum(report.skipped.values())) == (0, 4)
    assert compact(lake, runner=runner).written.rows == 20
    with pytest.raises(PipelineError, match="target_size must be at least 2 bytes, not 1"):
        compact(lake, target_size=1, runner=runner)


def test_two_archives_of_one_topic_share_the_work(
    broker: EmbeddedThread, cluster: Cluster, runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run commits a part of a batch first: the batch is read again without it."""
    fill(broker, cluster, "shared-work", queues=2, count=50)
    lake, real = tmp_path / "lake", Lake.add
    others: list[int] = []

    def add(self: Lake, *batch: Any) -> Commit:
        if not others:
            others.append(0)
            others.append(archive("shared-work", lake, namesrv=broker.namesrv, runner=runner).read.rows)
        return real(self, *batch)

    monkeypatch.setattr(Lake, "add", add)
    report = archive("shared-work", lake, namesrv=broker.namesrv, batch_rows=60, runner=runner)
    assert others[1] == 100
    assert "are already archived" in report.notes[0] and "read again without them" in report.notes[0]
    assert plain_places(lake) == live_places(cluster, "shared-work")


def test_store_files_and_the_live_topic_make_one_lake(
    spark: SparkSession, broker: EmbeddedThread, cluster: Cluster, runner: Runner, tmp_path: Path
) -> None:
    fill(broker, cluster, "both", queues=2, count=100)
    lake, options = tmp_path / "lake", {"splitSize": "8k", "topicPattern": "both"}
    archive(
        "both",
        lake,
        namesrv=broker.namesrv,
        batch_rows=120,
        runner=Runner(spark=spark, watch=(w := StopAfter(1)), stop=w.stop),
    )
    assert len(plain_places(lake)) == 120
    first = archive_store(broker.store, lake, broker="broker-a", options=options, runner=runner)
    assert (first.written.rows, first.skipped) == (80, {"in the lake already": 120})
    assert first.tables[0].rows == [["both", 80]]
    send(cluster, "both", [b"later"] * 30)
    second = archive_store(broker.store, lake, broker="broker-a", options=options, runner=runner)
    assert second.written.rows == 30
    assert second.read.rows <= 31  # it goes on where it was
    live = archive("both", lake, namesrv=broker.namesrv, runner=runner)
    assert live.written.rows == 0 and live.skipped == {"in the lake already": 110}
    assert plain_places(lake) == live_places(cluster, "both")
    assert lake_rows(spark, lake) == expected(cluster, "both")


def test_a_damaged_store(broker: EmbeddedThread, cluster: Cluster, runner: Runner, tmp_path: Path) -> None:
    import shutil

    fill(broker, cluster, "broken", queues=1, count=20)
    wanted = expected(cluster, "broken")
    copy = shutil.copytree(broker.store, tmp_path / "copy")
    with sorted((copy / "commitlog").iterdir())[0].open("r+b") as log:
        log.seek(wanted[9]["commit_log_offset"])
        log.write(b"\xff" * 8)
    with pytest.raises(PipelineError, match="damaged record") as failed:
        archive_store(copy, tmp_path / "lake", topics="broken", runner=runner)
    assert failed.value.report.stopped == "error"
    report = archive_store(copy, tmp_path / "lake", topics="broken", options={"onCorrupt": "skip"}, runner=runner)
    assert report.written.rows == 19
    assert report.skipped["damaged"] == 1


def test_retention_that_overtakes_an_archive(
    broker: EmbeddedThread, cluster: Cluster, runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, cluster, "retained", queues=1, count=10)
    lake = tmp_path / "lake"
    archive("retained", lake, namesrv=broker.namesrv, runner=runner)
    send(cluster, "retained", [b"later"] * 10)
    monkeypatch.setattr(Cluster, "starts", lambda _, queues: dict.fromkeys(queues, 14))
    with pytest.raises(PipelineError, match=r"queue 0: expected offset 10, but the first message is at 14"):
        archive("retained", lake, namesrv=broker.namesrv, runner=runner)
    options = {"failOnDataLoss": "false"}
    report = archive("retained", lake, namesrv=broker.namesrv, options=options, runner=runner)
    assert (report.written.rows, report.skipped) == (6, {"expired before they were read": 4})
    [note] = report.notes
    assert note.endswith("queue 0: expected offset 10, but the first message is at 14: 4 messages are lost")
    assert [place[3] for place in plain_places(lake)] == [*range(10), *range(14, 20)]


def test_a_topic_that_was_created_again(
    broker: EmbeddedThread, cluster: Cluster, runner: Runner, tmp_path: Path
) -> None:
    """The lake says that it is at 9, and the broker ends at 5."""
    fill(broker, cluster, "anew", queues=1, count=5)
    lake = tmp_path / "lake"
    archive("anew", lake, namesrv=broker.namesrv, runner=runner)
    commit = lake / "_kourou" / "commits" / "000000000001.json"
    document = json.loads(commit.read_text())
    document["positions"]["anew/broker-a/0"] = 9
    commit.write_text(json.dumps(document))
    with pytest.raises(
        PipelineError, match=r"topic anew, broker broker-a, queue 0 ends at offset 5, but was archived up"
    ):
        archive("anew", lake, namesrv=broker.namesrv, runner=runner)


@pytest.mark.parametrize(
    ("topics", "options", "said"),
    [
        ("nowhere", {}, "topic 'nowhere' does not exist at"),
        ("nowhere", {"columns": "body"}, "an archive always has all columns"),
        ("nowhere", {"grup": "g"}, "no option grup: did you mean group"),
    ],
)
def test_an_archive_s_mistakes(
    broker: EmbeddedThread, runner: Runner, tmp_path: Path, topics: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PipelineError, match=said):
        archive(topics, tmp_path / "lake", namesrv=broker.namesrv, options=options, runner=runner)


# ── Replays ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def old_lake(spark: SparkSession, broker: EmbeddedThread, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with 2 queues of 300 messages of the topic `old`."""
    cluster = Cluster((broker.namesrv,), ACCESS, 5.0)
    fill(broker, cluster, "old", queues=2, count=300)
    lake = tmp_path_factory.mktemp("old") / "lake"
    archive("old", lake, namesrv=broker.namesrv, runner=Runner(spark=spark))
    return lake


def test_a_replay_keeps_messages_and_their_order(
    broker: EmbeddedThread, cluster: Cluster, runner: Runner, old_lake: Path
) -> None:
    create_topic(broker.namesrv, "again", queues=2)
    report = replay(old_lake, "again", namesrv=broker.namesrv, runner=runner)
    assert (report.read.rows, report.written.rows) == (600, 600)
    old = {(row["queue_id"], row["queue_offset"]): row for row in pull_all(cluster, "old")}
    for row in pull_all(cluster, "again"):
        properties = dict(row["properties"])
        origin = properties["REPLAY_FROM"]
        assert properties["REPLAY_ID"] == report.settings["replay_id"]
        assert origin == f"old/broker-a/{row['queue_id']}/{row['queue_offset']}"  # the same queue, the same order
        before = old[row["queue_id"], row["queue_offset"]]
        assert {name: row[name] for name in ("body", "tags", "keys", "unique_key", "flag")} == {
            name: before[name] for name in ("body", "tags", "keys", "unique_key", "flag")
        }


def test_a_replay_of_some(broker: EmbeddedThread, cluster: Cluster, runner: Runner, old_lake: Path) -> None:
    create_topic(broker.namesrv, "some", queues=1)
    chosen: dict[str, Any] = {"where": "tags = 'red' and queue_offset < 10", "since": "2020-01-01"}
    dry = replay(old_lake, "some", namesrv=broker.namesrv, **chosen, dry_run=True, runner=runner)
    assert (dry.read.rows, dry.written.rows, dry.skipped) == (10, 0, {"dry run": 10})
    assert [row[:4] for row in dry.tables[0].rows] == [["old", "broker-a", 0, 5], ["old", "broker-a", 1, 5]]
    assert len(dry.tables[1].rows) == 10
    report = replay(old_lake, "some", namesrv=broker.namesrv, **chosen, rate=100, runner=runner)
    assert report.written.rows == 10
    keyed = replay(old_lake, "some", namesrv=broker.namesrv, key="k7", runner=runner)
    assert keyed.written.rows == 2
    assert replay(old_lake, "some", namesrv=broker.namesrv, until="2020", runner=runner).read.rows == 0
    assert len(pull_all(cluster, "some")) == 12


def test_a_replay_goes_hour_by_hour(
    spark: SparkSession, broker: EmbeddedThread, cluster: Cluster, runner: Runner, tmp_path: Path
) -> None:
    """It stops between two hours, says which, and goes on there; queues stay in order across hours."""
    archive_once(DiskFolder(tmp_path))
    create_topic(broker.namesrv, "hours", queues=2)
    watch = StopAfter(1)
    arguments: dict[str, Any] = {"namesrv": broker.namesrv, "source": "a"}
    first = replay(tmp_path, "hours", **arguments, runner=Runner(spark=spark, watch=watch, stop=watch.stop))
    assert (first.stopped, first.written.rows) == ("asked", 4)
    begin = "2026-01-31T06:00Z"
    assert first.notes == [f"messages stored before {begin} were sent; continue with --since {begin}"]
    rest = replay(tmp_path, "hours", **arguments, since=begin, runner=runner)
    assert (rest.written.rows, rest.batches) == (7, 3)
    assert rest.charts[0].series == {"sent": [4, 2, 1]}
    for queue, count in ((0, 7), (1, 4)):
        here = [dict(row["properties"])["n"] for row in pull_all(cluster, "hours") if row["queue_id"] == queue]
        assert here == [str(number) for number in range(count)]
    with pytest.raises(PipelineError, match="give one of %c, a"):
        replay(tmp_path, "hours", namesrv=broker.namesrv, runner=runner)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"topic": "nowhere"}, "topic 'nowhere' does not exist"),
        ({"source": "other"}, "the lake has no topic other: there are old"),
        ({"where": "no_column = 1"}, "no_column"),
        ({"rate": -1.0}, "the rate must be greater than 0"),
    ],
)
def test_a_replay_s_mistakes(
    broker: EmbeddedThread, runner: Runner, old_lake: Path, arguments: dict[str, Any], said: str
) -> None:
    create_topic(broker.namesrv, "mistakes")
    with pytest.raises(PipelineError, match=said):
        replay(old_lake, namesrv=broker.namesrv, runner=runner, **{"topic": "mistakes", **arguments})


# ── Dead letters ────────────────────────────────────────────────────────────────────────────────────────────────────


def bury(broker: EmbeddedThread, cluster: Cluster, topic: str, group: str, count: int) -> None:
    """The first messages of a topic become dead letters of a group, as consumers do it."""
    cluster.commit({first_queue(cluster, topic): 0}, group)
    link = Link(broker.address, ACCESS)
    for row in pull_all(cluster, topic)[:count]:
        header = ConsumerSendMsgBack(
            offset=row["commit_log_offset"],
            group=group,
            delay_level=-1,
            origin_msg_id=row["msg_id"],
            origin_topic=topic,
        )
        answer = link.ask(Command(RequestCode.CONSUMER_SEND_MSG_BACK, ext=header.encode()))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    link.close()
    wait_for_messages(cluster, f"%DLQ%{group}", count)


def test_dead_letters_and_back(broker: EmbeddedThread, cluster: Cluster, runner: Runner, tmp_path: Path) -> None:
    fill(broker, cluster, "bills", queues=1, count=40)
    bury(broker, cluster, "bills", "billing", 30)
    options = {"retryTimeout": "10s", "maxRecordsPerPartition": "20"}
    groups = ["billing", "unknown"]
    seen = triage(groups, namesrv=broker.namesrv, by="KEYS", sample=3, options=options, runner=runner)
    assert seen.read.rows == 30
    kinds = seen.tables[0]
    assert kinds.columns[:6] == ["group", "topic", "tags", "consumed", "KEYS", "letters"]
    assert len(kinds.rows) == 30 and ["billing", "bills", "red", 1, "k0", 1] in [row[:6] for row in kinds.rows]
    assert len(seen.tables[1].rows) == 3
    assert [chart.title for chart in seen.charts] == ["Letters by topic", "Letters by age"]
    assert seen.notes == ["group unknown has no dead letters"]

    state = tmp_path / "state"
    reds = "tags = 'red'"
    dry = redrive("billing", state, namesrv=broker.namesrv, where=reds, dry_run=True, runner=runner)
    assert dry.tables[0].rows == [["bills", 15]] and dry.written.rows == 0
    first = redrive("billing", state, namesrv=broker.namesrv, where=reds, batch_rows=16, runner=runner)
    assert (first.written.rows, first.batches) == (15, 2)
    assert first.skipped == {"not chosen, or without a topic to go to": 15}
    second = redrive("billing", state, namesrv=broker.namesrv, runner=runner)
    assert second.written.rows == 15 and second.skipped == {"redriven before": 15}
    third = redrive("billing", state, namesrv=broker.namesrv, runner=runner)
    assert (third.read.rows, third.written.rows) == (0, 0)
    rows = pull_all(cluster, "bills")
    assert len(rows) == 70
    back = rows[40:]
    assert sorted(row["unique_key"] for row in back) == sorted(row["unique_key"] for row in rows[:30])
    properties = dict(back[0]["properties"])
    assert properties["REDRIVE_ID"] == first.settings["redrive_id"]
    assert properties["REDRIVE_FROM"] == "%DLQ%billing/broker-a/0/0"
    assert not {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DELAY"} & properties.keys()
    assert back[0]["reconsume_times"] == 0


def test_dead_letters_for_one_group_alone(
    broker: EmbeddedThread, cluster: Cluster, runner: Runner, tmp_path: Path
) -> None:
    fill(broker, cluster, "shared", queues=1, count=5)
    bury(broker, cluster, "shared", "picky", 5)
    report = redrive("picky", tmp_path / "state", namesrv=broker.namesrv, target="retry", runner=runner)
    assert report.written.rows == 5
    retried = pull_all(cluster, "%RETRY%picky")
    assert [dict(row["properties"])["RETRY_TOPIC"] for row in retried] == ["shared"] * 5
    assert len(pull_all(cluster, "shared")) == 5


def test_a_redrive_that_dies_before_it_remembers(
    broker: EmbeddedThread, cluster: Cluster, runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that it had sent are sent again, with the same unique keys."""
    fill(broker, cluster, "forgotten", queues=1, count=4)
    bury(broker, cluster, "forgotten", "forgetful", 4)

    def die(*_: object) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", die)
        with pytest.raises(PipelineError, match="the disk is gone"):
            redrive("forgetful", tmp_path / "state", namesrv=broker.namesrv, runner=runner)
    report = redrive("forgetful", tmp_path / "state", namesrv=broker.namesrv, runner=runner)
    assert report.written.rows == 4
    assert redrive("forgetful", tmp_path / "state", namesrv=broker.namesrv, runner=runner).written.rows == 0
    rows = pull_all(cluster, "forgotten")
    assert len(rows) == 12 and len({row["unique_key"] for row in rows}) == 4
    with (
        DiskFolder(tmp_path / "state").lock("redriven/run.lock", wait=False),
        pytest.raises(PipelineError, match="another run is redriving with"),
    ):
        redrive("forgetful", tmp_path / "state", namesrv=broker.namesrv, runner=runner)


# ── Topic to topic ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_sql_from_topic_to_topic(
    spark: SparkSession, broker: EmbeddedThread, cluster: Cluster, runner: Runner, tmp_path: Path
) -> None:
    fill(broker, cluster, "input", queues=2, count=100)
    create_topic(broker.namesrv, "output", queues=2)
    sql = "SELECT upper(string(body)) AS body, tags, keys FROM messages WHERE tags = 'red'"
    arguments: dict[str, Any] = {"checkpoint": tmp_path / "state", "namesrv": broker.namesrv}
    watch = StopAfter(1)
    first = transform(
        "input",
        "output",
        sql=sql,
        **arguments,
        options={"maxOffsetsPerTrigger": "60", "group": "sql-group"},
        runner=Runner(spark=spark, watch=watch, stop=watch.stop),
    )
    assert first.stopped == "asked"
    assert first.read.rows == 2 * first.written.rows < 200  # the batch that was under way is finished
    assert watch.batches[0].lag == 140
    rest = transform(
        "input",
        "output",
        sql=sql,
        **arguments,
        options={"maxOffsetsPerTrigger": "60", "group": "sql-group"},
        runner=runner,
    )
    assert (rest.stopped, rest.read.rows + first.read.rows) == ("end", 200)
    assert rest.written.rows + first.written.rows == 100
    rows = pull_all(cluster, "output")
    assert sorted(bytes(row["body"]) for row in rows) == sorted(
        bytes(row["body"]).upper() for row in pull_all(cluster, "input") if row["tags"] == "red"
    )
    assert len({row["unique_key"] for row in rows}) == 100
    queues = cluster.route("input").readable
    assert cluster.committed(queues, "sql-group") == dict.fromkeys(queues, 100)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT nothing FROM messages", "the SQL: .*nothing"),
        ("SELEKT 1", "the SQL: .*SELEKT"),
        ("SELECT 'x' AS body", "the SQL query does not read the table messages"),
        ("SELECT tags FROM messages", "a message needs a column body"),
        ("SELECT body, 1 AS more FROM messages", "no column more in a message"),
    ],
)
def test_sql_that_is_wrong(broker: EmbeddedThread, runner: Runner, tmp_path: Path, sql: str, said: str) -> None:
    create_topic(broker.namesrv, "wrong")
    with pytest.raises(PipelineError, match=said):
        transform("wrong", "wrong", sql=sql, checkpoint=tmp_path / "state", namesrv=broker.namesrv, runner=runner)


def test_duplicates_are_dropped_across_runs(
    broker: EmbeddedThread, cluster: Cluster, runner: Runner, tmp_path: Path
) -> None:
    create_topic(broker.namesrv, "twice", queues=2)
    for _ in range(2):
        for queue in range(2):
            send(cluster, "twice", [f"{queue} {number}".encode() for number in range(50)], queue=queue)
    create_topic(broker.namesrv, "once", queues=2)

    def run() -> RunReport:
        return dedup("twice", "once", checkpoint=tmp_path / "state", namesrv=broker.namesrv, runner=runner)

    first = run()
    assert (first.read.rows, first.written.rows, first.skipped) == (200, 100, {"duplicates": 100})
    send(cluster, "twice", [b"0 again"] * 51, queue=0)  # the unique keys of 0 … 49, and one more
    second = run()
    assert (second.read.rows, second.written.rows) == (51, 1)
    rows = pull_all(cluster, "once")
    assert len({row["unique_key"] for row in rows}) == len(rows) == 101
    for queue in range(2):
        bodies = [bytes(row["body"]) for row in rows if row["queue_id"] == queue]
        assert bodies[:50] == [f"{queue} {number}".encode() for number in range(50)]
