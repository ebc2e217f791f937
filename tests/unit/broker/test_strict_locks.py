"""Locks that a majority of the broker group grants (lockInStrictMode)."""

from collections.abc import Callable

import pytest
from tests.unit.broker.asking import GROUP, TOPIC, lock, ok, request, send

from kourou.broker.events import Announced, Answered, AskBroker
from kourou.broker.settings import BrokerSettings
from kourou.broker.strict_locks import ANSWER_MS, IN_FLIGHT_MAX, WAITING_MAX
from kourou.protocol import bodies
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.message import MessageQueue
from kourou.testing.broker import SimulatedBroker, SimulatedClient

OWN, TWO, THREE = "127.0.0.1:10911", "127.0.0.1:20911", "127.0.0.1:30911"
NAME_SERVER = "127.0.0.1:9876"
FOUND = {0: OWN, 1: TWO, 2: THREE}


@pytest.fixture
def world() -> SimulatedBroker:
    return strict(3)


@pytest.fixture
def client(world: SimulatedBroker) -> SimulatedClient:
    return world.connect()


def strict(replicas: int) -> SimulatedBroker:
    world = SimulatedBroker(settings=BrokerSettings(strict_locks=True, replicas_total=replicas))
    ok(world.connect(), send())
    found(world, FOUND)
    return world


def found(world: SimulatedBroker, members: dict[int, str], name_server: str = NAME_SERVER) -> None:
    """A name server returns the members of the group."""
    group = bodies.BrokerMemberGroup(cluster="DefaultCluster", broker_name="broker-a", broker_addrs=members)
    body = bodies.GetBrokerMemberGroupResponseBody(broker_member_group=group).encode()
    code = RequestCode.GET_BROKER_MEMBER_GROUP
    world.step(Announced(name_server, Command(code).answer(body=body), None, code))


def take_asked(world: SimulatedBroker) -> list[AskBroker]:
    asked, world.asked = world.asked, []
    return asked


def grants(world: SimulatedBroker, ask: AskBroker, *queue_ids: int) -> None:
    queues = [MessageQueue(TOPIC, "broker-a", queue_id) for queue_id in queue_ids]
    body = bodies.LockBatchResponseBody(locked=queues).encode()
    world.step(Answered(ask.token, ask.command.answer(body=body)))


def locked(answer: Command) -> list[int]:
    assert answer.code == 0, answer.remark
    return sorted(queue.queue_id for queue in bodies.LockBatchResponseBody.decode(answer.body).locked)


def test_a_queue_is_locked_when_a_majority_has_granted_it(world: SimulatedBroker, client: SimulatedClient) -> None:
    (number,) = client.send(lock("c1", 0, 1))
    assert not client.answers, "the others are asked first"
    two, three = take_asked(world)
    assert {two.address, three.address} == {TWO, THREE}
    for ask in (two, three):
        assert ask.command.code == RequestCode.LOCK_BATCH_MQ
        body = bodies.LockBatchRequestBody.decode(ask.command.body)
        assert (body.only_this_broker, body.client_id, body.consumer_group) == (True, "c1", GROUP)
        assert [queue.queue_id for queue in body.mq_set] == [0, 1]
    grants(world, two, 1)
    assert not client.answers
    grants(world, three)
    assert locked(client.answers[number]) == [1]


def test_the_answer_waits_for_no_more_than_a_majority(world: SimulatedBroker, client: SimulatedClient) -> None:
    (number,) = client.send(lock("c1", 0))
    two, three = take_asked(world)
    grants(world, three, 0)
    assert locked(client.answers.pop(number)) == [0]
    grants(world, two, 0)
    assert not client.answers, "one answer only"


@pytest.mark.parametrize(
    "fail",
    [
        lambda world, ask: world.step(Answered(ask.token, None)),
        lambda world, ask: world.step(Answered(ask.token, ask.command.answer(ResponseCode.SYSTEM_ERROR, "no"))),
        lambda world, ask: world.step(Answered(ask.token, ask.command.answer(body=b"{"))),
        lambda world, ask: grants(world, ask, 3),
    ],
    ids=["no answer", "refused", "nonsense", "other queues"],
)
def test_members_that_grant_nothing(
    world: SimulatedBroker, client: SimulatedClient, fail: Callable[[SimulatedBroker, AskBroker], None]
) -> None:
    (number,) = client.send(lock("c1", 0))
    for ask in take_asked(world):
        assert not client.answers
        fail(world, ask)
    assert locked(client.answers[number]) == []


def test_silent_members_are_not_waited_for_long(world: SimulatedBroker, client: SimulatedClient) -> None:
    (number,) = client.send(lock("c1", 0))
    two, _ = take_asked(world)
    world.pass_time(ANSWER_MS - 1)
    assert not client.answers
    world.pass_time(200)
    assert locked(client.answers.pop(number)) == []
    grants(world, two, 0)
    assert not client.answers


