"""Equal-sized files as one address range, on the real and on the simulated disk."""

import errno
from pathlib import Path
from random import Random

import pytest

from kourou.store.disk import Disk, RealDisk
from kourou.store.errors import BadStoreError
from kourou.store.segments import Segments, segment_name
from kourou.testing.disk import SimulatedDisk, crash_everywhere

SIZE = 8192


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk(tmp_path / "aside") if request.param == "real" else SimulatedDisk(Random(1))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


def filled(disk: Disk, folder: Path, count: int, first: int = 0) -> Segments:
    """Segments whose bytes are the number of their file."""
    segments = Segments(disk, folder, SIZE)
    for number in range(first, first + count):
        segments.add(number * SIZE).buffer[:] = bytes([number]) * SIZE
    for _, file in segments.opened():
        file.sync()
    return segments


def loaded(disk: Disk, folder: Path) -> Segments:
    segments = Segments(disk, folder, SIZE)
    segments.load()
    return segments


def test_names_are_offsets_of_twenty_digits() -> None:
    assert segment_name(0) == "00000000000000000000"
    assert segment_name(3 * 1024**3) == "00000000003221225472"


def test_without_files_there_is_no_range(disk: Disk, folder: Path) -> None:
    segments = loaded(disk, folder)
    assert (len(segments), segments.start, segments.end, segments.starts) == (0, 0, 0, [])
    assert not segments.holds(0)
    with pytest.raises(KeyError, match="has no offset 0"):
        segments.file(0)


def test_files_are_one_range(disk: Disk, folder: Path) -> None:
    filled(disk, folder, 3, first=2).close()
    segments = loaded(disk, folder)
    assert segments.starts == [2 * SIZE, 3 * SIZE, 4 * SIZE]
    assert (segments.start, segments.end) == (2 * SIZE, 5 * SIZE)
    assert [segments.holds(at) for at in (2 * SIZE - 1, 2 * SIZE, 5 * SIZE - 1, 5 * SIZE)] == [False, True, True, False]
    assert bytes(segments.slice(3 * SIZE + 10, 4)) == b"\3\3\3\3"
    assert bytes(segments.slice(5 * SIZE - 2, 2)) == b"\4\4"
    with pytest.raises(KeyError):
        segments.slice(5 * SIZE, 1)


def test_a_file_is_mapped_when_it_is_touched(disk: Disk, folder: Path) -> None:
    filled(disk, folder, 3).close()
    segments = loaded(disk, folder)
    assert list(segments.opened()) == []
    file = segments.file(SIZE)
    assert segments.file(2 * SIZE - 1) is file
    assert [start for start, _ in segments.opened()] == [SIZE]


