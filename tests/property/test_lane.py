"""The fast lane beside the general path, whose word is the truth: the same bytes, split anywhere, valid and broken.

Answers, commit log, queues, index, offsets and counters are equal to the byte. Requests are drawn so that most are
usual, many nearly so, and some wrong; between them other requests change what the lane has learned.
"""

from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.property.lane_worlds import Twins

from kourou.broker import lane
from kourou.protocol import bodies, frame, headers, properties as _properties
from kourou.protocol.codes import PullSysFlag, RequestCode
from kourou.protocol.command import Command
from kourou.protocol.frame import Decoder
from kourou.protocol.hashes import java_hash
from kourou.store.settings import FlushMode
from kourou.testing.broker import SMALL_STORE

pytestmark = pytest.mark.skipif(not lane.IS_COMPILED, reason="the lane is not compiled, or KOUROU_PURE=1")

TOPICS = ("orders", "orders", "orders", "bills", "nobody-made-it", "%RETRY%readers", "SCHEDULE_TOPIC_XXXX", "ordérs")
USUAL = {"KEYS": "k1 k2", "UNIQ_KEY": "7F0000010A5C2A139A6D4E8B3C5F0001", "TAGS": "paid", "WAIT": "true"}
CHANGES = (
    *(b"brokerPermission=6",) * 4,
    b"brokerPermission=4",
    b"slaveReadEnable=true",
    b"slaveReadEnable=false",
    b"maxTransferCountOnMessageInMemory=2",
    b"maxFilterMessageSize=40",
    b"maxFilterMessageSize=16000",
    b"maxTransferCountOnMessageInMemory=100\nmaxTransferBytesOnMessageInMemory=1000",
)
SOON_MS = 1_700_000_060_123
BULK = int(PullSysFlag.BULK)
QUEUE = {"consumerGroup": "readers", "topic": "orders", "queueId": "1"}
SYNC = replace(SMALL_STORE, flush_mode=FlushMode.SYNC)


# ── Requests ────────────────────────────────────────────────────────────────────────────────────────────────────────


def send_header(**given: Any) -> dict[str, str]:
    usual: dict[str, Any] = {
        "producer_group": "writers",
        "topic": "orders",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 1,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_123,
        "flag": 0,
        "properties": _properties.encode(USUAL),
        "reconsume_times": 0,
        "unit_mode": False,
        "batch": False,
        "max_reconsume_times": None,
        "broker_name": "broker-a",
    }
    return headers.SendMessageV2(**(usual | given)).encode()


def pull_header(**given: Any) -> dict[str, str]:
    usual: dict[str, Any] = {
        "consumer_group": "readers",
        "topic": "orders",
        "queue_id": 1,
        "queue_offset": 0,
        "max_msg_nums": 32,
        "sys_flag": 2,
        "commit_offset": 0,
        "suspend_timeout_millis": 15_000,
        "sub_version": 0,
        "expression_type": "TAG",
        "max_msg_bytes": None,
    }
    return headers.PullMessage(**(usual | given)).encode()


def java(code: int, ext: dict[str, str], body: bytes | None = None, *, opaque: int = 7, flag: int = 0) -> bytes:
    """As Java's client writes it. A message has a body."""
    if body is None:
        body = b"x" if code == RequestCode.SEND_MESSAGE_V2 else b""
    return frame.encode(Command(code, opaque, flag, 513, "JAVA", None, ext, body))


def go(code: int, ext: dict[str, str], body: bytes = b"", *, opaque: int = 7) -> bytes:
    """As the Go client writes it: other keys first, and an empty remark."""
    fields = msgspec.json.encode(ext).decode()
    header = (
        f'{{"code":{code},"language":"GO","version":317,"opaque":{opaque},"flag":0,"remark":"","extFields":{fields}}}'
    ).encode()
    return (4 + len(header) + len(body)).to_bytes(4) + len(header).to_bytes(4) + header + body


RAW = _properties.encode(USUAL).encode()
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
HALF = "TRAN_MSG\x01true\x02PGROUP\x01writers\x02"


def half(**given: Any) -> bytes:
    """A half message."""
    return java(310, send_header(**{"sys_flag": 4, "properties": RAW.decode() + HALF} | given), b"half")


