"""Heartbeats, members of groups, offsets and locks, as clients ask for them."""

from typing import Any

import pytest
from tests.unit.broker.asking import GROUP, TOPIC, heartbeat, lock, ok, pull, request, send

from kourou.broker.events import Save
from kourou.broker.settings import BrokerSettings
from kourou.protocol import bodies, headers
from kourou.protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData, SubscriptionGroupConfig, TopicConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.message import MessageQueue
from kourou.testing.broker import SimulatedBroker, SimulatedClient

RETRY = f"%RETRY%{GROUP}"


@pytest.fixture
def world() -> SimulatedBroker:
    return SimulatedBroker()


@pytest.fixture
def client(world: SimulatedBroker) -> SimulatedClient:
    """A client, and the topic has a message."""
    client = world.connect()
    ok(client, send())
    return client


# ── Heartbeats ─────────────────────────────────────────────────────────────────────────────────────────────────────


def members(client: SimulatedClient, group: str = GROUP) -> list[str] | None:
    header = headers.GetConsumerListByGroup(consumer_group=group)
    answer = ok(client, request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header))
    return bodies.GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list


def test_a_heartbeat_makes_a_member(world: SimulatedBroker, client: SimulatedClient) -> None:
    answer = ok(client, heartbeat("c1", group=GROUP))
    assert answer.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    ok(world.connect(), heartbeat("c2", group=GROUP))
    assert members(client) == ["c1", "c2"]


def test_one_client_with_two_connections_is_one_member(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, heartbeat("c1", group=GROUP))
    ok(world.connect(), heartbeat("c1", group=GROUP))
    assert members(client) == ["c1"]


def test_a_heartbeat_makes_the_retry_topic(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, heartbeat("c1", group=GROUP))
    topic = world.machine.topics.get(RETRY)
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.order) == (1, 1, 6, False)


def test_the_retry_topic_of_an_ordered_topic_is_ordered(world: SimulatedBroker, client: SimulatedClient) -> None:
    world.machine.topics.put(TopicConfig(topic_name=TOPIC, order=True), world.now_ms)
    ok(client, heartbeat("c1", group=GROUP))
    assert world.machine.topics.is_order(RETRY)


def test_members_are_told_of_each_other(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, heartbeat("c1", group=GROUP))
    client.told.clear()
    other = world.connect()
    ok(other, heartbeat("c2", group=GROUP))
    assert [command.code for command in client.told] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
    other.close()
    assert len(client.told) == 2


def test_groups_that_may_not_be_made_are_passed_over() -> None:
    world = SimulatedBroker(settings=BrokerSettings(auto_create_groups=False))
    client = world.connect()
    ok(client, heartbeat("c1", group=GROUP))
    assert world.machine.clients.group(GROUP) is None
    assert world.machine.topics.get(RETRY) is None


@pytest.mark.parametrize("made", [True, False])
def test_system_groups_are_made_anyway_if_that_is_wanted(made: bool) -> None:
    world = SimulatedBroker(settings=BrokerSettings(auto_create_groups=False, create_system_groups=made))
    ok(world.connect(), heartbeat("c1", group="CID_RMQ_SYS_X"))
    assert (world.machine.groups.get("CID_RMQ_SYS_X") is not None) is made


def test_heartbeats_of_the_second_kind(client: SimulatedClient) -> None:
    """A fingerprint stands for the subscriptions, which are left out while it stays the same."""
    subscription = [SubscriptionData(topic=TOPIC, sub_string="*", sub_version=1)]

    def beat(fingerprint: int, **more: Any) -> str:
        command = heartbeat("c1", group=GROUP, subscriptions=subscription, heartbeat_fingerprint=fingerprint, **more)
        return (ok(client, command).ext or {})["IS_SUB_CHANGE"]

    assert beat(7) == "false"
    assert beat(7, without_sub=True) == "false"
    assert beat(8, without_sub=True) == "true", "the client has to say more"


