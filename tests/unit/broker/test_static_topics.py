"""Static topics: their mappings, and requests about their queues."""

import json
from typing import Any

import msgspec
import pytest
from tests.unit.broker.asking import GROUP, bodies_of, messages, ok, pull, request, send

from kourou.broker.events import Announce
from kourou.broker.settings import BrokerSettings
from kourou.broker.static_topics import STATIC_PIECES_MAX
from kourou.protocol import bodies, headers
from kourou.protocol.bodies import LogicQueueMappingItem, RegisterBrokerBody, TopicQueueMappingDetail
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.message import MessageQueue
from kourou.testing.broker import SimulatedBroker, SimulatedClient

TOPIC = "fixed"
BROKER = BrokerSettings().name


def piece(queue: int, broker: str = BROKER, *, gen: int = 0, logic: int = 0, **more: int) -> LogicQueueMappingItem:
    return LogicQueueMappingItem(gen=gen, queue_id=queue, bname=broker, logic_offset=logic, **more)


def mapping(
    queues: dict[int, list[LogicQueueMappingItem]], *, epoch: int = 1, topic: str = TOPIC, broker: str = BROKER
) -> TopicQueueMappingDetail:
    return TopicQueueMappingDetail(topic=topic, total_queues=8, bname=broker, epoch=epoch, hosted_queues=queues)


SHIFTED = {5: [piece(0)], 7: [piece(1)]}
"""This broker has two of eight queues."""


def put(wanted: TopicQueueMappingDetail, *, topic: str = TOPIC, queues: int = 2, force: bool = False) -> Command:
    header = headers.CreateTopic(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        force=force,
    )
    return request(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, header, wanted.encode())


def show(world: SimulatedBroker, logical: bool = True) -> bodies.TopicConfigAndQueueMapping:
    header = headers.GetTopicConfig(topic=TOPIC, logical=logical)
    answer = ok(world.connect(), request(RequestCode.GET_TOPIC_CONFIG, header))
    return bodies.TopicConfigAndQueueMapping.decode(answer.body)


@pytest.fixture
def world() -> SimulatedBroker:
    return SimulatedBroker()


@pytest.fixture
def client(world: SimulatedBroker) -> SimulatedClient:
    """Of a broker with the topic."""
    client = world.connect()
    ok(client, put(mapping(SHIFTED)))
    return client


# ── The mapping ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["stop", "kill", "crash"])
def test_a_mapping_is_kept(world: SimulatedBroker, client: SimulatedClient, how: str) -> None:
    world = getattr(world, how)()
    assert show(world).mapping_detail == mapping(SHIFTED)
    assert show(world, logical=False).mapping_detail is None
    assert show(world).write_queue_nums == 2


def test_a_mapping_goes_with_its_topic(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, request(RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopicInBroker(topic=TOPIC)))
    assert world.machine.static_topics.table == {}
    world = world.stop()
    assert world.machine.static_topics.table == {}


@pytest.mark.parametrize("compressed", [True, False])
def test_name_servers_are_told(compressed: bool) -> None:
    world = SimulatedBroker(settings=BrokerSettings(register_compressed=compressed))
    ok(world.connect(), put(mapping({**SHIFTED, 1: [piece(0, "other")]})))
    world.machine.registration.is_on = True
    told: list[Announce] = []
    world.machine.registration.step(world.now_ms)
    told = [effect for effect in world.machine.outbox.take() if isinstance(effect, Announce)]
    body = told[-1].command.body
    read = RegisterBrokerBody.decompress(body, 500) if compressed else RegisterBrokerBody.decode(body)
    info = read.topic_config_serialize_wrapper.topic_queue_mapping_info_map[TOPIC]
    assert (info.total_queues, info.bname, info.epoch, info.curr_id_map) == (8, BROKER, 1, {5: 0, 7: 1})


def test_all_topics_are_shown_with_mappings_in_plain_json(world: SimulatedBroker, client: SimulatedClient) -> None:
    """Apache's broker writes numbers as keys, without quotes, and mqadmin can't read that."""
    answer = ok(client, request(RequestCode.GET_ALL_TOPIC_CONFIG))
    found = json.loads(answer.body)
    assert sorted(found["topicQueueMappingDetailMap"][TOPIC]["hostedQueues"]) == ["5", "7"]
    assert found["mappingDataVersion"]["counter"] == 1


