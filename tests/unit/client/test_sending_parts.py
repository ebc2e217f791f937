"""The parts of sending: drafts, batches, results, in-flight limits, faults, the choice of queues."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kourou.client.errors import InvalidMessageError
from kourou.client.faults import Faults, avoided_ms
from kourou.client.in_flight import InFlightLimit
from kourou.client.outgoing import Message, draft, draft_batches
from kourou.client.results import SendStatus, send_result
from kourou.client.selecting import by_key
from kourou.client.settings import ProducerSettings
from kourou.protocol.batch import decode_batch
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.compression import decompress
from kourou.protocol.errors import HeaderError
from kourou.protocol.headers import SendMessageV2
from kourou.protocol.message import MessageQueue
from kourou.protocol.properties import decode

SETTINGS = ProducerSettings()
QUEUE = MessageQueue("T", "broker-a", 3)


def test_a_draft_carries_what_was_said() -> None:
    message = Message(body=b"x", tag="t", keys=["k1", "k2"], properties={"a": "1"}, flag=5)
    made = draft("T", message, SETTINGS)
    command = made.command("group", QUEUE, 1234)
    header = SendMessageV2.decode(command.ext)
    assert command.code == RequestCode.SEND_MESSAGE_V2
    assert (header.producer_group, header.topic, header.queue_id, header.flag) == ("group", "T", 3, 5)
    assert (header.default_topic, header.default_topic_queue_nums, header.born_timestamp) == ("TBW102", 4, 1234)
    assert (header.broker_name, header.batch, header.unit_mode, header.reconsume_times) == ("broker-a", False, False, 0)
    assert decode(made.properties) == {
        "a": "1",
        "TAGS": "t",
        "KEYS": "k1 k2",
        "UNIQ_KEY": made.unique_id,
        "WAIT": "true",
    }


@pytest.mark.parametrize(
    ("message", "name", "value"),
    [
        (Message(body=b"x", delay=timedelta(seconds=1.5)), "TIMER_DELAY_MS", "1500"),
        (Message(body=b"x", deliver_at=datetime(2030, 1, 1, tzinfo=UTC)), "TIMER_DELIVER_MS", "1893456000000"),
        (Message(body=b"x", delay_level=3), "DELAY", "3"),
        (Message(body=b"x", wait_stored=False), "WAIT", "false"),
    ],
)
def test_what_becomes_a_property(message: Message, name: str, value: str) -> None:
    assert decode(draft("T", message, SETTINGS).properties)[name] == value


@pytest.mark.parametrize(
    "message",
    [
        Message(body=b""),
        Message(body=b"x" * 4_194_305),
        Message(body=b"x", keys=["a b"]),
        Message(body=b"x", keys=[""]),
        Message(body=b"x", delay=timedelta(seconds=-1)),
        Message(body=b"x", delay_level=-1),
        Message(body=b"x", delay_level=1, delay=timedelta(seconds=1)),
    ],
)
def test_messages_that_make_no_sense(message: Message) -> None:
    with pytest.raises(InvalidMessageError):
        draft("T", message, SETTINGS)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"properties": {"UNIQ_KEY": "x"}}, "reserved"),
    ({"properties": {"a": ""}}, "blank"),
    ({"properties": {"a": "\x02"}}, "separator"),
    ({"properties": {"a": "x" * 33_000}}, "bytes"),
    ({"properties": {"a": "x" * 32_750}}, "bytes"),
    ({"properties": {"a": 1}}, "property 'a' must be a string, not int"),
    ({"properties": {"a": None}}, "property 'a' must be a string, not NoneType"),
    ({"properties": {1: "a"}}, "name of a property must be a string, not int"),
    ({"properties": ["a"]}, "map strings to strings, not be a list"),
    ({"tag": 5}, "a tag must be a string, not int"),
    ({"tag": "a\x02b"}, "separator"),
    ({"keys": [42]}, "a key must be a string, not int"),
    ({"keys": 42}, "not int"),
    ({"flag": 2**31}, "32-bit"),
    ({"flag": "1"}, "32-bit"),
    ({"delay": 5}, "delay must be a timedelta, not int"),
    ({"deliver_at": 5}, "deliver_at must be a datetime, not int"),
    ({"delay_level": "3"}, "delay_level must be an integer, not str"),
    ({"delay_level": -1}, "delay level -1 is below 1"),
    ({"deliver_at": datetime(1, 1, 1)}, "deliver_at can't be 0001-01-01"),  # noqa: DTZ001
]


@pytest.mark.parametrize(("wrong", "text"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_with_a_message_is_said_in_one_way(wrong: dict[str, Any], text: str) -> None:
    """One class, as documented, with the name of what is wrong; in batches too."""
    message = Message(body=b"x", **wrong)
    with pytest.raises(InvalidMessageError, match=text):
        draft("T", message, SETTINGS)
    if not any(name.startswith("de") for name in wrong):
        with pytest.raises(InvalidMessageError, match=text):
            draft_batches("T", [message], SETTINGS)


def test_large_bodies_are_compressed_and_small_ones_are_not() -> None:
    small, large = (draft("T", Message(body=b"x" * size), SETTINGS) for size in (4095, 4096))
    assert (small.sys_flag, small.body) == (0, b"x" * 4095)
    assert large.sys_flag == 0x301
    assert decompress(large.body, large.sys_flag) == b"x" * 4096
    plain = draft("T", Message(body=b"x" * 5000), ProducerSettings(compress_from=None))
    assert plain.sys_flag == 0


def test_batches() -> None:
    messages = [Message(body=b"%d" % number, tag="t") for number in range(10)]
    (batch,) = draft_batches("T", messages, SETTINGS)
    entries = decode_batch(batch.body)
    assert [bytes(entry.body) for entry in entries] == [b"%d" % number for number in range(10)]
    assert [entry.properties["UNIQ_KEY"] for entry in entries] == batch.ids.split(",")
    assert {entry.properties["TAGS"] for entry in entries} == {"t"}
    assert batch.command("g", QUEUE, 0).code == RequestCode.SEND_BATCH_MESSAGE
    assert draft_batches("T", [], SETTINGS) == []
    with pytest.raises(InvalidMessageError, match="delayed"):
        draft_batches("T", [Message(body=b"x", delay_level=1)], SETTINGS)


def test_batches_are_split_and_giants_stand_alone() -> None:
    settings = ProducerSettings(batch_size_max=1000)
    sizes = [400, 400, 400, 5000, 10]
    batches = draft_batches("T", [Message(body=b"x" * size) for size in sizes], settings)
    assert [[len(entry.body) for entry in decode_batch(batch.body)] for batch in batches] == [
        [400, 400],
        [400],
        [5000],
        [10],
    ]


def test_results() -> None:
    answer = Command(10, ext={"msgId": "ID", "queueId": "3", "queueOffset": "7", "MSG_REGION": "r"})
    result = send_result(answer, "UNIQUE", QUEUE)
    assert (result.status, result.is_safe) == (SendStatus.FLUSH_DISK_TIMEOUT, False)
    assert (result.message_id, result.offset_id, result.queue, result.queue_offset) == ("UNIQUE", "ID", QUEUE, 7)
    with pytest.raises(HeaderError, match="queueOffset"):
        send_result(Command(0, ext={"msgId": "ID", "queueId": "3"}), "UNIQUE", QUEUE)


def test_keys_choose_queues_as_java_does() -> None:
    queues = [MessageQueue("T", "a", number) for number in range(7)]
    assert by_key("polygenelubricants")(queues).queue_id == 2**31 % 7  # the hash of it is the smallest int
    assert by_key("TopicTest#key1")(queues).queue_id == 1_655_984_460 % 7


async def test_the_gate_lets_in_as_many_as_may_be() -> None:
    limit = InFlightLimit(2, 100)
    await limit.wait(10)
    await limit.wait(10)
    third = asyncio.create_task(limit.wait(10))
    await asyncio.sleep(0)
    assert not third.done()
    limit.leave(10)
    await third
    assert (limit.count, limit.size) == (2, 20)


async def test_a_giant_passes_the_gate_alone() -> None:
    limit = InFlightLimit(10, 100)
    await limit.wait(1000)
    small = asyncio.create_task(limit.wait(1))
    await asyncio.sleep(0)
    assert not small.done()
    limit.leave(1000)
    await small


async def test_a_cancelled_caller_takes_no_turn() -> None:
    limit = InFlightLimit(1, 100)
    await limit.wait(1)
    waiting = [asyncio.create_task(limit.wait(1)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    limit.leave(1)
    waiting[1].cancel()
    await asyncio.gather(waiting[0], waiting[1], return_exceptions=True)
    await waiting[2]
    assert limit.count == 1


async def test_a_large_message_keeps_its_turn() -> None:
    """It lost it each time there was not enough room yet, so small ones could keep it out for good."""
    limit = InFlightLimit(10, 100)
    await limit.wait(60)
    large = asyncio.create_task(limit.wait(90))
    await asyncio.sleep(0)
    limit.leave(60)  # its turn
    await limit.wait(60)  # but another was quicker
    small = asyncio.create_task(limit.wait(60))
    small.add_done_callback(lambda _: None)
    await asyncio.sleep(0)
    limit.leave(60)
    await asyncio.wait_for(large, 30)
    assert not small.done()
    limit.leave(90)
    await asyncio.wait_for(small, 30)


async def test_everyone_in_line_gets_in_when_room_is_plenty() -> None:
    limit = InFlightLimit(3, 100)
    for _ in range(3):
        await limit.wait(1)
    waiting = [asyncio.create_task(limit.wait(1)) for _ in range(3)]
    await asyncio.sleep(0)
    for _ in range(3):
        limit.leave(1)
    await asyncio.wait_for(asyncio.gather(*waiting), 5)


@pytest.mark.parametrize(
    ("latency", "avoided"),
    [(0, 0), (549, 0), (550, 2000), (1800, 5000), (3000, 6000), (5000, 10_000), (14_999, 10_000), (15_000, 30_000)],
)
def test_how_long_slow_brokers_are_avoided(latency: int, avoided: int) -> None:
    assert avoided_ms(latency) == avoided


def test_faults_pass() -> None:
    faults = Faults()
    assert faults.is_available("a", 0) and faults.is_reachable("a")
    faults.failed("a", 0, reachable=False)
    assert not faults.is_available("a", 9999) and faults.is_available("a", 10_000)
    assert not faults.is_reachable("a") and faults.unreachable() == ["a"]
    faults.reached("a")
    assert faults.is_reachable("a")
    faults.answered("a", 600, 10_000)
    faults.answered("a", 1, 10_001)
    assert not faults.is_available("a", 11_999) and faults.is_available("a", 12_000)
