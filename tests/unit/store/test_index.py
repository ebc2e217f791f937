"""The key index, on the real and on the simulated disk, and against what Java writes."""

import errno
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kourou.protocol.hashes import index_hash
from kourou.store.disk import Disk, RealDisk
from kourou.store.entry_layout import ENTRY_SIZE, HEADER_SIZE, header, index_entry, put_index_entry, slot
from kourou.store.errors import BadStoreError, DiskFailedError, DiskFullError
from kourou.store.index import Index
from kourou.store.index_file import SECONDS_MAX, SLOT_SIZE
from kourou.testing.disk import SimulatedDisk, crash_everywhere
from kourou.testing.disk_parts import BLOCK

RECORDING = Path(__file__).parents[2] / "data" / "java-queue-files-5.5.0.json"
FOLDER = Path("/store/index")
SLOTS = 10
ENTRIES = 40
FILE_SIZE = HEADER_SIZE + SLOTS * SLOT_SIZE + ENTRIES * ENTRY_SIZE
NOW_MS = 1_700_000_000_000
FOREVER = 2**63 - 1

Open = Callable[[], Index]


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk(tmp_path / "aside") if request.param == "real" else SimulatedDisk(Random(1))


@pytest.fixture
def folder(disk: Disk, tmp_path: Path) -> Path:
    return tmp_path / "index" if isinstance(disk, RealDisk) else FOLDER


@pytest.fixture
def open_index(disk: Disk, folder: Path) -> Open:
    return lambda: make(disk, folder)


def make(disk: Disk, folder: Path = FOLDER, slots: int = SLOTS, entries: int = ENTRIES) -> Index:
    index = Index(disk, folder, slots, entries, file_time)
    index.load()
    return index


def file_time(ms: int) -> str:
    if ms > 10**16:
        raise OverflowError("no date")
    return f"{ms:017}"


def put(index: Index, key: str, offset: int, stored_ms: int = NOW_MS, topic: str = "orders") -> int:
    return index.put(topic.encode(), key.encode(), offset, stored_ms)


def fill(index: Index, count: int, start: int = 0) -> None:
    """Record n has the keys `n mod 7` and `all`, and is stored n seconds after the first one."""
    for n in range(start, start + count):
        assert put(index, str(n % 7), n * 100, NOW_MS + n * 1000) == 1
        assert put(index, "all", n * 100, NOW_MS + n * 1000) == 1
        index.finish()


def found(index: Index, key: str, limit: int = 1000, begin_ms: int = 0, end_ms: int = FOREVER) -> list[int]:
    return index.query("orders", key, limit, begin_ms, end_ms).offsets


def expected(key: str, count: int, start: int = 0) -> list[int]:
    return [n * 100 for n in range(start, count) if key in ("all", str(n % 7))][::-1]


# ── Putting and finding ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_index_is_empty(open_index: Open, disk: Disk, folder: Path) -> None:
    index = open_index()
    assert index.is_empty
    assert (index.names, index.end_physical, index.end_ms) == ([], 0, 0)
    assert index.query("orders", "a", 10, 0, FOREVER) == ([], 0, 0)
    assert index.dirty_files() == []
    assert disk.files(folder) == {}


def test_a_key_is_found(open_index: Open, disk: Disk, folder: Path) -> None:
    index = open_index()
    assert put(index, "a", 500, NOW_MS + 7) == 1
    put(index, "b", 600)
    put(index, "a", 700, NOW_MS + 2007)
    assert index.query("orders", "a", 10, 0, FOREVER) == ([700, 500], NOW_MS + 2007, 700)
    assert found(index, "b") == [600]
    assert found(index, "c") == []
    assert index.query("others", "a", 10, 0, FOREVER).offsets == []
    assert (index.is_empty, index.end_physical, index.end_ms) == (False, 700, NOW_MS + 2007)
    assert disk.files(folder) == {file_time(NOW_MS + 7): FILE_SIZE}, "named by the time of its first entry"


