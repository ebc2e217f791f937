"""Topics by request."""

import errno
from typing import Any

import msgspec
import pytest
from tests.unit.broker.asking import GROUP, TOPIC, bodies_of, ok, pull, request, send

from kourou.broker.admin import attributes
from kourou.broker.events import Refused
from kourou.broker.settings import BrokerSettings
from kourou.protocol import bodies, headers
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.testing.broker import SimulatedBroker


def create(topic: str = TOPIC, **more: Any) -> Command:
    fields: dict[str, Any] = {
        "topic": topic,
        "default_topic": "TBW102",
        "read_queue_nums": 4,
        "write_queue_nums": 4,
        "perm": 6,
        "topic_filter_type": "SINGLE_TAG",
    }
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC, headers.CreateTopic(**(fields | more)))


def create_all(*topics: TopicConfig) -> Command:
    body = bodies.CreateTopicListRequestBody(topic_config_list=list(topics))
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body.encode())


def delete(topic: str) -> Command:
    return request(RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopicInBroker(topic=topic))


def show(topic: str) -> Command:
    return request(RequestCode.GET_TOPIC_CONFIG, headers.GetTopicConfig(topic=topic))


@pytest.fixture
def world() -> SimulatedBroker:
    return SimulatedBroker()


# ── Making and changing ─────────────────────────────────────────────────────────────────────────────────────────────


def test_topic_is_made_changed_and_kept(world: SimulatedBroker) -> None:
    client = world.connect()
    ok(client, create(read_queue_nums=3, write_queue_nums=2, perm=4, order=True))
    ok(client, create(read_queue_nums=5))
    world = world.crash()
    shown = TopicConfig.decode(ok(world.connect(), show(TOPIC)).body)
    assert shown == TopicConfig(topic_name=TOPIC, read_queue_nums=5, write_queue_nums=4, perm=6)


def test_name_servers_are_told(world: SimulatedBroker) -> None:
    world.machine.registration.is_on = True
    world.tick()
    world.announced.clear()
    ok(world.connect(), create())
    (told,) = world.announced
    wrapper = bodies.RegisterBrokerBody.decode(told.body).topic_config_serialize_wrapper
    assert set(wrapper.topic_config_table) == {TOPIC}


def test_the_same_topic_again_changes_nothing(world: SimulatedBroker) -> None:
    client = world.connect()
    ok(client, create())
    version = world.machine.topics.version
    ok(client, create())
    assert world.machine.topics.version == version


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "bad topic"}, 29, "illegal characters"),
        ({"topic": "../../etc/passwd"}, 29, "illegal characters"),
        ({"topic": " "}, 29, "The specified topic is blank."),
        ({"topic": "x" * 128}, 29, "longer than topic max length: 127"),
        ({"topic": "TBW102"}, 29, "The topic[TBW102] is conflict with system topic."),
        ({"topic": "rmq_sys_anything"}, 29, "is conflict with system topic."),
        ({"topic_filter_type": "NONE"}, 1, "topicFilterType = [NONE] value invalid"),
        ({"read_queue_nums": -1}, 29, "queues"),
        ({"write_queue_nums": 65_537}, 29, "a topic has 0 to 65536 queues (maxQueuesPerTopic), 65537 were asked for"),
        ({"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
        ({"attributes": "+reserve.time=-2"}, 1, "value is not in range(-1, 9223372036854775807)"),
        ({"attributes": "+nonsense=1"}, 1, "unsupported key: nonsense"),
        ({"attributes": "-queue.type"}, 1, "only add attribute is supported while creating topic. key: queue.type"),
        ({"attributes": "nonsense"}, 1, "delete attribute format is wrong: nonsense"),
    ],
)
def test_refused(world: SimulatedBroker, fields: dict[str, Any], code: int, remark: str) -> None:
    answer = world.connect().ask(create(**fields))
    assert answer.code == code
    assert remark in (answer.remark or "")
    assert world.machine.topics.get(fields.get("topic", TOPIC)) is None or "TBW102" in remark


def test_field_that_is_missing_is_named(world: SimulatedBroker) -> None:
    answer = world.connect().ask(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext={"topic": TOPIC}))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "defaultTopic" in (answer.remark or "")


def test_attributes_are_set_changed_and_removed(world: SimulatedBroker) -> None:
    client = world.connect()
    ok(client, create(attributes="+message.type=FIFO,+queue.type=SimpleCQ"))
    ok(client, create(attributes="+message.type=NORMAL"))
    topic = TopicConfig.decode(ok(client, show(TOPIC)).body)
    assert topic.attributes == {"message.type": "NORMAL", "queue.type": "SimpleCQ"}
    ok(client, create(attributes="-message.type"))
    assert TopicConfig.decode(ok(client, show(TOPIC)).body).attributes == {"queue.type": "SimpleCQ"}
    answer = client.ask(create(attributes="+queue.type=BatchCQ"))
    assert answer.remark == "attempt to update an unchangeable attribute. key: queue.type"


