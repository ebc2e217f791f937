"""Messages that consumers send back: retries, dead letters, and what is refused."""

import errno
import math
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.broker.asking import BORN_MS, GROUP, TOPIC, bodies_of, messages, offset_of, ok, send, send_back

from kourou.broker.settings import READ, BrokerSettings, Role
from kourou.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from kourou.protocol.codes import ResponseCode, Version
from kourou.protocol.command import Command
from kourou.protocol.ids import decode_offset_id
from kourou.store.settings import FlushMode
from kourou.testing.broker import SMALL_STORE, SimulatedBroker, SimulatedClient

RETRY = f"%RETRY%{GROUP}"
DEAD = f"%DLQ%{GROUP}"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


@pytest.fixture
def world() -> SimulatedBroker:
    return SimulatedBroker()


@pytest.fixture
def client(world: SimulatedBroker) -> SimulatedClient:
    return world.connect()


def sent(client: SimulatedClient, body: bytes = b"hello") -> int:
    """A message is there: its place in the log."""
    return offset_of(ok(client, send(body)))


def test_a_message_comes_back_after_ten_seconds(world: SimulatedBroker, client: SimulatedClient) -> None:
    answer = ok(client, send_back(sent(client)))
    assert answer.remark is None
    world.pass_time(9_999)
    assert not messages(world, RETRY)
    world.pass_time(1)
    assert bodies_of(world, RETRY) == [b"hello"]


def test_the_copy_says_what_it_is_a_copy_of(world: SimulatedBroker, client: SimulatedClient) -> None:
    answer = ok(client, send(b"hello", properties={"TAGS": "paid", "mine": "kept"}, flag=7))
    ok(client, send_back(offset_of(answer)))
    world.pass_time(10_000)
    (copy,) = messages(world, RETRY)
    (original,) = messages(world)
    assert answer.ext is not None
    assert copy.properties == {
        **original.properties,
        "RETRY_TOPIC": TOPIC,
        "ORIGIN_MESSAGE_ID": answer.ext["msgId"],
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": RETRY,
        "REAL_QID": "0",
    }
    assert (copy.reconsume_times, copy.flag, copy.born_ms) == (1, 7, BORN_MS)
    assert copy.born_host == original.born_host
    assert copy.stored_ms == original.stored_ms + 10_000


def test_each_try_waits_a_level_longer_and_remembers_the_first_id(
    world: SimulatedBroker, client: SimulatedClient
) -> None:
    first = ok(client, send())
    ok(client, send_back(offset_of(first)))
    waits = []
    for tries in range(1, 4):
        begin_ms = world.now_ms
        while len(messages(world, RETRY)) < tries:
            world.pass_time(1_000)
        waits.append(world.now_ms - begin_ms)
        last = messages(world, RETRY)[-1]
        assert last.reconsume_times == tries
        assert first.ext is not None and last.properties["ORIGIN_MESSAGE_ID"] == first.ext["msgId"]
        assert last.properties["RETRY_TOPIC"] == TOPIC
        ok(client, send_back(last.physical_offset))
    assert waits == [10_000, 30_000, 60_000]


def test_the_last_level_is_the_last(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, send_back(sent(client), level=40))
    (waiting,) = messages(world, SCHEDULE, 17)
    assert waiting.properties["DELAY"] == "18"


def test_a_consumer_may_choose_the_level(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, send_back(sent(client), level=1))
    world.pass_time(1_000)
    assert bodies_of(world, RETRY) == [b"hello"]