def test_the_header_is_always_up_to_date(open_index: Open, disk: Disk, folder: Path) -> None:
    index = open_index()
    for n in range(5):
        put(index, "ab"[n % 2], n, NOW_MS + n)
        raw = disk.read_at(folder / file_time(NOW_MS), 0, FILE_SIZE)
        assert header(raw, 0) == (NOW_MS, NOW_MS + n, 0, n, min(n, 1) + 1, n + 2)
        number = n + 1
        assert slot(raw, HEADER_SIZE + index_hash(f"orders#{'ab'[n % 2]}") % SLOTS * SLOT_SIZE) == (number,)
        before = number - 2 if n >= 2 else 0
        at = HEADER_SIZE + SLOTS * SLOT_SIZE + number * ENTRY_SIZE
        assert index_entry(raw, at) == (index_hash(f"orders#{'ab'[n % 2]}"), n, 0, before)


@pytest.mark.parametrize(
    ("stored_ms", "seconds"),
    [
        (NOW_MS - 5000, 0),
        (NOW_MS + 999, 0),
        (NOW_MS + 1000, 1),
        (NOW_MS + 2**31 * 1000 + 5, SECONDS_MAX),
        (2**62, SECONDS_MAX),
    ],
)
def test_times_are_kept_in_seconds(open_index: Open, disk: Disk, folder: Path, stored_ms: int, seconds: int) -> None:
    index = open_index()
    put(index, "a", 0)
    put(index, "a", 1, stored_ms)
    raw = disk.read_at(folder / file_time(NOW_MS), HEADER_SIZE + SLOTS * SLOT_SIZE + 2 * ENTRY_SIZE, ENTRY_SIZE)
    assert index_entry(raw, 0)[2] == seconds


