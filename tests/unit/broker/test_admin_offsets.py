"""Offsets by request."""

from typing import Any

import msgspec
import pytest
from tests.unit.broker.asking import GROUP, TOPIC, heartbeat, ok, pull, request, send

from kourou.broker.settings import BrokerSettings, Role
from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.testing.broker import BEGIN_MS, SimulatedBroker, SimulatedClient


def reset(time_ms: int = -1, *, topic: str = TOPIC, group: str = GROUP, force: bool = True, **more: Any) -> Command:
    header = headers.InvokeBrokerToResetOffset(topic=topic, group=group, timestamp=time_ms, is_force=force, **more)
    return request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


def offsets_in(answer: Command) -> dict[int, int]:
    table = bodies.ResetOffsetBody.decode(answer.body).offset_table
    assert {(queue.topic, queue.broker_name) for queue in table} == {(TOPIC, "broker-a")}
    return {queue.queue_id: offset for queue, offset in table.items()}


def clone(source: str = GROUP, dest: str = "other", topic: str | None = TOPIC, *, offline: bool = False) -> Command:
    header = headers.CloneGroupOffset(src_group=source, dest_group=dest, topic=topic, offline=offline)
    return request(RequestCode.CLONE_GROUP_OFFSET, header)


def correction(*left_out: str, compare: str = "nobody") -> Command:
    header = headers.QueryCorrectionOffset(compare_group=compare, topic=TOPIC, filter_groups=",".join(left_out))
    return request(RequestCode.QUERY_CORRECTION_OFFSET, header)


def filled(settings: BrokerSettings | None = None) -> tuple[SimulatedBroker, SimulatedClient]:
    """Five messages in queue 1, a second apart, and a group that has consumed three."""
    world = SimulatedBroker(settings=settings)
    client = world.connect()
    for _ in range(5):
        ok(client, send(queue_id=1))
        world.tick(1_000)
    ok(client, pull(queue_id=1))
    for queue_id in range(4):
        world.machine.offsets.commit(GROUP, TOPIC, queue_id, 3 if queue_id == 1 else 0)
    return world, client


# ── Set by the broker ───────────────────────────────────────────────────────────────────────────────────────────────


def test_group_goes_back_to_a_time() -> None:
    _, client = filled()
    answer = ok(client, reset(BEGIN_MS + 1_500))
    assert offsets_in(answer) == {0: 0, 1: 2, 2: 0, 3: 0}
    told = client.ask(pull(queue_id=1, offset=5))
    assert (told.code, told.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert told.ext is not None
    assert told.ext["nextBeginOffset"] == "2"
    assert ok(client, pull(queue_id=1, offset=2)).body


def test_commits_on_their_way_do_not_undo_it() -> None:
    world, client = filled()
    ok(client, reset(0))
    header = headers.UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=1, commit_offset=5)
    ok(client, request(RequestCode.UPDATE_CONSUMER_OFFSET, header))
    assert world.machine.offsets.get(GROUP, TOPIC, 1) == 0


def test_the_commit_of_the_pull_that_is_told_does_not_undo_it_either() -> None:
    world, client = filled()
    ok(client, reset(0))
    assert client.ask(pull(queue_id=1, offset=5, sys_flag=5, commit_offset=5)).remark == "OFFSET_RESET"
    assert world.machine.offsets.get(GROUP, TOPIC, 1) == 0
    ok(client, pull(queue_id=1, sys_flag=5, commit_offset=2))
    assert world.machine.offsets.get(GROUP, TOPIC, 1) == 2


def test_waiting_pull_is_told_at_once() -> None:
    _, client = filled()
    (number,) = client.send(pull(queue_id=1, offset=5, wait_ms=15_000))
    (other,) = client.send(pull(queue_id=1, offset=5, wait_ms=15_000, group="other"))
    assert number not in client.answers
    ok(client, reset(0))
    told = client.answers[number]
    assert (told.code, told.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert told.ext is not None
    assert told.ext["nextBeginOffset"] == "0"
    assert other not in client.answers


def test_group_goes_to_the_end() -> None:
    world, client = filled()
    assert offsets_in(ok(client, reset(-1))) == {0: 0, 1: 5, 2: 0, 3: 0}
    assert world.machine.offsets.get(GROUP, TOPIC, 1) == 5


def test_one_queue_is_set_to_an_offset() -> None:
    _, client = filled()
    assert offsets_in(ok(client, reset(queue_id=1, offset=4))) == {1: 4}
    assert offsets_in(ok(client, reset(BEGIN_MS + 2_000, queue_id=1))) == {1: 2}
    assert offsets_in(ok(client, reset(BEGIN_MS + 2_000, queue_id=1, offset=-1))) == {1: 2}


def test_reset_survives_a_clean_stop() -> None:
    world, client = filled()
    ok(client, reset(0))
    world = world.stop()
    assert world.machine.offsets.get(GROUP, TOPIC, 1) == 0


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "nowhere"}, 17, "Topic nowhere does not exist"),
        ({"group": "nobody"}, 26, "Group nobody does not exist"),
        ({"queue_id": 1, "offset": 6}, 1, "Target offset 6 not in consume queue range [0-5]"),
        ({"queue_id": 1, "offset": -2}, 1, "Target offset -2 not in consume queue range [0-5]"),
        ({"queue_id": 99, "offset": 0}, 1, f"Topic {TOPIC} has no queue 99"),
    ],
)
def test_refused(fields: dict[str, Any], code: int, remark: str) -> None:
    world, client = filled()
    before = msgspec.json.encode(world.machine.offsets.wrapper())
    answer = client.ask(reset(**fields))
    assert (answer.code, answer.remark) == (code, remark)
    assert msgspec.json.encode(world.machine.offsets.wrapper()) == before