@pytest.mark.parametrize(
    ("wanted", "remark"),
    [
        (mapping({}, topic="other"), "of topic other"),
        (mapping({}, broker="other"), "of broker other"),
        (mapping({1: [piece(-1)]}), "should not be negative"),
        (mapping({1: [piece(0, gen=1, logic=5), piece(0, gen=1, logic=9)]}), "gen does not increase"),
        (mapping({1: [piece(0, logic=5), piece(1, gen=1, logic=5)]}), "base logic offset does not increase"),
        (mapping({1: [piece(0, logic=-1), piece(1, gen=1)]}), "negative logic offset"),
        (mapping({1: [piece(0, start_offset=5, end_offset=4)]}), "endOffset is smaller"),
        (mapping({1: [piece(0, "other"), piece(0, gen=1, logic=100)]}), "has messages on another broker"),
        (mapping({number: [piece(0)] for number in range(3_000)}), "STATIC_BODY_MAX"),
    ],
)
def test_a_mapping_is_refused(wanted: TopicQueueMappingDetail, remark: str) -> None:
    world = SimulatedBroker(
        settings=BrokerSettings(json_size_max=10**7, json_objects_max=10**5, dialect_size_max=10**7)
    )
    answer = world.connect().ask(put(wanted))
    assert answer.code != 0
    assert remark in (answer.remark or "")
    assert world.machine.static_topics.table == {}
    assert TOPIC not in world.machine.topics.table


@pytest.mark.parametrize(
    ("after", "remark"),
    [
        (mapping(SHIFTED, epoch=0), "small epoch 0 < 1"),
        (mapping({5: [piece(0)]}, epoch=1), "equal epoch with null data"),
        (mapping({**SHIFTED, 5: [piece(1)]}, epoch=2), "messages can't move"),
        (mapping({**SHIFTED, 5: []}, epoch=2), "null or empty"),
        (mapping({**SHIFTED, 5: [piece(0), piece(0, "other", gen=1, logic=9)]}), "leader is different"),
        (msgspec.structs.replace(mapping(SHIFTED, epoch=2), scope="s"), "unmatched scope s"),
    ],
)
def test_a_change_is_refused(client: SimulatedClient, after: TopicQueueMappingDetail, remark: str) -> None:
    answer = client.ask(put(after))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert remark in (answer.remark or "")


def test_a_mapping_of_many_queues(world: SimulatedBroker) -> None:
    """Java writes the numbers of queues without quotes, which is read slowly elsewhere."""
    client = world.connect()
    half = STATIC_PIECES_MAX // 2 - 100
    for epoch, begin in ((1, 0), (2, half)):
        queues = {number: [piece(number - begin)] for number in range(begin, begin + half)}
        ok(client, put(mapping(queues, epoch=epoch)))
    more = {number: [piece(0)] for number in range(2 * half, 2 * half + 300)}
    answer = client.ask(put(mapping(more, epoch=3)))
    assert (answer.code, "STATIC_PIECES_MAX" in (answer.remark or "")) == (ResponseCode.INVALID_PARAMETER, True)
    assert len(world.machine.static_topics.table[TOPIC].hosted_queues) == 2 * half


def test_queues_are_added(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, put(mapping({6: [piece(2)]}, epoch=2), queues=3))
    assert show(world).mapping_detail == mapping({**SHIFTED, 6: [piece(2)]}, epoch=2)


def test_force_replaces_what_is_named(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, put(mapping({5: [piece(1)]}, epoch=0), force=True))
    assert show(world).mapping_detail == mapping({5: [piece(1)], 7: [piece(1)]}, epoch=0)


# ── Requests about queues ───────────────────────────────────────────────────────────────────────────────────────────


def ask_offset(client: SimulatedClient, code: RequestCode, queue: int, **more: Any) -> Command:
    ext = {"topic": TOPIC, "queueId": str(queue), **{name: str(value) for name, value in more.items()}}
    return client.ask(Command(code, ext=ext))


def test_messages_go_to_the_brokers_own_queue(world: SimulatedBroker, client: SimulatedClient) -> None:
    answer = ok(client, send(b"one", topic=TOPIC, queue_id=7))
    assert answer.ext is not None
    assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("7", "0")
    assert bodies_of(world, TOPIC, 1) == [b"one"]


def test_a_sender_without_a_choice(world: SimulatedBroker, client: SimulatedClient) -> None:
    answer = ok(client, send(b"one", topic=TOPIC, queue_id=-1))
    assert answer.ext is not None
    assert answer.ext["queueId"] == "5"


