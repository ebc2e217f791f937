"""The pipelines and the real Apache RocketMQ."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.waiting import wait_for

from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import ConsumerSendMsgBack
from kourou.spark.cluster import Cluster
from kourou.spark.pipelines.archive import archive
from kourou.spark.pipelines.archive_store import archive_store
from kourou.spark.pipelines.dedup import dedup
from kourou.spark.pipelines.dlq import redrive, triage
from kourou.spark.pipelines.replay import replay
from kourou.spark.pipelines.running import Runner
from kourou.spark.wire import Link

from .brokers import ACCESS, create_topic, first_queue, pull_all, send, wait_for_messages
from .test_apache import apache as apache
from .test_pipelines import live_places, plain_places

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]


@pytest.fixture
def cluster(apache: Any) -> Cluster:
    return Cluster((apache.namesrv,), ACCESS, 30.0)


def test_a_lake_and_back(apache: Any, cluster: Cluster, spark: SparkSession, tmp_path: Path) -> None:
    """Live, then from the files of the broker, then live: one lake. Replayed, then without the duplicates."""
    lake, runner = tmp_path / "lake", Runner(spark=spark)
    create_topic(apache.namesrv, "theirs", 2)
    for queue in range(2):
        send(cluster, "theirs", [b"%d/%d" % (queue, number) for number in range(200)], queue=queue, tags=["a", "b"])
    assert archive("theirs", lake, namesrv=apache.namesrv, options={"tags": "*"}, runner=runner).written.rows == 400
    send(cluster, "theirs", [b"more"] * 50)
    report = archive_store(apache.store, lake, broker="broker-a", topics="theirs", runner=runner)
    assert (report.written.rows, report.skipped) == (50, {"in the lake already": 400})
    assert archive("theirs", lake, namesrv=apache.namesrv, runner=runner).written.rows == 0
    assert plain_places(lake) == live_places(cluster, "theirs")
    create_topic(apache.namesrv, "again", 2)
    for _ in range(2):
        assert replay(lake, "again", namesrv=apache.namesrv, runner=runner).written.rows == 450
    wait_for_messages(cluster, "again", 900)
    create_topic(apache.namesrv, "once", 2)
    report = dedup("again", "once", checkpoint=tmp_path / "state", namesrv=apache.namesrv, runner=runner)
    keys = {row["unique_key"] for row in pull_all(cluster, "theirs")}
    assert (report.read.rows, report.written.rows) == (900, len(keys))


def test_dead_letters(apache: Any, cluster: Cluster, spark: SparkSession, tmp_path: Path) -> None:
    runner = Runner(spark=spark)
    create_topic(apache.namesrv, "bills", 1)
    send(cluster, "bills", [b"bill %d" % number for number in range(10)])
    queue = first_queue(cluster, "bills")
    cluster.commit({queue: 0}, "billing")
    link = Link(cluster.address(queue), ACCESS)
    for row in pull_all(cluster, "bills"):
        header = ConsumerSendMsgBack(
            offset=row["commit_log_offset"],
            group="billing",
            delay_level=-1,
            origin_msg_id=row["msg_id"],
            origin_topic="bills",
        )
        answer = link.ask(Command(RequestCode.CONSUMER_SEND_MSG_BACK, ext=header.encode()))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    link.close()
    wait_for("the topic of dead letters", lambda: "%DLQ%billing" in cluster.topics("%DLQ%.*"), 60)
    wait_for_messages(cluster, "%DLQ%billing", 10)
    seen = triage(namesrv=apache.namesrv, runner=runner)
    assert [row[:5] for row in seen.tables[0].rows] == [["billing", "bills", None, 1, 10]]
    first = redrive("billing", tmp_path / "one", namesrv=apache.namesrv, runner=runner)
    assert first.written.rows == 10
    wait_for_messages(cluster, "bills", 20)
    assert redrive("billing", tmp_path / "one", namesrv=apache.namesrv, runner=runner).written.rows == 0
    assert (
        redrive("billing", tmp_path / "two", namesrv=apache.namesrv, target="retry", runner=runner).written.rows == 10
    )
    wait_for_messages(cluster, "%RETRY%billing", 10)
    retried = pull_all(cluster, "%RETRY%billing")
    assert {dict(row["properties"])["RETRY_TOPIC"] for row in retried} == {"bills"}
    assert sorted(bytes(row["body"]) for row in retried) == [b"bill %d" % number for number in range(10)]
