"""The queues that a client consumes, computed by the broker (QUERY_ASSIGNMENT)."""

import json

import pytest
from tests.unit.broker.asking import GROUP, TOPIC, heartbeat, ok, request, send

from kourou.broker.assignments import QUEUES_MAX, ROUTE_MS, WAITING_MAX
from kourou.broker.events import Answered
from kourou.broker.settings import BrokerSettings
from kourou.protocol.bodies import QueueData, TopicQueueMappingInfo, TopicRouteData
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import GetRouteInfo
from kourou.testing.broker import SimulatedBroker, SimulatedClient

RETRY = f"%RETRY%{GROUP}"


def route(**counts: int) -> TopicRouteData:
    """The route of a topic, with the number of its readable queues by broker."""
    return TopicRouteData(queue_datas=[queues(name.replace("_", "-"), count) for name, count in counts.items()])


def queues(broker: str, count: int, permission: int = 6) -> QueueData:
    return QueueData(broker_name=broker, read_queue_nums=count, write_queue_nums=count, perm=permission)


ROUTE = route(broker_a=2, broker_b=3)
ALL = [("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-b", 1), ("broker-b", 2)]


@pytest.fixture
def world() -> SimulatedBroker:
    return with_members()


def with_members(settings: BrokerSettings | None = None) -> SimulatedBroker:
    """A broker with two members of the group."""
    world = SimulatedBroker(settings=settings)
    ok(world.connect(), send())
    for name in ("c1", "c2"):
        ok(world.connect(), heartbeat(name, group=GROUP))
    return world


def query(client_id: str = "c1", *, topic: str = TOPIC, strategy: str = "AVG", model: str = "CLUSTERING") -> Command:
    body = {"topic": topic, "consumerGroup": GROUP, "clientId": client_id, "strategyName": strategy}
    return request(RequestCode.QUERY_ASSIGNMENT, body=json.dumps({**body, "messageModel": model}).encode())


def found(world: SimulatedBroker, data: TopicRouteData | None, code: int = 0) -> str:
    """A name server answers a request for a route: with this one, with an error, or not at all. The topic."""
    (asked,) = world.asked_name_servers
    world.asked_name_servers.clear()
    answer = None if data is None and not code else asked.command.answer(code, body=b"" if not data else data.encode())
    world.step(Answered(asked.token, answer))
    world.take_turns()
    assert asked.command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
    return GetRouteInfo.decode(asked.command.ext).topic


def assigned(world: SimulatedBroker, command: Command, data: TopicRouteData | None = ROUTE, code: int = 0) -> object:
    """The queues of a client, or the whole body without assignments; asks the name server if the broker does."""
    client = world.connect()
    (number,) = client.send(command)
    if number not in client.answers:
        found(world, data, code)
    answer = client.answers[number]
    assert answer.code == 0, answer.remark
    body = json.loads(answer.body)
    if "messageQueueAssignments" not in body:
        return body
    for one in body["messageQueueAssignments"]:
        assert one["mode"] == "PULL"
        assert set(one) == {"messageQueue", "mode"}
    shares = [one["messageQueue"] for one in body["messageQueueAssignments"]]
    return [(queue["brokerName"], queue["queueId"]) for queue in shares]


def test_clients_get_their_shares_of_the_queues_of_all_brokers(world: SimulatedBroker) -> None:
    assert assigned(world, query("c1")) == ALL[:3]
    assert assigned(world, query("c2")) == ALL[3:]
    assert assigned(world, query("c1", strategy="AVG_BY_CIRCLE")) == ALL[::2]
    assert assigned(world, query("c2", strategy="AVG_BY_CIRCLE")) == ALL[1::2]
    assert assigned(world, query("stranger")) == []


def test_broadcasting_clients_get_all_queues(world: SimulatedBroker) -> None:
    assert assigned(world, query("anybody", strategy="OTHER", model="BROADCASTING")) == ALL


def test_without_server_load_balancing_all_get_all_queues() -> None:
    world = with_members(BrokerSettings(shares_queues=False))
    assert assigned(world, query("c1", strategy="OTHER")) == ALL


def test_the_retry_topic_is_shared_as_well(world: SimulatedBroker) -> None:
    assert assigned(world, query("c1", topic=RETRY), route(broker_a=1)) == [("broker-a", 0)]
    assert assigned(world, query("c2", topic=RETRY), route(broker_a=1)) == []


def test_only_readable_queues_are_shared(world: SimulatedBroker) -> None:
    data = TopicRouteData(queue_datas=[queues("broker-a", 2, 4), queues("broker-b", 4, 2)])
    assert assigned(world, query("c1", strategy="AVG"), data) == [("broker-a", 0)]