def end(queue_offset: int, log_offset: int, **given: str) -> bytes:
    """A commit, as Java's client writes it."""
    ext = {
        "topic": "orders",
        "producerGroup": "writers",
        "tranStateTableOffset": str(queue_offset),
        "commitLogOffset": str(log_offset),
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": "7F0000010A5C2A139A6D4E8B3C5F0001",
        "transactionId": "7F0000010A5C2A139A6D4E8B3C5F0001",
        "bname": "broker-a",
    }
    return java(37, {name: value for name, value in (ext | given).items() if value}, flag=2)


def half_place(twins: Twins, queue_offset: int) -> int:
    """Where a half message is in the log."""
    queue = twins.general.store.queues.get(HALF_TOPIC, 0)
    assert queue is not None
    offset: int = queue.entry(queue_offset)[0]
    return offset


def batch(entries: list[tuple[int, bytes, bytes]]) -> bytes:
    """The body of SEND_BATCH_MESSAGE: flag, body and properties of each message."""
    return b"".join(
        (22 + len(body) + len(raw)).to_bytes(4)
        + bytes(8)
        + flag.to_bytes(4)
        + len(body).to_bytes(4)
        + body
        + len(raw).to_bytes(2)
        + raw
        for flag, body, raw in entries
    )


def heartbeat(tags: str = "*", version: int = 0, group: str = "readers") -> bytes:
    codes = [] if tags == "*" else [java_hash(tag) for tag in tags.split("||")]
    subscription = bodies.SubscriptionData(topic="orders", sub_string=tags, sub_version=version, code_set=codes)
    consumer = bodies.ConsumerData(group_name=group, subscription_data_set=[subscription])
    data = bodies.HeartbeatData(client_id="c1", consumer_data_set=[consumer])
    return java(RequestCode.HEART_BEAT, {}, data.encode())


def prepared(twins: Twins) -> Twins:
    """Topics, queues and a group are there, and the lane may serve them."""
    for queue_id in range(4):
        twins.read(java(310, send_header(queue_id=queue_id)))
        twins.read(java(310, send_header(queue_id=queue_id, topic="bills")))
    twins.read(half())
    twins.read(java(310, send_header(properties=RAW.decode() + "TIMER_DELAY_SEC\x01100\x02")))
    twins.read(heartbeat())
    twins.compare()
    return twins


# ── Requests that it serves, or leaves ───────────────────────────────────────────────────────────────────────────────

