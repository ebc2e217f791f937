"""Pulling and sending without Spark, against a broker in this process."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kourou.embedded import EmbeddedThread
from kourou.protocol.command import Command
from kourou.protocol.message import MessageQueue
from kourou.protocol.properties import Property, decode
from kourou.spark import wire
from kourou.spark.cluster import Cluster
from kourou.spark.errors import DataLossError, OptionError, SparkError, UnreachableError
from kourou.spark.messages import Drafts
from kourou.spark.options import Options
from kourou.spark.planning import Range
from kourou.spark.pulling import Filter, Patience, Puller
from kourou.spark.rows import make_rows
from kourou.spark.sending import WINDOW, Sender, batch_parcel
from kourou.spark.wire import Access, persist

from .brokers import create_topic, pull_all, send

ACCESS = Access(timeout=10)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedThread]:
    with EmbeddedThread(properties={"enablePropertyFilter": "true"}) as running:
        yield running
        wire.close_all()


def test_queues_and_their_offsets(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "offsets", queues=3)
    send(cluster, "offsets", [b"a", b"b"], queue=1)
    queues = cluster.route("offsets", fresh=True).readable
    assert queues == tuple(MessageQueue("offsets", "broker-a", number) for number in range(3))
    assert list(cluster.ends(queues).values()) == [0, 2, 0]
    assert list(cluster.starts(queues).values()) == [0, 0, 0]
    assert list(cluster.by_time(queues, 0).values()) == [0, 0, 0]
    assert list(cluster.by_time(queues, 2**45).values()) == [0, 2, 0]


def test_a_group_s_offsets(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "grouped", queues=2)
    send(cluster, "grouped", [b"a", b"b"], queue=1)
    _, second = cluster.route("grouped", fresh=True).readable
    cluster.commit({second: 2}, "spark-group")
    assert cluster.committed([second], "spark-group") == {second: 2}


def test_topics_by_pattern(broker: EmbeddedThread, cluster: Cluster) -> None:
    for name in ("pattern-a", "pattern-b", "other-c"):
        create_topic(broker.namesrv, name)
    assert cluster.topics("pattern-.*") == ["pattern-a", "pattern-b"]


def test_an_unknown_topic(cluster: Cluster) -> None:
    with pytest.raises(OptionError, match=r"topic 'nowhere' does not exist at 127\.0\.0\.1"):
        cluster.route("nowhere")


def test_nobody_answers() -> None:
    with pytest.raises(UnreachableError, match=r"no name server answers: 127.0.0.1:1: .*refused"):
        Cluster(("127.0.0.1:1",), ACCESS, 0.1).route("any")


def puller(cluster: Cluster, *, columns: tuple[str, ...] = ("queue_offset", "body"), **given: Any) -> Puller:
    given.setdefault("patience", Patience(5.0))
    return Puller(cluster, make_rows(columns, rows_max=50), given.pop("wanted", Filter()), **given)


def read(reader: Puller, *ranges: Range) -> list[Any]:
    return [tuple(row.values()) for batch in reader.read(ranges) for row in batch.to_pylist()]


def test_a_range_is_read_as_it_is(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "ranges", queues=2)
    send(cluster, "ranges", [b"%d" % n for n in range(500)], queue=0)
    send(cluster, "ranges", [b"x%d" % n for n in range(3)], queue=1)
    first, second = cluster.route("ranges", fresh=True).readable
    for start, end in ((0, 500), (17, 18), (100, 333), (499, 500), (5, 5)):
        found = read(puller(cluster), Range(first, start, end))
        assert found == [(n, b"%d" % n) for n in range(start, end)]
    both = read(puller(cluster), Range(first, 498, 500), Range(second, 0, 3))
    assert [body for _, body in both] == [b"498", b"499", b"x0", b"x1", b"x2"]


def test_answers_of_all_sizes(broker: EmbeddedThread, cluster: Cluster) -> None:
    """Pulls that were sent ahead began at the wrong place; nothing is missing or there twice."""
    create_topic(broker.namesrv, "uneven")
    sizes = [(number * 7919) % 97 * (400 if number % 150 > 75 else 4) + 1 for number in range(700)]
    send(cluster, "uneven", [bytes(size) for size in sizes])
    queue = cluster.route("uneven", fresh=True).readable[0]
    for start, end in ((0, 700), (33, 611), (699, 700)):
        batches = puller(cluster).read((Range(queue, start, end),))
        assert [len(body) for batch in batches for body in batch.column(1).to_pylist()] == sizes[start:end]


def test_large_requests_are_sent_whole(broker: EmbeddedThread, cluster: Cluster) -> None:
    """More than the system takes at a time, in many pieces."""
    create_topic(broker.namesrv, "large")
    rows = [{"body": bytes([number % 256]) * 60_000} for number in range(300)]
    one = sender(cluster)
    one.send(Drafts("large", "job/0").of(batch_of(rows)))
    assert one.sent.messages == 300
    found = sorted((bytes(row["body"]) for row in pull_all(cluster, "large")), key=lambda body: body[0])
    assert found == sorted((row["body"] for row in rows), key=lambda body: body[0])


def test_a_reader_that_is_left_halfway(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "halfway")
    send(cluster, "halfway", [b"%d" % n for n in range(300)], queue=0)
    queue = cluster.route("halfway", fresh=True).readable[0]
    batches = puller(cluster).read((Range(queue, 0, 300),))
    next(batches)
    del batches
    assert len(read(puller(cluster), Range(queue, 0, 300))) == 300


def test_tags_are_left_to_the_broker(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "tagged")
    send(cluster, "tagged", [b"%d" % n for n in range(90)], queue=0, tags=["red", "green", "blue"])
    queue = cluster.route("tagged", fresh=True).readable[0]
    found = read(puller(cluster, wanted=Filter("TAG", "red || blue")), Range(queue, 0, 90))
    assert [number for number, _ in found] == [n for n in range(90) if n % 3 != 1]


def test_expressions_are_left_to_the_broker(broker: EmbeddedThread, cluster: Cluster) -> None:
    """More messages that do not match than one pull looks at: the reading goes on from where a pull stopped."""
    create_topic(broker.namesrv, "by-expression")
    send(cluster, "by-expression", [b"%d" % n for n in range(2_000)], queue=0, tags=["red", "green"])
    queue = cluster.route("by-expression", fresh=True).readable[0]
    wanted = Filter("SQL92", "KEYS IN ('k7', 'k1999') OR (TAGS = 'green' AND KEYS STARTSWITH 'k100')")
    found = read(puller(cluster, wanted=wanted), Range(queue, 0, 2_000))
    assert [number for number, _ in found] == [7, 1001, 1003, 1005, 1007, 1009, 1999]


def test_an_expression_that_does_not_compile(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "wrong-expression")
    send(cluster, "wrong-expression", [b"x"], queue=0)
    queue = cluster.route("wrong-expression", fresh=True).readable[0]
    with pytest.raises(SparkError, match="'>' at character 5"):
        read(puller(cluster, wanted=Filter("SQL92", "n > > 1")), Range(queue, 0, 1))


def test_a_queue_that_is_shorter_than_promised(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "short")
    send(cluster, "short", [b"a", b"b"], queue=0)
    queue = cluster.route("short", fresh=True).readable[0]
    with pytest.raises(DataLossError, match="ends at offset 2, but 5 was planned"):
        read(puller(cluster, patience=Patience(0.0)), Range(queue, 0, 5))
    found = read(puller(cluster, patience=Patience(0.0), fail_on_loss=False), Range(queue, 0, 5))
    assert len(found) == 2


def test_a_topic_that_has_got_fewer_queues_since_the_read_was_planned(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "fewer", queues=2)
    send(cluster, "fewer", [b"a"], queue=0)
    send(cluster, "fewer", [b"b", b"c"], queue=1)
    first, second = cluster.route("fewer", fresh=True).readable
    create_topic(broker.namesrv, "fewer", queues=1)
    expected = (
        r"queue 1: messages 0 to 1 were planned, but the topic has only 1 read queues .* readQueueNums to 2 or more"
    )
    with pytest.raises(DataLossError, match=expected):
        read(puller(cluster), Range(first, 0, 1), Range(second, 0, 2))
    found = read(puller(cluster, fail_on_loss=False), Range(second, 0, 2), Range(first, 0, 1))
    assert found == [(0, b"a")]
    create_topic(broker.namesrv, "fewer", queues=2)
    assert read(puller(cluster), Range(second, 0, 2)) == [(0, b"b"), (1, b"c")]


def test_a_broker_that_restarts(tmp_path: Path) -> None:
    """Read on, from where the reading was, when the broker is back."""
    broker = EmbeddedThread(store=tmp_path / "store")
    broker.start()
    ports: dict[str, Any] = {
        "namesrv_port": int(broker.namesrv.split(":")[1]),
        "port": int(broker.address.split(":")[1]),
    }
    cluster = Cluster((broker.namesrv,), ACCESS, 5.0)
    create_topic(broker.namesrv, "restart")
    bodies = [b"%d" % n + bytes(10_000) for n in range(400)]  # many answers
    send(cluster, "restart", bodies, queue=0)
    queue = cluster.route("restart", fresh=True).readable[0]
    second: list[EmbeddedThread] = []

    def come_back(_: float) -> None:
        if not second:
            second.append(EmbeddedThread(store=tmp_path / "store", **ports))
            second[0].start()

    batches = puller(cluster, patience=Patience(30.0, sleep=come_back)).read((Range(queue, 0, 400),))
    found = next(batches).column(1).to_pylist()
    broker.stop()
    try:
        for batch in batches:
            found += batch.column(1).to_pylist()
    finally:
        second[0].stop()
        wire.close_all()
    assert found == bodies


def test_a_name_server_that_restarts(tmp_path: Path) -> None:
    """An older connection may be closed; that does not mean that the server is unreachable."""
    with EmbeddedThread(store=tmp_path / "store") as broker:
        ports: dict[str, Any] = {
            "namesrv_port": int(broker.namesrv.split(":")[1]),
            "port": int(broker.address.split(":")[1]),
        }
        create_topic(broker.namesrv, "again")
        namesrv = broker.namesrv
        known = Cluster((namesrv,), ACCESS, 0.0)
        route = known.route("again")
    with pytest.raises(UnreachableError, match="no name server answers"):
        known.route("again", fresh=True)
    back: list[EmbeddedThread] = []

    def come_back(_: float) -> None:
        if not back:
            back.append(EmbeddedThread(store=tmp_path / "store", **ports))
            back[0].start()

    try:
        answer = persist("the test", lambda: known.route("again", fresh=True), 60.0, sleep=come_back)
        assert answer == route
        assert Cluster((namesrv,), ACCESS, 0.0).route("again") == route
    finally:
        back[0].stop()
        wire.close_all()


# ── Sending ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def sender(cluster: Cluster) -> Sender:
    return Sender(cluster, "spark-test", Patience(5.0))


def batch_of(rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def test_every_row_is_a_message(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "sink", queues=4)
    rows = [
        {"body": b"%d" % n, "tags": f"t{n}", "keys": [f"a{n}", f"b{n}"], "ordering_key": f"o{n % 7}", "flag": n}
        for n in range(2000)
    ]
    sending = sender(cluster)
    sending.send(Drafts("sink", "job/0").of(batch_of(rows)))
    assert sending.sent.messages == 2000
    assert sending.sent.requests < 50
    found = pull_all(cluster, "sink")
    assert sorted(row["flag"] for row in found) == list(range(2000))
    for row in found:
        n = row["flag"]
        assert (row["body"], row["tags"], row["keys"]) == (b"%d" % n, f"t{n}", f"a{n} b{n}")
    queues = {row["queue_id"] for row in found}
    assert len(queues) > 1
    for key in range(7):  # an ordering key has one queue, and its messages their order there
        own = [row for row in found if row["flag"] % 7 == key]
        assert len({row["queue_id"] for row in own}) == 1
        assert [row["flag"] for row in sorted(own, key=lambda row: row["queue_offset"])] == list(range(key, 2000, 7))


def test_a_connection_that_breaks_with_requests_under_way(
    broker: EmbeddedThread, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.namesrv, "breaks", queues=3)
    cluster.route("breaks")
    answer, asked = wire.Link.answer, itertools.count()

    def break_once(link: wire.Link, number: int) -> Command:
        if next(asked) == 4:
            link.close()
        return answer(link, number)

    monkeypatch.setattr(wire.Link, "answer", break_once)
    monkeypatch.setattr("kourou.spark.sending.BATCH_ROWS", 1)
    sending = sender(cluster)
    sending.send(Drafts("breaks", "job/0").of(batch_of([{"body": b"%d" % n} for n in range(30)])))
    assert sending.sent.messages == 30
    assert 0 < sending.sent.repeated <= WINDOW
    found = pull_all(cluster, "breaks")
    assert {row["body"] for row in found} == {b"%d" % n for n in range(30)}
    assert len({row["unique_key"] for row in found}) == 30


def test_a_refusal_ends_it_and_leaves_no_answers_behind(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "refuses", queues=1)
    good = batch_parcel("refuses", 0, b"".join(d.entry() for d in Drafts("x", "a").of(batch_of([{"body": b"1"}]))), 1)
    bad = batch_parcel("refuses", 0, b"not a batch", 1)
    sending = sender(cluster)
    sending.send_parcels([good, bad, good, good])
    with pytest.raises(SparkError, match="the broker refuses a message"):
        sending.finish()
    again = sender(cluster)
    again.send_parcels([good])
    again.finish()
    assert again.sent.messages == 1


def test_repeated_rows_have_the_same_keys(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "again")
    batch = batch_of([{"body": b"%d" % n} for n in range(10)])
    for identity in ("job/0", "job/0", "job/1"):
        sender(cluster).send(Drafts("again", identity).of(batch))
    keys = [row["unique_key"] for row in pull_all(cluster, "again")]
    assert len(keys) == 30
    assert len(set(keys)) == 20


def test_rows_from_a_topic_are_known_by_their_place() -> None:
    place = {"topic": "t", "broker": "b", "queue_id": 1, "queue_offset": 7}
    first, second = (
        next(Drafts("out", identity).of(batch_of([{"body": b"x", **place}]))).properties for identity in "ab"
    )
    assert first == second
    [kept] = Drafts("out", "a").of(batch_of([{"body": b"x", "unique_key": "MINE", **place}]))
    assert "UNIQ_KEY\x01MINE\x02" in kept.properties


@pytest.mark.parametrize("keys", [None, "k", "a b"])
@pytest.mark.parametrize("tags", [None, "t", ""])
@pytest.mark.parametrize("order", [None, "o"])
def test_the_quick_way_and_the_careful_one_say_the_same(keys: str | None, tags: str | None, order: str | None) -> None:
    text = [(name, pa.string()) for name in ("tags", "keys", "ordering_key")]
    kind = pa.schema([("body", pa.binary()), *text])
    careful = pa.schema([*kind, ("delay_level", pa.int32())])
    row = {"body": b"x", "tags": tags, "keys": keys, "ordering_key": order, "delay_level": None}
    [quick], [slow] = (list(Drafts("out", "a").of(batch_of([row], one))) for one in (kind, careful))
    assert decode(quick.properties) == decode(slow.properties)
    assert (quick.ordering_key, quick.flag, quick.body, quick.is_delayed) == (order, 0, b"x", False)


def test_delayed_messages_are_sent_by_themselves() -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    drafts = list(
        Drafts("out", "a").of(
            batch_of(
                [
                    {"body": b"x", "delay_level": 3, "deliver_at": None},
                    {"body": b"x", "delay_level": None, "deliver_at": moment},
                    {"body": b"x", "delay_level": None, "deliver_at": None},
                ]
            )
        )
    )
    assert [draft.is_delayed for draft in drafts] == [True, True, False]
    assert "DELAY\x013\x02" in drafts[0].properties
    assert f"TIMER_DELIVER_MS\x01{round(moment.timestamp() * 1000)}\x02" in drafts[1].properties


def test_system_properties_are_not_passed_on() -> None:
    kind = pa.schema([("body", pa.binary()), ("properties", pa.map_(pa.string(), pa.string()))])
    given = [("mine", "1"), (Property.DELAY_LEVEL, "3"), ("MIN_OFFSET", "5"), ("KEYS", "k"), ("TAGS", "t")]
    [draft] = Drafts("out", "a").of(batch_of([{"body": b"x", "properties": given}], kind))
    assert "mine\x011\x02" in draft.properties
    assert "KEYS\x01k\x02" in draft.properties
    assert "TAGS\x01t\x02" in draft.properties
    assert "DELAY" not in draft.properties
    assert "MIN_OFFSET" not in draft.properties


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"body": None}, "row 1 can't be sent: its body is null"),
        ({"body": b""}, "its body has 0 bytes"),
        ({"body": b"x" * (4 << 20) + b"x"}, "its body has 4194305 bytes"),
        ({"body": b"x", "tags": "a\x02b"}, "separator"),
        ({"body": b"x", "delay_level": 1, "deliver_at": datetime.now(UTC) + timedelta(1)}, "not both"),
    ],
)
def test_rows_that_can_t_be_sent(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(SparkError, match=reason):
        list(Drafts("out", "a").of(batch_of([row])))


def test_a_message_that_the_broker_refuses(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "refusing")
    draft = next(Drafts("refusing", "a").of(batch_of([{"body": b"x"}])))
    draft.topic = "SCHEDULE_TOPIC_XXXX"  # the system's own
    with pytest.raises((SparkError, OptionError), match="SCHEDULE_TOPIC_XXXX"):
        sender(cluster).send([draft])


def test_secrets_do_not_show() -> None:
    assert "hidden" not in repr(Access(access_key="key", secret_key="hidden"))


def test_names_of_options_in_any_case() -> None:
    given = Options({"Topics": " a, b "}, ["topics"])
    assert given.names("topics") == ["a", "b"]


def test_threads_have_connections_of_their_own(broker: EmbeddedThread) -> None:
    """An answer would be read by the thread that reads first."""
    mine = wire.connect(broker.namesrv, ACCESS)
    assert wire.connect(broker.namesrv, ACCESS) is mine
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(wire.connect, broker.namesrv, ACCESS).result()
    assert other is not mine
    wire.forget(broker.namesrv, ACCESS)
    wire.connect(broker.namesrv, ACCESS)  # that of the thread which has ended goes with it
    assert other.broken