def test_list_is_made_or_nothing_is(world: SimulatedBroker) -> None:
    client = world.connect()
    ok(client, create_all(TopicConfig(topic_name="one"), TopicConfig(topic_name="two", perm=4)))
    assert world.machine.topics.table["two"].perm == 4
    answer = client.ask(create_all(TopicConfig(topic_name="three"), TopicConfig(topic_name="bad!")))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert world.machine.topics.get("three") is None


def test_answer_waits_for_the_disk() -> None:
    world = SimulatedBroker(lazy=True)
    client = world.connect()
    (number,) = client.send(create())
    assert number not in client.answers
    world.work()
    assert client.answers[number].code == 0


# ── Deleting ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_deleted_topic_takes_messages_offsets_and_counts_along(world: SimulatedBroker) -> None:
    client = world.connect()
    for _ in range(3):
        ok(client, send())
    ok(client, pull())
    world.machine.offsets.commit(GROUP, TOPIC, 0, 3)
    ok(client, delete(TOPIC))
    assert world.machine.topics.get(TOPIC) is None
    assert world.machine.offsets.get(GROUP, TOPIC, 0) == -1
    assert TOPIC not in world.machine.stats.topics
    assert (TOPIC, GROUP) not in world.machine.stats.groups
    assert bodies_of(world) == []
    ok(client, send(b"anew"))
    assert bodies_of(world) == [b"anew"]


def test_retries_of_popping_groups_go_too(world: SimulatedBroker) -> None:
    client = world.connect()
    ok(client, create())
    world.machine.offsets.commit(GROUP, TOPIC, 0, 1)
    for name in (f"%RETRY%{GROUP}_{TOPIC}", f"%RETRY%{GROUP}"):
        world.machine.topics.ensure(name, 1, world.now_ms)
    ok(client, delete(TOPIC))
    assert world.machine.topics.get(f"%RETRY%{GROUP}_{TOPIC}") is None
    assert world.machine.topics.get(f"%RETRY%{GROUP}") is not None


def test_retries_of_popping_groups_stay_if_that_is_wanted(world: SimulatedBroker) -> None:
    world.settings.delete_retry_topics = False
    client = world.connect()
    ok(client, create())
    world.machine.offsets.commit(GROUP, TOPIC, 0, 1)
    world.machine.topics.ensure(f"%RETRY%{GROUP}_{TOPIC}", 1, world.now_ms)
    ok(client, delete(TOPIC))
    assert world.machine.topics.get(f"%RETRY%{GROUP}_{TOPIC}") is not None


def test_system_topics_change_where_that_is_allowed() -> None:
    """As for the trace topic, which has one queue unless another number is set."""
    world = SimulatedBroker(settings=BrokerSettings(guard_system_topics=False, trace_topic=True))
    client = world.connect()
    ok(client, create("RMQ_SYS_TRACE_TOPIC", write_queue_nums=6))
    topic = world.machine.topics.get("RMQ_SYS_TRACE_TOPIC")
    assert topic is not None
    assert topic.write_queue_nums == 6
    ok(client, delete("RMQ_SYS_TRACE_TOPIC"))
    assert world.machine.topics.get("RMQ_SYS_TRACE_TOPIC") is None


def test_topics_of_mixed_messages_where_they_are_allowed() -> None:
    world = SimulatedBroker(settings=BrokerSettings(mixed_topics=True))
    ok(world.connect(), create(attributes="+message.type=MIXED"))
    topic = world.machine.topics.get(TOPIC)
    assert topic is not None
    assert topic.attributes == {"message.type": "MIXED"}


@pytest.mark.parametrize("end", ["kill", "crash"])
def test_deleted_topic_does_not_come_back(end: str) -> None:
    world = SimulatedBroker(lazy=True)
    client = world.connect()
    for queue_id in range(4):
        client.send(send(queue_id=queue_id))
    world.pass_time(3_000, world.work)
    (number,) = client.send(delete(TOPIC))
    world.step()
    assert number not in client.answers, "it is answered when it is durable"
    while number not in client.answers:
        world.work(limit=1)
    world = getattr(world, end)()
    world.lazy = False
    ok(world.connect(), send(b"again", queue_id=1))
    assert [bodies_of(world, queue_id=queue_id) for queue_id in range(4)] == [[], [b"again"], [], []]


def test_unknown_topic_may_be_deleted(world: SimulatedBroker) -> None:
    ok(world.connect(), delete("../../nowhere"))


@pytest.mark.parametrize(
    ("topic", "remark"),
    [(" ", "The specified topic is blank."), ("SELF_TEST_TOPIC", "is conflict with system topic.")],
)
def test_not_deleted(world: SimulatedBroker, topic: str, remark: str) -> None:
    answer = world.connect().ask(delete(topic))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert remark in (answer.remark or "")