TAKEN = {
    "a send": java(310, send_header(), b"hello"),
    "as Go writes it": go(310, send_header(), b"hello"),
    "a body that zlib checks": java(310, send_header(), b"x" * 5000),
    "nobody waits": java(310, send_header(), b"hello", flag=2),
    "properties of users, in any language": java(
        310, send_header(properties="städte\x01köln 北京 🚀\x02" + RAW.decode())
    ),
    "properties without their last separator": java(310, send_header(properties=RAW.decode()[:-1])),
    "compressed": java(310, send_header(sys_flag=1), b"hello"),
    "a batch": java(
        320, send_header(batch=True, properties="WAIT\x01true\x02"), batch([(0, b"a", RAW), (3, b"bc", b"")])
    ),
    "a batch by the other code": java(310, send_header(batch=True), batch([(0, b"a", RAW)])),
    "a half message": half(),
    "a half message with other bits": half(sys_flag=13),
    "a half message that nobody waits for": java(
        310, send_header(properties=HALF + RAW.decode(), queue_id=3), b"half", flag=2
    ),
    "a timed message": java(310, send_header(properties=RAW.decode() + f"TIMER_DELIVER_MS\x01{SOON_MS}\x02")),
    "a message that is due after some seconds": java(
        310, send_header(properties="TIMER_DELAY_SEC\x019\x02" + RAW.decode(), queue_id=3)
    ),
    "a message that is due in milliseconds": java(
        310, send_header(topic="bills", properties=RAW.decode() + "TIMER_DELAY_MS\x012345\x02")
    ),
    "a message of an ordered sequence": java(310, send_header(properties=RAW.decode() + "__SHARDINGKEY\x0142\x02")),
    "an ordered batch": java(
        320,
        send_header(batch=True, properties="__SHARDINGKEY\x0142\x02"),
        batch([(0, b"a" * 3000, RAW), (0, b"b", RAW)]),
    ),
    "an ordered message that is timed": java(
        310, send_header(properties=RAW.decode() + "__SHARDINGKEY\x0142\x02TIMER_DELAY_SEC\x019\x02")
    ),
    "a pull": java(11, pull_header()),
    "a pull that commits": java(11, pull_header(sys_flag=3, commit_offset=1)),
    "a pull with its subscription": java(11, pull_header(sys_flag=6, subscription="paid || open")),
    "several": java(310, send_header(), b"one") + java(11, pull_header()) + java(310, send_header(queue_id=2), b"two"),
}
LEFT = {
    "no body": java(310, send_header(), b""),
    "a new topic": java(310, send_header(topic="new")),
    "a new queue": java(310, send_header(queue_id=7)),
    "a queue that is none": java(310, send_header(queue_id=99)),
    "any queue": java(310, send_header(queue_id=-1)),
    "a topic for retries": java(310, send_header(topic="%RETRY%readers")),
    "a delay": java(310, send_header(properties=RAW.decode() + "DELAY\x013\x02")),
    "a half message of another kind": half(properties=RAW.decode() + "TRAN_MSG\x01TRUE\x02PGROUP\x01writers\x02"),
    "a half message that is delayed": half(properties=RAW.decode() + HALF + "DELAY\x013\x02"),
    "a half message that is timed": half(properties=RAW.decode() + HALF + "TIMER_DELAY_SEC\x013\x02"),
    "bits of a transaction": java(310, send_header(sys_flag=4)),
    "a batch in one record": java(310, send_header(sys_flag=0xC0)),
    "a batch of batches in one record": java(320, send_header(batch=True, sys_flag=0x80), batch([(0, b"a", RAW)])),
    "a delayed batch": java(320, send_header(batch=True, properties="DELAY\x013\x02"), batch([(0, b"a", RAW)])),
    "a batch of half messages": java(320, send_header(batch=True, properties=HALF), batch([(0, b"a", RAW)])),
    "a time in the past": java(310, send_header(properties=RAW.decode() + "TIMER_DELIVER_MS\x0117\x02")),
    "a time too far away": java(310, send_header(properties=RAW.decode() + "TIMER_DELAY_SEC\x0199999999\x02")),
    "two times": java(310, send_header(properties=RAW.decode() + "TIMER_DELAY_SEC\x013\x02TIMER_DELAY_MS\x0150\x02")),
    "no time": java(310, send_header(properties=RAW.decode() + "TIMER_DELAY_SEC\x01soon\x02")),
    "no delay": java(310, send_header(properties=RAW.decode() + "TIMER_DELAY_MS\x010\x02")),
    "the end of what is not there": end(77, 12345),
    "no unique key": java(310, send_header(properties="KEYS\x01a\x02")),
    "a property twice": java(310, send_header(properties=RAW.decode() + "KEYS\x01b\x02")),
    "the region given": java(310, send_header(properties=RAW.decode() + "MSG_REGION\x01x\x02")),
    "a pair without value": java(310, send_header(properties=RAW.decode() + "x\x01\x02")),
    "a zero": java(310, send_header(properties=RAW.decode() + "x\x01a\x00b\x02")),
    "too large": java(310, send_header(), bytes(SMALL_STORE.max_body_size + 1)),
    "the binary form": frame.encode(Command(310, ext=send_header(), body=b"hello", binary=True)),
    "an empty batch": java(320, send_header(batch=True)),
    "a batch of more messages than are allowed": java(320, send_header(batch=True), batch([(0, b"a", RAW)] * 4_001)),
    "a batch that is cut": java(320, send_header(batch=True), batch([(0, b"abc", RAW)])[:-1]),
    "a pull at the end": java(11, pull_header(queue_offset=1000)),
    "a pull of what is not there": java(11, pull_header(topic="bills", queue_id=3)),
    "a pull of tags that nobody sends": java(11, pull_header(sys_flag=6, subscription="nothing")),
    "a newer subscription": java(11, pull_header(sub_version=1)),
    "a pull by expression": java(11, pull_header(sys_flag=4, subscription="a > 1", expression_type="SQL92")),
    "another request": heartbeat(),
}


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("store_settings", [SMALL_STORE, SYNC], ids=["async", "sync"])
def test_it_takes_what_is_usual(name: str, store_settings: Any) -> None:
    twins = prepared(Twins(store_settings=store_settings))
    assert twins.read(TAKEN[name]) == len(TAKEN[name])
    twins.compare()


