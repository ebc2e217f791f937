"""Consume queues, on the real and on the simulated disk, and against what Java writes."""

import errno
import json
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kourou.store.consume_queue import Boundary, ConsumeQueue, Put
from kourou.store.disk import Disk, File, RealDisk
from kourou.store.errors import BadStoreError, DiskFailedError, DiskFullError
from kourou.store.queue_entries import BLANK_SIZE, ENTRY_SIZE
from kourou.testing.disk import SimulatedDisk, crash_everywhere
from kourou.testing.disk_parts import BLOCK

RECORDING = Path(__file__).parents[2] / "data" / "java-queue-files-5.5.0.json"
ENTRIES = 1000  # in a file: several blocks of a search
SIZE = 100  # of every record, and the log has nothing else
FOLDER = Path("/store/consumequeue/orders/3")

Open = Callable[..., ConsumeQueue]


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk(tmp_path / "aside") if request.param == "real" else SimulatedDisk(Random(1))


@pytest.fixture
def folder(disk: Disk, tmp_path: Path) -> Path:
    return tmp_path / "queue" if isinstance(disk, RealDisk) else FOLDER


@pytest.fixture
def open_queue(disk: Disk, folder: Path) -> Open:
    def open_(log_start: int = 0) -> ConsumeQueue:
        return make(disk, folder, log_start)

    return open_


def make(disk: Disk, folder: Path = FOLDER, log_start: int = 0, entries: int = ENTRIES) -> ConsumeQueue:
    queue = ConsumeQueue(disk, folder, "orders", 3, entries)
    queue.open(log_start)
    return queue


def fill(queue: ConsumeQueue, count: int) -> None:
    """Entry n is of the record at n·SIZE and has the tags n."""
    for n in range(queue.end, queue.end + count):
        assert queue.put(n * SIZE, SIZE, n, n) == Put.DONE


def state(queue: ConsumeQueue) -> tuple[int, int, int, int]:
    return queue.start, queue.end, queue.next_offset, queue.max_physical


def entry_bytes(physical_offset: int, size: int, tags_code: int) -> bytes:
    return struct.pack(">qiq", physical_offset, size, tags_code)


def overwrite(disk: Disk, folder: Path, number: int, raw: bytes) -> None:
    """Put these bytes in place of entries of one file, behind the queue's back."""
    start = number - number % ENTRIES
    file = disk.open(folder / f"{start * ENTRY_SIZE:020}")
    at = (number - start) * ENTRY_SIZE
    file.reserve(at, len(raw))
    file.buffer[at : at + len(raw)] = raw
    file.sync()
    file.close()


# ── Putting and reading ───────────────────────────────────────────────────────────────────────────────────────────────


def test_making_a_queue_touches_no_disk() -> None:
    queue = ConsumeQueue(None, FOLDER, "orders", 3, ENTRIES)  # type: ignore[arg-type]
    assert (queue.topic, queue.queue_id, queue.is_open) == ("orders", 3, False)
    assert state(queue) == (0, 0, 0, 0)


def test_a_new_queue_is_empty(open_queue: Open, disk: Disk, folder: Path) -> None:
    queue = open_queue()
    assert queue.is_open
    assert state(queue) == (0, 0, 0, 0)
    assert disk.files(folder) == {}
    assert queue.dirty_files() == []


def test_entries_are_written_as_java_does(open_queue: Open, disk: Disk, folder: Path) -> None:
    queue = open_queue()
    queue.put(0, 91, -1, 0)
    queue.put(4096, 2**31 - 2, -(2**63), 1)
    assert queue.put(2**62, 1, 2**63 - 1, 2) == Put.DONE
    raw = disk.read_at(folder / f"{0:020}", 0, 4 * ENTRY_SIZE)
    expected = [(0, 91, -1), (4096, 2**31 - 2, -(2**63)), (2**62, 1, 2**63 - 1)]
    assert raw == b"".join(entry_bytes(*entry) for entry in expected) + bytes(ENTRY_SIZE)
    assert [queue.entry(n) for n in range(3)] == expected
    assert state(queue) == (0, 3, 3, 2**62 + 1)


