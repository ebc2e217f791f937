"""The prediction of senders that return, and batches that wait for them."""

from collections.abc import Iterable

import pytest
from tests.simulation.group_run import GroupRun
from tests.unit.broker.asking import send

from kourou.broker.events import GroupLink
from kourou.broker.raft_group import GATHER_MS
from kourou.broker.returning_senders import LONGEST_PAUSE, WAIT_MS, ReturningSenders
from kourou.broker.settings import BrokerSettings, Role
from kourou.raft import events as events_of_members
from kourou.raft.events import Appended, Effect, Event
from kourou.raft.messages import AppendRequest
from kourou.raft.wire import encode
from kourou.replication.frames import encode_report
from kourou.replication.links import Accepted, Link, Received, Transfer
from kourou.replication.master import GATHER_SENDERS_MS
from kourou.testing.broker import SimulatedBroker

SENDERS = 8


def test_a_batch_waits_for_three_quarters_of_the_senders() -> None:
    senders = ReturningSenders()
    assert not senders.are_expected(1, 0), "no sender was answered yet"
    senders.answered(6, 2, 0)
    assert [senders.are_expected(waiting, 1) for waiting in (2, 5, 6)] == [True, True, False]
    assert not senders.are_expected(1, 1), "the batch has left"


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_senders_are_not_delayed(count: int) -> None:
    senders = ReturningSenders()
    senders.answered(count, 0, 0)
    assert not senders.are_expected(1, 0)


def test_senders_that_do_not_return_are_waited_for_less_often() -> None:
    senders = ReturningSenders()
    waits = []
    for now_ms in range(0, 100_000, 10):
        senders.answered(8, 0, now_ms)
        waits.append(senders.are_expected(1, now_ms))
        assert not senders.are_expected(1, now_ms + WAIT_MS)
    gaps = [len(gap) for gap in "".join(".x"[wait] for wait in waits).split("x")][1:-1]
    assert gaps[:6] == [2, 4, 8, 16, 32, 64]
    assert max(gaps) == LONGEST_PAUSE
    senders.answered(8, 0, 0)
    while not senders.are_expected(1, 0):
        senders.answered(8, 0, 0)
    assert not senders.are_expected(6, 0), "a prediction that was right"
    senders.answered(8, 0, 0)
    assert senders.are_expected(1, 0), "trusts the next one"


def test_no_sender_at_all_is_no_failure() -> None:
    senders = ReturningSenders()
    for now_ms in (0, 10, 20):
        senders.answered(8, 0, now_ms)
        assert senders.are_expected(0, now_ms)
        assert not senders.are_expected(0, now_ms + WAIT_MS)


class Group:
    """A Raft group with ASYNC_FLUSH, and the senders of its leader."""

    def __init__(self) -> None:
        self.run = GroupRun(3)
        self.leader = self.run.members[self.run.begin()]
        assert not self.leader.machine.raft_group.raft.node.settings.sync  # type: ignore[union-attr]
        self.clients = [self.leader.connect() for _ in range(SENDERS)]
        self.send_all()
        self.go_on()

    def send_all(self) -> None:
        for client in self.clients:
            client.send(send())

    def go_on(self) -> None:
        """Until all messages are answered."""
        sent = max(len(client.answers) for client in self.clients) + 1
        for _ in range(200):
            self.run._go_on(1)
            if all(len(client.answers) == sent for client in self.clients):
                return
        raise AssertionError("no answers")

    def batches(self) -> list[int]:
        """Sizes of the batches that have left since the last call, and are on the way; they are delivered later."""
        sizes = [len(one.data) for one in self.leader.on_links if isinstance(one, Transfer) and one.data is not None]
        self.run._settle()
        return sizes


def test_messages_of_senders_that_return_share_a_batch() -> None:
    group = Group()
    start = group.leader.store.log.end
    group.send_all()
    size = (group.leader.store.log.end - start) // SENDERS
    assert max(group.batches()) >= 5 * size, "not one of a single message"
    group.go_on()


