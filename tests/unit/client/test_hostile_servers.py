"""Clients of servers that mean harm: absurd routes, bombs, offsets that go backwards, giant answers, floods.

None of it may cost a client more than bounded memory, keep it busy, or deliver a message twice without end.
"""

import asyncio
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache

import lz4.frame
import pytest
import zstandard
from tests.unit.client.hostile import BROKER, Hostile, pulled, record
from tests.waiting import eventually

from kourou.client import Client, ClientSettings, KourouError, NotANameServerError, ProducerSettings, connect
from kourou.client.rebalancing import MEMBERS_MAX
from kourou.client.session import QUESTIONS_MAX
from kourou.protocol.bodies import BrokerData, QueueData, TopicRouteData
from kourou.protocol.codes import PullSysFlag, RequestCode, ResponseCode, SysFlag
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError, HeaderError
from kourou.protocol.message import MessageQueue
from kourou.protocol.route_limits import ROUTE_ADDRESSES_MAX, ROUTE_QUEUES_MAX, ROUTE_SIZE_MAX
from kourou.spark.cluster import route_of as spark_route_of

MIB = 1024 * 1024
HUGE = 2**31 - 1


@pytest.fixture
async def server() -> AsyncIterator[Hostile]:
    async with Hostile() as server:
        yield server


@pytest.fixture
async def mq(server: Hostile) -> AsyncIterator[Client]:
    settings = ClientSettings(request_timeout=30, connect_timeout=30, producer=ProducerSettings(timeout=30))
    async with connect(server.address, settings=settings, max_body=4 * MIB) as client:
        yield client


@contextmanager
def memory_below(limit: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < limit, f"{peak / MIB:.0f} MiB"


def say(server: Hostile, code: int, answer: Callable[[Command], Command]) -> None:
    server.answers[code] = answer


# ── Routes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def queues(count: int, times: int = 1) -> list[QueueData]:
    return [
        QueueData(broker_name=f"b{number}", read_queue_nums=count, write_queue_nums=count, perm=6)
        for number in range(times)
    ]


BROKERS = [BrokerData(cluster="c", broker_name="b0", broker_addrs={0: "127.0.0.1:1"})]
ABSURD = {
    "queues": TopicRouteData(queue_datas=queues(HUGE), broker_datas=BROKERS),
    "queues of many brokers": TopicRouteData(queue_datas=queues(1000, 1000), broker_datas=BROKERS),
    "addresses": TopicRouteData(
        queue_datas=queues(1),
        broker_datas=[
            BrokerData(cluster="c", broker_name="b0", broker_addrs=dict.fromkeys(range(ROUTE_ADDRESSES_MAX + 1), "h:1"))
        ],
    ),
    "ordered": TopicRouteData(order_topic_conf=f"b0:{HUGE}", queue_datas=queues(1), broker_datas=BROKERS),
    "ordered by a number without end": TopicRouteData(
        order_topic_conf="b0:" + "9" * 10_000, queue_datas=queues(1), broker_datas=BROKERS
    ),
}


@pytest.mark.parametrize("kind", ABSURD)
async def test_an_absurd_route(server: Hostile, mq: Client, kind: str) -> None:
    say(server, RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda command: command.answer(body=ABSURD[kind].encode()))
    with memory_below(16 * MIB):
        with pytest.raises(BodyError, match="route of topic 't'"):
            await mq.pull(group="g").queues("t")
        with pytest.raises(BodyError, match="route of topic 't'"):
            await mq.send("t", b"x")
        if not kind.startswith("ordered"):
            with pytest.raises(BodyError, match="route of topic 't'"):
                spark_route_of("t", ABSURD[kind])


async def test_a_route_of_the_largest_size_is_made_quickly(server: Hostile, mq: Client) -> None:
    say(
        server,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        lambda command: command.answer(body=server.route(ROUTE_QUEUES_MAX).encode()),
    )
    assert len(await mq.pull(group="g").queues("t")) == ROUTE_QUEUES_MAX


@pytest.mark.parametrize("opening", [b'{"queueDatas":[', b'{"orderTopicConf":"', b"{{{{", b'{"$ref":"'])
async def test_a_giant_route_is_not_even_decoded(server: Hostile, mq: Client, opening: bytes) -> None:
    body = opening + b" " * (ROUTE_SIZE_MAX + 1)
    say(server, RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda command: command.answer(body=body))
    with pytest.raises(BodyError, match=f"{len(body)} bytes"):
        await mq.pull(group="g").queues("t")


async def test_a_route_that_is_not_ordinary_json_has_a_lower_limit(server: Hostile, mq: Client) -> None:
    body = b'{"queueDatas":[' + b",".join([b'{"perm":"6"}'] * 8000) + b"]}"
    say(server, RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda command: command.answer(body=body))
    with pytest.raises(BodyError, match="not ordinary JSON"):
        await mq.pull(group="g").queues("t")


async def test_an_absurd_route_does_not_end_a_client(server: Hostile, mq: Client) -> None:
    """A refresh that brings one leaves the route that is there."""
    puller = mq.pull(group="g")
    known = await puller.queues("t")
    say(server, RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda command: command.answer(body=ABSURD["queues"].encode()))
    await mq.session.routes.refresh_all({"t"})
    route = mq.session.routes.cached("t")
    assert route is not None and route.subscribe == known


async def test_a_broker_in_the_place_of_a_name_server(server: Hostile, mq: Client) -> None:
    say(
        server,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        lambda command: command.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 105 not supported"),
    )
    with pytest.raises(NotANameServerError, match=f"{server.address} is not a name server.*not that of a broker"):
        await mq.send("t", b"x")
    assert server.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == 1


# ── Bombs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def zstd_of_unannounced_size(plain: bytes) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(plain) + stream.flush()


COMPRESSED: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "zlib": (0, zlib.compress),
    "lz4": (SysFlag.COMPRESSION_LZ4, lz4.frame.compress),
    "zstd": (SysFlag.COMPRESSION_ZSTD, zstandard.compress),
    "zstd without a size": (SysFlag.COMPRESSION_ZSTD, zstd_of_unannounced_size),
}