def test_files_follow_one_another(open_queue: Open, disk: Disk, folder: Path) -> None:
    queue = open_queue()
    fill(queue, 2 * ENTRIES + 1)
    size = ENTRIES * ENTRY_SIZE
    assert disk.files(folder) == {f"{n * size:020}": size for n in range(3)}
    assert [queue.entry(n) for n in (0, ENTRIES - 1, ENTRIES, 2 * ENTRIES)] == [
        (n * SIZE, SIZE, n) for n in (0, ENTRIES - 1, ENTRIES, 2 * ENTRIES)
    ]


def test_a_record_that_has_its_entry_is_skipped(open_queue: Open) -> None:
    queue = open_queue()
    fill(queue, 3)
    before = state(queue)
    assert queue.put(0, SIZE, 0, 0) == Put.ALREADY
    assert queue.put(2 * SIZE, SIZE, 2, 2) == Put.ALREADY
    assert state(queue) == before


def test_the_offset_given_out_stays_ahead_of_what_is_dispatched(open_queue: Open) -> None:
    queue = open_queue()
    queue.next_offset = 5
    fill(queue, 2)
    assert (queue.end, queue.next_offset) == (2, 5)
    fill(queue, 4)
    assert (queue.end, queue.next_offset) == (6, 6)


def test_a_taken_place_is_reported(open_queue: Open) -> None:
    queue = open_queue()
    fill(queue, 3)
    before = state(queue)
    assert queue.put(1000, SIZE, 7, 2) == Put.BEHIND
    assert state(queue) == before
    assert queue.entry(2) == (2 * SIZE, SIZE, 2)


def test_a_slice_of_entries(open_queue: Open) -> None:
    queue = open_queue()
    fill(queue, ENTRIES + 5)
    raw = queue.entries(ENTRIES - 3, 100)
    assert bytes(raw) == b"".join(entry_bytes(n * SIZE, SIZE, n) for n in range(ENTRIES - 3, ENTRIES))
    assert len(queue.entries(ENTRIES, 100)) == 5 * ENTRY_SIZE
    assert len(queue.entries(0, 2)) == 2 * ENTRY_SIZE
    assert bytes(queue.entries(ENTRIES + 5, 100)) == b""
    assert bytes(queue.entries(-1, 100)) == b""
    assert bytes(queue.entries(0, 0)) == b""


def test_a_slice_outlives_the_queue(open_queue: Open) -> None:
    queue = open_queue()
    fill(queue, 3)
    raw = queue.entries(0, 3)
    queue.close()
    assert bytes(raw[:ENTRY_SIZE]) == entry_bytes(0, SIZE, 0)


@pytest.mark.parametrize("number", [-1, 4, 10, 2**60])
def test_an_entry_that_is_not_there(open_queue: Open, number: int) -> None:
    queue = open_queue(log_start=1)
    fill(queue, 10)
    queue.expire(5 * SIZE)
    with pytest.raises(IndexError, match=f"queue 3 of orders has no entry {number}; its entries are 5 to 10"):
        queue.entry(number)


# ── Late beginnings and gaps ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_queue_that_begins_late_has_blanks_before_it(open_queue: Open, disk: Disk, folder: Path) -> None:
    queue = open_queue(log_start=5000)
    number = 3 * ENTRIES + 700
    assert queue.put(5000, SIZE, 9, number) == Put.DONE
    assert state(queue) == (number, number + 1, number + 1, 5000 + SIZE)
    name = f"{3 * ENTRIES * ENTRY_SIZE:020}"
    assert list(disk.files(folder)) == [name]
    raw = disk.read_at(folder / name, 0, ENTRIES * ENTRY_SIZE)
    blanks = entry_bytes(0, BLANK_SIZE, 0) * 700
    assert raw == (blanks + entry_bytes(5000, SIZE, 9)).ljust(ENTRIES * ENTRY_SIZE, b"\0")
    # As it is found again, whether the log begins at 0 or not.
    assert state(open_queue(5000)) == state(queue)
    assert state(open_queue(0)) == state(queue)


