"""Each limit of a broker, and the refusal that names its property. Limits count what is there."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.unit.broker.asking import GROUP, TOPIC, heartbeat as beat, ok, pull, request, send, send_header

from kourou.broker.events import Turn
from kourou.broker.properties import ACTED_ON, is_apaches
from kourou.broker.settings import BrokerSettings
from kourou.protocol import batch, bodies, headers
from kourou.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.message import Message
from kourou.replication.links import Accepted, HangUp, Link, Received
from kourou.testing.broker import SimulatedBroker, SimulatedClient
from kourou.testing.disk import SimulatedDisk


def create(topic: str, queues: int = 4) -> Command:
    header = headers.CreateTopic(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def topic_list(*names: str, queues: int = 4) -> Command:
    topics = [TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues) for name in names]
    body = bodies.CreateTopicListRequestBody(topic_config_list=topics)
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body.encode())


def group_list(*names: str) -> Command:
    body = bodies.SubscriptionGroupList(group_config_list=[SubscriptionGroupConfig(group_name=name) for name in names])
    return request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body.encode())


def reset(group: str = GROUP, topic: str = TOPIC) -> Command:
    header = headers.InvokeBrokerToResetOffset(group=group, topic=topic, timestamp=0, is_force=True, queue_id=-1)
    return request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


def commit(queue_id: int, group: str = GROUP) -> Command:
    header = headers.UpdateConsumerOffset(consumer_group=group, topic=TOPIC, queue_id=queue_id, commit_offset=0)
    return request(RequestCode.UPDATE_CONSUMER_OFFSET, header)


def clone(source: str, destination: str) -> Command:
    header = headers.CloneGroupOffset(src_group=source, dest_group=destination, topic=TOPIC, offline=True)
    return request(RequestCode.CLONE_GROUP_OFFSET, header)


def heartbeat(body: bytes) -> Command:
    return request(RequestCode.HEART_BEAT, body=body)


def batch_of(count_: int) -> Command:
    body = batch.encode_batch([Message(TOPIC, b"x") for _ in range(count_)])
    return Command(RequestCode.SEND_BATCH_MESSAGE, ext=send_header().encode(), body=body)


REFUSALS: dict[str, tuple[dict[str, Any], list[Command], Command]] = {
    "maxTopics": ({"topics_max": 2}, [create("a"), create("b"), create("b", 8)], create("c")),
    "maxTopicsPerRequest": ({"topics_per_request": 2}, [topic_list("a", "b")], topic_list("c", "d", "e")),
    "maxQueues": ({"queues_max": 1200}, [create("a", 60)], create("b", 60)),
    "maxQueuesPerTopic": ({"queues_per_topic": 8}, [create("a", 8)], create("b", 9)),
    "maxQueuesPerRequest": ({"queues_per_request": 8}, [topic_list("a", "b")], topic_list("c", "d", "e")),
    "maxGroups": ({"groups_max": 2}, [group_list("a", "b"), group_list("a")], group_list("c")),
    "maxGroupsPerRequest": ({"groups_per_request": 2}, [group_list("a", "b")], group_list("c", "d", "e")),
    "maxConsumerOffsets": ({"offsets_max": 6}, [create(TOPIC), group_list(GROUP, "b"), reset()], reset("b")),
    "maxMessagesPerBatch": ({"batch_messages_max": 3}, [send(), batch_of(3)], batch_of(4)),
    "maxConfigBodySize": (
        {"config_size_max": 100},
        [request(RequestCode.UPDATE_BROKER_CONFIG, body=b"bulkReadRatio=50")],
        request(RequestCode.UPDATE_BROKER_CONFIG, body=b"bulkReadRatio=50" + b"\n" * 100),
    ),
    "maxJsonBodySize": ({"json_size_max": 100}, [heartbeat(b"{}")], heartbeat(b"{" + b" " * 100 + b"}")),
    "maxJsonBodyObjects": ({"json_objects_max": 2}, [heartbeat(b'{"x":{}}')], heartbeat(b'{"x":[{},{}]}')),
    "maxLooseBodySize": (
        {"loose_size_max": 30},
        [heartbeat(b'{"producerDataSet":null}')],
        heartbeat(b'{"producerDataSet":null,"x":"xxxxxx"}'),
    ),
    "maxDialectBodySize": ({"dialect_size_max": 9}, [heartbeat(b"{0:0}")], heartbeat(b"{0:0,1:1 }")),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_names_its_property(name: str) -> None:
    settings, allowed, refused = REFUSALS[name]
    world = SimulatedBroker(settings=BrokerSettings(**settings))
    for command in allowed:
        ok(world.connect(), command)
    tables = len(world.machine.topics.table), len(world.machine.groups.table), world.machine.offsets.count
    answer = world.connect().ask(refused)
    assert answer.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.MESSAGE_ILLEGAL)
    assert f"({name})" in (answer.remark or "")
    assert tables == (
        len(world.machine.topics.table),
        len(world.machine.groups.table),
        world.machine.offsets.count,
    ), "nothing of it is done"


SAID_ELSEWHERE = {
    "maxAutoCreatedTopics": "test_limits_on_new_names_count_what_is_there",
    "maxAutoCreatedGroups": "test_limits_on_new_names_count_what_is_there",
    "maxConsumerFilterMemory": "test_filters_beyond_a_limit_are_not_registered",
    "maxHaConnections": "test_connections_of_slaves_beyond_a_limit_are_ended",
    "maxLongRequests": "test_long_requests_beyond_a_limit_are_refused",
    "maxLongRequestMemory": "test_long_requests_beyond_a_limit_are_refused",
    "maxLongRequestTime": "test_a_request_that_takes_too_long_is_ended",
}


IN_OTHER_MODULES = {
    "maxConnections": "net/test_pressure.py::test_connections_beyond_the_limit_are_closed",
    "maxConnectionsPerAddress": "net/test_pressure.py::test_connections_of_one_address",
    "maxRequestsInFlight": "net/test_pressure.py::test_requests_in_flight",
    "maxGroupsPerClient": "broker/test_heartbeat_limits.py::test_groups_of_one_connection",
    "maxSubscriptionsPerClient": "broker/test_heartbeat_limits.py::test_subscriptions_of_one_client",
}


def test_every_limit_of_ours_has_its_refusal() -> None:
    ours = {key for key in ACTED_ON if key.startswith("max") and not is_apaches(key)}
    assert ours == REFUSALS.keys() | SAID_ELSEWHERE.keys() | IN_OTHER_MODULES.keys()
    assert all(test in globals() for test in SAID_ELSEWHERE.values())
    for place in IN_OTHER_MODULES.values():
        module, _, test = place.partition("::")
        assert f"def {test}(" in (Path(__file__).parents[1] / module).read_text()


def test_connections_of_slaves_beyond_a_limit_are_ended() -> None:
    world = SimulatedBroker(settings=BrokerSettings(ha_connections_max=2))
    links = [Link(f"10.0.0.1:{number}") for number in range(4)]
    for link in links:  # each has reported: a connection that has not is ended in favour of a new one
        world.step(Accepted(link), Received(link, bytes(8)))
    assert [effect.link for effect in world.on_links if isinstance(effect, HangUp)] == links[2:]


def test_filters_beyond_a_limit_are_not_registered() -> None:
    world = SimulatedBroker(settings=BrokerSettings(property_filter=True, filter_memory_max=4_000))
    client = world.connect()
    ok(client, create(TOPIC))
    answers = []
    for group in ("a", "b", "c"):
        wanted = bodies.SubscriptionData(topic=TOPIC, sub_string="n > 1", expression_type="SQL92", sub_version=1)
        ok(client, beat(f"client of {group}", group=group, subscriptions=[wanted]))
        answers.append(client.ask(pull(group=group, sys_flag=0, sub_version=1)))
    assert [answer.code for answer in answers[:2]] == [ResponseCode.PULL_NOT_FOUND] * 2
    assert answers[2].code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert "the limit is 4000 (maxConsumerFilterMemory)" in (answers[2].remark or "")


# ── What counts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_offsets_are_limited_for_commits_and_clones_too() -> None:
    world = SimulatedBroker(settings=BrokerSettings(offsets_max=6))
    client = world.connect()
    for command in (create(TOPIC), group_list(GROUP, "b"), reset()):
        ok(client, command)
    for refused in (clone(GROUP, "b"), reset("b")):
        assert "(maxConsumerOffsets)" in (client.ask(refused).remark or "")
    ok(client, commit(0, "b"))
    ok(client, commit(1, "b"))
    assert "(maxConsumerOffsets)" in (client.ask(commit(2, "b")).remark or "")
    ok(client, commit(1, "b"))


def test_a_table_beyond_its_limit_is_loaded_and_served() -> None:
    world = SimulatedBroker()
    client = world.connect()
    for command in (create(TOPIC, 8), create("other"), group_list(GROUP), reset()):
        ok(client, command)
    world.pass_time(10_000)
    world.settings = BrokerSettings(topics_max=1, queues_max=1, groups_max=1, offsets_max=1, queues_per_topic=1)
    world = world.stop()
    client = world.connect()
    assert world.machine.offsets.count == 8
    ok(client, send())
    ok(client, request(RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopicInBroker(topic="other")))
    assert "maxTopics" in (client.ask(create("new", 1)).remark or "")


@pytest.mark.parametrize("restart", [False, True])
def test_limits_on_new_names_count_what_is_there(restart: bool, caplog: pytest.LogCaptureFixture) -> None:
    world = SimulatedBroker(settings=BrokerSettings(auto_topics_max=2, auto_groups_max=2))
    client = world.connect()
    ok(client, send(topic="a"))
    ok(client, send(topic="b"))
    for group in ("g", "h"):
        assert world.machine.groups.find(group, world.now_ms) is not None
    world.pass_time(1_000)
    if restart:
        world = world.stop()
        client = world.connect()
    assert client.ask(send(topic="c")).code == ResponseCode.TOPIC_NOT_EXIST
    assert world.machine.groups.find("i", world.now_ms) is None
    assert "(maxAutoCreatedTopics)" in caplog.text
    assert "(maxAutoCreatedGroups)" in caplog.text
    ok(client, request(RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopicInBroker(topic="a")))
    ok(client, request(RequestCode.DELETE_SUBSCRIPTIONGROUP, headers.DeleteSubscriptionGroup(group_name="g")))
    ok(client, send(topic="c"))
    assert world.machine.groups.find("i", world.now_ms) is not None


def test_a_send_to_a_retry_topic_makes_none_for_a_group_that_there_is_not() -> None:
    world = SimulatedBroker(settings=BrokerSettings(auto_create_groups=False))
    topics = len(world.machine.topics.table)
    for number in range(10):
        answer = world.connect().ask(send(topic=f"%RETRY%invented-{number}"))
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert len(world.machine.topics.table) == topics


def test_sends_to_retry_topics_make_no_more_topics_than_other_sends() -> None:
    world = SimulatedBroker(settings=BrokerSettings(auto_topics_max=2))
    topics, groups = len(world.machine.topics.table), world.machine.groups.count
    answers = [world.connect().ask(send(topic=f"%RETRY%invented-{number}")) for number in range(10)]
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 2 + [ResponseCode.TOPIC_NOT_EXIST] * 8
    assert all("(maxAutoCreatedTopics)" in (answer.remark or "") for answer in answers[2:])
    assert len(world.machine.topics.table) == topics + 2
    assert world.machine.groups.count == groups + 2


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (send(topic="%RETRY%invented", queue_id=99), ResponseCode.INVALID_PARAMETER),
        (send(topic="%RETRY%invented", queue_id=1, default_topic="no such topic"), ResponseCode.INVALID_PARAMETER),
        (send(topic="invented", queue_id=99), ResponseCode.INVALID_PARAMETER),
        (send(b"", topic="%RETRY%invented"), ResponseCode.MESSAGE_ILLEGAL),
        (send(b"", topic="invented"), ResponseCode.MESSAGE_ILLEGAL),
        (send(topic="%RETRY%invented", batch=True), ResponseCode.MESSAGE_ILLEGAL),
        (
            request(
                RequestCode.CONSUMER_SEND_MSG_BACK,
                headers.ConsumerSendMsgBack(offset=1 << 40, group="invented", delay_level=0),
            ),
            ResponseCode.SYSTEM_ERROR,
        ),
    ],
)
def test_a_refused_message_makes_neither_topic_nor_group(command: Command, code: int) -> None:
    world = SimulatedBroker()
    topics, groups = set(world.machine.topics.table), set(world.machine.groups.table)
    assert world.connect().ask(command).code == code
    assert set(world.machine.topics.table) == topics
    assert set(world.machine.groups.table) == groups


def test_without_room_for_retry_topics_groups_consume(caplog: pytest.LogCaptureFixture) -> None:
    world = SimulatedBroker(settings=BrokerSettings(auto_topics_max=1))
    client = world.connect()
    ok(client, send())
    topics = set(world.machine.topics.table)
    ok(client, beat("client", group="invented"))
    assert set(world.machine.topics.table) == topics
    assert "(maxAutoCreatedTopics)" in caplog.text
    assert world.machine.clients.group("invented") is not None
    ok(client, pull(group="invented"))
    back = headers.ConsumerSendMsgBack(offset=0, group="invented", delay_level=0)
    answer = client.ask(request(RequestCode.CONSUMER_SEND_MSG_BACK, back))
    assert "(maxAutoCreatedTopics)" in (answer.remark or "")


def test_offsets_are_cloned_to_groups_alone() -> None:
    world = SimulatedBroker(settings=BrokerSettings(auto_groups_max=1))
    client = world.connect()
    for command in (create(TOPIC), group_list(GROUP), reset()):
        ok(client, command)
    for name in ("beyond-the-limit", "no name", "x" * 300, ""):
        assert client.ask(clone(GROUP, name)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert world.machine.offsets.count == 4
    ok(client, clone(GROUP, GROUP))
    assert world.machine.offsets.of_topic(GROUP, TOPIC) == {0: 0, 1: 0, 2: 0, 3: 0}


# ── Long requests ───────────────────────────────────────────────────────────────────────────────────────────────────

SLOW_NS = 6_000_000
"""What each look at the clock takes: every slice ends at its first yield."""


@pytest.fixture
def slow() -> Callable[..., SimulatedBroker]:
    def make(**settings: Any) -> SimulatedBroker:
        clock = count(0, SLOW_NS)
        world = SimulatedBroker(SimulatedDisk(Random(1)), BrokerSettings(**settings), clock_ns=lambda: next(clock))
        world.take_turns()
        return world

    return make


def _start(client: SimulatedClient, command: Command) -> int:
    (number,) = client.send(command)
    return number


def test_others_are_served_between_the_slices(slow: Callable[..., SimulatedBroker]) -> None:
    world = slow()
    client, other = world.connect(), world.connect()
    number = _start(client, topic_list(*(f"t{n}" for n in range(1000))))
    assert world.machine.is_busy
    assert number not in client.answers
    ok(other, request(RequestCode.GET_MAX_OFFSET, headers.GetMaxOffset(topic=TOPIC, queue_id=0)))
    assert world.machine.topics.get("t0") is None, "all of them, or none"
    assert world.take_turns() > 10
    assert client.answers[number].code == ResponseCode.SUCCESS
    assert world.machine.topics.get("t999") is not None


def test_slices_are_those_of_all_connections_in_turn(slow: Callable[..., SimulatedBroker]) -> None:
    world = slow()
    first, second = world.connect(), world.connect()
    long_one = _start(first, topic_list(*(f"t{n}" for n in range(1000))))
    short_one = _start(second, request(RequestCode.GET_ALL_TOPIC_CONFIG))
    while short_one not in second.answers:
        assert world.machine.is_busy
        world.step(Turn())
    assert long_one not in first.answers
    world.take_turns()
    assert long_one in first.answers


def test_the_work_of_a_connection_that_is_gone_ends(slow: Callable[..., SimulatedBroker]) -> None:
    world = slow()
    client = world.connect()
    _start(client, topic_list(*(f"t{n}" for n in range(1000))))
    client.close()
    world.take_turns()
    assert world.machine.topics.get("t0") is None


def test_a_deletion_is_finished_though_its_connection_is_gone(slow: Callable[..., SimulatedBroker]) -> None:
    world = slow()
    client = world.connect()
    for command in (create(TOPIC), group_list(GROUP), reset()):
        _start(client, command)
        world.take_turns()
    assert world.machine.offsets.count == 4
    _start(client, request(RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopicInBroker(topic=TOPIC)))
    client.close()
    world.take_turns()
    assert world.machine.topics.get(TOPIC) is None
    assert world.machine.offsets.count == 0


@pytest.mark.parametrize(
    ("settings", "name"),
    [({"long_requests_max": 2}, "maxLongRequests"), ({"long_memory_max": 100_000}, "maxLongRequestMemory")],
)
def test_long_requests_beyond_a_limit_are_refused(
    slow: Callable[..., SimulatedBroker], settings: dict[str, int], name: str
) -> None:
    world = slow(**settings)
    long_one = topic_list(*(f"t{n}" for n in range(500)))
    clients = [world.connect() for _ in range(4)]
    numbers = [_start(client, long_one) for client in clients]
    refused = [client.answers[number] for client, number in zip(clients, numbers, strict=True) if client.answers]
    assert refused
    assert all(answer.code == ResponseCode.SYSTEM_BUSY and f"({name})" in (answer.remark or "") for answer in refused)
    world.take_turns()
    assert clients[0].answers[numbers[0]].code == ResponseCode.SUCCESS


def test_a_request_that_takes_too_long_is_ended(slow: Callable[..., SimulatedBroker]) -> None:
    world = slow(long_time_ms=20)
    client = world.connect()
    number = _start(client, topic_list(*(f"t{n}" for n in range(2000))))
    world.take_turns()
    assert client.answers[number].code == ResponseCode.SYSTEM_BUSY
    assert "(maxLongRequestTime)" in (client.answers[number].remark or "")
    assert world.machine.topics.get("t0") is None


def test_an_answer_is_never_larger_than_a_frame() -> None:
    world = SimulatedBroker()
    client = world.connect()
    ok(client, create("wide-0", 65_536))
    ok(client, create("wide-1", 65_536))
    header = headers.GetConsumeStats(consumer_group=GROUP, topic_list="wide-0;wide-1")
    answer = client.ask(request(RequestCode.GET_CONSUME_STATS, header))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "the largest frame (com.rocketmq.remoting.frameMaxLength)" in (answer.remark or "")


def test_many_changes_of_a_list_share_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = SimulatedBroker()
    ok(world.connect(), topic_list(*(f"t{n}" for n in range(1000))))
    ok(world.connect(), group_list(*(f"g{n}" for n in range(1000))))
    assert len(caplog.records) < 50
    assert "topics set count=1000" in caplog.text
    assert "groups set count=1000" in caplog.text


@pytest.mark.slow
def test_a_broker_starts_with_whatever_tables_it_has_written() -> None:
    """More offsets than numbers that a peer may send as keys; after one save, and after two."""
    world = SimulatedBroker(settings=BrokerSettings(offsets_max=2_000_000))
    client = world.connect()
    for command in (create(TOPIC, 65_536), group_list(*(f"clone-{n}" for n in range(17))), reset("clone-0")):
        ok(client, command)
    for n in range(1, 17):
        ok(client, clone("clone-0", f"clone-{n}"))
    world.pass_time(10_000)
    count_ = world.machine.offsets.count
    assert count_ > 1_000_000
    world = world.stop()
    assert world.machine.offsets.count == count_
    ok(world.connect(), commit(0, "clone-3"))
    world.pass_time(10_000)
    assert world.kill().machine.offsets.count == count_


LONG = 65_537


@pytest.mark.parametrize(
    ("code", "field", "length", "refusal"),
    [
        (RequestCode.GET_CONSUME_STATS, "consumerGroup", LONG, ResponseCode.INVALID_PARAMETER),
        (RequestCode.QUERY_MESSAGE, "key", LONG, ResponseCode.INVALID_PARAMETER),
        (RequestCode.PULL_MESSAGE, "subscription", LONG, ResponseCode.INVALID_PARAMETER),
        (RequestCode.SEND_MESSAGE_V2, "i", LONG, ResponseCode.MESSAGE_ILLEGAL),
        (RequestCode.SEND_MESSAGE, "properties", LONG, ResponseCode.MESSAGE_ILLEGAL),
        (RequestCode.SEND_REPLY_MESSAGE_V2, "i", LONG, ResponseCode.MESSAGE_ILLEGAL),
        (RequestCode.GET_CONSUME_STATS, "topicList", 524_289, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_a_long_header_field_is_refused(
    code: RequestCode, field: str, length: int, refusal: ResponseCode, client: SimulatedClient
) -> None:
    answer = client.ask(Command(code, ext={field: "x" * length, "other": "y"}))
    assert answer.code == refusal
    assert answer.remark == f"the header field {field} has {length} characters, the limit is {length - 1}"
    answer = client.ask(Command(code, ext={field: "x" * (length - 1), "other": "y"}))
    assert "the limit is" not in (answer.remark or "")


@pytest.mark.parametrize(
    ("code", "field", "separator"),
    [
        (RequestCode.GET_CONSUME_STATS, "topicList", ";"),
        (RequestCode.QUERY_CORRECTION_OFFSET, "filterGroups", ","),
    ],
)
def test_the_names_in_a_header_field_are_limited(
    code: RequestCode, field: str, separator: str, client: SimulatedClient
) -> None:
    def ask(count: int) -> Command:
        names = separator.join(f"name-{number}" for number in range(count))
        return client.ask(
            Command(code, ext={"consumerGroup": GROUP, "compareGroup": GROUP, "topic": TOPIC, field: names})
        )

    assert ask(2_000).code == ResponseCode.SUCCESS
    answer = ask(2_001)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "a header field has 2001 names, the limit is 2000: send several requests"


@pytest.fixture
def client() -> SimulatedClient:
    client = SimulatedBroker().connect()
    ok(client, send())
    return client
