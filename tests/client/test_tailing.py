"""Following a topic while name servers and brokers come and go."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kourou.client import NoNameServerError, connect, tailing
from kourou.client.tailing import Tail
from kourou.embedded import Embedded
from kourou.protocol.system_names import TOOLS_GROUP

from .conftest import PATIENT


@pytest.fixture
async def own() -> AsyncIterator[Embedded]:
    broker = Embedded()
    await broker.start()
    yield broker
    await broker.stop()


async def test_a_name_server_that_is_away_does_not_end_it(own: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    """The route is fetched again every 30 seconds: a restart of the name server used to end `kourou tail`."""
    monkeypatch.setattr(tailing, "ROUTE_SECONDS", 0.05)
    monkeypatch.setattr(tailing, "POLL_SECONDS", 0.1)
    async with connect(own.namesrv, settings=PATIENT) as sender, connect(own.namesrv, settings=PATIENT) as mq:
        await sender.send("topic", b"1")
        failed = asyncio.Event()
        ask = mq.session.name_servers.request

        async def request(command: object) -> object:
            if is_away:
                failed.set()
                raise NoNameServerError("no name server answers")
            return await ask(command)  # type: ignore[arg-type]

        is_away = False
        mq.session.name_servers.request = request  # type: ignore[method-assign, assignment]
        messages = Tail(mq.pull(group=TOOLS_GROUP), "topic", start="first").messages()
        assert (await anext(messages)).body == b"1"
        is_away = True
        following = asyncio.ensure_future(anext(messages))
        await asyncio.wait_for(failed.wait(), 30)
        await sender.send("topic", b"2")
        assert (await following).body == b"2"
        await messages.aclose()


async def test_a_topic_that_can_not_be_found_at_first_is_an_error(own: Embedded) -> None:
    async with connect(own.namesrv, settings=PATIENT) as mq:
        await own.stop()
        with pytest.raises(NoNameServerError):
            await anext(Tail(mq.pull(group=TOOLS_GROUP), "topic").messages())
