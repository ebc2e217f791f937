"""Queues and index against simple models: whatever happens to them, they hold what they were given and were told to
keep, on a disk that loses what was not synced."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Literal

from hypothesis import example, given, settings, strategies as st

from kourou.protocol.hashes import index_hash
from kourou.store.consume_queue import Boundary, ConsumeQueue, Put
from kourou.store.consume_queue_ext import ConsumeQueueExt, Unit
from kourou.store.entry_layout import HEADER_SIZE, index_entry
from kourou.store.index import Index
from kourou.store.index_file import SLOT_SIZE
from kourou.store.queue_entries import BLANK_SIZE, ENTRY_SIZE
from kourou.testing.disk import SimulatedDisk

QUEUE = Path("/store/consumequeue/orders/3")
EXT = Path("/store/consumequeue_ext/orders/3")
INDEX = Path("/store/index")
FOREVER = 2**63 - 1

Entry = tuple[int, int, int]

# ── Queues ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class QueueWorld:
    """A queue beside a model of it: all entries that were ever put, by number, and the log as two offsets."""

    def __init__(self, seed: int, file_entries: int) -> None:
        self.disk = SimulatedDisk(Random(seed))
        self.file_entries = file_entries
        self.entries: dict[int, Entry] = {}
        self.start = self.end = 0
        self.log_start = self.log_end = 0
        self.synced = 0  # entries before it are safe
        self.queue = self.opened()

    def opened(self) -> ConsumeQueue:
        queue = ConsumeQueue(self.disk, QUEUE, "orders", 3, self.file_entries)
        queue.open(self.log_start)
        return queue

    @property
    def max_physical(self) -> int:
        if not self.end or self.end - 1 not in self.entries:
            return 0
        physical_offset, size, _ = self.entries[self.end - 1]
        return physical_offset + (size if size != BLANK_SIZE else 0)

    def put(self, size: int, skip: int) -> None:
        """The next record of the log is of this queue, after `skip` that are of others, or were lost."""
        offset = self.log_end + skip
        assert self.queue.put(offset, size, offset * 31, self.end) == Put.DONE
        self.entries[self.end] = (offset, size, offset * 31)
        self.end += 1
        self.log_end = offset + size
        assert self.queue.put(offset, size, 0, self.end - 1) == Put.ALREADY

    def jump(self, size: int, count: int) -> None:
        """As many messages of this queue are missing before the next one; at most a file of entries in one gap."""
        count = min(count, self.file_entries - self.blanks_at_end())
        if count <= 0 or (self.end == 0 and self.queue.end == 0):
            return
        alive = self.start < self.end or self.max_physical >= self.log_start
        for _ in range(count):
            self.entries[self.end] = (self.max_physical, BLANK_SIZE, 0)
            self.end += 1
        if not alive:
            self.start = self.end
        self.put(size, 0)

    def blanks_at_end(self) -> int:
        """A truncated log can leave some, and a crash can lose them."""
        number = self.end
        while number > self.start and self.entries[number - 1][1] == BLANK_SIZE:
            number -= 1
        return self.end - number

    def sync(self) -> None:
        for file in self.queue.dirty_files():
            file.sync()
        self.synced = self.end

    def reopen(self) -> None:
        self.sync()
        self.queue.close()
        self.queue = self.opened()

    def crash(self) -> None:
        """Entries that were not synced are put again, as from the log."""
        limit = 0
        if self.synced:
            before, self.end = self.end, self.synced
            limit, self.end = self.max_physical, before
        self.disk = self.disk.crash()
        self.queue = self.opened()
        self.queue.recover(limit)
        assert self.queue.end >= self.synced or not self.entries
        # Blanks behind the last entry that holds may have stayed.
        for number in range(self.synced, self.queue.end):
            assert self.entries[number][1] == BLANK_SIZE
        for number in range(self.queue.end, self.end):
            physical_offset, size, tags_code = self.entries[number]
            if size != BLANK_SIZE:
                assert self.queue.put(physical_offset, size, tags_code, number) == Put.DONE
        # And blanks with nothing behind them may be lost.
        assert {self.entries[number][1] for number in range(self.queue.end, self.end)} <= {BLANK_SIZE}
        self.end = self.queue.end
        self.start = min(self.start, self.end)

    def record_at(self, fraction: float) -> int:
        """Where in the log a record of this queue begins, or where the log ends."""
        number = self.start + int((self.end - self.start) * fraction)
        return self.entries[number][0] if number < self.end else self.log_end

    def truncate(self, fraction: float) -> None:
        """The log lost its end."""
        self.log_end = self.record_at(fraction)
        self.queue.truncate(self.log_end)
        while self.end > self.start and self.max_physical > self.log_end:
            del self.entries[self.end - 1]
            self.end -= 1
        self.synced = min(self.synced, self.end)

    def expire(self, fraction: float) -> None:
        """The log lost its beginning, which is old enough to be synced everywhere."""
        self.sync()
        self.log_start = self.record_at(fraction)
        self.queue.expire(self.log_start)
        while self.start < self.end and self.entries[self.start][0] < self.log_start:
            self.start += 1

    def check(self) -> None:
        queue = self.queue
        assert (queue.start, queue.end, queue.next_offset) == (self.start, self.end, self.end)
        assert [queue.entry(n) for n in range(queue.start, queue.end)] == [
            self.entries[n] for n in range(self.start, self.end)
        ]
        sliced = b""
        at = queue.start
        while piece := queue.entries(at, 10**6):
            sliced += piece
            at += len(piece) // ENTRY_SIZE
        assert len(sliced) == (self.end - self.start) * ENTRY_SIZE
        if self.start < self.end:
            assert queue.max_physical == self.max_physical


QUEUE_STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(91, 500), st.integers(0, 200)),
    st.tuples(st.just("put"), st.integers(91, 500), st.integers(0, 200)),
    st.tuples(st.just("jump"), st.integers(91, 500), st.integers(1, 40)),
    st.tuples(st.sampled_from(["sync", "reopen", "crash", "release"])),
    st.tuples(st.sampled_from(["truncate", "expire"]), st.floats(0, 1)),
)


@given(st.integers(0, 2**32), st.sampled_from([1, 3, 30, 60]), st.lists(QUEUE_STEPS, max_size=60))
@settings(deadline=None)
def test_a_queue_holds_what_it_was_given(seed: int, file_entries: int, steps: Sequence[tuple[object, ...]]) -> None:
    world = QueueWorld(seed, file_entries)
    for step in steps:
        match step:
            case ("put", int(size), int(skip)):
                for _ in range(5):
                    world.put(size, skip)
            case ("jump", int(size), int(count)):
                world.jump(size, count)
            case ("sync",):
                world.sync()
            case ("reopen",):
                world.reopen()
            case ("crash",):
                world.crash()
            case ("release",):
                world.queue.release()
            case ("truncate", float(fraction)):
                world.truncate(fraction)
            case ("expire", float(fraction)):
                world.expire(fraction)
        world.check()


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=60),
    st.integers(-1, 31),
    st.integers(0, 59),
    st.sampled_from([1, 7, 100]),
)
@settings(deadline=None)
def test_a_time_stands_for_an_offset(times: list[int], time_ms: int, first: int, file_entries: int) -> None:
    times = sorted(times)
    queue = ConsumeQueue(SimulatedDisk(Random(0)), QUEUE, "orders", 3, file_entries)
    queue.open(0)
    for number in range(len(times)):
        queue.put(number * 100, 100, 0, number)
    queue.expire(first * 100)
    start = min(first, len(times))
    lower = next((n for n in range(start, len(times)) if times[n] >= time_ms), len(times))
    upper = next((n for n in range(len(times) - 1, start - 1, -1) if times[n] <= time_ms), start)
    assert queue.offset_by_time(time_ms, Boundary.LOWER, lambda offset, size: times[offset // 100]) == lower
    assert queue.offset_by_time(time_ms, Boundary.UPPER, lambda offset, size: times[offset // 100]) == upper


SOME_BYTES = st.one_of(
    st.just(bytes(ENTRY_SIZE)),
    st.binary(min_size=ENTRY_SIZE, max_size=ENTRY_SIZE),
    st.tuples(st.integers(0, 5000), st.integers(0, 300)).map(
        lambda entry: entry[0].to_bytes(8) + entry[1].to_bytes(4) + bytes(8)
    ),
    st.just(bytes(8) + BLANK_SIZE.to_bytes(4) + bytes(8)),
)


@given(st.lists(SOME_BYTES, max_size=30), st.integers(0, 3), st.integers(0, 6000), st.integers(0, 6000))
@settings(deadline=None)
def test_whatever_stands_in_its_files_a_queue_is_recovered(
    entries: list[bytes], first_file: int, log_start: int, log_end: int
) -> None:
    disk = SimulatedDisk(Random(0))
    raw = b"".join(entries)
    size = 10 * ENTRY_SIZE
    for number in range(-(-len(entries) // 10)):
        content = raw[number * size : (number + 1) * size].ljust(size, b"\0")
        disk.install(QUEUE / f"{(first_file + number) * size:020}", content, reserved=False)
    queue = ConsumeQueue(disk, QUEUE, "orders", 3, 10)
    queue.open(log_start)
    queue.recover(log_end)
    physical_end = 0
    for number in range(queue.start, queue.end):
        physical_offset, entry_size, _ = queue.entry(number)
        assert physical_offset >= max(physical_end, log_start)
        physical_end = physical_offset + (entry_size if entry_size != BLANK_SIZE else 0)
        assert entry_size > 0 and physical_end <= log_end
    again = ConsumeQueue(disk, QUEUE, "orders", 3, 10)
    again.open(log_start)
    assert (again.start, again.end, again.max_physical) == (queue.start, queue.end, queue.max_physical)
    offset = max(log_start, log_end)
    assert queue.put(offset, 100, 5, queue.end) == Put.DONE
    assert queue.entry(queue.end - 1) == (offset, 100, 5)


# ── Extensions ────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(
    st.integers(0, 2**32),
    st.lists(st.one_of(st.integers(0, 150), st.sampled_from(["sync", "reopen", "crash"])), max_size=40),
)
@settings(deadline=None)
def test_an_extension_holds_what_it_was_given(seed: int, steps: list[int | Literal["sync", "reopen", "crash"]]) -> None:
    disk = SimulatedDisk(Random(seed))
    ext = ConsumeQueueExt(disk, EXT, 200)
    ext.open(0)
    units: list[tuple[int, Unit]] = []
    synced = 0
    for step in steps:
        if isinstance(step, int):
            unit = Unit(len(units), step, bytes([step]) * step)
            address = ext.append(unit)
            assert address is not None
            units.append((address, unit))
            continue
        if step in ("sync", "reopen"):
            for file in ext.dirty_files():
                file.sync()
            synced = len(units)
        else:
            disk = disk.crash()
            del units[synced:]
        if step != "sync":
            ext = ConsumeQueueExt(disk, EXT, 200)
            ext.open(units[-1][0] if units else 0)
        assert [ext.read(address) for address, _ in units] == [unit for _, unit in units]
    assert len({address for address, _ in units}) == len(units)


# ── The index ─────────────────────────────────────────────────────────────────────────────────────────────────────────

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
KEYS = ["a", "b", "c", "schlüssel", "鍵"]


class IndexWorld:
    """An index beside all records that were ever put, in order."""

    def __init__(self, seed: int, slots: int, entries: int) -> None:
        self.disk = SimulatedDisk(Random(seed))
        self.sizes = slots, entries
        self.records: list[tuple[int, str]] = []  # offset and key
        self.synced = 0
        self.log_start = 0
        self.index = self.opened()

    def opened(self, crashed: bool = False) -> Index:
        index = Index(self.disk, INDEX, *self.sizes, lambda ms: f"{ms:017}")
        index.load(crashed)
        return index

    def put(self, keys: list[str]) -> None:
        """The next record, with its keys."""
        offset = self.records[-1][0] + 100 if self.records else 0
        for key in keys:
            assert self.index.put(b"orders", key.encode(), offset, 1000 + offset) == 1
            self.records.append((offset, key))

    def sync(self) -> None:
        for file in self.index.dirty_files():
            file.sync()
        self.synced = len(self.records)

    def reopen(self) -> None:
        self.sync()
        self.index.close()
        self.index = self.opened()

    def crash(self) -> None:
        del self.records[self.synced :]
        limit = self.records[-1][0] + 1 if self.records else 0
        self.disk = self.disk.crash()
        self.index = self.opened(crashed=True)
        self.index.recover(limit, self.log_start)

    def truncate(self, count: int) -> None:
        """The log lost the end that begins with the n-th key from the end."""
        if self.records:
            # A log does not end before it begins.
            limit = max(self.records[-min(count, len(self.records))][0], self.log_start)
            self.index.truncate(limit)
            self.records = [record for record in self.records if record[0] < limit]
            self.synced = min(self.synced, len(self.records))

    def expire(self, fraction: float) -> None:
        if self.records:
            self.log_start = max(self.log_start, int(self.records[-1][0] * fraction))
            self.index.expire(self.log_start)

    def check(self) -> None:
        for key in KEYS:
            hash_ = index_hash(f"orders#{key}")
            wanted = [offset for offset, other in self.records if index_hash(f"orders#{other}") == hash_]
            wanted = sorted(set(wanted), reverse=True)
            found = self.index.query("orders", key, 10**6, 0, FOREVER).offsets
            assert found == wanted[: len(found)]
            assert all(offset < self.log_start for offset in wanted[len(found) :])
            assert self.index.query("orders", key, 3, 0, FOREVER).offsets == found[:3]
        newest = self.records[-1][0] if self.records else 0
        assert self.index.end_physical == (newest if not self.index.is_empty else 0)
        assert not self.index.is_empty or not self.records or newest < self.log_start


INDEX_STEPS = st.one_of(
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True),
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True),
    st.sampled_from(["sync", "reopen", "crash"]),
    st.integers(1, 20),
    st.floats(0, 1),
)


@example(0, (1, 9), [["a", "b"], ["a"], 1.0, 2, "reopen"])
@example(0, (1, 9), [["a"], ["a", "b", "c"], 1.0, "sync", "crash"])
@given(st.integers(0, 2**32), st.sampled_from([(1, 9), (3, 12), (50, 200)]), st.lists(INDEX_STEPS, max_size=60))
@settings(deadline=None)
def test_an_index_finds_what_it_was_given(
    seed: int, sizes: tuple[int, int], steps: Sequence[list[str] | str | int | float]
) -> None:
    world = IndexWorld(seed, *sizes)
    for step in steps:
        match step:
            case list():
                for _ in range(3):
                    world.put(step)
            case "sync":
                world.sync()
            case "reopen":
                world.reopen()
            case "crash":
                world.crash()
            case int(count):
                world.truncate(count)
            case float(fraction):
                world.expire(fraction)
        world.check()


@given(TEXT, TEXT)
@settings(deadline=None)
def test_the_hash_in_the_file_is_that_of_java(topic: str, key: str) -> None:
    disk = SimulatedDisk(Random(0))
    index = Index(disk, INDEX, 4, 4, lambda ms: f"{ms:017}")
    index.load()
    index.put(topic.encode(), key.encode(), 5, 1)
    raw = disk.read_at(INDEX / f"{1:017}", 0, HEADER_SIZE + 4 * SLOT_SIZE + 40)
    assert index_entry(raw, HEADER_SIZE + 4 * SLOT_SIZE + 20) == (index_hash(f"{topic}#{key}"), 5, 0, 0)
    assert index.query(topic, key, 1, 0, FOREVER).offsets == [5]
