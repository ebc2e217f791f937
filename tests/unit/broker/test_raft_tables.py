"""What the leader of a Raft group writes of its tables, and what a follower reads."""

from collections.abc import Callable
from itertools import count
from random import Random

import msgspec
import pytest

from kourou.broker.raft_reading import CHANGES
from kourou.broker.raft_table_writer import BYTES_MAX, PATIENCE_MS
from kourou.broker.raft_tables import RaftTables
from kourou.broker.settings import BrokerSettings
from kourou.protocol.bodies import SetMessageRequestModeRequestBody, SubscriptionGroupConfig, TopicConfig
from kourou.raft.storage import RaftStorage
from kourou.store.errors import DiskFullError
from kourou.store.settings import StoreSettings
from kourou.testing.broker import SMALL_STORE, SimulatedBroker
from kourou.testing.disk import SimulatedDisk
from kourou.turns import Turns

WIDE = 20_000
STORE = StoreSettings(commit_log_file_size=64 * 1024 * 1024, timer_log_file_size=4096, timer_slots=7_200)


class Storage(RaftStorage):
    """The log, as a disk has it that is full from time to time."""

    def __init__(self, world: SimulatedBroker) -> None:
        super().__init__(world.store)
        self.is_full: Callable[[int], bool] = lambda _: False  # by the size of a record
        self.tries = 0
        self.sizes: list[int] = []

    def write(self, queue_id: int, body: bytes, now_ms: int) -> int:
        self.tries += 1
        if self.is_full(len(body)):
            raise DiskFullError("no space is left")
        self.sizes.append(len(body))
        return super().write(queue_id, body, now_ms)


class Leader:
    """A broker, and the tables of a group that it leads."""

    def __init__(self, store_settings: StoreSettings = STORE, clock_ns: Callable[[], int] = lambda: 0) -> None:
        self.world = SimulatedBroker(SimulatedDisk(Random(1)), BrokerSettings(), store_settings)
        self.machine = self.world.machine
        self.storage = Storage(self.world)
        self.turns = Turns(clock_ns)
        self.turn_count = 0
        self.tables = tables_of(self.world, self.storage, self.turns)
        self.now_ms = self.world.now_ms

    def write(self, ms: int = 0) -> None:
        """A step of the leader, and all turns that it needs."""
        self.now_ms += ms
        self.tables.writer.write(self.now_ms)
        while self.turns.is_busy:
            self.turns.take_turn()
            self.turn_count += 1

    def reader(self) -> SimulatedBroker:
        """What a follower has that reads all of it."""
        store = self.world.store
        while store.dispatched < store.log.end:  # a large backlog becomes visible in several steps
            self.world.tick()
        other = SimulatedBroker()
        machine = other.machine
        parts = (machine.topics, machine.groups, machine.offsets, machine.delays, machine.request_modes)
        turns = Turns()
        follower = RaftTables(self.world.store, self.storage, *parts, machine.persistence, turns)
        follower.read(self.now_ms)
        assert follower.is_current
        return other


def tables_of(world: SimulatedBroker, storage: RaftStorage, turns: Turns) -> RaftTables:
    machine = world.machine
    parts = (machine.topics, machine.groups, machine.offsets, machine.delays, machine.request_modes)
    return RaftTables(world.store, storage, *parts, machine.persistence, turns)


def same(leader: Leader, other: SimulatedBroker) -> bool:
    mine, theirs = leader.machine, other.machine
    return (
        mine.topics.table == theirs.topics.table
        and mine.groups.table == theirs.groups.table
        and mine.groups.forbidden == theirs.groups.forbidden
        and offsets_of(leader.world) == offsets_of(other)
        and mine.request_modes.table == theirs.request_modes.table
    )


def offsets_of(world: SimulatedBroker) -> dict[str, dict[int, int]]:
    return {name: queues for name, queues in world.machine.offsets.table.items() if queues}


def fill(leader: Leader) -> None:
    """Tables with entries that are large, and many."""
    machine, now = leader.machine, leader.now_ms
    machine.topics.put_all([TopicConfig(topic_name=f"topic-{n}") for n in range(1_200)], now)
    machine.topics.put_all(
        [TopicConfig(topic_name=f"talker-{n}", attributes={"+note": "x" * 20_000}) for n in range(60)], now
    )
    machine.groups.put_all([SubscriptionGroupConfig(group_name=f"group-{n}") for n in range(700)], now)
    for n in range(40):
        machine.groups.forbid("group-1", f"topic-{n}", 4, now)
    for n in range(9):
        machine.offsets.reset("group-1", f"wide-{n}", dict.fromkeys(range(WIDE), 1 << 40))
    for n in range(700):
        machine.offsets.commit(f"group-{n}", "topic-1", 0, n)


