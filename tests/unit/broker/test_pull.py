"""Pulling: all answers with all their fields, checks in their order, tags, commits."""

import errno
import math
from typing import Any

import pytest
from tests.unit.broker.asking import GROUP, TOPIC, heartbeat, ok, pull, send

from kourou.broker.settings import WRITE, BrokerSettings
from kourou.protocol.bodies import SubscriptionData, SubscriptionGroupConfig, TopicConfig
from kourou.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.record import decode_records
from kourou.testing.broker import SimulatedBroker, SimulatedClient

BY_HEARTBEAT = 0  # no flag says that the pull has its own subscription
COMMIT = int(PullSysFlag.SUBSCRIPTION | PullSysFlag.COMMIT_OFFSET)


@pytest.fixture
def world() -> SimulatedBroker:
    return SimulatedBroker()


@pytest.fixture
def client(world: SimulatedBroker) -> SimulatedClient:
    """Queue 0 of the topic has five messages, of which the second and the fourth are paid."""
    client = world.connect()
    for number in range(5):
        ok(client, send(b"%d" % number, properties={"TAGS": "paid" if number % 2 else "new"}))
    return client


def bodies(answer: Command) -> list[bytes]:
    return [bytes(message.body) for message in decode_records(answer.body, crc=True)]


# ── Answers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_found(client: SimulatedClient) -> None:
    answer = ok(client, pull(offset=1, max_msg_nums=3))
    assert bodies(answer) == [b"1", b"2", b"3"]
    assert answer.remark == "FOUND"
    assert answer.ext == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "4",
        "minOffset": "0",
        "maxOffset": "5",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


@pytest.mark.parametrize(
    ("queue_id", "offset", "code", "remark", "next_offset"),
    [
        (0, 5, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", "5"),
        (0, 6, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", "5"),
        (0, -1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", "0"),
        (1, 0, ResponseCode.PULL_NOT_FOUND, "NO_MATCHED_LOGIC_QUEUE", "0"),
        (1, 3, ResponseCode.PULL_OFFSET_MOVED, "NO_MATCHED_LOGIC_QUEUE", "0"),
    ],
)
def test_offsets_that_no_message_has(
    client: SimulatedClient, queue_id: int, offset: int, code: int, remark: str, next_offset: str
) -> None:
    answer = client.ask(pull(queue_id=queue_id, offset=offset))
    assert (answer.code, answer.remark) == (code, remark)
    assert answer.ext is not None and answer.ext["nextBeginOffset"] == next_offset


def test_a_byte_limit(client: SimulatedClient) -> None:
    one = len(ok(client, pull(max_msg_nums=1)).body)
    assert bodies(ok(client, pull(max_msg_bytes=2 * one + 5))) == [b"0", b"1"]
    assert bodies(ok(client, pull(max_msg_bytes=1))) == [b"0"], "one in any case"


def test_in_bulk_the_limit_in_bytes_alone_counts(client: SimulatedClient) -> None:
    for number in range(5, 70):
        ok(client, send(b"%d" % number))
    assert len(bodies(ok(client, pull(max_msg_nums=1000)))) == 32
    bulk = int(PullSysFlag.SUBSCRIPTION | PullSysFlag.BULK)
    assert bodies(ok(client, pull(max_msg_nums=1000, sys_flag=bulk))) == [b"%d" % number for number in range(70)]
    assert len(bodies(ok(client, pull(max_msg_nums=40, sys_flag=bulk)))) == 40
    one = len(ok(client, pull(max_msg_nums=1)).body)
    assert len(bodies(ok(client, pull(max_msg_nums=1000, max_msg_bytes=2 * one + 5, sys_flag=bulk)))) == 2


def test_lite_pulls(client: SimulatedClient) -> None:
    command = pull()
    assert len(bodies(ok(client, Command(RequestCode.LITE_PULL_MESSAGE, ext=command.ext)))) == 5


# ── Checks ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def refused(settings: BrokerSettings, **more: Any) -> Command:
    return SimulatedBroker(settings=settings).connect().ask(pull(**more))


def test_a_broker_that_may_not_be_read_from() -> None:
    answer = refused(BrokerSettings(permission=WRITE))
    assert (answer.code, answer.remark) == (
        ResponseCode.NO_PERMISSION,
        "the broker[127.0.0.1] pulling message is forbidden",
    )
    assert answer.ext == {"forbiddenType": "1"}


def test_a_group_that_is_not_there() -> None:
    answer = refused(BrokerSettings(auto_create_groups=False))
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert (answer.remark or "").startswith(f"subscription group [{GROUP}] does not exist, ")


def test_a_group_that_may_not_consume(world: SimulatedBroker, client: SimulatedClient) -> None:
    world.machine.groups.put(SubscriptionGroupConfig(group_name=GROUP, consume_enable=False), world.now_ms)
    answer = client.ask(pull())
    assert (answer.code, answer.remark) == (
        ResponseCode.NO_PERMISSION,
        f"subscription group no permission, {GROUP}",
    )
    assert answer.ext == {"forbiddenType": "2"}


def test_a_topic_that_is_not_there(client: SimulatedClient) -> None:
    answer = client.ask(pull("nothing"))
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert (answer.remark or "").startswith("topic[nothing] not exist, apply first please!")


def test_a_topic_that_may_not_be_read(world: SimulatedBroker, client: SimulatedClient) -> None:
    world.machine.topics.put(TopicConfig(topic_name=TOPIC, perm=WRITE), world.now_ms)
    answer = client.ask(pull())
    assert (answer.code, answer.ext) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "3"})


@pytest.mark.parametrize("queue_id", [-1, 4])
def test_a_queue_that_the_topic_has_not(client: SimulatedClient, queue_id: int) -> None:
    answer = client.ask(pull(queue_id=queue_id))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert f"queueId[{queue_id}] is illegal, topic:[{TOPIC}] topicConfig.readQueueNums:[4]" in (answer.remark or "")


# ── Subscriptions ───────────────────────────────────────────────────────────────────────────────────────────────────


def subscribe(client: SimulatedClient, text: str, codes: list[int], version: int = 1, **more: Any) -> None:
    wanted = SubscriptionData(topic=TOPIC, sub_string=text, code_set=codes, sub_version=version)
    ok(client, heartbeat("c1", group=GROUP, subscriptions=[wanted], **more))


def test_tags_of_the_pull_itself(client: SimulatedClient) -> None:
    assert bodies(ok(client, pull(subscription="paid"))) == [b"1", b"3"]
    assert bodies(ok(client, pull(subscription="paid || new"))) == [b"0", b"1", b"2", b"3", b"4"]
    nothing = client.ask(pull(subscription="other"))
    assert (nothing.code, nothing.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert nothing.ext is not None and nothing.ext["nextBeginOffset"] == "5"


def test_tags_of_the_heartbeat(client: SimulatedClient) -> None:
    subscribe(client, "paid", [3433164])
    assert bodies(ok(client, pull(sys_flag=BY_HEARTBEAT))) == [b"1", b"3"]


def test_a_group_without_members(client: SimulatedClient) -> None:
    answer = client.ask(pull(sys_flag=BY_HEARTBEAT))
    assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert (answer.remark or "").startswith("the consumer's group info not exist")


def test_a_topic_that_the_group_has_not_subscribed_to(world: SimulatedBroker, client: SimulatedClient) -> None:
    subscribe(client, "*", [])
    ok(client, send(topic="another"))
    answer = client.ask(pull("another", sys_flag=BY_HEARTBEAT))
    assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert (answer.remark or "").startswith("the consumer's subscription not exist")


def test_a_subscription_that_the_broker_has_not_heard_of_yet(client: SimulatedClient) -> None:
    subscribe(client, "*", [], version=5)
    ok(client, pull(sys_flag=BY_HEARTBEAT, sub_version=5))
    answer = client.ask(pull(sys_flag=BY_HEARTBEAT, sub_version=6))
    assert (answer.code, answer.remark) == (
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        "the consumer's subscription not latest",
    )


def test_broadcasting_that_is_not_allowed(world: SimulatedBroker, client: SimulatedClient) -> None:
    config = SubscriptionGroupConfig(group_name=GROUP, consume_broadcast_enable=False)
    world.machine.groups.put(config, world.now_ms)
    subscribe(client, "*", [], message_model="BROADCASTING")
    answer = client.ask(pull(sys_flag=BY_HEARTBEAT))
    assert (answer.code, answer.ext) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "4"})