@pytest.mark.parametrize(
    "more", [{"level": -1}, {"max_reconsume_times": 0}], ids=["given up", "tried often enough already"]
)
def test_dead_letters(world: SimulatedBroker, client: SimulatedClient, more: dict[str, Any]) -> None:
    ok(client, send_back(sent(client), **more))
    (dead,) = messages(world, DEAD)
    assert bytes(dead.body) == b"hello"
    assert dead.reconsume_times == 1
    assert dead.properties["DELAY"] == "0"
    assert dead.properties["RETRY_TOPIC"] == TOPIC
    topic = world.machine.topics.get(DEAD)
    assert topic is not None and (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
    world.pass_time(20_000)
    assert not messages(world, RETRY)


def test_the_group_says_how_often_unless_the_request_does(world: SimulatedBroker, client: SimulatedClient) -> None:
    world.machine.groups.put(SubscriptionGroupConfig(group_name=GROUP, retry_max_times=0), world.now_ms)
    ok(client, send_back(sent(client, b"by the group")))
    ok(client, send_back(sent(client, b"by the request"), max_reconsume_times=1))
    assert bodies_of(world, DEAD) == [b"by the group"]


def test_old_clients_do_not_say_how_often(world: SimulatedBroker, client: SimulatedClient) -> None:
    command = send_back(sent(client), max_reconsume_times=0)
    ok(client, Command(command.code, version=int(Version.V3_4_9) - 1, ext=command.ext))
    assert not messages(world, DEAD)
    assert len(messages(world, SCHEDULE, 2)) == 1


def test_a_message_that_is_not_there(client: SimulatedClient) -> None:
    offset = sent(client)
    for wrong in (offset + 1, 1 << 40, -1):
        answer = client.ask(send_back(wrong))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {wrong}")


def test_a_group_that_is_not_there() -> None:
    world = SimulatedBroker(settings=BrokerSettings(auto_create_groups=False))
    answer = world.connect().ask(send_back(0))
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert (answer.remark or "").startswith(f"subscription group not exist, {GROUP} \n")


def test_a_broker_that_may_not_be_written_to() -> None:
    world = SimulatedBroker(settings=BrokerSettings(permission=READ))
    answer = world.connect().ask(send_back(0))
    assert (answer.code, answer.remark) == (
        ResponseCode.NO_PERMISSION,
        "the broker[127.0.0.1] sending message is forbidden",
    )


def test_a_slave_refuses() -> None:
    world = SimulatedBroker(settings=BrokerSettings(role=Role.SLAVE, broker_id=1))
    assert world.connect().ask(send_back(0)).code == ResponseCode.SYSTEM_BUSY


def test_a_group_without_retry_queues_wants_nothing_back(world: SimulatedBroker, client: SimulatedClient) -> None:
    world.machine.groups.put(SubscriptionGroupConfig(group_name=GROUP, retry_queue_nums=0), world.now_ms)
    offset = sent(client)
    end = world.store.log.end
    ok(client, send_back(offset))
    assert world.store.log.end == end
    assert world.machine.topics.get(RETRY) is None


def test_a_retry_topic_that_may_not_be_written_to(world: SimulatedBroker, client: SimulatedClient) -> None:
    world.machine.topics.put(TopicConfig(topic_name=RETRY, perm=READ), world.now_ms)
    answer = client.ask(send_back(sent(client)))
    assert (answer.code, answer.remark) == (
        ResponseCode.NO_PERMISSION,
        f"the topic[{RETRY}] sending message is forbidden",
    )


def test_an_ordered_retry_topic_stays_ordered(world: SimulatedBroker, client: SimulatedClient) -> None:
    world.machine.topics.put(TopicConfig(topic_name=RETRY, order=True), world.now_ms)
    ok(client, send_back(sent(client)))
    assert world.machine.topics.is_order(RETRY)


def test_a_failing_disk_is_said_by_the_name_of_the_outcome(world: SimulatedBroker, client: SimulatedClient) -> None:
    offset = sent(client)
    world.disk.fail("sync", errno.EIO, times=math.inf, where="*commitlog*")
    world.disk.fail("create", errno.EIO, times=math.inf, where="*commitlog*")
    world.pass_time(1_000)
    answer = client.ask(send_back(offset))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith("SERVICE_NOT_AVAILABLE: ")


def test_the_answer_waits_until_the_copy_is_safe() -> None:
    world = SimulatedBroker(store_settings=replace(SMALL_STORE, flush_mode=FlushMode.SYNC))
    client = world.connect()
    offset = sent(client)
    ok(client, send_back(offset, level=1))  # topics and groups are there now
    world.lazy = True
    (number,) = client.send(send_back(offset, level=1))
    assert number not in client.answers
    world.work()
    assert client.answers[number].code == ResponseCode.SUCCESS


def test_what_is_counted(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, send_back(sent(client)))
    ok(client, send_back(sent(client), level=-1))
    assert world.machine.stats.sent_back[TOPIC, GROUP].count == 2
    assert world.machine.stats.topics[SCHEDULE].count == 1
    assert DEAD not in world.machine.stats.topics


def test_the_id_of_the_original_leads_to_it(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, send(b"something before it"))
    offset = sent(client)
    ok(client, send_back(offset, level=-1))
    (dead,) = messages(world, DEAD)
    assert decode_offset_id(dead.properties["ORIGIN_MESSAGE_ID"]).offset == offset


def test_whole_record_crcs_are_not_carried_over() -> None:
    world = SimulatedBroker(store_settings=replace(SMALL_STORE, record_crc=True))
    client = world.connect()
    ok(client, send_back(sent(client), level=1))
    world.pass_time(1_000)
    (copy,) = messages(world, RETRY)
    assert bytes(copy.raw_properties).count(b"__CRC32#") == 1
    assert world.crash().store.report.damage == []
