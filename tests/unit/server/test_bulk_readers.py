"""Bulk readers are served after other clients, by the lane and by the general path."""

from collections.abc import AsyncIterator

import pytest
from tests.unit.broker.asking import pull, send

from kourou.embedded import Embedded
from kourou.net.client import connect
from kourou.net.connection import Connection
from kourou.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.server.broker import BrokerProcess

BULK = int(PullSysFlag.SUBSCRIPTION | PullSysFlag.BULK)
USUAL = int(PullSysFlag.SUBSCRIPTION)


@pytest.fixture
async def broker() -> AsyncIterator[BrokerProcess]:
    async with Embedded(properties={"bulkReadRatio": 60}) as embedded:
        yield embedded.broker().process


@pytest.fixture
async def client(broker: BrokerProcess) -> AsyncIterator[Connection]:
    connection = await connect("127.0.0.1", broker.listener.port)
    yield connection
    connection.close()


def _pull(sys_flag: int, offset: int = 0) -> Command:
    return pull(offset=offset, group="TOOLS_CONSUMER", sys_flag=sys_flag)


async def test_who_pulls_in_bulk_steps_back_until_it_asks_for_something_else(
    broker: BrokerProcess, client: Connection
) -> None:
    assert (await client.request(send(), 5)).code == ResponseCode.SUCCESS
    (serving,) = (each for each in broker.listener.connections if each.is_open)
    for sys_flag in (BULK, BULK, USUAL, BULK, USUAL, USUAL, BULK):
        answer = await client.request(_pull(sys_flag), 5)
        assert answer.code == ResponseCode.SUCCESS
        assert serving._waiting.steps_back == (sys_flag == BULK)
    nothing = await client.request(_pull(BULK, offset=1), 5)
    assert nothing.code == ResponseCode.PULL_NOT_FOUND
    assert not serving._waiting.steps_back


async def test_the_share_is_a_property_that_a_request_changes(broker: BrokerProcess, client: Connection) -> None:
    assert broker.background.share() == 0.6
    change = Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"bulkReadRatio=7")
    assert (await client.request(change, 5)).code == ResponseCode.SUCCESS
    assert broker.background.share() == 0.07