@cache
def bomb_of(kind: str) -> tuple[int, bytes]:
    """Flags and a small body that becomes 100 MiB."""
    flag, compress = COMPRESSED[kind]
    return int(SysFlag.COMPRESSED | flag), compress(bytes(100 * MIB))


@pytest.mark.parametrize("kind", COMPRESSED)
@pytest.mark.parametrize("is_batch", [False, True], ids=["message", "batch"])
async def test_a_bomb(server: Hostile, mq: Client, kind: str, is_batch: bool) -> None:
    flag, body = bomb_of(kind)
    bomb = record(0, body, sys_flag=flag | int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP if is_batch else 0))
    say(server, RequestCode.PULL_MESSAGE, lambda command: pulled(command, bomb, 1))
    puller = mq.pull(group="g")
    (queue,) = await puller.queues("t")

    async def look() -> bytes:
        return (await puller.pull(queue, 0)).messages[0].body

    with memory_below(20 * MIB), pytest.raises(BodyError, match=r"4194304 bytes \(max_body\)"):
        await look()


async def test_a_bomb_is_given_back_like_any_message_that_fails(server: Hostile, mq: Client) -> None:
    flag, body = bomb_of("zlib")
    bomb = record(0, body, sys_flag=flag)

    def answer(command: Command) -> Command:
        offset = int((command.ext or {})["queueOffset"])
        if offset == 0:
            return pulled(command, bomb + record(1, b"after"), 2)
        return pulled(command, b"", offset, ResponseCode.PULL_NOT_FOUND)

    say(server, RequestCode.PULL_MESSAGE, answer)
    seen: list[bytes] = []

    async def listener(message: object) -> None:
        seen.append(message.body)  # type: ignore[attr-defined]

    async with await mq.listen("t", listener, group="g", start="first", pull_interval=0.01):
        await eventually(lambda: seen == [b"after"])
        await eventually(lambda: server.count(RequestCode.CONSUMER_SEND_MSG_BACK) == 1)


# ── Offsets ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_offset_that_goes_backwards_repeats_nothing(server: Hostile, mq: Client) -> None:
    """The broker gives messages 0 to 9 to every pull, and says to continue at 0."""
    body = b"".join(record(number) for number in range(10))
    say(server, RequestCode.PULL_MESSAGE, lambda command: pulled(command, body, 0))
    seen: list[int] = []
    async with mq.consume("t", group="g", start="first") as consumer:
        while (message := await consumer.next(1.5)) is not None:
            seen.append(message.queue_offset)
            message.ack()
    assert seen == list(range(10))
    assert server.count(RequestCode.PULL_MESSAGE) < 10


async def test_a_pull_tells_no_offset_that_a_later_one_may_overtake(server: Hostile, mq: Client) -> None:
    """A broker may take note of it after an offset that was stored later, and the group goes back."""
    told: list[tuple[int, int]] = []  # where a pull begins, and the offset that it tells

    def answer(command: Command) -> Command:
        ext = command.ext or {}
        offset = int(ext["queueOffset"])
        if int(ext["sysFlag"]) & PullSysFlag.COMMIT_OFFSET:
            told.append((offset, int(ext["commitOffset"])))
        if offset < 3:
            return pulled(command, record(offset), offset + 1)
        return pulled(command, b"", offset, ResponseCode.PULL_NOT_FOUND)

    say(server, RequestCode.PULL_MESSAGE, answer)
    async with mq.consume("t", group="g", start="first", pull_interval=0.01) as consumer:
        for _ in range(2):
            (await anext(consumer)).ack()
            least = server.count(RequestCode.PULL_MESSAGE) + 5
            await eventually(lambda least=least: server.count(RequestCode.PULL_MESSAGE) > least)  # type: ignore[misc]
        assert [pair for pair in told if pair[0] != pair[1]] == []
        (await anext(consumer)).ack()
        await eventually(lambda: (3, 3) in told)