KEYS = ["a", "", "schlüssel", "鍵", "🔑", "x" * 500, "ÿ", "adpempfw", "with#hash"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("topic", ["orders", "Topic", "thème"])
def test_all_kinds_of_keys(tmp_path: Path, topic: str, key: str) -> None:
    index = make(RealDisk(tmp_path / "aside"), tmp_path / "index", slots=1000)
    put(index, key, 5, topic=topic)
    put(index, key + "1", 6, topic=topic)
    assert index.query(topic, key, 10, 0, FOREVER).offsets == [5]
    raw = (tmp_path / "index" / file_time(NOW_MS)).read_bytes()
    assert index_entry(raw, HEADER_SIZE + 1000 * SLOT_SIZE + ENTRY_SIZE)[0] == index_hash(f"{topic}#{key}")


def test_bytes_that_are_no_text_have_a_hash(open_index: Open) -> None:
    index = open_index()
    assert index.put(b"orders", b"\xff\x00\xc3", 5, NOW_MS) == 1
    assert found(index, "\ufffd\0\ufffd") == [5]


def test_records_that_the_index_has_are_skipped(open_index: Open) -> None:
    index = open_index()
    put(index, "a", 500)
    assert put(index, "b", 499) == 0
    assert put(index, "b", 500) == 1, "one record may have many keys"
    assert found(index, "b") == [500]


def test_a_finished_record_is_never_entered_again(open_index: Open, disk: Disk, folder: Path) -> None:
    """Apache's broker enters, after a start, the records from the header's end on."""
    index = open_index()
    put(index, "a", 500)
    assert put(index, "b", 500) == 1
    assert header(disk.read_at(folder / file_time(NOW_MS), 0, HEADER_SIZE), 0)[3] == 500, "one more key may come"
    index.finish()
    assert header(disk.read_at(folder / file_time(NOW_MS), 0, HEADER_SIZE), 0)[3] == 501
    assert put(index, "a", 500) == 0
    for file in index.dirty_files():
        file.sync()
    index.close()
    again = open_index()
    assert (again.end_physical, put(again, "a", 500), put(again, "a", 501)) == (500, 0, 1)


def test_a_header_of_apache_is_finished(open_index: Open, disk: Disk, folder: Path) -> None:
    index = open_index()
    put(index, "a", 500)  # Apache's broker leaves it like this
    for file in index.dirty_files():
        file.sync()
    index.close()
    again = open_index()
    assert again.end_physical == 500
    again.finish()
    assert put(again, "a", 500) == 0
    (file,) = again.dirty_files()
    file.sync()
    assert header(disk.read_at(folder / file_time(NOW_MS), 0, HEADER_SIZE), 0)[3] == 501


def test_a_full_file_leaves_the_next_one_what_is_entered(open_index: Open) -> None:
    index = open_index()
    for n in range(ENTRIES - 1):
        put(index, "a", n)
    index.finish()
    assert put(index, "a", ENTRIES - 2) == 0
    assert put(index, "a", ENTRIES) == 1
    assert len(index.names) == 2
    assert put(index, "b", ENTRIES - 2) == 0


def test_a_record_is_found_once(open_index: Open) -> None:
    index = open_index()
    for offset in (5, 5, 6, 6, 6, 7):
        put(index, "a", offset)
    assert found(index, "a") == [7, 6, 5]
    assert found(index, "a", limit=2) == [7, 6]


def test_files_are_rolled(open_index: Open, disk: Disk, folder: Path) -> None:
    index = open_index()
    fill(index, 50)  # two entries each, 39 of which fit
    assert len(index.names) == len(disk.files(folder)) == 3
    for key in ("all", "0", "6"):
        assert found(index, key) == expected(key, 50)
        assert found(index, key, limit=3) == expected(key, 50)[:3]
    again = open_index()
    assert (again.names, again.end_physical, again.end_ms) == (index.names, index.end_physical, index.end_ms)
    assert found(again, "all") == expected("all", 50)
    fill(again, 20, start=50)
    assert found(again, "3") == expected("3", 70)


def test_a_record_whose_keys_are_in_two_files_is_found_once(open_index: Open) -> None:
    index = open_index()
    for n in range(38):
        put(index, "a", n)
    for _ in range(3):
        put(index, "a", 38)
    assert len(index.names) == 2
    assert found(index, "a") == list(range(38, -1, -1))


def test_names_ascend_whatever_the_clock_does(open_index: Open) -> None:
    index = open_index()
    for offset, stored_ms in enumerate((5000, 5000, 100, 10**17, 6000, 5003)):
        for _ in range(39):
            put(index, "a", offset, stored_ms)
    assert index.names == [f"{ms:017}" for ms in (5000, 5001, 5002, 5003, 6000, 6001)]
    assert open_index().names == index.names


def test_a_first_name_without_a_time(open_index: Open) -> None:
    index = open_index()
    put(index, "a", 1, 10**17)
    assert index.names == [f"{1:017}"]


# ── Times ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("begin", "end", "numbers"),
    [
        (0, 49, range(50)),
        (10, 20, range(10, 21)),
        (25, 25, [25]),
        (-5, -1, []),
        (50, 99, []),
        (0, 0, [0]),
        (49, 49, [49]),
        (18, 40, range(18, 41)),
    ],
)
def test_a_range_of_time(open_index: Open, begin: int, end: int, numbers: list[int]) -> None:
    index = open_index()
    fill(index, 50)
    offsets = found(index, "all", begin_ms=NOW_MS + begin * 1000, end_ms=NOW_MS + end * 1000)
    # As Java writes it, the first entry of a file counts from the end of the one before: here a second more.
    late = {n * 100 for n in range(50) if n * 2 % 39 == 0 or (n * 2 + 1) % 39 == 0} - {0}
    assert [offset for offset in offsets if offset not in late] == [
        n * 100 for n in reversed(numbers) if n * 100 not in late
    ]


