"""A few simulated lives of the brokers of a Raft group, with each run of the tests; more by KOUROU_GROUP_SEEDS.

Faults that the lives must find are in `MUTANTS`: a checker that finds nothing proves nothing.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.simulation.group_run import TOPIC, GroupRun, Pipe
from tests.unit.broker.asking import GROUP, pull, request, send

from kourou.broker.delays import Delays
from kourou.broker.events import Turn
from kourou.broker.raft_group import RaftGroup
from kourou.broker.raft_table_writer import TableWriter
from kourou.broker.raft_tables import RaftTables
from kourou.broker.settings import Role
from kourou.protocol import headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.raft.leader import Leader
from kourou.raft.messages import AppendRequest
from kourou.raft.wire import encode
from kourou.store.durability import Durability

SEEDS = int(os.environ.get("KOUROU_GROUP_SEEDS", "12"))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_life(seed: int) -> None:
    GroupRun(seed).run()


def test_lives_are_worth_something() -> None:
    counts = Counter[str]()
    for seed in range(8):
        run = GroupRun(seed)
        run.run()
        counts += run.counts + Counter(seen=len(run.seen))
    for what, least in {
        "send 0": 300,
        "seen": 200,
        "topic 0": 20,
        "later 0": 30,
        "commit 0": 10,
        "rollback 0": 5,
        "ends": 8,
        "pauses": 4,
    }.items():
        assert counts[what] >= least, f"{what}: {counts[what]}"


def test_a_seed_repeats() -> None:
    one, two = GroupRun(7), GroupRun(7)
    one.run()
    two.run()
    assert one.trace == two.trace
    assert one.acknowledged == two.acknowledged


def test_a_member_with_a_fault_of_ours_leaves_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    run = GroupRun(1)
    number = run.begin()
    world, group = run.members[number], run.members[number].machine.raft_group
    assert group is not None

    def fails(*_: object) -> None:
        raise RuntimeError("nobody has thought of this")

    monkeypatch.setattr(group.raft, "step", fails)
    with pytest.raises(AssertionError, match="a part of a step failed"):
        world.tick(1_000)
    assert "nobody has thought of this" in (group.broken or "")
    assert world.settings.role is Role.SLAVE
    assert group.due_ms() is None


def test_a_leader_whose_log_is_damaged_is_not_asked_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    run = GroupRun(1)
    number = run.begin()
    for _ in range(20):
        run._go_on(50)
    other = (number + 1) % 3
    world, group = run.members[other], run.members[other].machine.raft_group
    assert group is not None
    pipe = next(pipe for pipe in run._pipes if (pipe.sender, pipe.receiver) == (number, other))
    run._deliver_on(pipe, len(pipe.bytes))
    end, term = world.store.log.end, group.raft.node.term
    logging.disable(logging.NOTSET)
    for stamp in range(50):
        damaged = AppendRequest(f"n{number}", term, (world.now_ms << 20) + stamp, end, term, term, end)
        pipe.bytes += encode(damaged, 100) + bytes(100)
        run._deliver_on(pipe, len(pipe.bytes))
    assert [record.message for record in caplog.records if "invalid records" in record.message] == [
        f"the leader sent invalid records at {end}, which are ignored: no valid record at {end}: never written"
    ]
    logging.disable(logging.CRITICAL)
    run._send_to(number)
    for _ in range(20):
        run._go_on(50)
    assert world.store.log.end == end
    for _ in range(100):
        run._go_on(50)
    assert world.store.log.end == run.members[number].store.log.end > end


def test_a_leader_that_steps_down_does_not_keep_its_consumers() -> None:
    """Java's consumers would pull from this broker for ever, and as a follower it refuses them."""
    run = GroupRun(1)
    run._fails = False
    leader = run.begin()
    client = run.members[leader].connect()
    client.send(send(b"first", TOPIC))
    for _ in range(60):
        run._go_on(20)
    (opaque,) = client.send(pull(TOPIC, 0, 1, wait_ms=20_000))
    run._settle()
    assert opaque not in client.answers
    run._cut_off = leader
    while run.members[leader].settings.role is not Role.SLAVE:
        run._go_on(20)
    assert (client.answers[opaque].ext or {})["suggestWhichBrokerId"] == "0"


