"""Request and reply: a reply finds the client that waits for it."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.broker.asking import BORN_MS, heartbeat, messages, ok, request, send_header

from kourou.broker import replies
from kourou.broker.settings import BrokerSettings
from kourou.protocol import headers, properties as _properties
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.store.settings import FlushMode
from kourou.testing.broker import SMALL_STORE, SimulatedBroker, SimulatedClient

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
REQUESTER = "127.0.0.1@requester"
REGION = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def reply(body: bytes = b"here you are", properties: dict[str, str] | None = None, **more: Any) -> Command:
    said = properties if properties is not None else {"REPLY_TO_CLIENT": REQUESTER, "CORRELATION_ID": "42"}
    return request(RequestCode.SEND_REPLY_MESSAGE_V2, send_header(REPLY_TOPIC, 0, said, **more), body)


class Pair:
    """A client that has asked, and one that replies."""

    def __init__(self, world: SimulatedBroker) -> None:
        self.world = world
        self.requester = world.connect()
        self.replier = world.connect()
        ok(self.requester, heartbeat(REQUESTER, producers="requesters"))

    def send(self, command: Command) -> int:
        (number,) = self.replier.send(command)
        return number


@pytest.fixture
def pair() -> Pair:
    return Pair(SimulatedBroker())


def test_the_reply_is_passed_on_and_then_answered(pair: Pair) -> None:
    number = pair.send(reply())
    assert number not in pair.replier.answers
    (ask,) = pair.requester.asked
    assert ask.command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    assert ask.command.body == b"here you are"
    pair.requester.answer(ask)
    answer = pair.replier.answers[number]
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    assert answer.ext == {
        "msgId": "7F00000100002A9F0000000000000000",
        "queueId": "0",
        "queueOffset": "0",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def test_what_the_requester_gets(pair: Pair) -> None:
    pair.send(reply(flag=3, sys_flag=1, reconsume_times=2))
    (ask,) = pair.requester.asked
    header = headers.PushReplyMessage.decode(ask.command.ext)
    assert (header.topic, header.producer_group, header.queue_id) == (REPLY_TOPIC, "producers", 0)
    assert (header.flag, header.sys_flag, header.reconsume_times) == (3, 1, 2)
    assert header.born_host == pair.replier.peer.address
    assert header.store_host == "127.0.0.1:10911"
    assert (header.born_timestamp, header.store_timestamp) == (BORN_MS, pair.world.now_ms)
    assert _properties.decode(header.properties or "") == {
        "REPLY_TO_CLIENT": REQUESTER,
        "CORRELATION_ID": "42",
        "PUSH_REPLY_TIME": str(pair.world.now_ms),
        **REGION,
    }


def test_the_long_form_of_the_header(pair: Pair) -> None:
    header = headers.SendMessage(
        producer_group="producers",
        topic=REPLY_TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=-1,
        sys_flag=0,
        born_timestamp=BORN_MS,
        flag=0,
        properties=_properties.encode({"REPLY_TO_CLIENT": REQUESTER}),
    )
    number = pair.send(request(RequestCode.SEND_REPLY_MESSAGE, header, b"long"))
    pair.requester.answer(pair.requester.asked[0])
    assert pair.replier.answers[number].code == ResponseCode.SUCCESS


def test_the_reply_is_stored_as_it_came(pair: Pair) -> None:
    pair.send(reply(sys_flag=0x301))
    assert not messages(pair.world, REPLY_TOPIC), "only once it was passed on"
    pair.requester.answer(pair.requester.asked[0])
    (stored,) = messages(pair.world, REPLY_TOPIC)
    assert bytes(stored.body) == b"here you are"
    assert stored.properties == {"REPLY_TO_CLIENT": REQUESTER, "CORRELATION_ID": "42", **REGION}
    assert stored.sys_flag == 0x301, "whoever reads it must know that it is compressed"


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ({"CORRELATION_ID": "42"}, "reply message properties[REPLY_TO_CLIENT] is null"),
        ({"REPLY_TO_CLIENT": "nobody"}, "push reply message fail, channel of <nobody> not found."),
    ],
)
def test_no_requester_to_pass_it_to(pair: Pair, properties: dict[str, str], remark: str) -> None:
    answer = pair.replier.ask(reply(properties=properties))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert len(messages(pair.world, REPLY_TOPIC)) == 1, "it is stored all the same"


def test_a_requester_that_refuses(pair: Pair) -> None:
    number = pair.send(reply())
    pair.requester.answer(pair.requester.asked[0], ResponseCode.SYSTEM_ERROR, "too late")
    answer = pair.replier.answers[number]
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"push reply message to {REQUESTER}fail.")


def test_a_requester_that_leaves_before_it_answers(pair: Pair) -> None:
    number = pair.send(reply())
    pair.requester.close()
    assert pair.replier.answers[number].code == ResponseCode.SYSTEM_ERROR
    again = pair.replier.ask(reply())
    assert again.remark == f"push reply message fail, channel of <{REQUESTER}> not found."


def test_replies_that_are_not_stored() -> None:
    pair = Pair(SimulatedBroker(settings=BrokerSettings(store_replies=False)))
    number = pair.send(reply())
    pair.requester.answer(pair.requester.asked[0])
    answer = pair.replier.answers[number]
    assert answer.ext is not None and answer.ext["msgId"] == "0" and answer.ext["queueOffset"] == "0"
    assert not messages(pair.world, REPLY_TOPIC)


def test_a_reply_that_can_not_be_stored_has_arrived_all_the_same(pair: Pair) -> None:
    number = pair.send(reply(body=bytes(SMALL_STORE.max_body_size + 1)))
    pair.requester.answer(pair.requester.asked[0])
    answer = pair.replier.answers[number]
    assert (answer.code, (answer.ext or {})["msgId"]) == (ResponseCode.SUCCESS, "0")


def test_under_sync_flush_the_answer_waits_for_the_disk() -> None:
    pair = Pair(SimulatedBroker(store_settings=replace(SMALL_STORE, flush_mode=FlushMode.SYNC)))
    pair.world.lazy = True
    number = pair.send(reply())
    pair.requester.answer(pair.requester.asked[0])
    assert number not in pair.replier.answers
    pair.world.work()
    assert pair.replier.answers[number].code == ResponseCode.SUCCESS


def test_one_way_replies_are_passed_on(pair: Pair) -> None:
    command = reply()
    number = pair.send(Command(command.code, flag=2, ext=command.ext, body=command.body))
    pair.requester.answer(pair.requester.asked[0])
    assert number not in pair.replier.answers
    assert len(messages(pair.world, REPLY_TOPIC)) == 1


def test_replies_that_wait_are_bounded(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "PUSHED_BYTES_MAX", 10)
    first = pair.send(reply(body=bytes(20)))
    answer = pair.replier.ask(reply())
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert answer.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    pair.requester.answer(pair.requester.asked[0])
    assert pair.replier.answers[first].code == ResponseCode.SUCCESS
    second = pair.send(reply())
    assert second not in pair.replier.answers, "there is room again"


def test_a_client_of_two_groups_is_found_after_leaving_one(pair: Pair) -> None:
    ok(pair.requester, heartbeat(REQUESTER, producers="others"))
    leave = headers.UnregisterClient(client_id=REQUESTER, producer_group="others")
    ok(pair.requester, request(RequestCode.UNREGISTER_CLIENT, leave))
    pair.send(reply())
    assert len(pair.requester.asked) == 1


def connected_again(world: SimulatedBroker) -> SimulatedClient:
    client = world.connect()
    ok(client, heartbeat(REQUESTER, producers="requesters"))
    return client


def test_the_newest_connection_of_a_client_gets_the_reply(pair: Pair) -> None:
    again = connected_again(pair.world)
    pair.requester.close()  # the broker hears of the end of the old one later
    pair.send(reply())
    assert len(again.asked) == 1


def test_what_clients_say_is_logged_on_one_line_and_cut(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.send(reply(properties={"REPLY_TO_CLIENT": "nobody\n\x1b[2J" + "x" * 5_000}))
    pair.send(reply())
    (ask,) = pair.requester.asked
    pair.requester.answer(ask, 1, "no\n2026-01-01 forged\x1b[2J" + "y" * 5_000)
    logged = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(logged) == 2
    assert all(line.isprintable() and len(line) < 400 for line in logged), logged