def test_a_client_is_asked_for_subscriptions_that_the_broker_has_not(
    world: SimulatedBroker, client: SimulatedClient
) -> None:
    """Java's client leaves out what it believes to be known; pulls would be refused until its queues change."""

    def beat(client: SimulatedClient, version: int = 1, **more: Any) -> str:
        wanted = [] if more else [SubscriptionData(topic=TOPIC, sub_string="*", sub_version=version)]
        data = ConsumerData(group_name=GROUP, subscription_data_set=wanted)
        body = HeartbeatData(client_id="c1", consumer_data_set=[data], heartbeat_fingerprint=7, **more).encode()
        return (ok(client, request(RequestCode.HEART_BEAT, body=body)).ext or {})["IS_SUB_CHANGE"]

    def pull_by_heartbeat(client: SimulatedClient, version: int = 1) -> int:
        return client.ask(pull(sys_flag=0, sub_version=version)).code

    assert beat(client) == "false"
    assert beat(client, without_sub=True) == "false"
    client.close()
    client = world.connect()
    assert beat(client, without_sub=True) == "true", "the group had no other member"
    assert beat(client, without_sub=True) == "true"
    assert beat(client) == "false"
    assert beat(client, without_sub=True) == "false"
    assert pull_by_heartbeat(client) == ResponseCode.SUCCESS
    assert pull_by_heartbeat(client, version=2) == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert beat(client, without_sub=True) == "true", "the heartbeat with the new version was not sent"
    assert beat(client, version=2) == "false"
    assert beat(client, without_sub=True) == "false"
    assert pull_by_heartbeat(client, version=2) == ResponseCode.SUCCESS


def test_leaving(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, heartbeat("c1", group=GROUP, producers="producers"))
    other = world.connect()
    ok(other, heartbeat("c2", group=GROUP))
    other.told.clear()
    header = headers.UnregisterClient(client_id="c1", producer_group="producers", consumer_group=GROUP)
    ok(client, request(RequestCode.UNREGISTER_CLIENT, header))
    assert members(other) == ["c2"]
    assert len(other.told) == 1
    assert world.machine.clients.producers == {}