def test_only_so_many_are_mapped_at_a_time(disk: Disk, folder: Path) -> None:
    filled(disk, folder, 5).close()
    segments = Segments(disk, folder, SIZE, mapped_max=3)
    segments.load()
    segments.file(4 * SIZE)
    held = segments.slice(0, 4)
    for start in (1, 2, 3):
        segments.file(start * SIZE)
    assert [start // SIZE for start, _ in segments.opened()] == [4, 2, 3], "the last is written to, and stays"
    assert bytes(held) == b"\0\0\0\0"
    assert bytes(segments.slice(SIZE, 4)) == b"\1\1\1\1"
    segments.add(5 * SIZE)
    assert [start // SIZE for start, _ in segments.opened()][-1] == 5
    assert len(list(segments.opened())) == 3


def test_a_prepared_file_is_added_as_it_is(disk: Disk, folder: Path) -> None:
    segments = filled(disk, folder, 1)
    spare = segments.prepare(SIZE)
    assert segments.end == SIZE
    assert segments.add(SIZE, spare) is spare
    assert segments.end == 2 * SIZE
    assert disk.files(folder) == {segment_name(0): SIZE, segment_name(SIZE): SIZE}


def test_files_are_added_in_order(disk: Disk, folder: Path) -> None:
    segments = filled(disk, folder, 1)
    with pytest.raises(AssertionError, match="does not follow"):
        segments.add(2 * SIZE)


def test_an_empty_last_file_is_a_creation_cut_short(disk: Disk, folder: Path) -> None:
    filled(disk, folder, 1).close()
    disk.replace(folder / segment_name(SIZE), b"")
    assert loaded(disk, folder).starts == [0]
    assert disk.files(folder) == {segment_name(0): SIZE}


@pytest.mark.parametrize(
    ("name", "size", "said"),
    [
        (segment_name(3 * SIZE), SIZE, f"{segment_name(2 * SIZE)} is missing before {segment_name(3 * SIZE)}"),
        (segment_name(2 * SIZE), SIZE - 1, f"has {SIZE - 1} bytes where {SIZE} are expected"),
        (segment_name(2 * SIZE), SIZE + 1, "was written with another file size; set that size, or restore the file"),
        (segment_name(2 * SIZE + 1), SIZE, f"not a multiple of the file size {SIZE}"),
        ("notes.txt", 5, "notes.txt is not a segment"),
        ("-0000000000000000001", SIZE, "is not a segment"),
    ],
)
def test_what_can_not_be_is_named(disk: Disk, folder: Path, name: str, size: int, said: str) -> None:
    filled(disk, folder, 2).close()
    disk.replace(folder / name, bytes(size))
    with pytest.raises(BadStoreError) as caught:
        loaded(disk, folder)
    assert said in str(caught.value)
    assert str(folder) in str(caught.value)


def test_an_empty_file_in_the_middle_is_not_removed(disk: Disk, folder: Path) -> None:
    filled(disk, folder, 3).close()
    disk.truncate(folder / segment_name(SIZE), 0)
    with pytest.raises(BadStoreError, match="has 0 bytes"):
        loaded(disk, folder)
    assert len(disk.files(folder)) == 3


def test_the_oldest_and_the_newest_files_go(disk: Disk, folder: Path) -> None:
    segments = filled(disk, folder, 5)
    held = segments.slice(0, 1)
    segments.remove_first()
    assert (segments.start, segments.end) == (SIZE, 5 * SIZE)
    segments.remove_from(3 * SIZE + 1)
    assert segments.starts == [SIZE, 2 * SIZE, 3 * SIZE]
    segments.remove_from(3 * SIZE)
    assert segments.starts == [SIZE, 2 * SIZE]
    assert sorted(disk.files(folder)) == [segment_name(SIZE), segment_name(2 * SIZE)]
    assert held[0] == 0
    segments.add(3 * SIZE)
    assert segments.slice(3 * SIZE, 1)[0] == 0
    segments.remove_from(0)
    assert len(segments) == 0
    segments.add(7 * SIZE)
    assert segments.starts == [7 * SIZE]


def test_a_copy_takes_the_place_of_a_file(disk: Disk, folder: Path) -> None:
    segments = filled(disk, folder, 2)
    old = segments.file(SIZE)
    new = segments.copy(SIZE)
    assert segments.file(SIZE) is old
    segments.swap(SIZE, new)
    assert segments.file(SIZE) is new
    assert bytes(new.buffer) == b"\1" * SIZE
    new.buffer[0] = 9
    assert old.buffer[0] == 1
    assert disk.read_at(folder / segment_name(SIZE), 0, 2) == b"\x09\1"


# ── Faults ──────────────────────────────────────────────────────────────────────────────────────────────────────────

LOG = Path("/store/log")


def test_a_full_disk_adds_nothing() -> None:
    disk = SimulatedDisk(Random(1), capacity=2 * SIZE)
    segments = filled(disk, LOG, 2)
    with pytest.raises(OSError) as caught:
        segments.add(2 * SIZE)
    assert caught.value.errno == errno.ENOSPC
    assert (segments.end, len(disk.files(LOG))) == (2 * SIZE, 2)
    segments.remove_first()
    segments.add(2 * SIZE)
    assert segments.starts == [SIZE, 2 * SIZE]


def test_only_a_copy_is_safe_after_a_failed_sync() -> None:
    disk = SimulatedDisk(Random(1))
    segments = filled(disk, LOG, 1)
    file = segments.file(0)
    file.buffer[:] = b"x" * SIZE
    disk.fail("sync")
    with pytest.raises(OSError):
        file.sync()
    file.sync()
    assert disk.crash().read(LOG / segment_name(0)) != b"x" * SIZE
    segments.swap(0, segments.copy(0))
    assert disk.crash().read(LOG / segment_name(0)) == b"x" * SIZE


def test_a_crash_anywhere_leaves_segments_that_load() -> None:
    """Adding in the front, removing behind and before: at each moment a range without gaps, each file whole."""

    def run(disk: SimulatedDisk) -> None:
        segments = filled(disk, LOG, 4)
        segments.remove_first()
        segments.remove_from(2 * SIZE)
        segments.add(2 * SIZE)
        segments.swap(SIZE, segments.copy(SIZE))
        segments.remove_first()

    lengths = set()
    for disk in crash_everywhere(run, seed=2, images=4):
        segments = loaded(disk, LOG)
        lengths.add(len(segments))
        assert all(set(segments.slice(start, SIZE)) <= {0, start // SIZE} for start in segments.starts)
    assert lengths == {0, 1, 2, 3, 4}