def test_a_topic_that_is_forbidden_to_the_group(world: SimulatedBroker, client: SimulatedClient) -> None:
    subscribe(client, "*", [])
    world.machine.groups.forbid(GROUP, TOPIC, 4, world.now_ms)
    answer = client.ask(pull(sys_flag=BY_HEARTBEAT))
    assert (answer.code, answer.ext) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "5"})


def test_expressions_that_do_not_parse(client: SimulatedClient) -> None:
    answer = client.ask(pull(subscription=" || "))
    assert (answer.code, answer.remark) == (
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        "parse the consumer's subscription failed",
    )


# ── Commits and resets ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pull_carries_a_commit(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, pull(offset=3, commit_offset=3, sys_flag=COMMIT))
    assert world.machine.offsets.get(GROUP, TOPIC, 0) == 3
    ok(client, pull(offset=3, commit_offset=4))
    assert world.machine.offsets.get(GROUP, TOPIC, 0) == 3, "without the flag it is not meant"


def test_a_held_pull_commits_when_it_comes(world: SimulatedBroker, client: SimulatedClient) -> None:
    flags = COMMIT | int(PullSysFlag.SUSPEND)
    client.send(pull(offset=5, commit_offset=5, sys_flag=flags, suspend_timeout_millis=1_000))
    assert world.machine.offsets.get(GROUP, TOPIC, 0) == 5
    world.machine.offsets.commit(GROUP, TOPIC, 0, 2)
    world.pass_time(1_000)
    assert world.machine.offsets.get(GROUP, TOPIC, 0) == 2, "and not again when it is answered"


def test_a_reset_is_told_once(world: SimulatedBroker, client: SimulatedClient) -> None:
    world.machine.offsets.reset(GROUP, TOPIC, {0: 2})
    answer = client.ask(pull(offset=5))
    assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert answer.ext is not None and answer.ext["nextBeginOffset"] == "2"
    assert bodies(ok(client, pull(offset=2))) == [b"2", b"3", b"4"]


def test_what_is_counted(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, pull())
    ok(client, pull(offset=3))
    item = world.machine.stats.groups[TOPIC, GROUP]
    assert (item.count, item.calls) == (7, 2)


def test_a_new_group_reads_from_a_disk_that_can_not_be_written() -> None:
    world = SimulatedBroker()
    client = world.connect()
    ok(client, send())
    world.disk.fail("replace", errno.ENOSPC, where="*/config/*", times=math.inf)
    assert ok(client, pull(group="newcomers")).body
    ok(client, heartbeat("c1", group="others"))
    assert world.machine.groups.get("newcomers") is not None