def test_a_group_without_members(client: SimulatedClient) -> None:
    header = headers.GetConsumerListByGroup(consumer_group="nobody")
    answer = client.ask(request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no consumer for this group, nobody")


def test_a_client_that_is_silent_for_two_minutes_is_dropped(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, heartbeat("c1", group=GROUP))
    lively = world.connect()
    ok(lively, heartbeat("c2", group=GROUP))
    for _ in range(14):
        world.tick(10_000)
        ok(lively, heartbeat("c2", group=GROUP))
    assert client.closed == "no heartbeat for 120 s"
    assert lively.closed is None
    assert members(lively) == ["c2"]


# ── Offsets ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def update(offset: int, *, group: str = GROUP, topic: str = TOPIC, queue_id: int = 0) -> Command:
    header = headers.UpdateConsumerOffset(consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset)
    return request(RequestCode.UPDATE_CONSUMER_OFFSET, header)


def query(queue_id: int = 0, *, group: str = GROUP, **more: Any) -> Command:
    header = headers.QueryConsumerOffset(consumer_group=group, topic=TOPIC, queue_id=queue_id, **more)
    return request(RequestCode.QUERY_CONSUMER_OFFSET, header)


@pytest.fixture
def consumer(client: SimulatedClient) -> SimulatedClient:
    ok(client, heartbeat("c1", group=GROUP))
    return client


def test_commit_and_query(consumer: SimulatedClient) -> None:
    ok(consumer, update(1))
    assert ok(consumer, query()).ext == {"offset": "1"}
    ok(consumer, update(0))
    assert ok(consumer, query()).ext == {"offset": "0"}, "consumers go back on purpose"


def test_commits_survive_a_stop_at_once_and_a_crash_after_five_seconds(
    world: SimulatedBroker, consumer: SimulatedClient
) -> None:
    ok(consumer, update(1))
    world = world.stop()
    assert world.machine.offsets.get(GROUP, TOPIC, 0) == 1
    ok(world.connect(), update(0))
    world.pass_time(5_100)
    assert world.crash().machine.offsets.get(GROUP, TOPIC, 0) == 0


@pytest.mark.parametrize(
    ("more", "code", "remark"),
    [
        ({"group": "nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group nobody not exist!"),
        ({"topic": "nothing"}, ResponseCode.TOPIC_NOT_EXIST, "Topic nothing not exist!"),
        ({"queue_id": 1_000}, ResponseCode.INVALID_PARAMETER, f"Topic {TOPIC} has no queue 1000"),
        ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER, f"Topic {TOPIC} has no queue -1"),
    ],
)
def test_commits_that_are_refused(
    world: SimulatedBroker, consumer: SimulatedClient, more: dict[str, Any], code: int, remark: str
) -> None:
    answer = consumer.ask(update(1, **more))
    assert (answer.code, answer.remark) == (code, remark)
    assert world.machine.offsets.table == {}


def test_a_commit_during_a_reset_is_ignored(world: SimulatedBroker, consumer: SimulatedClient) -> None:
    world.machine.offsets.reset(GROUP, TOPIC, {0: 0})
    assert ok(consumer, update(1)).remark == "Offset has been previously reset"
    assert world.machine.offsets.get(GROUP, TOPIC, 0) == 0
    consumer.ask(pull(offset=1))  # tells of the reset
    ok(consumer, update(1))
    assert world.machine.offsets.get(GROUP, TOPIC, 0) == 1


def test_a_new_group_begins_at_zero_while_the_first_message_is_recent(consumer: SimulatedClient) -> None:
    assert ok(consumer, query()).ext == {"offset": "0"}


def test_a_new_group_that_wants_to_know(consumer: SimulatedClient) -> None:
    answer = consumer.ask(query(set_zero_if_not_found=False))
    assert (answer.code, answer.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        "Not found, do not set to zero, maybe this group boot first",
    )


def test_a_power_cut_that_takes_messages_moves_groups_back(world: SimulatedBroker, consumer: SimulatedClient) -> None:
    """Those that take their places must not be passed over."""
    world.store.flush(world.now_ms)
    world.lazy = True
    consumer.send(send(b"will be lost"))
    ok(consumer, update(2))
    world.disk.tears = False
    for save in [work for work in world.undone if isinstance(work, Save)]:
        save.file.write(save.content)
    for _ in range(10):
        again = world.crash()
        _, end = again.store.reader.offsets(TOPIC, 0)
        assert again.machine.offsets.get(GROUP, TOPIC, 0) in (-1, min(2, end))


# ── Locks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def locked(client: SimulatedClient, name: str, *queue_ids: int) -> list[int]:
    answer = ok(client, lock(name, *queue_ids))
    return sorted(queue.queue_id for queue in bodies.LockBatchResponseBody.decode(answer.body).locked)


def unlock(name: str, *queue_ids: int) -> Command:
    queues = [MessageQueue(TOPIC, "broker-a", queue_id) for queue_id in queue_ids]
    body = bodies.UnlockBatchRequestBody(consumer_group=GROUP, client_id=name, mq_set=queues)
    return request(RequestCode.UNLOCK_BATCH_MQ, body=body.encode())


def test_a_queue_has_one_owner(client: SimulatedClient) -> None:
    assert locked(client, "c1", 0, 1) == [0, 1]
    assert locked(client, "c2", 1, 2) == [2]
    assert locked(client, "c1", 0, 1) == [0, 1], "it asks again, and keeps them"


def test_a_lock_ends_a_minute_after_it_was_last_asked_for(world: SimulatedBroker, client: SimulatedClient) -> None:
    locked(client, "c1", 0)
    world.tick(40_000)
    locked(client, "c1", 0)
    world.tick(60_000)
    assert locked(client, "c2", 0) == []
    world.tick(1)
    assert locked(client, "c2", 0) == [0]


def test_only_the_owner_gives_a_lock_back(client: SimulatedClient) -> None:
    locked(client, "c1", 0)
    ok(client, unlock("c2", 0))
    assert locked(client, "c2", 0) == []
    ok(client, unlock("c1", 0))
    assert locked(client, "c2", 0) == [0]


def test_an_orderly_group_has_no_retries(world: SimulatedBroker, client: SimulatedClient) -> None:
    """What it sends to its retry topic goes to the dead letters, for it would come back out of order."""
    world.machine.groups.put(SubscriptionGroupConfig(group_name=GROUP), world.now_ms)
    locked(client, "c1", 0)
    ok(client, send(b"failed", RETRY, 0, {"DELAY": "3"}, reconsume_times=1, max_reconsume_times=16))
    assert world.store.reader.offsets(f"%DLQ%{GROUP}", 0) == (0, 1)
