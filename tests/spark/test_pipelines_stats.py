"""Traffic, lag and trace latency: against a real broker of ours, and where rows are counted, in a real Spark."""

import json
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

pytest.importorskip("pyspark")
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from kourou.cli.pipelines_commands import app
from kourou.embedded import EmbeddedThread
from kourou.protocol.message import MessageQueue
from kourou.spark.cluster import Cluster
from kourou.spark.pipelines.page import page
from kourou.spark.pipelines.progress import BatchProgress
from kourou.spark.pipelines.report import RunReport, Table
from kourou.spark.pipelines.running import PipelineError, Runner
from kourou.spark.pipelines.stats import Standing, lag, traffic
from kourou.spark.pipelines.trace import AFTER, BEFORE, PUB, latency, read_steps

from .brokers import ACCESS, create_topic, send
from .test_pipelines_frame import Kept

quiet = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")


@pytest.fixture
def cluster(broker: EmbeddedThread) -> Cluster:
    return Cluster((broker.namesrv,), ACCESS, 5.0)


def table(report: RunReport, title: str) -> Table:
    return next(one for one in report.tables if one.title == title)


def records(table: Table) -> list[dict[str, object]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


# ── Lag ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("committed", "lag", "lost"), [(None, 90, 0), (0, 90, 10), (10, 90, 0), (60, 40, 0), (100, 0, 0), (120, 0, 0)]
)
def test_what_is_before_a_group(committed: int | None, lag: int, lost: int) -> None:
    one = Standing("g", MessageQueue("t", "b", 0), 10, 100, committed)
    assert (one.lag, one.lost) == (lag, lost)


def test_lag_of_groups(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "late", 2)
    for queue in range(2):
        send(cluster, "late", [b"x"] * 50, queue=queue)
    first, second = cluster.route("late").readable
    cluster.commit({first: 50, second: 20}, "behind")
    report = lag(["behind", "stranger"], "late", namesrv=broker.namesrv)
    assert report.stopped == "end"
    groups = records(table(report, "Groups"))
    assert [(one["group"], one["behind"], one["lag"]) for one in groups] == [("behind", 1, 30), ("stranger", 2, 100)]
    assert all(one["oldest waits"] for one in groups)
    queues = [one for one in records(table(report, "Queues")) if one["group"] == "behind"]
    assert [(one["queue"], one["committed"], one["end"], one["lag"]) for one in queues] == [
        (1, 20, 50, 30),
        (0, 50, 50, 0),
    ]
    assert report.notes == ["group stranger has never committed an offset in these topics"]
    assert report.charts[0].series == {"behind": [0.0, 30.0], "stranger": [50.0, 50.0]}


def test_lag_over_time(broker: EmbeddedThread, cluster: Cluster) -> None:
    """Messages that were consumed between two samples count."""
    create_topic(broker.namesrv, "moving")
    send(cluster, "moving", [b"x"] * 40)
    [queue] = cluster.route("moving").readable
    cluster.commit({queue: 10}, "mover")
    watch = Kept()

    class Consuming(Kept):
        def batch(self, progress: object) -> None:
            watch.batches.append(progress)  # type: ignore[arg-type]
            cluster.commit({queue: 10 + 5 * len(watch.batches)}, "mover")

    report = lag(["mover"], "moving", namesrv=broker.namesrv, every=0.0, samples=3, runner=Runner(watch=Consuming()))
    assert [(one.rows, one.lag) for one in watch.batches] == [(0, 30), (5, 25), (5, 20)]
    assert report.batches == 3
    [chart] = [one for one in report.charts if one.title == "Lag by group"]
    assert chart.series == {"mover": [30.0, 25.0, 20.0]}


def test_groups_are_not_added_up(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "several")
    send(cluster, "several", [b"x"] * 40)
    [queue] = cluster.route("several").readable
    cluster.commit({queue: 10}, "slow")
    cluster.commit({queue: 38}, "quick")
    watch = Kept()
    report = lag("slow,quick", "several", namesrv=broker.namesrv, every=0.0, samples=2, runner=Runner(watch=watch))
    assert [one.lags for one in watch.batches] == [{"slow": 30, "quick": 2}] * 2
    assert [(one.lag, one.rows) for one in watch.batches] == [(None, 0)] * 2
    assert watch.batches[0].line().startswith("sample 0  slow lag 30  quick lag 2")
    assert [chart.title for chart in report.charts] == ["Lag by queue", "Lag by group"]
    text, html = report.text().splitlines()[0], page(report)
    assert text.startswith("stats lag: 30 messages before slow in 1 of 1 queues, the oldest waits ")
    assert "; 2 messages before quick in 1 of 1 queues" in text and text.endswith("2 samples")
    for said in (text, html):
        assert not re.search(r"\bread\b|\bwritten\b", said)
    assert re.search(r"<b>30</b><span>messages before slow", html)
    assert not re.search(r"<b>32</b>", html)