def test_times_are_compared_in_seconds(open_index: Open) -> None:
    index = open_index()
    put(index, "a", 0, NOW_MS + 500)
    put(index, "a", 1, NOW_MS + 2200)
    assert found(index, "a", begin_ms=NOW_MS + 1501) == [], "it counts as stored at 1500"
    assert found(index, "a", begin_ms=NOW_MS + 1500) == [1]
    assert found(index, "a", end_ms=NOW_MS + 1500) == [1, 0]
    assert found(index, "a", end_ms=NOW_MS + 1499) == [0]


# ── What Java writes ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_bytes_of_java(tmp_path: Path) -> None:
    recording: dict[str, Any] = json.loads(RECORDING.read_text())
    _, _, slots, entries = recording["sizes"]
    names = iter(["20250101000000000", "20250101000000001"])
    index = Index(RealDisk(tmp_path / "aside"), tmp_path / "index", slots, entries, lambda ms: next(names))
    index.load()
    for command, *arguments in recording["script"]:
        if command == "key":
            text, offset, stored_ms = arguments
            topic, key = text.encode().split(b"#")
            assert index.put(topic, key, offset, stored_ms) == 1
    written = {Path(name).name: raw for name, raw in recording["files"].items() if name.startswith("index/")}
    assert len(written) == 2
    assert {path.name: path.read_bytes().hex() for path in (tmp_path / "index").iterdir()} == written
    assert index.query("Topic", "a", 10, 0, FOREVER).offsets == [1000, 200, 0]


# ── Bytes that no index wrote ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("before", [1, 2, 3, 4, 5, 6, 39, 40, 41, 2**31 - 1, -1, -(2**31)])
def test_no_chain_is_endless(open_index: Open, disk: Disk, folder: Path, before: int) -> None:
    index = open_index()
    for offset in range(5):
        put(index, "a", offset)
    index.close()
    file = disk.open(folder / file_time(NOW_MS))
    at = HEADER_SIZE + SLOTS * SLOT_SIZE + 3 * ENTRY_SIZE
    put_index_entry(file.buffer, at, index_hash("orders#a"), 2, 0, before)
    file.sync()
    file.close()
    offsets = found(open_index(), "a")
    assert offsets == [4, 3, 2, *(range(before - 1, -1, -1) if 0 < before < 3 else ())]


def test_whatever_stands_in_a_file_a_query_ends(tmp_path: Path) -> None:
    random = Random(7)
    path = tmp_path / "index" / file_time(NOW_MS)
    path.parent.mkdir()
    for _ in range(200):
        raw = bytearray(random.randbytes(FILE_SIZE))
        for at in range(0, FILE_SIZE, 4):  # small numbers lead further
            if random.random() < 0.7:
                raw[at : at + 4] = random.randrange(ENTRIES + 2).to_bytes(4)
        path.write_bytes(raw)
        index = make(RealDisk(tmp_path / "aside"), tmp_path / "index")
        for key in "abcdefgh":
            assert len(found(index, key, begin_ms=-(2**63))) <= ENTRIES
        index.put(b"orders", b"a", 2**62, NOW_MS)
        index.close()


@pytest.mark.parametrize("count", [-1, 0, -(2**31)])
def test_a_header_without_a_count_is_that_of_a_new_file(open_index: Open, disk: Disk, folder: Path, count: int) -> None:
    file = disk.create(folder / file_time(NOW_MS), FILE_SIZE)
    file.buffer[36:40] = count.to_bytes(4, signed=True)
    file.sync()
    file.close()
    index = open_index()
    put(index, "a", 5)
    assert found(index, "a") == [5]


def test_a_file_of_size_zero_is_removed(open_index: Open, disk: Disk, folder: Path) -> None:
    fill(open_index(), 3)
    disk.replace(folder / file_time(NOW_MS + 1), b"")
    index = open_index()
    assert index.names == list(disk.files(folder)) == [file_time(NOW_MS)]