async def test_an_offset_that_is_moved_backwards_again_and_again_is_followed_slowly(
    server: Hostile, mq: Client
) -> None:
    def answer(command: Command) -> Command:
        if (command.ext or {})["queueOffset"] == "0":
            return pulled(command, record(0, b"x"), 7)
        return pulled(command, b"", 0, ResponseCode.PULL_OFFSET_MOVED)

    say(server, RequestCode.PULL_MESSAGE, answer)
    async with mq.consume("t", group="g", start="first") as consumer:
        begun = time.monotonic()
        for _ in range(3):
            message = await consumer.next(30)
            assert message is not None
            message.ack()
        assert time.monotonic() - begun > 1.9  # a second each time that it goes back


@pytest.mark.parametrize("following", ["-5", "99999999999999999999", "x", ""])
async def test_an_offset_that_is_none(server: Hostile, mq: Client, following: str) -> None:
    def answer(command: Command) -> Command:
        made = pulled(command, record(0), 1)
        assert made.ext is not None
        made.ext["nextBeginOffset"] = following
        return made

    say(server, RequestCode.PULL_MESSAGE, answer)
    with pytest.raises(HeaderError):
        await mq.pull(group="g").pull(MessageQueue("t", BROKER, 0), 0)


async def test_the_end_of_a_queue_is_not_negative(server: Hostile, mq: Client) -> None:
    def answer(command: Command) -> Command:
        made = command.answer()
        made.ext = {"offset": "-7"}
        return made

    say(server, RequestCode.GET_MAX_OFFSET, answer)
    with pytest.raises(HeaderError, match="-7"):
        await mq.pull(group="g").max_offset(MessageQueue("t", BROKER, 0))


# ── Giant answers ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_more_messages_than_were_asked_for(server: Hostile, mq: Client) -> None:
    body = b"".join(record(number) for number in range(50_000))
    say(server, RequestCode.PULL_MESSAGE, lambda command: pulled(command, body, 50_000))
    puller = mq.pull(group="g")
    (queue,) = await puller.queues("t")
    with memory_below(40 * MIB):
        batch = await puller.pull(queue, 0)
    assert (len(batch.messages), batch.next_offset) == (32, 32)


async def test_a_query_gives_no_more_than_was_asked_for(server: Hostile, mq: Client) -> None:
    body = b"".join(record(number, properties="KEYS\x01k\x02") for number in range(20_000))
    say(server, RequestCode.QUERY_MESSAGE, lambda command: command.answer(body=body))
    assert len(await mq.admin.messages.by_key("t", "k", count=5)) == 5


@pytest.mark.parametrize("count", [MEMBERS_MAX + 1, 300_000])
async def test_a_group_with_countless_members(
    server: Hostile, mq: Client, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    ids = ",".join(f'"{number}"' for number in range(count))
    body = f'{{"consumerIdList":[{ids}]}}'.encode()
    say(server, RequestCode.GET_CONSUMER_LIST_BY_GROUP, lambda command: command.answer(body=body))
    caplog.set_level("INFO")
    async with mq.consume("t", group="g") as consumer:
        assert consumer.assignment == []
    assert "not rebalanced" in caplog.text


@pytest.mark.parametrize("body", [b"", b"\x00", b"null", b"[]", b"[" * 100_000, b'{"queueDatas":null}', b"\xff" * 50])
async def test_answers_with_invalid_bodies(server: Hostile, mq: Client, body: bytes) -> None:
    for code in (
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    ):
        say(server, code, lambda command: command.answer(body=body))
    with pytest.raises(KourouError):
        await mq.send("t", b"x")
    with pytest.raises(KourouError):
        await mq.admin.topics.stats("t")
    with suppress(KourouError):  # a route without queues is no error here, but one to wait with
        async with mq.consume("t", group="g") as consumer:
            assert consumer.assignment == []


# ── Floods ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_flood_of_requests_is_answered_by_few_at_a_time(server: Hostile, mq: Client) -> None:
    """Thousands of transactions are asked about, and the check takes its time."""
    go_on = asyncio.Event()
    running = most = 0

    async def check(message: object) -> bool:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go_on.wait()
        running -= 1
        return True

    await mq.transaction_check("g", check, topics="t")
    await eventually(lambda: bool(server.connections))
    half = record(0, b"half", properties="PGROUP\x01g\x02UNIQ_KEY\x01ID\x02TRAN_MSG\x01true\x02")
    header = {"tranStateTableOffset": "0", "commitLogOffset": "0"}
    (connection,) = server.connections
    answers = [
        asyncio.ensure_future(
            connection.request(Command(RequestCode.CHECK_TRANSACTION_STATE, ext=dict(header), body=half), 30)
        )
        for _ in range(QUESTIONS_MAX * 3)
    ]
    await eventually(lambda: sum(answer.done() for answer in answers) >= QUESTIONS_MAX * 2)
    assert {answer.result().code for answer in answers if answer.done()} == {ResponseCode.SYSTEM_BUSY}
    go_on.set()
    await eventually(lambda: server.count(RequestCode.END_TRANSACTION) == QUESTIONS_MAX)
    assert most <= QUESTIONS_MAX
    for answer in answers:
        answer.cancel()
    await asyncio.gather(*answers, return_exceptions=True)