@pytest.mark.timeout(30)
def test_a_flush_of_records_that_are_kept_back() -> None:
    group = Group()
    leader = group.leader
    group.clients[0].send(send())
    leader.store.flush(leader.now_ms)
    member = leader.machine.raft_group
    assert member is not None
    assert leader.store.durability.flushed > member.raft.node.log.stored, "the record is kept back, and flushed"
    for client in group.clients[1:]:
        client.send(send())
    group.go_on()


def test_a_single_sender_is_delayed_for_a_moment_only() -> None:
    group = Group()
    group.clients[0].send(send())
    group.clients = group.clients[:1]
    before = group.run._now_ms
    group.go_on()
    assert group.run._now_ms - before <= 2 * GATHER_MS


def test_a_request_of_another_member_comes_after_the_records_that_were_kept_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the records of a new leader would be appended behind records that the machine does not know."""
    group = Group()
    run, leader = group.run, group.leader
    member = leader.machine.raft_group
    assert member is not None
    group.clients[0].send(send())
    assert leader.store.log.end > member.raft.node.log.stored, "a record is kept back"
    pipe = next(pipe for pipe in run._pipes if run.members[pipe.receiver] is leader)
    request = AppendRequest(
        sender=f"n{pipe.sender}",
        term=member.raft.node.term + 1,
        stamp=1,
        previous=member.raft.node.log.stored,
        previous_epoch=member.raft.node.term,
        epoch=member.raft.node.term + 1,
        commit=0,
    )
    events: list[Event] = []
    step = member.raft.step

    def note(given: Iterable[Event], now_ms: int) -> list[Effect]:
        given = list(given)
        events.extend(given)
        return step(given, now_ms)

    monkeypatch.setattr(member.raft, "step", note)
    leader.step(GroupLink(Received(pipe.into, encode(request))))
    assert member.raft.role.name == "follower"
    assert events[:2] == [Appended(leader.store.log.end), events_of_members.Received(request)]


class Pair:
    """A SYNC_MASTER that waits for one slave, and its senders."""

    def __init__(self) -> None:
        settings = BrokerSettings(role=Role.SYNC_MASTER, in_sync_replicas=2)
        self.world = SimulatedBroker(settings=settings)
        self.link = Link("10.0.0.2:1")
        self.world.step(Accepted(self.link), Received(self.link, encode_report(0)))
        self.clients = [self.world.connect() for _ in range(SENDERS)]
        for client in self.clients:
            client.send(send())
        self.report()  # of the first message
        self.report()  # of the others
        assert [len(client.answers) for client in self.clients] == [1] * SENDERS
        self.batches()

    def batches(self) -> int:
        """How many batches were sent since the last call."""
        sent = [one for one in self.world.on_links if isinstance(one, Transfer) and one.data is not None]
        self.world.on_links.clear()
        return len(sent)

    def report(self) -> None:
        """The slave has everything that was sent to it."""
        master = self.world.machine.replication.master
        assert master is not None
        self.world.step(Received(self.link, encode_report(master.slaves[self.link].next_offset)))


def test_a_master_sends_messages_of_returning_senders_together() -> None:
    pair = Pair()
    for client in pair.clients:
        client.send(send())
    assert pair.batches() == 1, "the first five: three quarters of the seven that were answered last"
    pair.report()
    assert pair.batches() == 0, "three wait for three more"
    pair.world.pass_time(GATHER_SENDERS_MS)
    assert pair.batches() == 1
    pair.report()
    assert [len(client.answers) for client in pair.clients] == [2] * SENDERS


def test_a_master_sends_the_message_of_a_single_sender_soon() -> None:
    pair = Pair()
    pair.clients[0].send(send())
    assert pair.batches() == 0
    pair.world.pass_time(GATHER_SENDERS_MS)
    assert pair.batches() == 1
