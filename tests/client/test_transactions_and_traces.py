"""Transactions and their checks, traces."""

from collections.abc import Callable, Iterator

import pytest
from tests.waiting import answered, eventually

from kourou.client import (
    Client,
    ConsumerSettings,
    Delivery,
    InvalidMessageError,
    Message,
    ProducerSettings,
    RefusedError,
    connect,
)
from kourou.protocol.traces import Trace, decode_traces

from .conftest import PATIENT, Collect, World
from .steps import make_topic


@pytest.fixture(scope="module", autouse=True)
def spinning_thread_ends(restarts: list[Callable[[], None]]) -> Iterator[None]:
    """After a transaction, a thread of Apache's broker never sleeps again (apache/rocketmq#10966): restart it."""
    yield
    for restart in restarts:
        restart()


async def test_a_block_that_succeeds_commits(mq: Client, name: str, collect: Collect) -> None:
    async with mq.transaction(name, group=f"{name}-tx") as tx:
        sent = await tx.send(b"committed", tag="t", keys=["k"])
        assert sent.transaction_id
    (got,) = await collect(name, 1)
    assert (got.body, got.tag, got.keys) == (b"committed", "t", ["k"])
    assert got.transaction_id == sent.message_id


async def test_a_block_that_raises_rolls_back(mq: Client, name: str, collect: Collect) -> None:
    await make_topic(mq, name)

    async def fail() -> None:
        async with mq.transaction(name, group=f"{name}-tx") as tx:
            await tx.send(b"rolled back")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await fail()
    await mq.send(name, b"ordinary")
    (got,) = await collect(name, 1)
    assert got.body == b"ordinary"


async def test_several_messages_of_one_transaction(mq: Client, name: str, collect: Collect) -> None:
    async with mq.transaction(name, group=f"{name}-tx") as tx:
        for number in range(3):
            await tx.send(b"%d" % number)
    assert sorted(message.body for message in await collect(name, 3)) == [b"0", b"1", b"2"]


async def test_the_broker_asks_for_the_outcome_of_an_open_transaction(mq: Client, name: str, collect: Collect) -> None:
    asked: list[bytes] = []

    async def check(message: Delivery) -> bool | None:
        asked.append(message.body)
        return None if len(asked) == 1 else message.body == b"yes"

    await mq.transaction_check(f"{name}-tx", check)
    for body in (b"no", b"yes"):
        tx = mq.transaction(name, group=f"{name}-tx")
        async with tx:
            await tx.send(body)
            await tx.leave_open()
    (got,) = await collect(name, 1, seconds=60)
    assert got.body == b"yes"
    assert set(asked) == {b"no", b"yes"}


async def test_another_client_of_the_group_may_be_asked(world: World, name: str) -> None:
    def check(message: Delivery) -> bool:
        return True

    async with connect(world.namesrv, settings=PATIENT) as first, first.transaction(name, group=f"{name}-tx") as tx:
        await tx.send(b"x")
        await tx.leave_open()
    async with connect(world.namesrv, settings=PATIENT) as second:
        await second.transaction_check(f"{name}-tx", check)
        async with second.consume(name, group=name, start="first") as consumer:
            message = await consumer.next(60)
        assert message is not None and message.body == b"x"


@pytest.mark.parametrize("given", ["one topic", "topics", "no topic"])
async def test_a_client_that_never_sent_joins_its_group(world: World, name: str, given: str) -> None:
    """As a process does that was restarted: it is asked about transactions that the earlier process left open."""
    async with connect(world.namesrv, settings=PATIENT) as first:
        await make_topic(first, name)
    topics = {"one topic": name, "topics": [name], "no topic": ()}[given]
    async with connect(world.namesrv, settings=PATIENT) as second:
        await second.transaction_check(f"{name}-tx", lambda _: True, topics=topics)

        async def members() -> list[str | None]:
            try:
                found = await second.admin.brokers.producers(f"{name}-tx", world.broker)
            except RefusedError:
                return []
            return [connection.client_id for connection in found.connection_set]

        assert await answered(members) == [second.client_id]


@pytest.mark.parametrize("given", ["topic", "no topic"])
async def test_a_restarted_process_is_asked(world: World, name: str, given: str) -> None:
    asked: list[bytes] = []

    def check(message: Delivery) -> bool:
        asked.append(message.body)
        return True

    async with connect(world.namesrv, settings=PATIENT) as first, first.transaction(name, group=f"{name}-tx") as tx:
        await tx.send(b"x")
        await tx.leave_open()
    async with connect(world.namesrv, settings=PATIENT) as second:  # which sends nothing and consumes nothing
        await second.transaction_check(f"{name}-tx", check, topics=name if given == "topic" else ())
        await eventually(lambda: asked == [b"x"], 60)


async def test_a_message_of_a_transaction_is_not_delayed(mq: Client, name: str) -> None:
    async with mq.transaction(name, group=f"{name}-tx") as tx:
        with pytest.raises(InvalidMessageError, match="delayed"):
            await tx.send(Message(body=b"x", delay_level=1))


async def test_traces_in_a_topic_of_their_own(world: World, name: str) -> None:
    traces = f"{name}-traces"
    settings = ProducerSettings(trace=True, trace_topic=traces, timeout=20)
    async with connect(world.namesrv, settings=PATIENT, producer=settings) as mq:
        await make_topic(mq, traces, queues=1)
        async with mq.transaction(name, group=f"{name}-tx") as tx:
            half = await tx.send(b"x")
        await mq.tracer.flush()

        async def kinds() -> dict[str, Trace] | None:
            found = await mq.admin.messages.by_key(traces, half.message_id)
            by_kind = {trace.kind: trace for message in found for trace in decode_traces(message.body)}
            return by_kind if by_kind.keys() >= {"Pub", "EndTransaction"} else None

        by_kind = await answered(kinds)
    assert by_kind["Pub"].is_success
    assert by_kind["EndTransaction"].transaction_state == "COMMIT_MESSAGE"
    assert {trace.message_id for trace in by_kind.values()} == {half.message_id}


async def test_traces_can_be_found_by_the_message_id(world: World, name: str) -> None:
    async with connect(world.namesrv, settings=PATIENT, producer=ProducerSettings(trace=True, timeout=20)) as mq:
        sent = await mq.send(name, b"x", keys=["key"], tag="tag")
        async with mq.consume(name, group=name, settings=ConsumerSettings(start="first", trace=True)) as consumer:
            message = await consumer.next(30)
            assert message is not None
            message.ack()
        await mq.tracer.flush()

        async def traces() -> dict[str, list[str]] | None:
            """By kind, once there are all: they come in several messages, each indexed in its own time."""
            found = await mq.admin.messages.by_key("RMQ_SYS_TRACE_TOPIC", sent.message_id)
            texts = [record.split("\x01") for trace in found for record in trace.body.decode().split("\x02") if record]
            kinds = {fields[0]: fields for fields in texts}
            return kinds if kinds.keys() >= {"Pub", "SubBefore", "SubAfter"} else None

        by_kind = await answered(traces)
    pub, before, after = by_kind["Pub"], by_kind["SubBefore"], by_kind["SubAfter"]
    assert len(pub) == 14
    assert pub[3:8] == ["KOUROU_PRODUCER", name, sent.message_id, "tag", "key"]
    assert pub[12:] == [sent.offset_id, "true"]
    assert (before[3], before[5], before[6]) == (name, sent.message_id, "0")
    assert (after[1], after[2], after[4], after[6], after[8]) == (before[4], sent.message_id, "true", "0", name)
