"""What a client answers when a broker asks for the outcome of a transaction (request 39)."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
from tests.unit.client.hostile import Hostile, record
from tests.waiting import eventually

from kourou.client import (
    Client,
    Delivery,
    KourouError,
    ProducerSettings,
    TransactionFailedError,
    connect,
    transactions,
)
from kourou.client.transactions import Checker, Outcome
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command

OFFSET_ID = "7F00000100002A9F0000000000000000"


def stored(command: Command, *, offset_id: str = OFFSET_ID) -> Command:
    answer = command.answer()
    answer.ext = {"msgId": offset_id, "queueId": "0", "queueOffset": "0"}
    return answer


@pytest.fixture
async def server() -> AsyncIterator[Hostile]:
    async with Hostile() as server:
        server.answers[RequestCode.SEND_MESSAGE_V2] = stored
        yield server


@pytest.fixture
async def mq(server: Hostile) -> AsyncIterator[Client]:
    async with connect(server.address, producer=ProducerSettings(timeout=30, retries=0)) as client:
        yield client


def ends(server: Hostile) -> list[int]:
    found = [command for command in server.asked if command.code == RequestCode.END_TRANSACTION]
    return [int((command.ext or {})["commitOrRollback"]) for command in found]


async def asked(server: Hostile, message_id: str) -> int:
    """The answer to the broker's question."""
    before = len(ends(server))
    body = record(0, b"half", properties=f"PGROUP\x01g\x02UNIQ_KEY\x01{message_id}\x02TRAN_MSG\x01true\x02")
    header = {"tranStateTableOffset": "0", "commitLogOffset": "0"}
    server.connections[0].begin(Command(RequestCode.CHECK_TRANSACTION_STATE, ext=header, body=body), 30).cancel()
    await eventually(lambda: len(ends(server)) > before)
    return ends(server)[-1]


class Store:
    """Asks a database, for example."""

    async def __call__(self, message: Delivery) -> bool:
        return message.body != b"half"


async def outcome(store: Store, message: Delivery) -> bool:
    return await store(message)


CHECKS: list[Checker] = [Store(), partial(outcome, Store()), lambda message: outcome(Store(), message)]


@pytest.mark.parametrize("check", CHECKS, ids=["object", "partial", "lambda"])
async def test_what_a_check_awaits_is_the_outcome(server: Hostile, mq: Client, check: Checker) -> None:
    """An awaitable is true, but no outcome: it would have committed what was rolled back."""
    await mq.transaction_check("g", check, topics="t")
    assert await asked(server, "ID") == Outcome.ROLLBACK


async def test_a_block_that_runs_is_never_decided_by_the_check(
    server: Hostile, mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many transactions end meanwhile: the check may find nothing yet, and would roll back."""
    monkeypatch.setattr(transactions, "REMEMBERED", 3)
    await mq.transaction_check("g", lambda message: False, topics="t")
    async with mq.transaction("t", group="g") as tx:
        half = await tx.send(b"half")
        for _ in range(5):
            async with mq.transaction("t", group="g") as other:
                await other.send(b"another")
        assert await asked(server, half.message_id) == Outcome.UNKNOWN
    assert await asked(server, half.message_id) == Outcome.COMMIT


async def test_a_transaction_that_was_left_open_is_decided_by_the_check(server: Hostile, mq: Client) -> None:
    await mq.transaction_check("g", lambda message: True, topics="t")
    async with mq.transaction("t", group="g") as tx:
        half = await tx.send(b"half")
        await tx.leave_open()
    assert await asked(server, half.message_id) == Outcome.COMMIT


async def test_a_message_whose_send_failed_is_rolled_back(server: Hostile, mq: Client) -> None:
    """It may be stored all the same. It used to be answered with `not known` until the broker gave up."""
    server.answers[RequestCode.SEND_MESSAGE_V2] = lambda command: command.answer(ResponseCode.SYSTEM_ERROR, "no")
    await mq.transaction_check("g", lambda message: True, topics="t")
    with pytest.raises(KourouError, match="no"):
        async with mq.transaction("t", group="g") as tx:
            await tx.send(b"half")
    (sent,) = [command for command in server.asked if command.code == RequestCode.SEND_MESSAGE_V2]
    properties = dict(one.split("\x01") for one in (sent.ext or {})["i"].split("\x02") if one)
    assert await asked(server, properties["UNIQ_KEY"]) == Outcome.ROLLBACK


async def test_an_invalid_id_does_not_affect_the_other_messages(server: Hostile, mq: Client) -> None:
    ids = iter(["zz", OFFSET_ID])
    server.answers[RequestCode.SEND_MESSAGE_V2] = lambda command: stored(command, offset_id=next(ids))
    async with mq.transaction("t", group="g") as tx:
        first = await tx.send(b"1")
        await tx.send(b"2")
    await eventually(lambda: ends(server) == [Outcome.COMMIT])
    assert await asked(server, first.message_id) == Outcome.COMMIT


async def test_a_send_that_was_not_awaited_is_rolled_back(server: Hostile, mq: Client) -> None:
    """Nothing decided it: the block had ended before it was a part of it."""
    await mq.transaction_check("g", lambda message: True, topics="t")
    async with mq.transaction("t", group="g") as tx:
        late = asyncio.create_task(tx.send(b"half"))
        await asyncio.sleep(0)
    with pytest.raises(TransactionFailedError, match="await every send"):
        await late
    await eventually(lambda: ends(server) == [Outcome.ROLLBACK])