def test_other_files_are_left_alone(open_index: Open, disk: Disk, folder: Path) -> None:
    disk.replace(folder / "readme.txt", b"hello")
    index = open_index()
    fill(index, 3)
    assert open_index().names == index.names
    assert disk.read(folder / "readme.txt") == b"hello"


def test_files_of_other_sizes_are_used(disk: Disk, folder: Path) -> None:
    """As far as they have Apache's proportion of slots and entries."""
    old = make(disk, folder, slots=5, entries=20)
    fill(old, 8)
    old.close()
    index = make(disk, folder, slots=10, entries=30)
    fill(index, 30, start=8)
    assert found(index, "all") == expected("all", 38)
    assert found(make(disk, folder, slots=10, entries=30), "2") == expected("2", 38)


@pytest.mark.parametrize(("slots", "entries"), [(7, 20), (4, 20), (1, 1)])
def test_files_of_unknown_sizes_are_refused(disk: Disk, folder: Path, slots: int, entries: int) -> None:
    old = make(disk, folder, slots=slots, entries=entries + 1)
    fill(old, 1)
    old.close()
    with pytest.raises(
        BadStoreError, match="set maxHashSlotNum and maxIndexNum to their previous values, or remove the folder"
    ):
        make(disk, folder)


def test_a_file_with_a_likely_size_that_does_not_fit_is_refused(disk: Disk, folder: Path) -> None:
    old = make(disk, folder, slots=31, entries=19)
    assert (31 * SLOT_SIZE + 19 * ENTRY_SIZE) % 84 == 0, "it looks like 6 slots and 24 entries"
    for n in range(8):
        put(old, f"k{n}", n)
    old.close()
    with pytest.raises(BadStoreError):
        make(disk, folder)


# ── Cutting ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("keep", [0, 1, 5, 18, 19, 20, 38, 39, 49, 50])
def test_entries_beyond_the_end_of_the_log_go(open_index: Open, disk: Disk, folder: Path, keep: int) -> None:
    index = open_index()
    fill(index, 50)
    assert index.truncate(keep * 100) == 2 * (50 - keep)
    for key in ("all", "0", "3", "6"):
        assert found(index, key) == expected(key, keep)
    index.close()
    index = open_index()
    assert index.end_physical == max(keep - 1, 0) * 100
    assert NOW_MS + (keep - 1) * 1000 <= index.end_ms < NOW_MS + (keep + 1) * 1000 or keep == 0
    fill(index, 30, start=keep)
    for key in ("all", "0", "3", "6"):
        assert found(index, key) == expected(key, keep + 30)


def test_a_log_that_ends_behind_the_index_cuts_nothing(open_index: Open) -> None:
    index = open_index()
    fill(index, 10)
    assert index.truncate(901) == 0
    assert index.truncate(10_000) == 0
    assert found(index, "all") == expected("all", 10)


def test_a_cut_file_is_as_if_nothing_more_had_been_put(tmp_path: Path) -> None:
    files = []
    for count in (12, 19):
        folder = tmp_path / str(count)
        index = make(RealDisk(tmp_path / "aside"), folder)
        fill(index, count)
        index.truncate(1200)
        files.append((folder / file_time(NOW_MS)).read_bytes())
    end = HEADER_SIZE + SLOTS * SLOT_SIZE + 25 * ENTRY_SIZE
    assert files[0][16:end] == files[1][16:end], "but for the time of its end, of which only the second is known"


def test_files_of_expired_records_go(open_index: Open, disk: Disk, folder: Path) -> None:
    index = open_index()
    fill(index, 50)
    first, second, last = (folder / name for name in index.names)
    assert index.expire(1900) == []
    assert index.expire(1901) == [first]
    assert found(index, "all") == [n for n in expected("all", 50) if n >= 1900], "one key of a record may stay"
    assert index.expire(10**9) == [second]
    assert index.names == [last.name], "the last file stays"
    assert set(disk.files(folder)) == {first.name, second.name, last.name}, "removing them is for others"
    for path in (first, second):
        disk.remove(path)
    assert open_index().names == index.names


