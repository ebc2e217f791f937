"""Whoever pulls in bulk steps back behind the others, whichever way its pull is served."""

from kourou.embedded import Embedded
from kourou.net.client import connect
from kourou.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command

BULK = int(PullSysFlag.SUBSCRIPTION | PullSysFlag.BULK)
USUAL = int(PullSysFlag.SUBSCRIPTION)


def _pull(sys_flag: int, **more: str) -> Command:
    ext = {
        "consumerGroup": "TOOLS_CONSUMER",
        "topic": "orders",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "100",
        "sysFlag": str(sys_flag),
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }
    return Command(RequestCode.PULL_MESSAGE, ext={**ext, **more})


def _send() -> Command:
    ext = {"a": "tests", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    return Command(RequestCode.SEND_MESSAGE_V2, ext=ext, body=b"x" * 1000)


async def test_who_pulls_in_bulk_steps_back_until_it_asks_for_something_else() -> None:
    async with Embedded() as broker:
        host, _, port = broker.address.rpartition(":")
        connection = await connect(host, int(port))
        assert (await connection.request(_send(), 5)).code == ResponseCode.SUCCESS
        assert broker._broker is not None
        (serving,) = (each for each in broker._broker.listener.connections if each.is_open)
        more_than_once = (BULK, BULK, USUAL, BULK, USUAL, USUAL, BULK)  # the first request of all is served another way
        for sys_flag in more_than_once:
            answer = await connection.request(_pull(sys_flag), 5)
            assert answer.code == ResponseCode.SUCCESS
            assert serving._steps_back == (sys_flag == BULK)
        nothing = await connection.request(_pull(BULK, queueOffset="1"), 5)
        assert nothing.code == ResponseCode.PULL_NOT_FOUND
        assert not serving._steps_back
        connection.close()


async def test_the_share_is_a_property() -> None:
    async with Embedded(properties={"bulkReadRatio": 60}) as broker:
        assert broker._broker is not None
        assert broker._broker.settings.bulk_ratio == 60
        assert broker._broker.background.share() == 0.6
