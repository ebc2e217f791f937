"""Which name server is asked, while some of them are down."""

import asyncio
from typing import Any

import pytest

from kourou.client import nameservers
from kourou.client.errors import NoNameServerError
from kourou.client.nameservers import NameServers
from kourou.net.errors import ConnectFailedError
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command


class FakePool:
    """Servers by address: "down" refuses connections, "hangs" never answers, anything else answers with its text."""

    def __init__(self, **servers: str) -> None:
        self.servers = servers
        self.asked: list[str] = []

    async def request(self, address: str, command: Command, timeout: float) -> Command:
        self.asked.append(address)
        await asyncio.sleep(0)
        match self.servers[address]:
            case "down":
                raise ConnectFailedError(f"no connection to {address}")
            case "hangs":
                await asyncio.sleep(3600)
        return command.answer(remark=self.servers[address])


def servers(pool: Any, *addresses: str) -> NameServers:
    found = NameServers(pool, addresses)
    found._current = 0
    return found


def query() -> Command:
    return Command(RequestCode.GET_ROUTEINFO_BY_TOPIC)


async def test_queries_at_the_same_time_all_find_the_server_that_is_up() -> None:
    for count in (2, 3, 8):
        pool = FakePool(a="down", b="here")
        asked = servers(pool, "a", "b")
        answers = await asyncio.gather(*(asked.request(query()) for _ in range(count)))
        assert [answer.remark for answer in answers] == ["here"] * count


async def test_the_server_that_answered_is_asked_first() -> None:
    pool = FakePool(a="down", b="down", c="here")
    asked = servers(pool, "a", "b", "c")
    await asked.request(query())
    await asked.request(query())
    assert pool.asked == ["a", "b", "c", "c"]


async def test_a_server_that_hangs_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nameservers, "HEDGE_S", 0.01)
    pool = FakePool(a="hangs", b="down", c="here")
    async with asyncio.timeout(60):
        assert (await servers(pool, "a", "b", "c").request(query())).remark == "here"
    await asyncio.sleep(0)  # the turn in which the task is cancelled that still waits
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_change_is_not_sent_to_a_second_server_while_the_first_works_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nameservers, "HEDGE_S", 0.01)
    pool = FakePool(a="hangs", b="here")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await servers(pool, "a", "b").request(Command(RequestCode.PUT_KV_CONFIG))
    assert pool.asked == ["a"]


async def test_all_are_down() -> None:
    pool = FakePool(a="down", b="down")
    with pytest.raises(NoNameServerError, match="a: no connection to a; b: no connection to b"):
        await servers(pool, "a", "b").request(query())