def test_all_of_it_goes(open_index: Open, disk: Disk, folder: Path) -> None:
    index = open_index()
    fill(index, 50)
    index.remove_all()
    assert index.is_empty
    assert disk.files(folder) == {}
    fill(index, 3)
    assert found(index, "all") == expected("all", 3)


# ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_files_to_sync(open_index: Open, folder: Path) -> None:
    index = open_index()
    fill(index, 10)
    assert [file.path for file in index.dirty_files()] == [folder / index.names[0]]
    assert index.dirty_files() == []
    fill(index, 40, start=10)
    assert [file.path for file in index.dirty_files()] == [folder / name for name in index.names]
    put(index, "a", 10**6)
    assert [file.path for file in index.dirty_files()] == [folder / index.names[2]]
    index.close()
    assert open_index().dirty_files() == []


def test_old_files_are_unmapped_when_they_are_synced(open_index: Open) -> None:
    index = open_index()
    fill(index, 50)
    index.release()
    files = index.dirty_files()
    for file in files:
        file.sync()
    index.release()
    for file in files[:-1]:
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.reserve(0, 1)
    files[-1].reserve(0, 1)
    assert found(index, "all") == expected("all", 50)


def test_a_full_disk_refuses_and_goes_on_later() -> None:
    disk = SimulatedDisk(Random(1), capacity=3 * BLOCK)
    index = make(disk, slots=2500, entries=100_000)  # the slots alone take three blocks
    for _ in range(2):
        with pytest.raises(DiskFullError, match=r"no room for \d+ bytes at /store/index/\d{17}"):
            put(index, "a", 0)
    assert index.is_empty
    assert disk.files(FOLDER) == {}, "nothing half is left"
    disk.capacity = 400 * BLOCK
    with pytest.raises(DiskFullError):
        fill(index, 100_000)
    count = index.end_physical // 100
    assert count > 20_000
    assert found(index, "3", limit=10) == expected("3", count)[:10]
    disk.capacity = None
    put(index, "b", 10**8)
    assert found(index, "b") == [10**8]
    for file in index.dirty_files():
        file.sync()


def test_a_file_that_can_not_be_made() -> None:
    disk = SimulatedDisk(Random(1))
    index = make(disk)
    disk.fail("create", errno.EIO)
    with pytest.raises(DiskFailedError):
        put(index, "a", 0)
    assert put(index, "a", 0) == 1


# ── After a crash ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_synced_is_found_after_any_crash() -> None:
    disk = SimulatedDisk(Random(3))
    index = make(disk, slots=200, entries=800)
    fill(index, 600)
    for file in index.dirty_files():
        file.sync()
    fill(index, 300, start=600)
    for image in disk.crash_images(40):
        after = Index(image, FOLDER, 200, 800, file_time)
        after.load(crashed=True)
        after.recover(600 * 100, 0)
        assert after.end_physical == 599 * 100
        for key in ("all", "0", "5"):
            assert found(after, key) == expected(key, 600)
        fill(after, 300, start=600)
        assert found(after, "all") == expected("all", 900)
        assert found(make(image, slots=200, entries=800), "5") == expected("5", 900)


def test_a_crash_at_any_moment_of_cutting_can_be_recovered() -> None:
    synced = False

    def cut(disk: SimulatedDisk) -> None:
        nonlocal synced
        synced = False
        index = make(disk)
        fill(index, 50)
        for file in index.dirty_files():
            file.sync()
        synced = True
        index.truncate(1500)

    crashes = 0
    for disk in crash_everywhere(cut, seed=2):
        if synced:
            crashes += 1
            index = Index(disk, FOLDER, SLOTS, ENTRIES, file_time)
            index.load(crashed=True)
            index.recover(1500, 0)
            assert found(index, "all") == expected("all", 15)
            fill(index, 30, start=15)
            assert found(index, "2") == expected("2", 45)
    assert crashes > 5