@pytest.mark.parametrize("store_settings", [SMALL_STORE, SYNC], ids=["async", "sync"])
def test_it_counts_latencies_as_the_general_path_does(store_settings: Any) -> None:
    """Requests are told apart by their numbers, which clients give each of them."""
    twins = Twins(store_settings=store_settings)
    twins.read(java(310, send_header(queue_id=1), opaque=1))
    twins.read(heartbeat())
    twins.read(
        b"".join(
            (
                java(310, send_header(), opaque=10),
                java(310, send_header(batch=True), batch([(0, b"a", RAW)]), opaque=11),
                java(320, send_header(batch=True), batch([(0, b"a", RAW), (0, b"b", RAW)]), opaque=12),
                java(320, send_header(batch=True), batch([(0, b"a", RAW)]), opaque=13, flag=2),
                java(310, send_header(), opaque=14, flag=2),
                java(11, pull_header(), opaque=15),
                java(310, send_header(topic="another"), opaque=16),
            )
        )
    )
    twins.compare()
    fast, general = twins.fast.latencies(), twins.general.latencies()
    assert fast == general
    assert fast["send_message_v2", "success", "success"] == 4
    assert fast["send_batch_message", "success", "success"] == 1
    assert fast["send_batch_message", "success", "oneway"] == 1
    assert ("pull_message", "success", "success") in fast


@pytest.mark.parametrize("name", LEFT)
def test_it_leaves_the_rest(name: str) -> None:
    twins = prepared(Twins())
    usual = TAKEN["a send"]
    assert twins.read(usual + LEFT[name] + usual) == len(usual)
    twins.compare()


# ── Ends of transactions ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("store_settings", [SMALL_STORE, SYNC], ids=["async", "sync"])
def test_it_commits_half_messages(store_settings: Any) -> None:
    twins = prepared(Twins(store_settings=store_settings))
    assert twins.read(half(queue_id=2) * 3) > 0
    data = b"".join(end(at, half_place(twins, at)) for at in (2, 0, 3))
    assert twins.read(data) == len(data)
    twins.compare()
    twins.tick(5_000)  # op records are written
    twins.compare()
    twins.tick(120_000)  # the producer is asked about what is open
    twins.compare()


def test_a_commit_may_come_without_what_is_not_necessary() -> None:
    twins = prepared(Twins())
    data = end(0, half_place(twins, 0), topic="", transactionId="", bname="", fromTransactionCheck="")
    assert twins.read(data) == len(data)
    twins.compare()


@pytest.mark.parametrize(
    "given",
    [
        {"commitOrRollback": "12"},
        {"commitOrRollback": "0"},
        {"commitOrRollback": "7"},
        {"producerGroup": "others"},
        {"tranStateTableOffset": "1"},
        {"tranStateTableOffset": "-1"},
        {"commitLogOffset": "0"},
        {"commitLogOffset": "99999999"},
        {"fromTransactionCheck": "perhaps"},
        {"msgId": ""},
    ],
)
def test_it_leaves_other_ends(given: dict[str, str]) -> None:
    twins = prepared(Twins())
    place = half_place(twins, 0)
    twins.read(half())
    assert twins.read(end(0, place, **given)) == 0
    twins.compare()


def test_it_leaves_a_second_end() -> None:
    twins = prepared(Twins())
    data = end(0, half_place(twins, 0))
    assert twins.read(data * 2) == len(data)
    assert twins.read(data) == 0
    twins.compare()


def test_it_leaves_two_way_ends() -> None:
    twins = prepared(Twins())
    data = end(0, half_place(twins, 0))
    assert twins.read(data.replace(b'"flag":2', b'"flag":0')) == 0
    twins.compare()