def test_blanks_alone_are_no_entries(open_queue: Open, disk: Disk, folder: Path) -> None:
    queue = open_queue()
    queue.put(5000, SIZE, 9, 700)
    assert queue.truncate(5000) == 1
    assert state(queue) == (700, 700, 700, 0)
    assert state(open_queue()) == (700, 700, 700, 0)
    assert queue.put(6000, SIZE, 9, 700) == Put.DONE
    assert state(open_queue()) == (700, 701, 701, 6000 + SIZE)


def test_a_small_gap_is_filled_with_blanks(open_queue: Open) -> None:
    queue = open_queue()
    fill(queue, ENTRIES - 2)
    end = queue.max_physical
    number = ENTRIES + 3
    assert queue.put(end + 500, SIZE, 1, number) == Put.DONE
    assert [queue.entry(n) for n in range(ENTRIES - 2, number)] == [(end, BLANK_SIZE, 0)] * 5
    assert queue.entry(number) == (end + 500, SIZE, 1)
    assert state(queue) == (0, number + 1, number + 1, end + 500 + SIZE)
    assert state(open_queue()) == state(queue)
    # Blanks go with what follows them.
    assert queue.recover(end + 500 + SIZE) == 0
    assert queue.truncate(end) == 1
    assert (queue.end, queue.max_physical) == (number, end)


@pytest.mark.parametrize("number", [ENTRIES + 11, 2**50, 2**59, 2**62])
def test_a_large_gap_behind_entries_is_reported(open_queue: Open, number: int) -> None:
    queue = open_queue()
    fill(queue, 10)
    before = state(queue)
    assert queue.put(5000, SIZE, 1, number) == Put.GAP
    assert state(queue) == before
    assert state(open_queue()) == before


def test_an_offset_without_address_is_reported(open_queue: Open) -> None:
    assert open_queue().put(5000, SIZE, 1, 2**59) == Put.GAP


@pytest.mark.parametrize("number", [12, ENTRIES - 1, 50 * ENTRIES + 7])
def test_a_queue_with_nothing_alive_goes_on_anywhere(open_queue: Open, disk: Disk, folder: Path, number: int) -> None:
    queue = open_queue()
    fill(queue, 10)
    queue.expire(5000)
    assert queue.put(5000, SIZE, 1, number) == Put.DONE
    assert state(queue) == (number, number + 1, number + 1, 5000 + SIZE)
    assert state(open_queue(5000)) == state(queue)
    assert len(disk.files(folder)) == 1


def test_a_queue_can_begin_anew(open_queue: Open) -> None:
    queue = open_queue()
    fill(queue, 2 * ENTRIES)
    queue.restart(0)
    assert state(queue) == (0, 0, 0, 0)
    fill(queue, 3)
    assert state(open_queue()) == (0, 3, 3, 3 * SIZE)


# ── Opening ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [0, 1, 203, 204, 205, 408, 998, 999, 1000, 1001, 1999, 2000, 2203])
def test_the_end_is_found_again(open_queue: Open, count: int) -> None:
    queue = open_queue()
    fill(queue, count)
    assert state(open_queue()) == (0, count, count, count * SIZE)