def test_a_report_of_a_read_omits_writing() -> None:
    with Runner().run("look", reads_only=True) as run:
        run.batch(BatchProgress(batch=0, rows=3, bytes=30, seconds=0.1, written=0))
    assert "3 messages (30 B) read, 1 batch in" in run.report.text()
    assert "written" not in page(run.report)


def test_lag_stops_when_it_is_asked_to(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "endless")
    runner = Runner()

    class Stopping(Kept):
        def batch(self, progress: object) -> None:
            runner.stop.set()

    runner.watch = Stopping()
    report = lag(["anyone"], "endless", namesrv=broker.namesrv, every="1h", samples=0, runner=runner)
    assert (report.batches, report.stopped) == (1, "asked")


def test_mistakes_about_lag(broker: EmbeddedThread) -> None:
    for groups, topics, said in (
        (["g"], "nowhere-at-all", "topic 'nowhere-at-all' does not exist at"),
        ([], "late", "no group is given"),
    ):
        with pytest.raises(PipelineError, match=re.escape(said)):
            lag(groups, topics, namesrv=broker.namesrv)


def test_lag_on_the_command_line(broker: EmbeddedThread, cluster: Cluster, tmp_path: Path) -> None:
    create_topic(broker.namesrv, "told")
    send(cluster, "told", [b"x"] * 3)
    path = tmp_path / "lag.html"
    words = ["stats", "lag", "someone", "told", "-n", broker.namesrv, "--json", "--html", str(path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout.splitlines()[-1])
    found = report.get("report", report)
    assert found["tables"][0]["rows"][0][:5] == ["someone", "told", 1, 1, 3]
    assert "Lag by queue" in path.read_text()
    missing = CliRunner().invoke(app, ["stats", "lag", "someone", "nowhere", "-n", broker.namesrv])
    assert missing.exit_code == 1
    assert "topic 'nowhere' does not exist" in missing.stderr


# ── Traffic ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@quiet
@pytest.mark.spark
def test_traffic(spark: SparkSession, broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "busy", 2)
    create_topic(broker.namesrv, "idle")
    send(cluster, "busy", [bytes(100)] * 90, queue=0, tags=["red", "red", "blue"])
    send(cluster, "busy", [bytes(1000)] * 30, queue=1)
    send(cluster, "idle", [b"x"] * 2)
    live = traffic("busy,idle", namesrv=broker.namesrv, window="1s", runner=Runner(spark=spark))
    busy, idle = records(table(live, "Topics"))
    assert (busy["topic"], busy["messages"], busy["skew"]) == ("busy", 120, 1.5)
    assert (idle["topic"], idle["messages"]) == ("idle", 2)
    assert busy["p50 size"] < busy["p99 size"] <= busy["largest"]  # type: ignore[operator]
    assert [(one["topic"], one["queue"], one["messages"]) for one in records(table(live, "Queues"))] == [
        ("busy", 0, 90),
        ("busy", 1, 30),
        ("idle", 0, 2),
    ]
    tags = {(one["topic"], one["tags"]): one["messages"] for one in records(table(live, "Tags"))}
    assert tags == {("busy", "red"): 60, ("busy", "blue"): 30, ("busy", None): 30, ("idle", None): 2}
    assert live.read.rows == 122
    assert live.read.bytes == busy["bytes"] + idle["bytes"]  # type: ignore[operator]
    assert sum(live.charts[0].series["busy"]) == pytest.approx(120, abs=0.01)  # type: ignore[arg-type]
    stored = traffic("busy,idle", store=broker.store, window="1s", runner=Runner(spark=spark))
    assert table(stored, "Topics") == table(live, "Topics")
    assert table(stored, "Tags") == table(live, "Tags")
    small = "store_size < 500 AND topic = 'busy'"
    some = traffic("busy", namesrv=broker.namesrv, where=small, runner=Runner(spark=spark))
    assert some.read.rows == 90


@quiet
@pytest.mark.spark
def test_times_of_traffic_are_utc_on_any_machine(
    spark: SparkSession, broker: EmbeddedThread, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They used to be those of the machine's zone, marked as UTC."""
    create_topic(broker.namesrv, "zoned")
    send(cluster, "zoned", [b"x"] * 3)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Asia/Kathmandu")
        time.tzset()
        report = traffic("zoned", namesrv=broker.namesrv, runner=Runner(spark=spark))
    time.tzset()
    [row] = records(table(report, "Topics"))
    assert report.from_time is not None
    for text in (report.from_time, str(row["first"]), str(row["last"])):
        assert abs(datetime.fromisoformat(text).timestamp() - time.time()) < 3600, text


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"topics": "a"}, "either namesrv or store"),
        ({"topics": "a", "namesrv": "127.0.0.1:1", "store": "/nowhere"}, "either namesrv or store"),
        ({"namesrv": "127.0.0.1:1"}, "no topics are given"),
        ({"topics": "a", "namesrv": "127.0.0.1:1", "window": "0s"}, "the window must be at least a second, not 0s"),
    ],
)
def test_mistakes_about_traffic(given_: dict[str, Any], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        traffic(**given_)


# ── Traces ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def pub(message: str, at: int, cost: int, *, topic: str = "orders", success: str = "true") -> str:
    fields = [PUB, at, "DefaultRegion", "shop", topic, message, "paid", f"key-{message}", "127.0.0.1:10911", 128, cost]
    return "\x01".join(map(str, [*fields, 0, "7F00000100002A9F0000000000000000", success])) + "\x02"


def before(message: str, at: int, request: str, retries: int = 0) -> str:
    fields = [BEFORE, at, "null", "billing", request, message, retries, "null"]
    return "\x01".join(map(str, fields)) + "\x02"


def after(message: str, request: str, cost: int, success: str = "true") -> str:
    return (
        "\x01".join(map(str, [AFTER, request, message, cost, success, "null", 0, 1_700_000_000_999, "billing"]))
        + "\x02"
    )


def test_steps_of_a_trace() -> None:
    text = pub("m1", 1000, 7) + before("m1", 1010, "r1") + after("m1", "r1", 3, "false") + "EndTransaction\x011\x02"
    steps, bad = read_steps(text.encode())
    assert bad == 0
    sent, given_to, done = steps
    assert (sent.kind, sent.time_ms, sent.client, sent.topic, sent.message) == (PUB, 1000, "shop", "orders", "m1")
    assert (sent.keys, sent.cost_ms, sent.is_success) == ("key-m1", 7, True)
    assert (given_to.kind, given_to.client, given_to.request, given_to.retries) == (BEFORE, "billing", "r1", 0)
    assert given_to.keys is None
    assert (done.kind, done.request, done.cost_ms, done.is_success) == (AFTER, "r1", 3, False)


def test_steps_of_old_clients() -> None:
    """Without an offset id in what was sent, and without time and group in what was consumed."""
    fields = [PUB, "5", "r", "g", "t", "m", "tag", "k", "h", "9", "3", "0", "true"]
    old = "\x01".join(fields) + "\x02" + "\x01".join([AFTER, "r1", "m", "4", "true", "k"]) + "\x02"
    [sent, done], bad = read_steps(old.encode())
    assert bad == 0
    assert sent.is_success is True
    assert (done.cost_ms, done.time_ms, done.client) == (4, None, None)


@given(st.lists(st.sampled_from([PUB, BEFORE, AFTER, "x", "", "1", "9" * 40, "\x02", "ü"]), max_size=40))
def test_any_trace_can_be_read(words: list[str]) -> None:
    steps, bad = read_steps("\x01".join(words).encode())
    assert bad >= 0
    assert all(step.cost_ms is None or abs(step.cost_ms) < 1 << 63 for step in steps)


@given(st.binary(max_size=200))
def test_any_bytes_can_be_read(body: bytes) -> None:
    read_steps(body)


@quiet
@pytest.mark.spark
def test_latency(spark: SparkSession, broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "traces")
    start = 1_700_000_000_000
    bodies = [pub(f"m{n}", start + n, n % 10 + 1).encode() for n in range(100)]
    bodies += [
        (before(f"m{n}", start + n + 20 + n, f"r{n}") + after(f"m{n}", f"r{n}", 5, str(n != 7).lower())).encode()
        for n in range(100)
    ]
    bodies += [before("m7", start + 60_000, "again", retries=1).encode(), (PUB + "\x01oops\x02").encode()]
    bodies += [pub("lost", start, 99, topic="other", success="false").encode()]
    send(cluster, "traces", bodies)
    report = latency(namesrv=broker.namesrv, topic="traces", slow=3, runner=Runner(spark=spark))
    orders, other = records(table(report, "Sending"))
    assert (orders["topic"], orders["producer group"], orders["messages"], orders["failed"]) == (
        "orders",
        "shop",
        100,
        0,
    )
    assert (orders["p50 ms"], orders["p99 ms"], orders["max ms"]) == (5, 10, 10)
    assert (other["topic"], other["messages"], other["failed"]) == ("other", 1, 1)
    [way] = records(table(report, "From end to end, first deliveries, and consuming"))
    assert (way["topic"], way["group"], way["deliveries"], way["again"], way["failed"]) == (
        "orders",
        "billing",
        101,
        1,
        1,
    )
    assert way["p50 ms"] in (69, 70)
    assert way["max ms"] == 119
    assert way["consuming p50 ms"] == 5
    slowest = records(table(report, "Slowest"))
    assert [(one["message"], one["retries"]) for one in slowest] == [("m7", 1), ("m99", 0), ("m98", 0)]
    assert slowest[1]["keys"] == "key-m99"
    assert report.skipped == {"no trace records": 1}
    assert report.charts[1].series["p99"][0] in (118.0, 119.0)
    one = latency(namesrv=broker.namesrv, topic="traces", key=["k3"], runner=Runner(spark=spark))
    assert one.read.rows == 1