@pytest.mark.parametrize(
    "properties",
    [
        "CHECK_IMMUNITY_TIME_IN_SECONDS\x0160\x02",
        "REAL_TOPIC\x01bills\x02",
        "REAL_QID\x013\x02",
        "TRANSACTION_CHECK_TIMES\x011\x02",
        "TRAN_PREPARED_QUEUE_OFFSET\x010\x02",
        "__transactionId__\x01x\x02",
        "x\x01REAL_TOPIC\x01y\x02",
    ],
)
def test_half_messages_with_properties_that_mean_something(properties: str) -> None:
    twins = prepared(Twins())
    twins.read(half(properties=properties + RAW.decode() + HALF))
    place = half_place(twins, 1)
    twins.read(end(1, place))
    twins.read(end(0, half_place(twins, 0)))
    twins.compare()


def test_it_leaves_the_end_of_a_copy() -> None:
    twins = prepared(Twins())
    place = half_place(twins, 0)
    twins.read(
        java(
            34,
            {},
            bodies.HeartbeatData(client_id="w", producer_data_set=[bodies.ProducerData(group_name="writers")]).encode(),
        )
    )
    twins.tick(120_000)
    copy = half_place(twins, 1)
    assert twins.read(end(1, copy)) == 0
    assert twins.read(end(0, place)) == 0
    twins.compare()


def test_it_leaves_an_end_while_transactions_are_rejected() -> None:
    twins = prepared(Twins({"reject_transactions": False}))
    for world in twins.worlds:
        world.settings.reject_transactions = True
        world.tick()
    assert twins.read(half()) == 0
    twins.compare()


def test_bytes_of_a_body_are_not_a_half_message() -> None:
    """A client that knows where its body is in the log can't have a record of its own making committed."""
    twins = prepared(Twins())
    place = half_place(twins, 0)
    forged = bytes(twins.general.store.log.read(place, 400))
    twins.read(java(310, send_header(), forged))
    queue = twins.general.store.queues.get("orders", 1)
    assert queue is not None
    body = queue.entry(queue.end - 1)[0] + 48 + 8 + 8 + 8 + 16
    for number in (0, 1):
        assert twins.read(end(number, body)) == 0
    twins.compare()


@pytest.mark.parametrize("cut", range(0, 600, 23))
def test_a_frame_may_come_in_pieces(cut: int) -> None:
    twins = prepared(Twins())
    data = TAKEN["several"] * 2
    assert twins.read(data[:cut]) + twins.read(data[cut:]) == len(data)
    twins.compare()


def test_under_sync_flush_answers_wait_for_the_disk() -> None:
    twins = prepared(Twins(store_settings=SYNC))
    world = twins.fast
    world.lazy = True
    before = len(world.wires[0].sent)
    world.receive(0, TAKEN["a send"] * 3)
    assert len(world.wires[0].sent) == before
    assert world.machine.writer.waiting == 3
    world.lazy = False
    world.work()
    assert len(Decoder().feed(bytes(world.wires[0].sent[before:]))) == 3
    assert world.machine.writer.waiting == 0


def test_under_sync_flush_answers_say_when_it_took_too_long() -> None:
    twins = prepared(Twins(store_settings=SYNC))
    for world in twins.worlds:
        world.lazy = True
    twins.read(TAKEN["a send"] * 2)
    twins.tick(SYNC.sync_flush_timeout_ms + 1)
    twins.compare()
    late = Decoder().feed(bytes(twins.fast.wires[0].sent))[-2:]
    assert [answer.code for answer in late] == [10, 10]


def test_a_waiting_pull_is_answered_by_what_the_lane_stores() -> None:
    twins = prepared(Twins())
    twins.read(java(11, pull_header(queue_id=0, queue_offset=1), opaque=77), 1)
    before = len(twins.fast.wires[1].sent)
    assert twins.read(java(310, send_header(queue_id=0), b"news"))
    (answer,) = Decoder().feed(bytes(twins.fast.wires[1].sent[before:]))
    assert (answer.opaque, answer.code) == (77, 0)
    twins.compare()