def test_queues_of_static_topics_are_numbered_across_brokers(world: SimulatedBroker) -> None:
    mapping = TopicQueueMappingInfo(topic=TOPIC, scope="__global__", total_queues=4, bname="broker-a", epoch=1)
    data = TopicRouteData(queue_datas=ROUTE.queue_datas, topic_queue_mapping_by_broker={"broker-a": mapping})
    assert assigned(world, query("c2"), data) == [("__syslo__global__", 2), ("__syslo__global__", 3)]


@pytest.mark.parametrize("case", ["group", "strategy", "client", "topic", "no queues", "nobody answers"])
def test_a_client_keeps_its_queues_if_its_share_is_not_known(world: SimulatedBroker, case: str) -> None:
    command, data, code = query(), ROUTE, 0
    match case:
        case "group":
            world = SimulatedBroker()
        case "strategy":
            command = query(strategy="MACHINE_ROOM")
        case "client":
            command = query("")
        case "topic":
            assert assigned(world, command, None, ResponseCode.TOPIC_NOT_EXIST) == {}
            return
        case "no queues":
            data = TopicRouteData()
        case _:
            assert assigned(world, command, None) == {}
            return
    assert assigned(world, command, data, code) == {}


def test_a_route_is_used_for_a_while_and_longer_if_no_name_server_answers(world: SimulatedBroker) -> None:
    assert assigned(world, query()) == ALL[:3]
    client = world.connect()
    ok(client, query())
    assert not world.asked_name_servers
    world.tick(ROUTE_MS)
    assert assigned(world, query(), None) == ALL[:3]
    assert assigned(world, query(), route(broker_a=2)) == ALL[:1]
    world.tick(ROUTE_MS)
    assert assigned(world, query(), None, ResponseCode.TOPIC_NOT_EXIST) == {}


def test_an_invalid_route_is_logged(world: SimulatedBroker, caplog: pytest.LogCaptureFixture) -> None:
    assert assigned(world, query(), route(broker_a=10**6)) == {}
    assert "the route of a topic can't be decoded topic=orders" in caplog.text


def test_requests_that_wait_for_the_same_route_share_a_request(world: SimulatedBroker) -> None:
    client = world.connect()
    numbers = client.send(query("c1"), query("c2"))
    assert found(world, ROUTE) == TOPIC
    sizes = [len(json.loads(client.answers[number].body)["messageQueueAssignments"]) for number in numbers]
    assert sizes == [3, 2]


def test_few_requests_wait_and_few_routes_are_kept(world: SimulatedBroker) -> None:
    client = world.connect()
    numbers = client.send(*(query() for _ in range(WAITING_MAX + 1)))
    assert client.answers[numbers[-1]].code == ResponseCode.SYSTEM_BUSY
    found(world, ROUTE)
    assert all(client.answers[number].code == 0 for number in numbers[:-1])
    kept = world.machine.assignments
    for number in range(QUEUES_MAX // 15_000 + 2):
        assigned(world, query(topic=f"t{number}"), route(broker_a=15_000))
        assert kept._count <= QUEUES_MAX
    assert TOPIC not in kept._topics
    assert kept._count == sum(len(topic.queues or ()) for topic in kept._topics.values())


def set_mode(client: SimulatedClient, mode: str) -> None:
    body = {"topic": TOPIC, "consumerGroup": GROUP, "mode": mode, "popShareQueueNum": 0}
    ok(client, request(RequestCode.SET_MESSAGE_REQUEST_MODE, body=json.dumps(body).encode()))


def test_a_group_that_pops_is_refused_with_the_remedy(world: SimulatedBroker) -> None:
    client = world.connect()
    set_mode(client, "POP")
    answer = client.ask(query())
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert f"mqadmin setConsumeMode -t {TOPIC} -g {GROUP} -m PULL" in (answer.remark or "")
    assert assigned(world, query(topic=RETRY), route(broker_a=1)) == [("broker-a", 0)]
    set_mode(client, "PULL")
    assert assigned(world, query()) == ALL[:3]


def test_the_default_mode() -> None:
    world = with_members(BrokerSettings(request_mode="POP"))
    client = world.connect()
    assert client.ask(query()).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert assigned(world, query(topic=RETRY), route(broker_a=1)) == [("broker-a", 0)]
    set_mode(client, "PULL")
    assert assigned(world, query()) == ALL[:3]


def test_an_unknown_message_model_is_refused(world: SimulatedBroker) -> None:
    answer = world.connect().ask(query(model="SHOUTING"))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "SHOUTING" in (answer.remark or "")
