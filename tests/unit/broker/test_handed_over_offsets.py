"""A slave hands over to its master the offsets that groups have committed to it while the master was away."""

import pytest
from tests.unit.broker.asking import GROUP, TOPIC, ok, request, send
from tests.unit.broker.test_replication import copy_log, follow, slave

from kourou.broker.events import Answered
from kourou.broker.settings import Role
from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode
from kourou.replication.links import Closed, Link
from kourou.testing.broker import SimulatedBroker
from kourou.turns import at_once

MASTER = "10.0.0.1:10911"


def commit(world: SimulatedBroker, offset: int, queue_id: int = 0, topic: str = TOPIC) -> None:
    header = headers.UpdateConsumerOffset(consumer_group=GROUP, topic=topic, queue_id=queue_id, commit_offset=offset)
    ok(world.connect(), request(RequestCode.UPDATE_CONSUMER_OFFSET, header))


def offset(world: SimulatedBroker, queue_id: int = 0) -> int:
    return world.machine.offsets.get(GROUP, TOPIC, queue_id)


def follow_again(world: SimulatedBroker) -> None:
    world.tick(1_000)  # it waits before it connects again
    follow(world)


def synchronize(world: SimulatedBroker, master: SimulatedBroker | None, fails_at: int = -1) -> list[int]:
    """The slave fetches tables, once. Returns its requests.

    `master` None: it is away. The request `fails_at` is not answered.
    """
    codes: list[int] = []
    world.machine.metadata_sync.follow(MASTER)
    world.tick(2_000)
    for count in range(1_000):
        asked = [ask for ask in world.asked if ask.address == MASTER]
        world.asked.clear()
        for ask in asked:
            codes.append(ask.command.code)
            answers = master is not None and count != fails_at
            world.step(Answered(ask.token, master.connect().ask(ask.command) if answers and master else None))
        if not asked:
            return codes
    raise AssertionError("the round does not end")


@pytest.fixture
def pair() -> tuple[SimulatedBroker, SimulatedBroker, Link]:
    """A master with messages that a group has consumed in part, and a slave that has the same."""
    master, world = SimulatedBroker(), slave()
    client = master.connect()
    for number in range(20):
        ok(client, send(b"%02d" % number, queue_id=number % 2))
    group = bodies.SubscriptionGroupConfig(group_name=GROUP)
    ok(client, request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group.encode()))
    commit(master, 3)
    link = follow(world)
    copy_log(master, world, link)
    at_once(world.machine.topics.adopt(master.machine.topics.table, master.machine.topics.version))
    synchronize(world, master)
    assert offset(world) == 3
    return master, world, link


Pair = tuple[SimulatedBroker, SimulatedBroker, Link]


def test_offsets_that_were_committed_to_the_slave_reach_the_master(pair: Pair) -> None:
    master, world, link = pair
    world.step(Closed(link))
    commit(world, 7)
    commit(world, 9)
    commit(world, 2, queue_id=1)
    synchronize(world, None)
    assert offset(world) == 9
    follow_again(world)
    codes = synchronize(world, master)
    assert [offset(master), offset(master, 1)] == [offset(world), offset(world, 1)] == [9, 2]
    assert codes.count(RequestCode.UPDATE_CONSUMER_OFFSET) == 2
    assert RequestCode.UPDATE_CONSUMER_OFFSET not in synchronize(world, master)


def test_a_group_that_was_further_at_the_master_stays_there(pair: Pair) -> None:
    master, world, link = pair
    world.step(Closed(link))
    commit(world, 5)
    commit(master, 8)
    follow_again(world)
    synchronize(world, master)
    assert offset(master) == offset(world) == 8


def test_nothing_is_handed_over_before_the_logs_were_compared(pair: Pair) -> None:
    """The slave may be about to cut off messages that the group has consumed."""
    master, world, link = pair
    world.step(Closed(link))
    commit(world, 10)
    assert RequestCode.GET_ALL_CONSUMER_OFFSET not in synchronize(world, master)
    assert (offset(master), offset(world)) == (3, 10)
    world.machine.roles.cut_log(world.store.log.end // 20 * 12, world.now_ms)
    follow_again(world)
    synchronize(world, master)
    assert offset(master) == offset(world) == 6


@pytest.mark.parametrize("fails_at", range(8))
def test_a_lost_answer_repeats_it(pair: Pair, fails_at: int) -> None:
    master, world, link = pair
    world.step(Closed(link))
    commit(world, 7)
    follow_again(world)
    synchronize(world, master, fails_at)
    synchronize(world, master)
    assert offset(master) == offset(world) == 7


def test_a_topic_that_the_master_does_not_have_is_left(pair: Pair) -> None:
    master, world, link = pair
    world.step(Closed(link))
    commit(world, 7)
    delete = headers.DeleteTopicInBroker(topic=TOPIC)
    ok(master.connect(), request(RequestCode.DELETE_TOPIC_IN_BROKER, delete))
    follow_again(world)
    synchronize(world, master)
    assert offset(world) == offset(master) == -1


def test_commits_are_noted_as_long_as_the_broker_is_a_slave(pair: Pair) -> None:
    master, world, link = pair
    world.step(Closed(link))
    commit(world, 7)
    world.machine.roles.become(Role.ASYNC_MASTER, 0, world.now_ms)
    commit(world, 8)
    assert world.machine.offsets.committed_here is None
    assert master.machine.offsets.committed_here is None
    world.machine.roles.become(Role.SLAVE, 1, world.now_ms)
    assert world.machine.offsets.committed_here == set()