def test_a_waiting_pull_is_answered_if_another_request_has_dispatched() -> None:
    twins = prepared(Twins())
    twins.read(java(11, pull_header(queue_id=0, queue_offset=1), opaque=77), 1)
    twins.read(java(310, send_header(queue_id=0), b"news") + java(215, {"topic": "bills"}))
    twins.compare()
    for world in twins.worlds:
        assert Decoder().feed(bytes(world.wires[1].sent))[-1].opaque == 77


def test_a_turn_of_the_lane_gives_a_limited_amount_of_answers() -> None:
    twins = prepared(Twins())
    for _ in range(40):
        twins.read(java(310, send_header(), b"x" * 4000))
    data = java(11, pull_header()) * 50
    assert twins.read(data) == len(data)
    one_answer = 40 * 4400
    assert twins.fast.lane is not None
    assert lane.ANSWERS_MAX <= twins.fast.lane.answers_max < lane.ANSWERS_MAX + one_answer
    twins.compare()


def test_it_learns_again_when_settings_change() -> None:
    twins = prepared(Twins())
    config = bodies.TopicConfig(topic_name="orders", read_queue_nums=1, write_queue_nums=1, perm=6)
    for world in twins.worlds:
        world.machine.topics.put(config, world.now_ms)
        world.tick()
    assert twins.read(TAKEN["a send"]) == 0  # its queue is none of the topic's any more
    for world in twins.worlds:
        world.settings.permission = 2
        world.tick()
    assert twins.read(java(11, pull_header(queue_id=0))) == 0
    twins.compare()


# ── Whatever comes ──────────────────────────────────────────────────────────────────────────────────────────────────

ODD_PROPERTIES = (
    *("", "DELAY\x012\x02", "MSG_REGION\x01x\x02", "TRACE_ON\x01false\x02", "CLUSTER\x01c\x02", "POP_CK\x01x\x02"),
    *("TRAN_MSG\x01true\x02", "TIMER_DELAY_SEC\x015\x02", "WAIT\x01false\x02", "KEYS\x01again\x02", "\x02", "x\x02"),
    *("x\x01\x02", "\x01y\x02", "x\x01a\x01b\x02", "e\x01\u20ac\x02", "z\x01\x00\x02", "UNIQ_KEY\x01second\x02"),
    *('q\x01"quoted\\"\x02', "__SHARDINGKEY\x0142\x02", "n\x01line\nbreak\x02"),
)


def draw_send(rnd: Random) -> tuple[dict[str, str], bytes]:
    usual = rnd.random() < 0.75
    text = _properties.encode(
        {**USUAL, "UNIQ_KEY": f"{rnd.randrange(10**6):032X}", "TAGS": rnd.choice(("paid", "open"))}
    )
    given: dict[str, Any] = {"queue_id": rnd.randrange(4), "properties": text}
    if not usual:
        given |= rnd.choice(
            (
                {"topic": rnd.choice(TOPICS)},
                {"queue_id": rnd.choice((-1, 3, 4, 7, 8, 200))},
                {"sys_flag": rnd.choice((1, 2, 4, 8, 12, 0x10, 0x30, -1))},
                {"properties": text + rnd.choice(ODD_PROPERTIES)},
                {"properties": rnd.choice(ODD_PROPERTIES)},
                {"properties": rnd.choice(ODD_PROPERTIES) + text},
                {"properties": None},
                {"reconsume_times": rnd.choice((None, 0, 3, 20)), "max_reconsume_times": rnd.choice((None, 2))},
                {"unit_mode": True, "born_timestamp": rnd.choice((0, -5, 2**62)), "flag": rnd.choice((-1, 2**31 - 1))},
                {"batch": True},
                *(
                    {"properties": text + HALF, "sys_flag": sys_flag, "topic": topic}
                    for sys_flag, topic in ((4, "orders"), (4, "bills"), (0, "orders"), (12, "nobody-made-it"))
                ),
                *(
                    {"properties": text + f"{name}\x01{time}\x02", "sys_flag": rnd.choice((0, 0, 1, 4, 8))}
                    for name, time in (
                        ("TIMER_DELAY_SEC", rnd.choice((0, 1, 3, 7_000, 300_000, "x"))),
                        ("TIMER_DELAY_MS", rnd.choice((-1, 1, 999, 1_000, 2_500, 2**41))),
                        ("TIMER_DELIVER_MS", rnd.choice((5, SOON_MS, SOON_MS - 59_000, 10**17, 2**63))),
                    )
                ),
            )
        )
    ext = send_header(**given)
    if rnd.random() < 0.05:
        ext[rnd.choice("abcdefghijklmn")] = rnd.choice(
            ("", "x", "1", "-1", "01", "+1", "1.0", " 1", "99999999999", "true")
        )
    if rnd.random() < 0.03:
        ext.pop(rnd.choice(list(ext)))
    if rnd.random() < 0.03:
        ext[rnd.choice(("bname", "lo", "nsd", "AccessKey", "topic"))] = "x"
    size = rnd.choice((0, 1, 100, 100, 128, 1023, 1024, 1025, 3000)) if rnd.random() < 0.99 else 33_000
    return ext, bytes([rnd.randrange(256)]) * size