def test_no_record_is_large_and_followers_read_the_same() -> None:
    leader = Leader()
    fill(leader)
    leader.tables.lead(leader.now_ms)
    leader.write()
    assert max(leader.storage.sizes) < 2 * BYTES_MAX
    assert same(leader, leader.reader())
    machine = leader.machine
    for name in [name for name in machine.topics.table if name.startswith("t")]:
        machine.topics.remove(name, leader.now_ms)
    machine.groups.forbid("group-1", "topic-1", 0, leader.now_ms)
    machine.offsets.reset("group-1", "wide-3", {5: 77})
    machine.offsets.copy("group-1", "group-2", "wide-4")
    machine.offsets.copy("group-3", "group-1", "wide-5")  # it has none: none are left
    leader.write(1_000)
    assert same(leader, leader.reader())


def test_tables_of_a_log_with_small_files() -> None:
    leader = Leader(SMALL_STORE)
    machine = leader.machine
    machine.topics.put_all([TopicConfig(topic_name=f"topic-{n}") for n in range(100)], leader.now_ms)
    machine.offsets.reset("group", "wide", dict.fromkeys(range(1_500), 1 << 40))
    leader.tables.lead(leader.now_ms)
    leader.write()
    assert max(leader.storage.sizes) < SMALL_STORE.commit_log_file_size // 2
    assert leader.reader().machine.offsets.table == machine.offsets.table


def test_only_what_has_changed_of_a_wide_entry_is_written() -> None:
    leader = Leader()
    leader.machine.offsets.reset("group", "wide", dict.fromkeys(range(WIDE), 1))
    leader.tables.lead(leader.now_ms)
    leader.write()
    leader.storage.sizes.clear()
    leader.machine.offsets.commit("group", "wide", 7, 2)
    leader.write(1_000)
    assert 0 < sum(leader.storage.sizes) < 1_000
    assert leader.reader().machine.offsets.get("group", "wide", 7) == 2


def test_request_modes_take_several_records() -> None:
    leader = Leader()
    table = leader.machine.request_modes.table
    for n in range(4_000):
        group = f"{'g' * 100}-{n}"
        mode = SetMessageRequestModeRequestBody(topic="orders", consumer_group=group, mode="POP")
        table.setdefault("orders", {})[group] = mode
    leader.tables.lead(leader.now_ms)
    leader.write()
    assert max(leader.storage.sizes) < BYTES_MAX
    assert leader.reader().machine.request_modes.table == table


def test_a_full_disk_is_tried_again_rarely_and_the_rest_is_written_then(caplog: pytest.LogCaptureFixture) -> None:
    leader = Leader()
    fill(leader)
    leader.storage.is_full = lambda _: len(leader.storage.sizes) >= 5
    leader.tables.lead(leader.now_ms)
    told: list[str | None] = []
    leader.tables.writer.wait(leader.now_ms, told.append)
    for _ in range(2 * PATIENCE_MS):
        leader.write(1)
    assert leader.storage.tries < 40, "it waits between two tries"
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) <= 2, "once for what waits, once for what does not"
    assert len(told) == 1 and "majority" in str(told[0])
    leader.storage.is_full = lambda _: False
    for _ in range(3):
        leader.write(1_000)
    assert same(leader, leader.reader())
    changes = [size for size in leader.storage.sizes if size > 1_000]
    assert sum(changes[5:]) < sum(changes), "what was written is not written again"


def test_tables_are_written_in_slices() -> None:
    ticks = count(0, 6_000_000)  # each look at the clock ends a slice
    leader = Leader(clock_ns=lambda: next(ticks))
    fill(leader)
    leader.tables.lead(leader.now_ms)
    leader.write()
    assert leader.turn_count > 9 * WIDE // 2_000
    assert same(leader, leader.reader())


def test_an_entry_that_changes_while_a_snapshot_is_written_is_read_as_it_is_last() -> None:
    ticks = count(0, 6_000_000)
    leader = Leader(clock_ns=lambda: next(ticks))
    fill(leader)
    chance = Random(3)
    leader.tables.lead(leader.now_ms)
    for number in range(300):
        leader.tables.writer.write(leader.now_ms)
        name = f"topic-{chance.randrange(1_200)}"
        if chance.random() < 0.3:
            leader.machine.topics.remove(name, leader.now_ms)
        else:
            leader.machine.topics.put(TopicConfig(topic_name=name, read_queue_nums=number + 1), leader.now_ms)
        leader.machine.offsets.commit("group-1", f"wide-{chance.randrange(9)}", 5, number)
        leader.turns.take_turn()
    for _ in range(3):
        leader.write(1_000)
    assert same(leader, leader.reader())


def test_own_records_are_read_whatever_their_size() -> None:
    """More numbers than a peer may send in one body."""
    leader = Leader()
    queues = dict.fromkeys(range(600_000), 1)
    body = b'{"table":"offsets"}\n{"offsetTable":{"wide@group":' + msgspec.json.encode(queues) + b"}}"
    leader.world.store.log.max_body_size = 16 * 1024 * 1024
    leader.tables.lead(leader.now_ms)
    leader.write()
    leader.storage.write(CHANGES, body, leader.now_ms)
    assert len(leader.reader().machine.offsets.table["wide@group"]) == 600_000