def test_members_are_not_asked_for_refused_locks(world: SimulatedBroker, client: SimulatedClient) -> None:
    client.send(lock("c1", 0))
    take_asked(world)
    assert locked(client.ask(lock("c2", 0))) == []
    assert not world.asked


def test_a_member_that_is_asked_answers_for_itself(world: SimulatedBroker, client: SimulatedClient) -> None:
    body = bodies.LockBatchRequestBody(
        consumer_group=GROUP, client_id="c1", only_this_broker=True, mq_set=[MessageQueue(TOPIC, "broker-a", 0)]
    )
    assert locked(client.ask(request(RequestCode.LOCK_BATCH_MQ, body=body.encode()))) == [0]
    assert not world.asked


@pytest.mark.parametrize("replicas", [0, 1])
def test_a_single_broker_is_a_majority(replicas: int) -> None:
    world = strict(replicas)
    assert locked(world.connect().ask(lock("c1", 0))) == [0]
    assert not world.asked


def test_without_strict_mode_no_member_is_asked() -> None:
    world = SimulatedBroker(settings=BrokerSettings(replicas_total=3))
    client = world.connect()
    ok(client, send())
    found(world, FOUND)
    assert locked(client.ask(lock("c1", 0))) == [0]
    assert not world.asked


def test_queues_that_are_given_back_are_free_everywhere(world: SimulatedBroker, client: SimulatedClient) -> None:
    queues = [MessageQueue(TOPIC, "broker-a", 0)]
    body = bodies.UnlockBatchRequestBody(consumer_group=GROUP, client_id="c1", mq_set=queues)
    ok(client, request(RequestCode.UNLOCK_BATCH_MQ, body=body.encode()))
    for ask in take_asked(world):
        assert ask.command.code == RequestCode.UNLOCK_BATCH_MQ
        told = bodies.UnlockBatchRequestBody.decode(ask.command.body)
        assert (told.only_this_broker, told.client_id, told.mq_set) == (True, "c1", queues)
        ok(client, request(RequestCode.UNLOCK_BATCH_MQ, body=ask.command.body))
    assert not world.asked, "a member tells nobody"


# ── The group ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_majority_there_are_no_locks(caplog: pytest.LogCaptureFixture) -> None:
    world = strict(3)
    found(world, {0: OWN})
    client = world.connect()
    assert locked(client.ask(lock("c1", 0))) == []
    assert locked(client.ask(lock("c1", 0))) == []
    assert [one for one in caplog.messages if "queues are not locked: 2 brokers" in one] == caplog.messages[-1:]


def test_members_are_sought_after_a_registration_and_while_locks_are_asked_for(world: SimulatedBroker) -> None:
    def sought() -> int:
        codes = [command.code for command in world.announced]
        world.announced = []
        return codes.count(RequestCode.GET_BROKER_MEMBER_GROUP)

    sought()
    code = RequestCode.REGISTER_BROKER
    world.step(Announced(NAME_SERVER, Command(code).answer(), None, code))
    assert sought() == 1
    client = world.connect()
    client.send(lock("c1", 0), lock("c1", 1))
    assert sought() == 1
    world.pass_time(1_000)
    assert sought() == 0
    client.send(lock("c1", 0))
    assert sought() == 1


def test_what_one_name_server_does_not_know_another_one_may(world: SimulatedBroker, client: SimulatedClient) -> None:
    found(world, {0: OWN}, "127.0.0.1:9999")
    client.send(lock("c1", 0))
    assert {ask.address for ask in take_asked(world)} == {TWO, THREE}
    found(world, {0: OWN, 2: THREE})
    client.send(lock("c1", 1))
    assert {ask.address for ask in take_asked(world)} == {THREE}


# ── Limits ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_member_has_few_questions_at_a_time(world: SimulatedBroker, client: SimulatedClient) -> None:
    found(world, {0: OWN, 1: TWO})
    numbers = client.send(*[lock("c1", 0) for _ in range(IN_FLIGHT_MAX + 2)])
    asked = take_asked(world)
    assert len(asked) == IN_FLIGHT_MAX
    for ask in asked:
        grants(world, ask, 0)
    for ask in take_asked(world):
        grants(world, ask, 0)
    assert [locked(client.answers[number]) for number in numbers] == [[0]] * len(numbers)


def test_few_requests_wait_for_members(world: SimulatedBroker, client: SimulatedClient) -> None:
    numbers = client.send(*[lock("c1", 0) for _ in range(WAITING_MAX + 1)])
    assert client.answers[numbers[-1]].code == ResponseCode.SYSTEM_BUSY
    world.pass_time(ANSWER_MS + 100)
    assert len(client.answers) == len(numbers)
    assert locked(client.answers[numbers[0]]) == []