def draw_batch(rnd: Random) -> tuple[dict[str, str], bytes]:
    ext, _ = draw_send(rnd)
    ext["m"] = rnd.choice(("true", "true", "false"))
    entries = [
        (
            rnd.randrange(4),
            bytes(rnd.choice((0, 5, 128))),
            rnd.choice((b"", RAW, b"z\x01\x00\x02", b"\xff\xfe")),
        )
        for _ in range(rnd.choice((0, 1, 2, 8, 32)))
    ]
    body = batch(entries)
    if body and rnd.random() < 0.1:
        at = rnd.randrange(len(body))
        body = rnd.choice((body[:at], body[:at] + bytes([rnd.randrange(256)]) + body[at + 1 :], body + b"\0"))
    return ext, body


def draw_pull(rnd: Random) -> dict[str, str]:
    given: dict[str, Any] = {
        "queue_id": rnd.randrange(4),
        "queue_offset": rnd.choice((0, 0, 1, 2, 5, 20, 100)),
        "sys_flag": rnd.choice((0, 1, 2, 3, BULK, BULK + 2)),
        "commit_offset": rnd.randrange(5),
        "suspend_timeout_millis": 500,
    }
    if rnd.random() < 0.4:
        given |= rnd.choice(
            (
                {
                    "sys_flag": rnd.choice((4, 5, 6, 7)),
                    "subscription": rnd.choice((None, "*", "", "paid", "open||none", "||")),
                },
                {"topic": rnd.choice(TOPICS)},
                {"consumer_group": rnd.choice(("readers", "others", "new group"))},
                {
                    "max_msg_nums": rnd.choice((-1, 0, 1, 2, 64, 1000)),
                    "max_msg_bytes": rnd.choice((None, 0, -1, 1, 300, 10**6)),
                },
                {"queue_id": rnd.choice((-1, 4, 7, 8))},
                {"queue_offset": rnd.choice((-1, 10**12)), "sub_version": rnd.choice((0, 5))},
                {"sys_flag": 4, "subscription": "a > 1", "expression_type": rnd.choice(("SQL92", "", "TAG", "X"))},
            )
        )
    return pull_header(**given)


def draw_other(rnd: Random) -> bytes:
    topic = bodies.TopicConfig(
        topic_name="orders", read_queue_nums=rnd.choice((4, 8)), perm=rnd.choice((2, 4, 6, 6, 6, 6, 6, 6))
    )
    return rnd.choice(
        (
            lambda: heartbeat(rnd.choice(("*", "*", "paid", "paid||open")), rnd.randrange(8)),
            lambda: heartbeat(group="others"),
            lambda: java(15, {**QUEUE, "commitOffset": "3"}, flag=2),
            lambda: java(14, QUEUE),
            lambda: java(35, {"clientID": "c1", "consumerGroup": "readers"}),
            lambda: java(
                17,
                headers.CreateTopic(
                    topic="orders",
                    default_topic="TBW102",
                    read_queue_nums=topic.read_queue_nums,
                    write_queue_nums=4,
                    perm=topic.perm,
                    topic_filter_type=rnd.choice(("SINGLE_TAG", "MULTI_TAG")),
                    order=False,
                ).encode(),
            ),
            lambda: java(215, {"topic": "bills"}),
            lambda: java(25, {}, rnd.choice(CHANGES)),
            lambda: java(207, {"groupName": "readers", "cleanOffset": "false"}),
            lambda: java(222, {**QUEUE, "group": "readers", "timestamp": "0", "isForce": "true", "offset": "0"}),
            lambda: bytes([rnd.randrange(256)]) * rnd.choice((1, 40)),
        )
    )()  # fmt: skip