def test_slave_refuses() -> None:
    world = SimulatedBroker(settings=BrokerSettings(role=Role.SLAVE))
    answer = world.connect().ask(reset(topic="SELF_TEST_TOPIC"))
    assert (answer.code, answer.remark) == (1, "Can not reset offset in slave broker")


# ── Pushed to consumers ─────────────────────────────────────────────────────────────────────────────────────────────


def test_consumers_are_pushed_the_offsets() -> None:
    world, client = filled(BrokerSettings(server_side_reset=False))
    ok(client, heartbeat("c1", group=GROUP))
    client.told.clear()
    assert offsets_in(ok(client, reset(BEGIN_MS + 1_500))) == {0: 0, 1: 2, 2: 0, 3: 0}
    (push,) = client.told
    assert push.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    assert push.is_one_way
    assert push.ext is not None
    assert (push.ext["topic"], push.ext["group"]) == (TOPIC, GROUP)
    assert offsets_in(push) == {0: 0, 1: 2, 2: 0, 3: 0}
    assert world.machine.offsets.get(GROUP, TOPIC, 1) == 3  # theirs to commit


def test_without_force_no_member_skips_messages() -> None:
    _, client = filled(BrokerSettings(server_side_reset=False))
    ok(client, heartbeat("c1", group=GROUP))
    assert offsets_in(ok(client, reset(-1, force=False)))[1] == 3
    assert offsets_in(ok(client, reset(-1, force=True)))[1] == 5


def test_clients_in_c_get_a_list() -> None:
    _, client = filled(BrokerSettings(server_side_reset=False))
    ok(client, heartbeat("c1", group=GROUP))
    client.told.clear()
    ok(client, msgspec.structs.replace(reset(-1), language="CPP"))
    (push,) = client.told
    listed = bodies.ResetOffsetBodyForC.decode(push.body).offset_table
    assert [(one.queue_id, one.offset) for one in listed] == [(0, 0), (1, 5), (2, 0), (3, 0)]


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "nowhere"}, 17, "[reset-offset] reset offset failed, no topic in this broker. topic=nowhere"),
        ({"group": "nobody"}, 1, "THe consumer group <nobody> not exist"),
        ({}, 206, f"Consumer not online, so can not reset offset, Group: {GROUP} Topic: {TOPIC} Timestamp: -1"),
    ],
)
def test_push_refused(fields: dict[str, Any], code: int, remark: str) -> None:
    _, client = filled(BrokerSettings(server_side_reset=False))
    answer = client.ask(reset(**fields))
    assert (answer.code, answer.remark) == (code, remark)


# ── Copying and showing ─────────────────────────────────────────────────────────────────────────────────────────────


def test_group_goes_on_where_another_is() -> None:
    world, client = filled()
    ok(client, clone())
    assert world.machine.offsets.of_topic("other", TOPIC) == {0: 0, 1: 3, 2: 0, 3: 0}
    world.machine.offsets.commit(GROUP, TOPIC, 1, 4)
    assert world.machine.offsets.get("other", TOPIC, 1) == 3


def test_all_topics_are_copied() -> None:
    world, client = filled()
    ok(client, send(topic="more"))
    world.machine.offsets.commit(GROUP, "more", 0, 1)
    world.machine.offsets.commit(GROUP, "deleted", 0, 1)
    ok(client, clone(topic=None))
    assert world.machine.offsets.topics_of("other") == {TOPIC, "more"}


def test_only_what_the_group_subscribes_to_unless_offline() -> None:
    world, client = filled()
    wanted = [bodies.SubscriptionData(topic="more", sub_string="*", sub_version=1)]
    ok(client, heartbeat("c1", group=GROUP, subscriptions=wanted))
    ok(client, clone())
    assert world.machine.offsets.of_topic("other", TOPIC) == {}
    ok(client, clone(offline=True))
    assert world.machine.offsets.of_topic("other", TOPIC)


def test_copy_of_nothing_takes_nothing_away() -> None:
    world, client = filled()
    world.machine.offsets.commit("other", TOPIC, 0, 9)
    ok(client, clone("nobody"))
    assert world.machine.offsets.get("other", TOPIC, 0) == 9


def test_smallest_offsets() -> None:
    world, client = filled()
    world.machine.offsets.commit("slow", TOPIC, 1, 1)
    world.machine.offsets.commit("ignored", TOPIC, 1, 0)

    def ask(command: Command) -> dict[int, int]:
        return bodies.QueryCorrectionOffsetBody.decode(ok(client, command).body).correction_offsets

    assert ask(correction("ignored"))[1] == 1
    assert ask(correction("ignored", "slow"))[1] == 3
    assert ask(correction("ignored", compare="ignored"))[1] == 2**63 - 1
    assert world.machine.offsets.get("ignored", TOPIC, 1) == 0  # asking changes nothing


def test_tables_for_slaves() -> None:
    world, client = filled()
    answer = ok(client, request(RequestCode.GET_ALL_CONSUMER_OFFSET))
    shown = bodies.ConsumerOffsetSerializeWrapper.decode(answer.body)
    assert shown.offset_table == {f"{TOPIC}@{GROUP}": {0: 0, 1: 3, 2: 0, 3: 0}}
    ok(client, send(properties={"DELAY": "3"}))
    world.pass_time(11_000)
    answer = ok(client, request(RequestCode.GET_ALL_DELAY_OFFSET))
    assert bodies.DelayOffsetSerializeWrapper.decode(answer.body).offset_table[3] == 1
    assert b"3:1" in answer.body  # numbers as keys, as Java writes them