def watch_reads(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all reads from now on."""
    sizes: list[int] = []
    read_at = disk.read_at

    def watched(path: Path, start: int, size: int) -> bytes:
        sizes.append(size)
        return read_at(path, start, size)

    monkeypatch.setattr(disk, "read_at", watched)
    return sizes


def test_opening_maps_nothing_and_reads_little(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk(Random(1))
    fill(make(disk, entries=300_000), 5000)
    reads = watch_reads(disk, monkeypatch)
    monkeypatch.setattr(disk, "open", None)
    queue = make(disk, entries=300_000)
    assert state(queue) == (0, 5000, 5000, 5000 * SIZE)
    assert len(reads) <= 14 and max(reads) <= 65536


def test_a_small_queue_is_opened_by_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk(Random(1))
    fill(make(disk, entries=300_000), 50)
    reads = watch_reads(disk, monkeypatch)
    assert make(disk, entries=300_000).end == 50
    assert len(reads) == 1


def test_a_file_of_another_size(open_queue: Open, disk: Disk, folder: Path) -> None:
    disk.create(folder / f"{0:020}", 999 * ENTRY_SIZE).close()
    with pytest.raises(BadStoreError, match="19980 bytes where 20000 are expected"):
        open_queue()


def test_a_file_that_was_just_begun(open_queue: Open, disk: Disk, folder: Path) -> None:
    fill(open_queue(), ENTRIES)
    disk.create(folder / f"{ENTRIES * ENTRY_SIZE:020}", ENTRIES * ENTRY_SIZE, reserve=False).close()
    queue = open_queue()
    assert state(queue) == (0, ENTRIES, ENTRIES, ENTRIES * SIZE)
    fill(queue, 1)
    assert state(open_queue())[1] == ENTRIES + 1


# ── What Java writes ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_bytes_of_java(tmp_path: Path) -> None:
    recording: dict[str, Any] = json.loads(RECORDING.read_text())
    disk = RealDisk(tmp_path / "aside")
    queues: dict[int, ConsumeQueue] = {}
    for command, *arguments in recording["script"]:
        if command == "put":
            _, queue_id, physical_offset, size, tags_code, number = arguments
            if queue_id not in queues:
                folder = tmp_path / "consumequeue" / "Topic" / str(queue_id)
                queues[queue_id] = make(disk, folder, entries=recording["sizes"][0])
            assert queues[queue_id].put(physical_offset, size, tags_code, number) == Put.DONE
    expected = {name: raw for name, raw in recording["files"].items() if name.startswith("consumequeue/")}
    found = {str(path.relative_to(tmp_path)): path.read_bytes().hex() for path in tmp_path.rglob("consumequeue/*/*/*")}
    assert len(expected) == 4
    assert found == expected


# ── Cutting ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("keep", [0, 1, 999, 1000, 1001, 2000, 2499])
@pytest.mark.parametrize("within", [0, 1, SIZE - 1])
def test_entries_beyond_the_end_of_the_log_go(
    open_queue: Open, disk: Disk, folder: Path, keep: int, within: int
) -> None:
    queue = open_queue()
    fill(queue, 2500)
    assert queue.truncate(keep * SIZE + within) == 2500 - keep
    assert state(queue) == (0, keep, keep, keep * SIZE)
    assert state(open_queue()) == state(queue)
    last = max(1, -(-keep // ENTRIES))
    assert len(disk.files(folder)) == last
    raw = disk.read_at(folder / f"{(last - 1) * ENTRIES * ENTRY_SIZE:020}", 0, ENTRIES * ENTRY_SIZE)
    assert not any(raw[(keep - (last - 1) * ENTRIES) * ENTRY_SIZE :])
    fill(queue, 3)
    assert state(open_queue()) == (0, keep + 3, keep + 3, (keep + 3) * SIZE)


def test_a_log_that_ends_behind_the_queue_cuts_nothing(open_queue: Open) -> None:
    queue = open_queue()
    fill(queue, 10)
    assert queue.truncate(10 * SIZE) == 0
    assert queue.truncate(11 * SIZE) == 0
    assert queue.end == 10


def test_a_queue_that_loses_all_keeps_its_offsets(open_queue: Open) -> None:
    queue = open_queue()
    fill(queue, 2500)
    queue.expire(2100 * SIZE)
    assert queue.truncate(100) == 500
    assert state(queue) == (2000, 2000, 2000, 0)
    assert state(open_queue(2100 * SIZE)) == (2000, 2000, 2000, 0)


def test_files_of_expired_records_go(open_queue: Open, disk: Disk, folder: Path) -> None:
    queue = open_queue()
    fill(queue, 2500)
    assert queue.expire(999 * SIZE) == 0
    assert (queue.start, queue.end, len(disk.files(folder))) == (999, 2500, 3)
    assert queue.expire(1000 * SIZE) == 1
    assert (queue.start, queue.end, len(disk.files(folder))) == (1000, 2500, 2)
    assert queue.expire(1000 * SIZE + 1) == 0
    assert queue.start == 1001
    assert queue.expire(10**9) == 1
    assert (queue.start, queue.end, len(disk.files(folder))) == (2500, 2500, 1), "the last file stays"
    assert queue.expire(10**9) == 0
    assert state(open_queue(10**9)) == state(queue)
    assert queue.put(10**9, SIZE, 0, 2500) == Put.DONE
    assert (queue.start, queue.end) == (2500, 2501)


# ── After a crash ─────────────────────────────────────────────────────────────────────────────────────────────────────

EMPTY = bytes(ENTRY_SIZE)
WRONG = {
    "empty": EMPTY,
    "no size": entry_bytes(700 * SIZE, 0, 5),
    "negative size": entry_bytes(700 * SIZE, -1, 5),
    "negative offset": entry_bytes(-5, SIZE, 5),
    "before the one before": entry_bytes(698 * SIZE, SIZE, 5),
    "within the one before": entry_bytes(700 * SIZE - 1, SIZE, 5),
    "behind the end of the log": entry_bytes(10**12, SIZE, 5),
    "too long for the log": entry_bytes(700 * SIZE, 10**8, 5),
    "a blank behind the end of the log": entry_bytes(10**12, BLANK_SIZE, 0),
}


@pytest.mark.parametrize("raw", WRONG.values(), ids=WRONG.keys())
def test_the_first_wrong_entry_is_the_end(open_queue: Open, disk: Disk, folder: Path, raw: bytes) -> None:
    queue = open_queue()
    fill(queue, 1200)
    queue.close()
    overwrite(disk, folder, 700, raw)
    queue = open_queue()
    assert queue.recover(1200 * SIZE) == 500
    assert state(queue) == (0, 700, 700, 700 * SIZE)
    assert state(open_queue()) == state(queue)
    assert len(disk.files(folder)) == 1
    assert not any(disk.read_at(folder / f"{0:020}", 700 * ENTRY_SIZE, 300 * ENTRY_SIZE))
    fill(queue, 500)
    assert state(open_queue()) == (0, 1200, 1200, 1200 * SIZE)


def test_a_queue_that_holds_is_left_as_it_is(open_queue: Open) -> None:
    queue = open_queue()
    fill(queue, 3500)
    queue.close()
    queue = open_queue()
    assert queue.recover(3500 * SIZE) == 0
    assert state(queue) == (0, 3500, 3500, 3500 * SIZE)


def test_an_empty_queue_is_recovered(open_queue: Open) -> None:
    queue = open_queue()
    assert queue.recover(0) == 0
    assert state(queue) == (0, 0, 0, 0)


@pytest.mark.parametrize("keep", [0, 1, 700, 999, 1000, 2500, 4999])
def test_recovery_goes_back_as_far_as_it_must(open_queue: Open, keep: int) -> None:
    queue = open_queue()
    fill(queue, 5000)
    queue.close()
    queue = open_queue()
    assert queue.recover(keep * SIZE + 50) == 5000 - keep
    assert state(queue) == (0, keep, keep, keep * SIZE)
    assert state(open_queue()) == state(queue)


@pytest.mark.parametrize("lost", [1000, 1999, 2000])
def test_recovery_goes_back_to_a_file_that_was_lost(open_queue: Open, disk: Disk, folder: Path, lost: int) -> None:
    """Of six files, the last three are looked at; that the one before them ends well shows that those are worth it."""
    queue = open_queue()
    fill(queue, 5500)
    queue.close()
    for number in (lost, 2000) if lost < 2000 else (2000,):
        overwrite(disk, folder, number, EMPTY * (ENTRIES - number % ENTRIES))
    queue = open_queue()
    assert queue.recover(5500 * SIZE) == 5500 - lost
    assert state(queue) == (0, lost, lost, lost * SIZE)


def test_recovery_is_not_led_on_by_a_torn_entry(open_queue: Open, disk: Disk, folder: Path) -> None:
    """The third of six files was lost but for its last entry, of which half is left: it speaks of an old record."""
    queue = open_queue()
    fill(queue, 5500)
    queue.close()
    overwrite(disk, folder, 2000, EMPTY * (ENTRIES - 1))
    overwrite(disk, folder, 2999, entry_bytes(10 * SIZE, SIZE, 0))
    queue = open_queue()
    queue.recover(5500 * SIZE)
    assert state(queue) == (0, 2000, 2000, 2000 * SIZE)


@pytest.mark.parametrize("stale", [103, 110, 500, 999])
def test_what_is_left_far_behind_the_end_goes(open_queue: Open, disk: Disk, folder: Path, stale: int) -> None:
    """A crash may keep a later page and lose those before it: a search for the end would fall for it."""
    fill(open_queue(), 100)
    overwrite(disk, folder, stale, entry_bytes(stale * SIZE, SIZE, stale))
    queue = open_queue()
    queue.recover(200 * SIZE)
    assert state(queue) == (0, 100, 100, 100 * SIZE)
    assert not any(disk.read_at(folder / f"{0:020}", 100 * ENTRY_SIZE, 900 * ENTRY_SIZE))
    assert state(open_queue()) == state(queue)


def test_recovering_a_small_queue_reads_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system knows that nothing was written behind its end."""
    disk = RealDisk(tmp_path / "aside")
    fill(make(disk, tmp_path / "queue", entries=300_000), 50)
    reads = watch_reads(disk, monkeypatch)
    queue = make(disk, tmp_path / "queue", entries=300_000)
    queue.recover(50 * SIZE)
    assert queue.end == 50
    assert sum(reads) < 200_000


def test_recovery_maps_only_what_it_cuts(open_queue: Open, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand queues would take more descriptors than a process has."""
    fill(open_queue(), 1500)
    queue = open_queue()
    with monkeypatch.context() as patched:
        patched.setattr(disk, "open", None)
        assert queue.recover(1500 * SIZE) == 0
    assert queue.recover(1400 * SIZE) == 100
    assert list(queue.dirty_files()) == []
    assert state(open_queue()) == (0, 1400, 1400, 1400 * SIZE)


def test_records_that_went_from_the_log_are_not_alive_after_recovery(open_queue: Open) -> None:
    fill(open_queue(), 100)
    queue = open_queue(log_start=40 * SIZE)
    queue.recover(90 * SIZE)
    assert state(queue) == (40, 90, 90, 90 * SIZE)


def test_a_crash_at_any_moment_of_cutting_can_be_recovered() -> None:
    """Whatever a crash leaves: entries before the cut hold, and recovery finds no other ones."""
    small = 60
    synced = False

    def cut(disk: SimulatedDisk) -> None:
        nonlocal synced
        synced = False
        queue = make(disk, entries=small)
        fill(queue, 4 * small - 10)
        for file in queue.dirty_files():
            file.sync()
        synced = True
        queue.truncate(90 * SIZE)
        fill(queue, 50)

    crashes = 0
    for disk in crash_everywhere(cut, seed=5):
        queue = make(disk, entries=small)
        queue.recover(90 * SIZE if synced else 0)
        assert queue.end == (90 if synced else 0)
        fill(queue, 30)
        assert [queue.entry(n) for n in range(queue.end)] == [(n * SIZE, SIZE, n) for n in range(queue.end)]
        assert state(make(disk, entries=small)) == state(queue)
        crashes += synced
    assert crashes > 10


# ── Times ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

#        entry  0   1   2   3   4   5   6   7
STORED_MS = [100, 100, 200, 200, 200, 300, 500, 500]


def stored_ms_at(physical_offset: int, size: int) -> int:
    assert size == SIZE
    return STORED_MS[physical_offset // SIZE]


@pytest.mark.parametrize(
    ("time_ms", "lower", "upper"),
    [
        *[(0, 0, 0), (99, 0, 0), (100, 0, 1), (101, 2, 1), (200, 2, 4), (250, 5, 4)],
        *[(300, 5, 5), (499, 6, 5), (500, 6, 7), (501, 8, 7), (2**63 - 1, 8, 7)],
    ],
)
def test_the_offset_that_a_time_stands_for(tmp_path: Path, time_ms: int, lower: int, upper: int) -> None:
    """Also across files, of three entries here."""
    queue = make(RealDisk(tmp_path / "aside"), tmp_path / "queue", entries=3)
    fill(queue, 8)
    assert queue.offset_by_time(time_ms, Boundary.LOWER, stored_ms_at) == lower
    assert queue.offset_by_time(time_ms, Boundary.UPPER, stored_ms_at) == upper
    queue.expire(3 * SIZE)
    assert queue.offset_by_time(time_ms, Boundary.LOWER, stored_ms_at) == max(lower, 3)
    assert queue.offset_by_time(time_ms, Boundary.UPPER, stored_ms_at) == max(upper, 3)


def test_times_of_an_empty_queue(open_queue: Open) -> None:
    assert open_queue().offset_by_time(5, Boundary.LOWER, stored_ms_at) == 0
    queue = open_queue()
    fill(queue, 8)
    queue.expire(10**9)
    assert queue.offset_by_time(5, Boundary.LOWER, stored_ms_at) == 8
    assert queue.offset_by_time(5, Boundary.UPPER, stored_ms_at) == 8


def test_blanks_have_no_time(open_queue: Open) -> None:
    queue = open_queue()
    fill(queue, 2)
    queue.put(5 * SIZE, SIZE, 0, 5)
    assert queue.offset_by_time(300, Boundary.LOWER, stored_ms_at) == 2, "the blanks before it cost a reader nothing"
    assert queue.offset_by_time(301, Boundary.LOWER, stored_ms_at) == 6
    assert queue.offset_by_time(100, Boundary.UPPER, stored_ms_at) == 1


# ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_files_to_sync(open_queue: Open, folder: Path) -> None:
    queue = open_queue()
    fill(queue, 10)
    assert queue.dirty_bytes == 10 * ENTRY_SIZE
    assert [file.path for file in queue.dirty_files()] == [folder / f"{0:020}"]
    assert queue.dirty_bytes == 0
    assert queue.dirty_files() == []
    fill(queue, 2000)
    assert [file.path for file in queue.dirty_files()] == [folder / f"{n * 20_000:020}" for n in range(3)]
    fill(queue, 1)
    assert [file.path for file in queue.dirty_files()] == [folder / f"{40_000:020}"]
    queue.close()
    assert open_queue().dirty_files() == []


def test_what_is_left_by_a_cut_is_still_to_be_synced(open_queue: Open, folder: Path) -> None:
    queue = open_queue()
    fill(queue, 1500)
    queue.truncate(300 * SIZE)
    assert [file.path for file in queue.dirty_files()] == [folder / f"{0:020}"]
    fill(queue, 100)
    queue.truncate(350 * SIZE)
    assert queue.dirty_bytes == 50 * ENTRY_SIZE


def test_blanks_are_to_be_synced_too(open_queue: Open) -> None:
    queue = open_queue()
    queue.put(0, SIZE, 0, 500)
    assert queue.dirty_bytes == 501 * ENTRY_SIZE
    assert len(queue.dirty_files()) == 1


def test_what_was_handed_out_and_synced_survives_any_crash() -> None:
    disk = SimulatedDisk(Random(3))
    queue = make(disk)
    fill(queue, 1500)
    for file in queue.dirty_files():
        file.sync()
    fill(queue, 600)
    for image in disk.crash_images(50):
        found = make(image)
        found.recover(1500 * SIZE)
        assert [found.entry(n) for n in range(1500)] == [(n * SIZE, SIZE, n) for n in range(1500)]
        fill(found, 700)
        assert state(make(image)) == (0, 2200, 2200, 2200 * SIZE)


def test_an_idle_queue_is_unmapped(open_queue: Open, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    open_file = disk.open

    def watched(path: Path, *, writable: bool = True) -> File:
        opened.append(path)
        return open_file(path, writable=writable)

    queue = open_queue()
    fill(queue, 1500)
    monkeypatch.setattr(disk, "open", watched)
    queue.release()
    fill(queue, 1)
    assert opened == [], "it is not synced yet"
    for file in queue.dirty_files():
        file.sync()
    queue.release()
    fill(queue, 1)
    assert len(opened) == 1
    assert queue.entry(3) == (3 * SIZE, SIZE, 3)
    assert len(opened) == 2
    assert state(open_queue()) == (0, 1502, 1502, 1502 * SIZE)


# ── A full or failing disk ────────────────────────────────────────────────────────────────────────────────────────────


def test_room_grows_with_the_queue() -> None:
    disk = SimulatedDisk(Random(1))
    queue = make(disk, entries=300_000)
    fill(queue, 1)
    assert disk.used_bytes == BLOCK, "ten thousand queues with a message each take little"
    fill(queue, 100_000)
    assert disk.used_bytes <= 100_000 * ENTRY_SIZE + 2 * 65536


def test_a_full_disk_refuses_and_goes_on_later() -> None:
    disk = SimulatedDisk(Random(1), capacity=2 * BLOCK)
    queue = make(disk)
    with pytest.raises(DiskFullError, match=r"no room for \d+ bytes at .*/orders/3/0{20}"):
        fill(queue, ENTRIES)
    number = queue.end
    assert state(queue) == (0, number, number, number * SIZE)
    assert number >= 2 * BLOCK // ENTRY_SIZE - 1
    assert queue.entry(number - 1) == ((number - 1) * SIZE, SIZE, number - 1)
    with pytest.raises(DiskFullError):
        queue.put(number * SIZE, SIZE, number, number)
    disk.capacity = 100 * BLOCK
    fill(queue, ENTRIES)
    for file in queue.dirty_files():
        file.sync()
    assert state(make(disk)) == state(queue)


def test_a_full_disk_in_the_middle_of_blanks() -> None:
    disk = SimulatedDisk(Random(1), capacity=2 * BLOCK)
    queue = make(disk)
    for _ in range(2):
        with pytest.raises(DiskFullError):
            queue.put(5000, SIZE, 0, 900)
    disk.capacity = None
    assert queue.put(5000, SIZE, 0, 900) == Put.DONE
    assert state(queue) == state(make(disk)) == (900, 901, 901, 5000 + SIZE)


def test_a_file_that_can_not_be_made() -> None:
    disk = SimulatedDisk(Random(1))
    queue = make(disk)
    disk.fail("create", errno.EIO)
    with pytest.raises(DiskFailedError, match="can't be written"):
        queue.put(0, SIZE, 0, 0)
    fill(queue, 1)
    assert state(make(disk)) == (0, 1, 1, SIZE)


def test_cutting_on_a_full_disk() -> None:
    disk = SimulatedDisk(Random(1))
    queue = make(disk)
    fill(queue, 1500)
    for file in queue.dirty_files():
        file.sync()
    disk.capacity = disk.used_bytes
    assert queue.truncate(300 * SIZE) == 1200
    assert state(make(disk)) == (0, 300, 300, 300 * SIZE)