def draw_frame(rnd: Random, opaque: int) -> bytes:
    flag = rnd.choice((0, 0, 0, 0, 0, 2, 1))
    dice = rnd.random()
    if dice < 0.5:
        ext, body = draw_send(rnd)
        made = rnd.choice((java, java, java, go))(310, ext, body, opaque=opaque)
        return made if made[4] or flag == 0 else java(310, ext, body, opaque=opaque, flag=flag)
    if dice < 0.6:
        ext, body = draw_batch(rnd)
        return java(rnd.choice((320, 320, 310)), ext, body, opaque=opaque, flag=flag)
    if dice < 0.85:
        return java(11, draw_pull(rnd), opaque=opaque, flag=flag)
    if dice < 0.88:
        ext, body = draw_send(rnd)
        return frame.encode(Command(310, opaque, ext=ext, body=body, binary=True))
    return draw_other(rnd) if dice < 0.99 else bytes([rnd.randrange(256)]) * 20


def draw_end(twins: Twins, rnd: Random) -> bytes:
    """The end of one of the last half messages."""
    queue = twins.general.store.queues.get(HALF_TOPIC, 0)
    assert queue is not None
    number = rnd.randrange(max(queue.start, queue.end - 8), queue.end)
    wrong = {}
    if rnd.random() < 0.3:
        wrong = rnd.choice(
            (
                {"commitOrRollback": rnd.choice(("0", "12", "12", "9", "08"))},
                {"producerGroup": "others"},
                {"commitLogOffset": str(rnd.randrange(200_000))},
                {"tranStateTableOffset": str(rnd.randrange(10))},
                {"fromTransactionCheck": "true"},
                {"x": "unknown"},
            )
        )
    made = end(number, half_place(twins, number), **wrong)
    return mutated(rnd, made) if rnd.random() < 0.05 else made


def mutated(rnd: Random, data: bytes) -> bytes:
    """Some bytes of the header are others."""
    changed = bytearray(data)
    for _ in range(rnd.choice((1, 1, 2, 5))):
        changed[rnd.randrange(len(changed))] = rnd.choice(b'"\\{}:,0129az\x00\x01\x02\x1f\x80\xff')
    return bytes(changed)


def drive(twins: Twins, rnd: Random, reads: int) -> None:
    opaque = 100
    for _ in range(reads):
        number = rnd.randrange(3)
        data = b""
        for _ in range(rnd.choice((1, 1, 1, 2, 3, 6))):
            opaque += 1
            one = draw_frame(rnd, opaque)
            data += mutated(rnd, one) if rnd.random() < 0.04 else one
        if rnd.random() < 0.5:
            data += draw_end(twins, rnd)
        while data:
            size = len(data) if rnd.random() < 0.7 else rnd.randint(1, len(data))
            twins.read(data[:size], number)
            data = data[size:]
        if rnd.random() < 0.2:
            twins.tick(rnd.choice((1, 100, 600, 6000)))
        if twins.general.wires[number].decoder.error is not None or rnd.random() < 0.02:
            twins.lose(number)
    twins.compare()


@pytest.mark.parametrize("store_settings", [SMALL_STORE, SYNC], ids=["async", "sync"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(rnd=st.randoms(use_true_random=False), check=st.booleans(), slave_read=st.booleans())
def test_the_same_bytes_have_the_same_effect(store_settings: Any, rnd: Random, check: bool, slave_read: bool) -> None:
    twins = prepared(Twins({"slave_read": slave_read}, store_settings, check=check))
    drive(twins, rnd, 4)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("store_settings", [SMALL_STORE, SYNC], ids=["async", "sync"])
def test_the_same_over_a_longer_time(store_settings: Any, seed: int) -> None:
    """Segments end, queues get a second file, and the index, too."""
    twins = prepared(Twins(store_settings=store_settings, check=seed % 2 == 1))
    drive(twins, Random(seed), 250)