def test_a_member_tells_no_offsets_before_it_has_read_them_from_the_log() -> None:
    """A consumer that asks while there is no leader would skip messages, or get all again."""
    run = GroupRun(1)
    run._fails = False
    leader = run.begin()
    client = run.members[leader].connect()
    client.send(send(b"first", TOPIC))
    for _ in range(60):
        run._go_on(20)
    assert client.ask(pull(TOPIC)).code == 0, "so there is a group"
    header = headers.UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=1)
    assert client.ask(request(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0
    for _ in range(60):
        run._go_on(20)
    number = (leader + 1) % 3
    run._down = number
    for pipe in [pipe for pipe in run._pipes if number in (pipe.sender, pipe.receiver)]:
        run._lose(pipe)
    run._start()
    asker = run.members[number].connect()
    query = headers.QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0)
    assert asker.ask(request(RequestCode.QUERY_CONSUMER_OFFSET, query)).code == ResponseCode.SYSTEM_BUSY
    for _ in range(60):
        run._go_on(20)
    answer = asker.ask(request(RequestCode.QUERY_CONSUMER_OFFSET, query))
    assert (answer.ext or {})["offset"] == "1"


@pytest.mark.parametrize("seed", [1, 3])  # SYNC_FLUSH, ASYNC_FLUSH
def test_whoever_has_the_first_message_of_a_topic_has_the_topic(seed: int) -> None:
    run = GroupRun(seed)
    run._fails = False
    leader = run.begin()
    for _ in range(60):
        run._go_on(20)
    client = run.members[leader].connect()
    client.send(send(b"first", "new-topic"))
    run._settle()
    others = [number for number in range(3) if number != leader]
    pipes = {number: pipe for pipe in run._pipes if pipe.sender == leader for number in [pipe.receiver]}
    while not all(_has_message(run, number) for number in others):
        for number in others:
            _deliver_frame(run, pipes[number])
        run._settle()
    for number in others:  # the rest of what the leader has sent is lost, and then the leader
        pipes[number].bytes.clear()
        run.members[number].work()
    for pipe in [pipe for pipe in run._pipes if pipe.receiver == leader]:
        run._deliver_on(pipe, len(pipe.bytes))
    run._down = leader
    for pipe in [pipe for pipe in run._pipes if leader in (pipe.sender, pipe.receiver)]:
        run._lose(pipe)
    while run._master() is None:
        for number in others:
            run.members[number].work()
            if run.members[number].machine.is_busy:
                run.members[number].step(Turn())
        for _ in range(8):
            run._deliver()
            run._settle()
        run._tick(20)
        run._settle()
    master = run._master()
    assert master is not None
    assert _has_message(run, master)
    assert "new-topic" in run.members[master].machine.topics.table


def _has_message(run: GroupRun, number: int) -> bool:
    records = run.members[number].store.log.records(0)
    return any(record.topic == b"new-topic" for record in records)


def _deliver_frame(run: GroupRun, pipe: Pipe) -> None:
    if pipe.bytes:
        run._deliver_on(pipe, 4 + int.from_bytes(pipe.bytes[:4], "big"))


def _answers_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Durability, "wait", lambda *_: True)


def _shows_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Durability, "visible_to", property(lambda durability: durability.appended))
    patch.setattr(RaftGroup, "may_be_read", property(lambda _: True))


def _commits_what_the_leader_alone_has(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leader, "majority_has", lambda leader: leader._node.log.durable)


def _leads_before_the_tables_are_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftTables, "is_current", property(lambda _: True))
    patch.setattr(RaftTables, "read", lambda *_: None)


def _answers_changes_before_they_are_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TableWriter, "wait", lambda _writer, _now_ms, done: done(None))


def _keeps_tables_after_the_leadership(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftTables, "follow", lambda tables: tables.writer.follow())


def _forgets_delays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Delays, "take_over", lambda _: None)


MUTANTS: list[Callable[[pytest.MonkeyPatch], Any]] = [
    _answers_at_once,
    _shows_what_is_not_committed,
    _commits_what_the_leader_alone_has,
    _leads_before_the_tables_are_read,
    _answers_changes_before_they_are_committed,
    _keeps_tables_after_the_leadership,
    _forgets_delays,
]


@pytest.mark.parametrize("mutate", MUTANTS)
def test_a_fault_is_found(mutate: Callable[[pytest.MonkeyPatch], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        _live(60)


def _live(seeds: int) -> None:
    for seed in range(seeds):
        GroupRun(seed).run()