def test_messages_are_pulled_by_the_global_queue(client: SimulatedClient) -> None:
    ok(client, send(b"one", topic=TOPIC, queue_id=7))
    ok(client, request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"%s"}' % GROUP.encode()))
    answer = client.ask(pull(TOPIC, 7, 0))
    assert answer.code == 0
    assert answer.ext is not None
    assert (answer.ext["nextBeginOffset"], answer.ext["maxOffset"], answer.ext["offsetDelta"]) == ("1", "1", "0")


@pytest.mark.parametrize("queue", [0, 1, 6, 100])
def test_a_queue_that_is_elsewhere(client: SimulatedClient, queue: int) -> None:
    for answer in (
        client.ask(send(b"one", topic=TOPIC, queue_id=queue)),
        client.ask(pull(TOPIC, queue, 0)),
        ask_offset(client, RequestCode.GET_MAX_OFFSET, queue),
    ):
        assert answer.code == ResponseCode.NOT_LEADER_FOR_QUEUE
        assert f"{TOPIC}-{queue} " in (answer.remark or "")


def test_another_broker_names_the_own_queue(client: SimulatedClient) -> None:
    ok(client, send(b"one", topic=TOPIC, queue_id=7))
    assert ask_offset(client, RequestCode.GET_MAX_OFFSET, 7).ext == {"offset": "1"}
    assert ask_offset(client, RequestCode.GET_MAX_OFFSET, 1, lo="false").ext == {"offset": "1"}
    assert ask_offset(client, RequestCode.GET_MAX_OFFSET, 0, lo="false").ext == {"offset": "0"}


def test_offsets_of_a_later_piece(world: SimulatedBroker) -> None:
    """A queue that begins at an offset other than 0: its earlier messages have expired."""
    client = world.connect()
    ok(client, put(mapping({3: [piece(0, gen=2, logic=1000)]})))
    answer = ok(client, send(b"one", topic=TOPIC, queue_id=3))
    assert answer.ext is not None
    assert answer.ext["queueOffset"] == "1000"
    for code, offset in ((RequestCode.GET_MIN_OFFSET, "1000"), (RequestCode.GET_MAX_OFFSET, "1001")):
        assert ask_offset(client, code, 3).ext == {"offset": offset}
    ok(client, request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"%s"}' % GROUP.encode()))
    ask_offset(client, RequestCode.UPDATE_CONSUMER_OFFSET, 3, consumerGroup=GROUP, commitOffset=1001)
    assert world.machine.offsets.get(GROUP, TOPIC, 0) == 1
    assert ask_offset(client, RequestCode.QUERY_CONSUMER_OFFSET, 3, consumerGroup=GROUP).ext == {"offset": "1001"}
    pulled = client.ask(pull(TOPIC, 3, 1000))
    assert pulled.ext is not None
    assert (pulled.ext["minOffset"], pulled.ext["nextBeginOffset"], pulled.ext["offsetDelta"]) == (
        "1000",
        "1001",
        "1000",
    )


@pytest.mark.parametrize("text", ["", "x", "1" * 30, "--1", "-"])
def test_a_queue_that_is_not_a_number(client: SimulatedClient, text: str) -> None:
    answer = client.ask(Command(RequestCode.GET_MAX_OFFSET, ext={"topic": TOPIC, "queueId": text}))
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_the_lane_leaves_static_topics_alone(world: SimulatedBroker) -> None:
    """Also one that it knew before the topic became static."""
    client = world.connect()
    ok(client, request(RequestCode.UPDATE_AND_CREATE_TOPIC, _plain_topic()))
    for number in range(3):
        ok(client, send(b"%d" % number, topic=TOPIC, queue_id=1))
    ok(client, put(mapping({1: [piece(0)], 0: [piece(1)]})))
    for number in range(3):
        ok(client, send(b"%d" % number, topic=TOPIC, queue_id=1))
    assert [len(messages(world, TOPIC, queue)) for queue in (0, 1)] == [3, 3]


def _plain_topic() -> headers.CreateTopic:
    return headers.CreateTopic(
        topic=TOPIC,
        default_topic="TBW102",
        read_queue_nums=2,
        write_queue_nums=2,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )


def test_locks_name_global_queues(client: SimulatedClient) -> None:
    queues = [MessageQueue(TOPIC, "__syslo__global__", number) for number in (5, 6, 7)]
    body = bodies.LockBatchRequestBody(consumer_group=GROUP, client_id="c", mq_set=queues)
    answer = ok(client, request(RequestCode.LOCK_BATCH_MQ, body=body.encode()))
    assert sorted(queue.queue_id for queue in bodies.LockBatchResponseBody.decode(answer.body).locked) == [5, 7]