def test_disk_that_keeps_files_is_told_of(world: SimulatedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(topic: str) -> int:
        raise OSError(errno.EIO, "disk gone")

    monkeypatch.setattr(world.store, "remove_topic", fail)
    answer = world.connect().ask(delete(TOPIC))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "disk gone" in (answer.remark or "")


# ── Showing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_unknown_topic_is_not_shown(world: SimulatedBroker) -> None:
    answer = world.connect().ask(show("nowhere"))
    assert (answer.code, answer.remark) == (17, "No topic in this broker. topic: nowhere")


def test_all_topics_are_shown(world: SimulatedBroker) -> None:
    answer = ok(world.connect(), request(RequestCode.GET_ALL_TOPIC_CONFIG))
    shown = bodies.TopicConfigAndMappingSerializeWrapper.decode(answer.body)
    assert shown.topic_config_table == world.machine.topics.table
    assert shown.data_version == world.machine.topics.version
    assert answer.ext == {"totalTopicNum": str(len(shown.topic_config_table))}


def test_topics_come_in_pages(world: SimulatedBroker) -> None:
    client = world.connect()
    version = world.machine.topics.version.encode().decode()
    names: list[str] = []
    while True:
        header = headers.GetAllTopicConfig(topic_seq=len(names), data_version=version, max_topic_num=4)
        answer = ok(client, request(RequestCode.GET_ALL_TOPIC_CONFIG, header))
        page = bodies.TopicConfigAndMappingSerializeWrapper.decode(answer.body).topic_config_table
        assert len(page) <= 4
        if not page:
            break
        names += sorted(page)
    assert names == sorted(world.machine.topics.table)


@pytest.mark.parametrize("version", ["", "{}", "nonsense", '{"counter":99}'])
def test_another_version_begins_again(world: SimulatedBroker, version: str) -> None:
    world.tick(1)
    ok(world.connect(), create())
    header = headers.GetAllTopicConfig(topic_seq=3, data_version=version, max_topic_num=1)
    answer = ok(world.connect(), request(RequestCode.GET_ALL_TOPIC_CONFIG, header))
    page = bodies.TopicConfigAndMappingSerializeWrapper.decode(answer.body).topic_config_table
    assert list(page) == sorted(world.machine.topics.table)[:1]


def test_system_topics(world: SimulatedBroker) -> None:
    answer = ok(world.connect(), request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))
    shown = set(bodies.TopicList.decode(answer.body).topic_list)
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a", "RMQ_SYS_TRANS_HALF_TOPIC"} <= shown
    assert TOPIC not in shown


# ── Attributes ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("current", "changes", "remark"),
    [
        ({}, {"+queue.type": "x"}, "attempt to update an unchangeable attribute. key: queue.type"),
        (None, {"+queue.type": "x"}, "value is not in set: [SimpleCQ, BatchCQ]"),
        (None, {"+lite.topic.expiration": "soon"}, 'For input string: "soon"'),
        (None, {"+lite.topic.expiration": "43201"}, "value is not in range(-1, 43200)"),
        ({}, {"-message.type": ""}, "attempt to delete a nonexistent key: message.type"),
        ({}, {"message.type": "NORMAL"}, "wrong format key: essage.type"),
        ({}, {"+": "NORMAL"}, "kv string format wrong."),
        ({}, {"++a": "NORMAL"}, "kv string format wrong."),
        ({"message.type": "FIFO"}, {"+message.type": "x", "-message.type": ""}, "value is not in set"),
        (
            {"message.type": "FIFO"},
            {"+message.type": "NORMAL", "-message.type": ""},
            "alter duplication key. key: message.type",
        ),
    ],
)
def test_attributes_refused(current: dict[str, str] | None, changes: dict[str, str], remark: str) -> None:
    with pytest.raises(Refused) as refused:
        attributes.alter(attributes.OF_TOPICS, current, changes)
    assert remark in refused.value.remark


@pytest.mark.parametrize(
    ("text", "remark"), [("a=1", "add/alter attribute format is wrong: a"), ("+a=1,+a=2", "key duplication: +a")]
)
def test_attributes_not_parsed(text: str, remark: str) -> None:
    with pytest.raises(Refused) as refused:
        attributes.parse(text)
    assert refused.value.remark == remark


def test_attributes_parsed() -> None:
    assert attributes.parse(None) == attributes.parse("") == {}
    assert attributes.parse("+a=1,-b,") == {"+a": "1", "-b": ""}


def test_shown_topic_has_all_fields(world: SimulatedBroker) -> None:
    ok(world.connect(), create())
    shown = msgspec.json.decode(ok(world.connect(), show(TOPIC)).body)
    assert shown == {
        "topicName": TOPIC,
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": {},
    }


def test_a_trace_topic_is_the_brokers_own_if_it_is_enabled() -> None:
    for name in ("RMQ_SYS_TRACE_TOPIC", "our-traces"):
        own = SimulatedBroker(settings=BrokerSettings(trace_topic=True, trace_topic_name=name)).machine.topics
        found = own.get(name)
        assert found is not None and (found.read_queue_nums, found.write_queue_nums, found.perm) == (1, 1, 6)
        assert own.is_system(name)
        assert SimulatedBroker().machine.topics.get(name) is None, "otherwise the first trace creates it"
