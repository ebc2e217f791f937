"""The parts of consuming: filters, what is held, offsets in files, answers to pulls, deliveries."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kourou.client.delivery import DeadLetter, Delivery, RetryLater, Settling
from kourou.client.errors import InvalidExpressionError
from kourou.client.filters import subscription
from kourou.client.offsets import FileOffsets, offset_path
from kourou.client.pulling import BATCH_MESSAGES_MAX, PullStatus, read_answer, records_of
from kourou.client.unsettled import Unsettled
from kourou.protocol.batch import encode_batch
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError, HeaderError, RefusedError, SystemBusyError
from kourou.protocol.hosts import encode_host
from kourou.protocol.message import Message, MessageQueue
from kourou.protocol.record import decode_record, encode_record

HOST = encode_host("127.0.0.1:10911")
QUEUE = MessageQueue("T", "a", 0)


def record(offset: int = 0, *, topic: str = "T", body: bytes = b"x", properties: str = "", sys_flag: int = 0) -> bytes:
    return encode_record(
        topic=topic,
        body=body,
        queue_id=0,
        queue_offset=offset,
        physical_offset=1000 + offset,
        born_ms=1,
        born_host=HOST,
        stored_ms=2,
        store_host=HOST,
        raw_properties=properties.encode(),
        sys_flag=sys_flag,
    )


def test_filters() -> None:
    assert subscription("T").sub_string == "*"
    assert subscription("T", "*").tags_set == []
    wanted = subscription("T", " a || b||a ")
    assert (wanted.tags_set, wanted.code_set) == (["a", "b"], [97, 98])
    assert subscription("T", "TagA").code_set == [2598919]
    sql = subscription("T", sql="a > 1")
    assert (sql.expression_type, sql.sub_string, sql.tags_set) == ("SQL92", "a > 1", [])


@pytest.mark.parametrize(("tags", "sql"), [("||", None), (" || ", None), (None, " "), ("a", "b = 1")])
def test_filters_that_make_no_sense(tags: str | None, sql: str | None) -> None:
    with pytest.raises(InvalidExpressionError):
        subscription("T", tags, sql)


def test_what_may_be_committed() -> None:
    unsettled = Unsettled()
    unsettled.put([(10, 1), (11, 1), (15, 1), (16, 1)])
    assert (unsettled.first, unsettled.span, unsettled.count, unsettled.size) == (10, 6, 4, 4)
    assert unsettled.settle(15, 1) == 10
    assert unsettled.settle(10, 1) == 11
    assert unsettled.settle(11, 1) == 16
    assert unsettled.settle(16, 1) == 17
    assert (unsettled.first, unsettled.span, unsettled.count, unsettled.size) == (None, 0, 0, 0)


async def test_offsets_in_a_file(tmp_path: Path) -> None:
    path = offset_path(tmp_path, "10.0.0.1@DEFAULT", "group")
    offsets = FileOffsets(path)
    assert await offsets.read(QUEUE) is None
    offsets.commit(QUEUE, 7)
    offsets.commit(QUEUE, 5)
    await offsets.persist()
    assert path == tmp_path / "10.0.0.1@DEFAULT" / "group" / "offsets.json"
    assert path.read_bytes() == b'{"offsetTable":{{"topic":"T","brokerName":"a","queueId":0}:7}}'
    assert await FileOffsets(path).read(QUEUE) == 7
    await offsets.reset(QUEUE, 3)
    path.write_bytes(b"torn")
    assert await FileOffsets(path).read(QUEUE) == 7  # from the backup


async def test_offsets_whose_storing_was_cancelled_are_stored_the_next_time(tmp_path: Path) -> None:
    """A consumer that was closed while it stored them, behind other work of the threads, lost them."""
    path, go_on = tmp_path / "offsets.json", threading.Event()
    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        threads.submit(go_on.wait)
        offsets = FileOffsets(path)
        offsets.commit(QUEUE, 7)
        storing = asyncio.create_task(offsets.persist())
        await asyncio.sleep(0)
        storing.cancel()
        await asyncio.gather(storing, return_exceptions=True)
        go_on.set()
        await offsets.persist(confirmed=True)
    assert await FileOffsets(path).read(QUEUE) == 7


async def test_offsets_of_the_java_client_are_read(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_text('{\n\t"offsetTable":{{\n\t\t"brokerName":"a",\n\t\t"queueId":0,\n\t\t"topic":"T"\n\t}:42}\n}')
    assert await FileOffsets(path).read(QUEUE) == 42


def answer(code: int, body: bytes = b"") -> Command:
    ext = {"nextBeginOffset": "5", "minOffset": "1", "maxOffset": "9", "suggestWhichBrokerId": "0"}
    return Command(code, ext=ext, body=body)


def test_answers_to_pulls() -> None:
    found = read_answer(answer(0, record(3) + record(4)))
    assert found.status is PullStatus.FOUND
    assert [message.queue_offset for message in found.records] == [3, 4]
    assert (found.next_offset, found.min_offset, found.max_offset) == (5, 1, 9)
    assert read_answer(answer(19)).status is PullStatus.NOTHING_NEW
    assert read_answer(answer(20)).status is PullStatus.NOTHING_WANTED
    assert read_answer(answer(21)).status is PullStatus.OFFSET_MOVED
    with pytest.raises(SystemBusyError):
        read_answer(answer(2))
    with pytest.raises(HeaderError, match="nextBeginOffset"):
        read_answer(Command(0, ext={}))
    with pytest.raises(RefusedError):
        read_answer(answer(77))


def moved(code: int, following: int, body: bytes = b"", *, lowest: int = 0, highest: int = 100) -> Command:
    ext = {"nextBeginOffset": str(following), "minOffset": str(lowest), "maxOffset": str(highest)}
    return Command(code, ext={**ext, "suggestWhichBrokerId": "0"}, body=body)


@pytest.mark.parametrize("following", [-1, 0, 9, 10])
def test_an_offset_that_goes_backwards_is_refused(following: int) -> None:
    with pytest.raises(HeaderError, match="repeat messages for ever"):
        read_answer(moved(0, following), 10)
    if following < 10:
        with pytest.raises(HeaderError, match="repeat messages for ever"):
            read_answer(moved(19, following), 10)
        with pytest.raises(HeaderError, match="repeat messages for ever"):
            read_answer(moved(20, following), 10)


def test_messages_from_before_the_offset_are_left_out() -> None:
    found = read_answer(moved(0, 5, record(3) + record(4) + record(12) + record(13)), 12)
    assert [message.queue_offset for message in found.records] == [12, 13]
    assert found.next_offset == 14
    with pytest.raises(HeaderError, match="repeat"):
        read_answer(moved(0, 5, record(3) + record(4)), 12)
    with pytest.raises(BodyError, match="not in order"):
        read_answer(moved(0, 20, record(13) + record(12)), 12)


def test_no_more_messages_than_were_asked_for() -> None:
    found = read_answer(moved(0, 50, b"".join(record(number) for number in range(50))), 0, count=32)
    assert [message.queue_offset for message in found.records] == list(range(32))
    assert found.next_offset == 32


@pytest.mark.parametrize("following", [-1, 7, 101, 2**63])
def test_an_offset_is_moved_within_the_queue_alone(following: int) -> None:
    with pytest.raises(HeaderError):
        read_answer(moved(21, following, lowest=8, highest=100), 500)
    assert read_answer(moved(21, 100), 500).next_offset == 100


def test_a_batch_of_too_many_messages() -> None:
    inner = encode_batch([Message("T", b"")] * (BATCH_MESSAGES_MAX + 1))
    with pytest.raises(BodyError, match="more than"):
        records_of(record(10, body=inner, sys_flag=0x40 | 0x80))


def test_a_batch_in_one_record_comes_as_its_messages() -> None:
    inner = encode_batch([Message("T", b"one", 0, {"a": "1"}), Message("T", b"two", 0, {"a": "2"})])
    first, second = records_of(record(10, body=inner, sys_flag=0x40 | 0x80))
    assert (first.queue_offset, bytes(first.body), first.properties) == (10, b"one", {"a": "1"})
    assert (second.queue_offset, bytes(second.body), second.properties) == (11, b"two", {"a": "2"})


class Settler:
    def __init__(self) -> None:
        self.told: list[object] = []

    def acked(self, delivery: Delivery) -> None:
        self.told.append("acked")

    def failed(self, delivery: Delivery, delay_level: int) -> Settling:
        self.told.append(delay_level)
        return Settling(asyncio.get_running_loop().create_task(self._told_broker()))

    def released(self, delivery: Delivery) -> None:
        self.told.append("released")

    async def _told_broker(self) -> None:
        await asyncio.sleep(0)
        self.told.append("broker")


def delivery(settler: Settler) -> Delivery:
    text = "KEYS\x01k1 k2\x02TAGS\x01t\x02UNIQ_KEY\x01ID\x02"
    return Delivery(decode_record(record(3, properties=text)), QUEUE, "T", settler)


def test_what_a_delivery_tells() -> None:
    message = delivery(Settler())
    assert (message.body, message.tag, message.keys, message.message_id) == (b"x", "t", ["k1", "k2"], "ID")
    assert (message.queue_offset, message.physical_offset, message.store_host) == (3, 1003, "127.0.0.1:10911")
    assert message.offset_id == "7F00000100002A9F00000000000003EB"


async def test_a_delivery_is_settled_once() -> None:
    settler = Settler()
    message = delivery(settler)
    message.ack()
    await message.ack()
    await message.retry()
    await message.dead_letter()
    assert settler.told == ["acked"]


@pytest.mark.parametrize(
    ("settle", "told"),
    [
        (lambda message: message.ack(), ["acked"]),
        (lambda message: message.retry(3), [3]),
        (lambda message: message.dead_letter(), [-1]),
    ],
)
async def test_all_ways_to_settle_are_of_one_kind(settle: Callable[[Delivery], Settling], told: list[object]) -> None:
    """The call settles, awaited or not; what it returns can be awaited."""
    settler = Settler()
    message = delivery(settler)
    waiting = settle(message)
    assert message.settled and settler.told == told
    await waiting
    assert settler.told in (told, [*told, "broker"])
    await waiting


@pytest.mark.parametrize(("error", "told"), [(None, ["acked"]), (RetryLater(5), [5]), (DeadLetter(), [-1])], ids=str)
async def test_processing(error: Exception | None, told: list[object]) -> None:
    settler = Settler()
    async with delivery(settler).process():
        if error is not None:
            raise error
    assert settler.told[:1] == told


async def test_processing_raises_again_what_failed() -> None:
    """An assertion inside of `process` fails the test that it stands in."""
    settler = Settler()
    with pytest.raises(AssertionError, match="not what was sent"):
        async with delivery(settler).process() as message:
            raise AssertionError(f"{message.body!r} is not what was sent")
    assert settler.told == [0, "broker"]


async def test_processing_goes_on_where_that_is_wanted(caplog: pytest.LogCaptureFixture) -> None:
    settler = Settler()
    async with delivery(settler).process(suppress=True):
        raise ValueError("no such order")
    assert settler.told == [0, "broker"]
    assert "no such order" in caplog.text


async def test_cancellation_settles_nothing() -> None:
    settler = Settler()
    message = delivery(settler)
    with pytest.raises(asyncio.CancelledError):
        async with message.process():
            raise asyncio.CancelledError
    assert settler.told == ["released"]
    assert not message.settled


def test_records_of_a_static_topic_have_its_numbers() -> None:
    """The broker's queue 1 from offset 0 on is queue 5 of the topic from offset 100 on."""
    found = answer(0, record(10) + record(11))
    found.ext = {**(found.ext or {}), "nextBeginOffset": "112", "minOffset": "0", "maxOffset": "112"}
    found.ext["offsetDelta"] = "100"
    pulled = read_answer(found, 110, number=5)
    assert [(one.queue_id, one.queue_offset) for one in pulled.records] == [(5, 110), (5, 111)]
    assert pulled.next_offset == 112
    found.ext["offsetDelta"] = "x"
    with pytest.raises(HeaderError, match="offsetDelta"):
        read_answer(found, 110, number=5)
