"""Questions that are handed on to consumers."""

import pytest
from tests.unit.broker.asking import GROUP, TOPIC, heartbeat, ok, request, send

from kourou.broker import relays
from kourou.broker.events import Answered
from kourou.protocol import bodies, headers
from kourou.protocol.codes import CommandFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.message import MessageQueue
from kourou.protocol.record import decode_record
from kourou.testing.broker import SimulatedBroker, SimulatedClient

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


def running_info(client_id: str = "c1", group: str = GROUP) -> Command:
    header = headers.GetConsumerRunningInfo(consumer_group=group, client_id=client_id, jstack_enable=True)
    return request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)


def consume(message_id: str | None, client_id: str = "c1") -> Command:
    header = headers.ConsumeMessageDirectly(consumer_group=GROUP, client_id=client_id, msg_id=message_id, topic=TOPIC)
    return request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)


def status(client_id: str | None = None, group: str = GROUP) -> Command:
    header = headers.InvokeBrokerToGetConsumerStatus(topic=TOPIC, group=group, client_addr=client_id)
    return request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)


class Stage:
    """A broker, an administrator's connection, and two consumers."""

    def __init__(self) -> None:
        self.world = SimulatedBroker()
        self.admin = self.world.connect()
        self.consumers = {name: self.world.connect() for name in ("c1", "c2")}
        for name, consumer in self.consumers.items():
            ok(consumer, heartbeat(name, group=GROUP))

    def ask(self, command: Command) -> int:
        (number,) = self.admin.send(command)
        return number

    def answer(self, consumer: SimulatedClient, body: bytes = b"", code: int = 0, remark: str | None = None) -> Command:
        """A consumer answers the only question it has: the question."""
        (question,) = consumer.asked
        consumer.asked.clear()
        self.world.step(Answered(question.token, question.command.answer(code, remark, {"k": "v"}, body)))
        return question.command


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_answer_of_the_consumer_is_handed_back(stage: Stage) -> None:
    number = stage.ask(running_info())
    assert number not in stage.admin.answers
    (asked,) = stage.consumers["c1"].asked
    assert asked.timeout_ms == 10_000
    question = stage.answer(stage.consumers["c1"], b"all is well", 0, "fine")
    assert question.code == RequestCode.GET_CONSUMER_RUNNING_INFO
    assert question.ext == {"consumerGroup": GROUP, "clientId": "c1", "jstackEnable": "true"}
    answer = stage.admin.answers[number]
    assert (answer.code, answer.remark, answer.ext, answer.body) == (0, "fine", {"k": "v"}, b"all is well")
    assert not stage.consumers["c2"].asked


def test_refusal_of_the_consumer_is_handed_back(stage: Stage) -> None:
    number = stage.ask(running_info())
    stage.answer(stage.consumers["c1"], code=1, remark="no")
    assert (stage.admin.answers[number].code, stage.admin.answers[number].remark) == (1, "no")


@pytest.mark.parametrize(("client_id", "group"), [("c3", GROUP), ("c1", "nobody")])
def test_consumer_that_is_not_there(stage: Stage, client_id: str, group: str) -> None:
    answer = stage.admin.ask(running_info(client_id, group))
    assert (answer.code, answer.remark) == (1, f"The Consumer <{group}> <{client_id}> not online")


def test_consumer_that_goes(stage: Stage) -> None:
    number = stage.ask(running_info())
    stage.consumers["c1"].close()
    assert stage.admin.answers[number].code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert f"consumer <{GROUP}> <c1> Timeout" in (stage.admin.answers[number].remark or "")


def test_the_sender_may_disconnect_meanwhile(stage: Stage) -> None:
    stage.ask(running_info())
    stage.admin.close()
    stage.answer(stage.consumers["c1"])


def test_one_way_requests_get_no_answer(stage: Stage) -> None:
    asked = running_info()
    number = stage.ask(Command(asked.code, flag=int(CommandFlag.ONE_WAY), ext=asked.ext))
    stage.answer(stage.consumers["c1"])
    assert number not in stage.admin.answers


def test_consumer_is_handed_a_message(stage: Stage) -> None:
    sent = ok(stage.admin, send(b"eat this"))
    assert sent.ext is not None
    number = stage.ask(consume(sent.ext["msgId"]))
    question = stage.answer(stage.consumers["c1"], b"{}")
    assert bytes(decode_record(question.body).body) == b"eat this"
    assert question.ext is not None
    assert question.ext["brokerName"] == "broker-a"
    assert (question.ext["topicSysFlag"], question.ext["groupSysFlag"]) == ("0", "0")
    assert stage.admin.answers[number].body == b"{}"


@pytest.mark.parametrize("message_id", [None, "", "nonsense", "7F00000100002A9F00000000000FFFFF", "00" * 1000])
def test_message_that_is_not_there(stage: Stage, message_id: str | None) -> None:
    answer = stage.admin.ask(consume(message_id))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
    assert not stage.consumers["c1"].asked


# ── How far they are ────────────────────────────────────────────────────────────────────────────────────────────────


def offsets(offset: int) -> bytes:
    return bodies.GetConsumerStatusBody(message_queue_table={QUEUE: offset}).encode()


def test_all_members_say_how_far_they_are(stage: Stage) -> None:
    number = stage.ask(status())
    question = stage.answer(stage.consumers["c1"], offsets(5))
    assert question.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    assert number not in stage.admin.answers
    stage.answer(stage.consumers["c2"], offsets(7))
    table = bodies.GetConsumerStatusBody.decode(stage.admin.answers[number].body).consumer_table
    assert table == {"c1": {QUEUE: 5}, "c2": {QUEUE: 7}}


def test_one_member_says_it(stage: Stage) -> None:
    number = stage.ask(status("c2"))
    assert not stage.consumers["c1"].asked
    stage.answer(stage.consumers["c2"], offsets(7))
    table = bodies.GetConsumerStatusBody.decode(stage.admin.answers[number].body).consumer_table
    assert table == {"c2": {QUEUE: 7}}


def test_members_that_say_nothing_sensible_are_left_out(stage: Stage) -> None:
    number = stage.ask(status())
    stage.answer(stage.consumers["c1"], b"\xff{")
    stage.consumers["c2"].close()
    assert bodies.GetConsumerStatusBody.decode(stage.admin.answers[number].body).consumer_table == {}


def test_no_consumer_to_ask(stage: Stage) -> None:
    answer = stage.admin.ask(status(group="nobody"))
    assert (answer.code, answer.remark) == (1, "No Any Consumer online in the consumer group: [nobody]")
    answer = ok(stage.admin, status("c9"))
    assert bodies.GetConsumerStatusBody.decode(answer.body).consumer_table == {}


def test_so_many_questions_wait_and_no_more(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "WAITING_MAX", 3)
    for _ in range(2):
        stage.ask(running_info())
    assert stage.admin.ask(status()).code == ResponseCode.SYSTEM_BUSY
    stage.ask(running_info())
    assert stage.admin.ask(running_info()).code == ResponseCode.SYSTEM_BUSY
    for question in stage.consumers["c1"].asked:
        stage.world.step(Answered(question.token, None))
    number = stage.ask(status())
    assert number not in stage.admin.answers
