"""Refusals that will not change: not tried again where they were given, but on another broker."""

import msgspec
import pytest
from tests.unit.client.hostile import Hostile
from tests.waiting import eventually

from kourou.client import ClientSettings, NoRouteError, ProducerSettings, RefusedError, connect
from kourou.protocol.bodies import BrokerData, QueueData, TopicRouteData
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import refused

SETTINGS = ClientSettings(request_timeout=30, connect_timeout=30, producer=ProducerSettings(timeout=30))

PERMANENT = [
    (ResponseCode.SYSTEM_ERROR, "accurate timer message is not enabled, timerWheelEnable is false"),
    (ResponseCode.SYSTEM_ERROR, "timers are not in this broker yet, whatever timerWheelEnable says"),
    (ResponseCode.SYSTEM_ERROR, "The broker does not support consumer to filter message by SQL92"),
    (ResponseCode.SYSTEM_ERROR, "request queueId[7] is illegal, the topic has 4 queues"),
    (ResponseCode.SYSTEM_ERROR, "org.apache.rocketmq.acl.common.AclException: No accessKey is configured"),
    (ResponseCode.NO_PERMISSION, "the broker[127.0.0.1] sending transaction message is forbidden"),
]


def stored(command: Command) -> Command:
    answer = command.answer()
    answer.ext = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "0", "queueOffset": "0"}
    return answer


def route(*brokers: Hostile) -> bytes:
    named = [(f"broker-{number}", broker) for number, broker in enumerate(brokers)]
    return TopicRouteData(
        queue_datas=[QueueData(broker_name=name, read_queue_nums=4, write_queue_nums=4, perm=6) for name, _ in named],
        broker_datas=[BrokerData(cluster="c", broker_name=name, broker_addrs={0: one.address}) for name, one in named],
    ).encode()


@pytest.mark.parametrize(("code", "remark"), PERMANENT)
async def test_asked_once_where_there_is_one_broker(code: int, remark: str) -> None:
    async with Hostile() as broker, connect(broker.address, settings=SETTINGS) as mq:
        broker.answers[RequestCode.SEND_MESSAGE_V2] = lambda command: command.answer(code, remark)
        with pytest.raises(RefusedError) as caught:
            await mq.send("t", b"x")
        assert caught.value.remark == remark
        assert not caught.value.retriable
        assert broker.count(RequestCode.SEND_MESSAGE_V2) == 1


@pytest.mark.parametrize("remark", ["[PC_SYNCHRONIZED]broker busy, start flow control for a while", None])
async def test_what_may_pass_is_tried_again(remark: str | None) -> None:
    async with Hostile() as broker, connect(broker.address, settings=SETTINGS) as mq:
        broker.answers[RequestCode.SEND_MESSAGE_V2] = lambda command: command.answer(ResponseCode.SYSTEM_ERROR, remark)
        with pytest.raises(RefusedError) as caught:
            await mq.send("t", b"x")
        assert caught.value.retriable
        assert broker.count(RequestCode.SEND_MESSAGE_V2) == 3


@pytest.mark.parametrize(("code", "remark"), PERMANENT)
async def test_another_broker_may_take_it(code: int, remark: str) -> None:
    """Brokers of one cluster may differ in what they can do."""
    async with Hostile() as refusing, Hostile() as taking, connect(refusing.address, settings=SETTINGS) as mq:
        refusing.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda command: command.answer(
            body=route(refusing, taking)
        )
        refusing.answers[RequestCode.SEND_MESSAGE_V2] = lambda command: command.answer(code, remark)
        taking.answers[RequestCode.SEND_MESSAGE_V2] = stored
        for _ in range(8):  # the first queue is chosen by chance
            assert (await mq.send("t", b"x")).is_safe
        assert len(await mq.send_many("t", [b"x"] * 8)) == 8
        assert taking.count(RequestCode.SEND_MESSAGE_V2) == 16
        assert 0 < refusing.count(RequestCode.SEND_MESSAGE_V2) <= 16


def test_only_unclear_codes_are_looked_at() -> None:
    assert refused(ResponseCode.SYSTEM_BUSY, "timer message is not enabled").retriable
    assert not refused(ResponseCode.SYSTEM_ERROR, "timer message is not enabled").retriable
    assert refused(ResponseCode.SYSTEM_ERROR).retriable


async def test_a_master_that_is_back_gets_what_is_sent_in_any_way() -> None:
    """`send` asked for the route again; `send_many` and `send_one_way` failed until its next refresh."""
    async with Hostile() as broker, connect(broker.address, settings=SETTINGS) as mq:
        whole = broker.route()
        slaves = [BrokerData(cluster="c", broker_name="broker-a", broker_addrs={1: broker.address})]
        without = msgspec.structs.replace(whole, broker_datas=slaves)
        broker.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda command: command.answer(body=without.encode())
        broker.answers[RequestCode.SEND_MESSAGE_V2] = stored
        for topic in ("a", "b"):
            with pytest.raises(NoRouteError, match="no master is up"):
                await mq.send(topic, b"x")
        broker.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda command: command.answer(body=whole.encode())
        await mq.send_many("a", [b"x"])
        await mq.send_one_way("b", b"x")
        await eventually(lambda: broker.count(RequestCode.SEND_MESSAGE_V2) == 2)
