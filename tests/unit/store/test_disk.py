"""The disk port: one test set for the real and the simulated disk, then what only the simulated one can do."""

import errno
import math
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from kourou.protocol.bodies import DataVersion, TopicConfigSerializeWrapper
from kourou.store.commit_log import NewMessage
from kourou.store.disk import Disk, File, RealDisk
from kourou.store.errors import StoreInUseError
from kourou.store.metadata import TOPICS
from kourou.store.settings import StoreSettings
from kourou.store.store import Store
from kourou.testing.disk import SimulatedCrash, SimulatedDisk, UnreservedWriteError, crash_everywhere
from kourou.testing.disk_parts import BLOCK, SECTOR

KIB = 1024
ROOT = Path("/store")  # of simulated disks


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk(tmp_path / "aside") if request.param == "real" else SimulatedDisk(Random(1))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def simulated(seed: int = 1, capacity: int | None = None) -> SimulatedDisk:
    return SimulatedDisk(Random(seed), capacity=capacity)


def refused(code: int, call: Callable[[], object]) -> None:
    with pytest.raises(OSError) as caught:
        call()
    assert caught.value.errno == code


# ── The port ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_missing_is_empty_or_an_error(disk: Disk, root: Path) -> None:
    assert disk.folders(root) == []
    assert disk.files(root) == {}
    assert disk.read(root / "none") is None
    disk.remove(root / "none")
    disk.remove_folder(root)
    refused(errno.ENOENT, lambda: disk.open(root / "none"))
    refused(errno.ENOENT, lambda: disk.read_at(root / "none", 0, 1))
    refused(errno.ENOENT, lambda: disk.modified_ms(root / "none"))
    refused(errno.ENOENT, lambda: disk.sync_folder(root))
    refused(errno.ENOENT, lambda: disk.used_ratio(root))


def test_a_new_segment_is_zeroed_and_writable(disk: Disk, root: Path) -> None:
    file = disk.create(root / "log" / "0", 10 * KIB)
    assert file.path == root / "log" / "0"
    assert file.buffer == bytes(10 * KIB)
    assert not file.buffer.readonly
    file.buffer[5:8] = b"abc"
    file.sync()
    file.warm()
    file.close()
    assert disk.folders(root) == ["log"]
    assert disk.files(root / "log") == {"0": 10 * KIB}
    assert disk.read_at(root / "log" / "0", 4, 5) == b"\0abc\0"
    assert disk.read(root / "log" / "0") == b"\0\0\0\0\0abc".ljust(10 * KIB, b"\0")


def test_a_segment_made_lazily(disk: Disk, root: Path) -> None:
    path = root / "orders" / "0" / "00"
    file = disk.create_lazily(path, 10 * KIB)
    assert file.buffer == bytes(10 * KIB)
    file.reserve(0, KIB)
    file.buffer[:3] = b"abc"
    file.sync()
    disk.sync_created(path)
    disk.sync_created(path)
    file.close()
    assert disk.files(path.parent) == {"00": 10 * KIB}
    assert disk.read_at(path, 0, 4) == b"abc\0"
    disk.remove_folder(root)
    disk.sync_created(path)  # it is gone by now, and that is nobody's fault


def test_a_segment_opens_in_its_size_and_shares_what_is_written(disk: Disk, root: Path) -> None:
    first = disk.create(root / "0", 3 * KIB)
    second = disk.open(root / "0")
    first.buffer[0] = 7
    assert second.buffer[0] == 7
    assert len(second.buffer) == 3 * KIB
    readable = disk.open(root / "0", writable=False)
    assert readable.buffer.readonly
    assert readable.buffer[0] == 7


def test_an_empty_file_is_not_mapped(disk: Disk, root: Path) -> None:
    disk.replace(root / "0", b"")
    refused(errno.EINVAL, lambda: disk.open(root / "0"))


def test_create_takes_content_and_the_place_of_another(disk: Disk, root: Path) -> None:
    old = disk.create(root / "0", 8 * KIB)
    old.buffer[:3] = b"old"
    content = bytearray(3 * 1024 * KIB)
    content[2 * 1024 * KIB] = 9
    new = disk.create(root / "0", 4 * 1024 * KIB, reserve=False, content=memoryview(content))
    assert disk.files(root) == {"0": 4 * 1024 * KIB}
    assert new.buffer[2 * 1024 * KIB] == 9
    assert bytes(new.buffer).count(0) == 4 * 1024 * KIB - 1
    assert bytes(old.buffer[:3]) == b"old"
    assert disk.read_at(root / "0", 0, 3) == b"\0\0\0"


def test_room_can_be_reserved_bit_by_bit(disk: Disk, root: Path) -> None:
    file = disk.create(root / "0", 64 * KIB, reserve=False)
    file.reserve(8 * KIB, 4 * KIB)
    file.reserve(8 * KIB, 8 * KIB)
    file.buffer[9 * KIB] = 1
    file.sync()
    assert file.buffer[9 * KIB] == 1
    assert sum(file.buffer) == 1
    assert len(file.buffer) == 64 * KIB


def test_slices_outlive_close_and_removal(disk: Disk, root: Path) -> None:
    file = disk.create(root / "0", 4 * KIB)
    file.buffer[:5] = b"alive"
    piece = file.buffer[:5]
    disk.remove(root / "0")
    disk.sync_folder(root)
    file.close()
    file.close()
    assert bytes(piece) == b"alive"
    assert disk.files(root) == {}


def test_who_holds_a_closed_file_may_sync_it_and_no_more(disk: Disk, root: Path) -> None:
    """A worker may have been handed it a moment before."""
    file = disk.create(root / "0", 4 * KIB)
    file.buffer[:3] = b"abc"
    file.close()
    file.sync()
    refused(errno.EBADF, lambda: file.reserve(0, KIB))
    refused(errno.EBADF, lambda: file.rewrite(0, KIB))
    if isinstance(disk, SimulatedDisk):
        assert disk.crash().read_at(root / "0", 0, 3) == b"abc"


def test_a_removed_file_may_be_synced(disk: Disk, root: Path) -> None:
    file = disk.create(root / "0", 4 * KIB)
    disk.remove(root / "0")
    file.buffer[:3] = b"abc"
    file.sync()


def test_an_open_segment_takes_no_descriptor(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path / "aside")
    before = len(os.listdir("/proc/self/fd"))
    made = [disk.create(tmp_path / str(number), 4 * KIB) for number in range(5)]
    opened = [disk.open(tmp_path / str(number)) for number in range(5)]
    assert len(os.listdir("/proc/self/fd")) == before
    made[3].buffer[:3] = b"abc"
    assert bytes(opened[3].buffer[:3]) == b"abc"


def test_a_mapping_goes_with_its_last_slice(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path / "aside")
    file = disk.create(tmp_path / "0", 8 * KIB)
    piece = file.buffer[KIB : KIB + 3]
    piece[:] = b"abc"
    file.close()
    del file
    maps = Path("/proc/self/maps")
    assert str(tmp_path / "0") in maps.read_text()
    assert bytes(piece) == b"abc"
    del piece
    assert str(tmp_path / "0") not in maps.read_text()


def test_a_touch_of_a_sparse_file_brings_a_page_into_memory_and_no_more(tmp_path: Path) -> None:
    file = RealDisk(tmp_path / "aside").create_lazily(tmp_path / "0", 4096 * KIB)
    file.read_nothing_ahead()
    file.reserve(0, 4 * KIB)
    file.buffer[0] = 1
    with open("/proc/self/smaps") as maps:
        sizes = {
            line.split()[0]: int(line.split()[1])
            for line in maps.read().partition(f"{tmp_path}/0\n")[2].splitlines()[:20]
            if line.endswith(" kB")
        }
    assert sizes["Size:"] == 4096
    assert sizes["Rss:"] <= 64


def test_a_warm_segment_is_in_memory_until_it_cools(tmp_path: Path) -> None:
    def resident_kib() -> dict[str, int]:
        lines = Path("/proc/self/smaps").read_text().split("\n")
        at = next(number for number, line in enumerate(lines) if line.endswith(str(tmp_path / "0")))
        fields = (line.split() for line in lines[at + 1 : at + 25])
        return {words[0]: int(words[1]) for words in fields if words[0] in ("Rss:", "Locked:")}

    file = RealDisk(tmp_path / "aside").create(tmp_path / "0", 64 * KIB)
    assert resident_kib() == {"Rss:": 0, "Locked:": 0}
    file.warm()
    assert resident_kib()["Rss:"] == 64
    file.cool()
    assert resident_kib() == {"Rss:": 64, "Locked:": 0}
    assert file.buffer == bytes(64 * KIB)


def test_what_was_never_written_is_no_data(disk: Disk, root: Path) -> None:
    file = disk.create(root / "0", 64 * KIB, reserve=False)
    assert disk.data(root / "0", 0, 64 * KIB) == (64 * KIB, 64 * KIB)
    file.reserve(20 * KIB, 2 * KIB)
    file.buffer[20 * KIB] = 1
    file.sync()
    start, end = disk.data(root / "0", 0, 64 * KIB)
    assert start <= 20 * KIB < end <= 64 * KIB
    assert disk.data(root / "0", 0, 10) in ((10, 10), (0, 10))  # a file system may know, or not
    refused(errno.ENOENT, lambda: disk.data(root / "none", 0, 10))


def test_truncate_cuts_and_extends_with_zeros(disk: Disk, root: Path) -> None:
    disk.replace(root / "0", b"abcdef")
    disk.truncate(root / "0", 3)
    assert disk.read(root / "0") == b"abc"
    disk.truncate(root / "0", 5)
    assert disk.read(root / "0") == b"abc\0\0"


def test_replace_keeps_a_backup_when_asked(disk: Disk, root: Path) -> None:
    path = root / "config" / "topics.json"
    disk.replace(path, b"1", backup=True)
    assert disk.files(root / "config") == {"topics.json": 1}
    disk.replace(path, b"22", backup=True)
    assert disk.read(path) == b"22"
    assert disk.read(root / "config" / "topics.json.bak") == b"1"
    disk.replace(path, b"333")
    assert disk.read(path) == b"333"
    assert disk.read(root / "config" / "topics.json.bak") == b"1"
    disk.replace(path, b"4444", backup=True)
    assert disk.read(root / "config" / "topics.json.bak") == b"333"


def test_remove_folder_takes_all_that_is_in_it(disk: Disk, root: Path) -> None:
    disk.replace(root / "a" / "b" / "1", b"1")
    disk.replace(root / "a" / "2", b"2")
    disk.replace(root / "c" / "3", b"3")
    disk.remove_folder(root / "a")
    assert disk.folders(root) == ["c"]
    assert disk.files(root / "a") == {}
    assert disk.files(root / "c") == {"3": 1}


def test_an_emptied_folder_stays(disk: Disk, root: Path) -> None:
    disk.replace(root / "a" / "1", b"1")
    disk.remove(root / "a" / "1")
    assert disk.folders(root) == ["a"]


def test_times_and_ratios(disk: Disk, root: Path) -> None:
    disk.replace(root / "a", b"1")
    assert disk.modified_ms(root / "a") > 1_600_000_000_000
    assert 0.0 <= disk.used_ratio(root) <= 1.0


def test_a_lock_is_held_by_one(disk: Disk, root: Path) -> None:
    lock = disk.lock(root / "lock")
    assert disk.files(root) == {"lock": 4}
    with pytest.raises(StoreInUseError, match="already open"):
        disk.lock(root / "lock")
    lock.release()
    lock.release()
    disk.lock(root / "lock").release()


def test_syncs_may_run_in_another_thread(disk: Disk, root: Path) -> None:
    file = disk.create(root / "0", 64 * KIB)
    syncs = [threading.Thread(target=file.sync) for _ in range(4)]
    for number, thread in enumerate(syncs):
        file.buffer[number * KIB] = number + 1
        thread.start()
    for thread in syncs:
        thread.join()
    assert [file.buffer[number * KIB] for number in range(4)] == [1, 2, 3, 4]


# ── The real disk alone ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_real_disk_leaves_nothing_aside(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path / "aside")
    disk.replace(tmp_path / "a", b"1")
    os.link(tmp_path / "a", tmp_path / "a.bak")  # as a crash leaves it between the backup and the new content
    disk.replace(tmp_path / "a", b"2", backup=True)
    disk.create(tmp_path / "0", 4 * KIB).close()
    assert (tmp_path / "a.bak").read_bytes() == b"1"
    assert list((tmp_path / "aside").iterdir()) == []


def test_a_file_that_does_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path / "aside")
    with pytest.raises(OSError):
        disk.create(tmp_path / "0", 2**62)
    assert list(tmp_path.rglob("*")) == [tmp_path / "aside"]


def test_a_file_on_another_file_system_is_made_there(tmp_path: Path) -> None:
    others = [Path(path) for path in ("/dev/shm", tempfile.gettempdir()) if os.access(path, os.W_OK)]
    other = next((path for path in others if path.stat().st_dev != tmp_path.stat().st_dev), None)
    if other is None:
        pytest.skip("no second file system")
    folder = other / f"kourou-test-{os.getpid()}"
    (folder / "aside").mkdir(parents=True)
    (folder / "aside" / "left by a crash").touch()
    disk = RealDisk(tmp_path / "aside")
    try:
        disk.create(folder / "0", 4 * KIB).close()
        disk.replace(folder / "a", b"1")
        disk.replace(folder / "a", b"2", backup=True)
        assert disk.files(folder) == {"0": 4 * KIB, "a": 1, "a.bak": 1}
        assert disk.files(folder / "aside") == {}
    finally:
        disk.remove_folder(folder)


def test_new_folders_are_synced_with_their_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    RealDisk(tmp_path / "aside").replace(tmp_path / "x" / "y" / "a", b"1")
    assert [path for path in synced if path.parent != tmp_path / "aside"] == [
        tmp_path,
        tmp_path / "x",
        tmp_path / "x" / "y",
    ]


def test_a_lazy_segment_waits_for_no_sync_until_its_name_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    disk = RealDisk(tmp_path / "aside")
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}"))))
    one, other = tmp_path / "orders" / "0" / "00", tmp_path / "orders" / "1" / "00"
    for path in (one, other):
        disk.create_lazily(path, KIB).close()
    assert not synced
    disk.sync_created(one)
    assert synced == [one.parent, one.parent.parent, tmp_path]
    synced.clear()
    disk.sync_created(other)
    assert synced == [other.parent, other.parent.parent]


def test_a_lock_keeps_out_other_processes(tmp_path: Path) -> None:
    """POSIX record locks on the first byte, which Java's FileChannel.lock takes as well."""
    lock = RealDisk(tmp_path / "aside").lock(tmp_path / "lock")
    assert _locks_in_another_process(tmp_path) == "StoreInUseError"
    lock.release()
    assert _locks_in_another_process(tmp_path) == "locked"


def _locks_in_another_process(folder: Path) -> str:
    program = (
        "import sys; from pathlib import Path; from kourou.store.disk import RealDisk; folder = Path(sys.argv[1])\n"
        "try: RealDisk(folder / 'aside').lock(folder / 'lock'); print('locked')\n"
        "except Exception as error: print(type(error).__name__)"
    )
    return subprocess.run([sys.executable, "-c", program, folder], capture_output=True, text=True).stdout.strip()


# ── What a power cut leaves ─────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_synced_survives_and_what_is_not_may_not() -> None:
    disk = simulated()
    file = disk.create(ROOT / "0", 8 * SECTOR)
    file.buffer[:] = b"a" * 8 * SECTOR
    file.sync()
    file.buffer[2 * SECTOR : 3 * SECTOR] = b"b" * SECTOR
    found = {content(image) for image in disk.crash_images(200)}
    assert all(image[: 2 * SECTOR] + image[3 * SECTOR :] == b"a" * 7 * SECTOR for image in found)
    sectors = {image[2 * SECTOR : 3 * SECTOR] for image in found}
    assert {b"a" * SECTOR, b"b" * SECTOR} < sectors
    torn = [sector for sector in sectors if len(set(sector)) == 2]
    assert torn
    assert all(not sector.lstrip(sector[:1]).rstrip(sector[-1:]) for sector in torn)  # torn once, in one place


def test_a_lazy_segment_is_safe_once_it_and_its_name_are_synced() -> None:
    sizes = set()
    for seed in range(40):
        disk = simulated(seed)
        disk.create_lazily(ROOT / "q" / "0", KIB)
        sizes.add(disk.crash().files(ROOT / "q").get("0"))
    assert sizes == {None, 0, KIB}
    for seed in range(40):
        disk = simulated(seed)
        disk.create_lazily(ROOT / "q" / "0", KIB).sync()
        disk.sync_created(ROOT / "q" / "0")
        assert disk.crash().files(ROOT / "q") == {"0": KIB}


def test_sectors_are_lost_independently() -> None:
    disk = simulated()
    file = disk.create(ROOT / "0", 3 * SECTOR)
    file.buffer[:] = b"b" * 3 * SECTOR
    found = {tuple(image[at] for at in (10, SECTOR, 2 * SECTOR)) for image in map(content, disk.crash_images(300))}
    assert len({tuple(bool(byte) for byte in bytes_) for bytes_ in found}) == 8


def test_the_disk_goes_on_after_images() -> None:
    disk = simulated()
    file = disk.create(ROOT / "0", SECTOR)
    file.buffer[0] = 1
    list(disk.crash_images(5))
    file.sync()
    assert content(disk.crash())[0] == 1


def test_the_last_part_of_a_sector_counts() -> None:
    disk = simulated()
    file = disk.create(ROOT / "0", SECTOR + 1)
    file.buffer[SECTOR] = 1
    assert {content(image)[SECTOR] for image in disk.crash_images(50)} == {0, 1}
    file.sync()
    assert {content(image)[SECTOR] for image in disk.crash_images(50)} == {1}


def test_a_killed_process_leaves_the_page_cache() -> None:
    disk = simulated()
    file = disk.create(ROOT / "0", 4 * SECTOR)
    file.buffer[:] = b"c" * 4 * SECTOR
    disk.lock(ROOT / "lock")
    after = disk.kill()
    file.buffer[0] = 0
    assert content(after) == b"c" * 4 * SECTOR
    after.lock(ROOT / "lock")
    assert len({content(image) for image in after.crash_images(30)}) > 1  # and a power cut later still may lose it


def test_the_system_writes_back_when_it_likes() -> None:
    disk = simulated()
    file = disk.create(ROOT / "0", 64 * SECTOR)
    file.buffer[:] = b"a" * 64 * SECTOR
    disk.write_back()
    file.buffer[:] = b"b" * 64 * SECTOR
    seen = {image[at] for image in map(content, disk.crash_images(20)) for at in range(0, 64 * SECTOR, SECTOR)}
    assert seen == {0, ord("a"), ord("b")}


def test_names_survive_as_the_port_promises() -> None:
    disk = simulated()
    disk.create(ROOT / "made", KIB)
    disk.replace(ROOT / "replaced", b"old")
    disk.replace(ROOT / "replaced", b"new", backup=True)
    disk.replace(ROOT / "gone" / "x", b"1")
    disk.remove(ROOT / "gone" / "x")
    disk.replace(ROOT / "safely-gone" / "x", b"1")
    disk.remove(ROOT / "safely-gone" / "x")
    disk.sync_folder(ROOT / "safely-gone")
    images = list(disk.crash_images(40))
    assert all(image.files(ROOT) == {"made": KIB, "replaced": 3, "replaced.bak": 3} for image in images)
    assert all(image.read(ROOT / "replaced") == b"new" for image in images)
    assert all(image.files(ROOT / "safely-gone") == {} for image in images)
    assert [len(image.files(ROOT / "gone")) for image in images].count(1) in range(1, 40)
    assert all(image.folders(ROOT) == ["gone", "safely-gone"] for image in images)


def test_a_removed_folder_stays_removed() -> None:
    disk = simulated()
    disk.replace(ROOT / "a" / "b" / "1", b"1")
    disk.remove_folder(ROOT / "a")
    assert all(image.folders(ROOT) == [] for image in disk.crash_images(10))


def test_a_seed_gives_the_same_disk() -> None:
    def run(seed: int) -> bytes:
        disk = simulated(seed)
        disk.create(ROOT / "0", 64 * SECTOR).buffer[:] = bytes(range(256)) * 128
        return content(disk.crash())

    assert run(5) == run(5)
    assert len({run(seed) for seed in range(20)}) > 5


# ── Crashes at calls ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_crash_comes_before_or_after_the_effect_of_a_call() -> None:
    for after, expected in ((False, None), (True, b"1")):
        disk = simulated()
        disk.crash_at, disk.crash_after = 2, after
        disk.replace(ROOT / "first", b"1")
        with pytest.raises(SimulatedCrash, match=r"call 2: .* replace .*second"):
            disk.replace(ROOT / "second", b"1")
        image = disk.crash()
        assert image.read(ROOT / "first") == b"1"
        assert image.read(ROOT / "second") == expected
        assert (image.calls, image.crash_at) == (0, None)


def test_nothing_reaches_a_disk_after_its_crash() -> None:
    disk = simulated()
    file = disk.create(ROOT / "0", SECTOR)
    lock = disk.lock(ROOT / "lock")
    disk.crash_at = 2
    try:
        file.sync()
    except SimulatedCrash:
        file.buffer[0] = 1  # as a `finally` might
        for late in (
            file.sync,
            lambda: disk.read(ROOT / "0"),
            lambda: disk.remove(ROOT / "0"),
            lambda: disk.files(ROOT),
        ):
            with pytest.raises(SimulatedCrash):
                late()
        lock.release()
    assert all(content(image)[0] == 0 for image in disk.crash_images(30))


def test_no_handler_of_ordinary_errors_survives_a_crash() -> None:
    disk = simulated()
    disk.crash_at = 1
    with pytest.raises(SimulatedCrash), suppress(Exception):
        disk.replace(ROOT / "a", b"1")


def test_a_crash_may_follow_a_failed_call() -> None:
    disk = simulated()
    disk.crash_at, disk.crash_after = 1, True
    disk.fail("replace")
    with pytest.raises(SimulatedCrash, match="failed"):
        disk.replace(ROOT / "a", b"1")


def test_every_boundary_of_a_run_is_crashed_at() -> None:
    """A run of one file that is replaced with a backup: the images are its states, in order, and no others."""

    def run(disk: SimulatedDisk) -> None:
        disk.replace(ROOT / "a", b"1", backup=True)
        disk.replace(ROOT / "a", b"2", backup=True)
        disk.remove(ROOT / "a.bak")
        disk.sync_folder(ROOT)

    states = [(disk.read(ROOT / "a"), disk.read(ROOT / "a.bak")) for disk in crash_everywhere(run, 1, images=8)]
    boundaries = [set(states[at : at + 8]) for at in range(0, len(states), 8)]
    nothing, first, between = (None, None), (b"1", None), (b"1", b"1")
    both, last = (b"2", b"1"), (b"2", None)
    assert boundaries == [
        {nothing},
        {first},
        {first},  # before the backup
        {first, between},
        {first, between},  # before the new content; the name of the backup is not safe yet
        {both},
        {both},
        {both, last},
        {both, last},
        {last},
    ]


def test_a_run_that_is_not_the_same_each_time_is_refused() -> None:
    runs: list[int] = []

    def run(disk: SimulatedDisk) -> None:
        runs.append(1)
        for _ in range(3 if len(runs) == 1 else 1):
            disk.replace(ROOT / "a", b"1")

    with pytest.raises(AssertionError, match="not the same"):
        list(crash_everywhere(run, 1))


# ── Failing calls ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_nth_call_fails_and_changes_nothing() -> None:
    disk = simulated()
    disk.fail("replace", errno.EDQUOT, after=1)
    disk.replace(ROOT / "a", b"1")
    refused(errno.EDQUOT, lambda: disk.replace(ROOT / "a", b"2"))
    assert disk.read(ROOT / "a") == b"1"
    disk.replace(ROOT / "a", b"3")


@pytest.mark.parametrize(
    "call", ["create", "reserve", "truncate", "replace", "remove", "sync_folder", "open", "read", "list"]
)
def test_each_call_can_fail(call: str) -> None:
    disk = simulated()
    disk.replace(ROOT / "small", b"1")
    file = disk.create(ROOT / "0", BLOCK, reserve=False)
    calls: dict[str, Callable[[], object]] = {
        "create": lambda: disk.create(ROOT / "1", BLOCK),
        "reserve": lambda: file.reserve(0, BLOCK),
        "truncate": lambda: disk.truncate(ROOT / "small", 0),
        "replace": lambda: disk.replace(ROOT / "small", b"2"),
        "remove": lambda: disk.remove(ROOT / "small"),
        "sync_folder": lambda: disk.sync_folder(ROOT),
        "open": lambda: disk.open(ROOT / "0"),
        "read": lambda: disk.read(ROOT / "small"),
        "list": lambda: disk.files(ROOT),
    }
    disk.fail(call, times=math.inf)  # type: ignore[arg-type]
    used = disk.used_bytes
    for _ in range(2):
        refused(errno.EIO, calls[call])
    disk.heal()
    assert disk.files(ROOT) == {"small": 1, "0": BLOCK}
    assert disk.read(ROOT / "small") == b"1"
    assert disk.used_bytes == used
    calls[call]()


def test_a_failure_can_be_that_of_one_file() -> None:
    disk = simulated()
    disk.fail("replace", where="*/b")
    disk.replace(ROOT / "a", b"1")
    refused(errno.EIO, lambda: disk.replace(ROOT / "b", b"1"))


def test_a_late_failure_is_seen_and_not_safe() -> None:
    disk = simulated()
    disk.replace(ROOT / "a", b"old")
    disk.fail("replace", late=True)
    refused(errno.EIO, lambda: disk.replace(ROOT / "a", b"new"))
    assert disk.read(ROOT / "a") == b"new"
    assert {image.read(ROOT / "a") for image in disk.crash_images(30)} == {b"old", b"new"}
    disk.sync_folder(ROOT)
    assert {image.read(ROOT / "a") for image in disk.crash_images(30)} == {b"new"}


def test_chance_lets_calls_fail() -> None:
    disk = simulated()
    disk.fail_randomly({"replace": 0.5})
    failed = 0
    for _ in range(100):
        try:
            disk.replace(ROOT / "a", b"1")
        except OSError:
            failed += 1
    assert 20 < failed < 80
    disk.heal()
    disk.replace(ROOT / "a", b"1")


def test_a_failed_sync_takes_pages_for_clean_that_never_arrived() -> None:
    """As on Linux: the next sync succeeds, and the data is lost all the same."""
    disk = simulated()
    file = disk.create(ROOT / "0", 64 * SECTOR)
    file.buffer[:] = b"x" * 64 * SECTOR
    disk.fail("sync")
    refused(errno.EIO, file.sync)
    file.sync()
    assert file.buffer == b"x" * 64 * SECTOR
    survived = content(disk.crash())
    assert 0 < survived.count(b"x") < 64 * SECTOR
    assert {content(image) for image in disk.crash_images(10)} == {survived}  # no luck is left to be had
    assert content(disk.kill().crash()) == survived


def test_after_a_failed_sync_only_new_bytes_are_written() -> None:
    disk = simulated()
    file = disk.create(ROOT / "0", 64 * SECTOR)
    file.buffer[: 32 * SECTOR] = b"x" * 32 * SECTOR
    disk.fail("sync")
    refused(errno.EIO, file.sync)
    file.buffer[32 * SECTOR :] = b"y" * 32 * SECTOR
    file.sync()
    survived = content(disk.crash())
    assert survived[32 * SECTOR :] == b"y" * 32 * SECTOR
    assert survived[: 32 * SECTOR] != b"x" * 32 * SECTOR


def test_evicted_pages_are_read_as_they_arrived() -> None:
    disk = simulated()
    file = disk.create(ROOT / "0", 64 * SECTOR)
    file.buffer[: 32 * SECTOR] = b"x" * 32 * SECTOR
    disk.fail("sync")
    refused(errno.EIO, file.sync)
    file.buffer[32 * SECTOR :] = b"y" * 32 * SECTOR
    disk.evict()
    assert 0 < bytes(file.buffer).count(b"x") < 32 * SECTOR
    assert file.buffer[32 * SECTOR :] == b"y" * 32 * SECTOR  # dirty pages stay


def test_a_copy_in_a_new_file_survives_a_failed_sync() -> None:
    disk = simulated()
    file = disk.create(ROOT / "0", 64 * SECTOR)
    file.buffer[:] = b"x" * 64 * SECTOR
    disk.fail("sync")
    refused(errno.EIO, file.sync)
    disk.create(ROOT / "0", 64 * SECTOR, content=file.buffer)
    assert content(disk.crash()) == b"x" * 64 * SECTOR


def test_a_read_only_disk_reads() -> None:
    disk = simulated()
    file = disk.create(ROOT / "0", SECTOR)
    clean = disk.create(ROOT / "1", SECTOR)
    file.buffer[0] = 1
    disk.read_only = True
    for call in (
        file.sync,
        lambda: file.reserve(0, 1),
        lambda: disk.replace(ROOT / "a", b"1"),
        lambda: disk.remove(ROOT / "0"),
        lambda: disk.create(ROOT / "2", SECTOR),
        lambda: disk.open(ROOT / "0"),
        lambda: disk.lock(ROOT / "lock"),
    ):
        refused(errno.EROFS, call)
    clean.sync()
    disk.sync_folder(ROOT)
    assert disk.open(ROOT / "0", writable=False).buffer[0] == 1
    assert disk.files(ROOT) == {"0": SECTOR, "1": SECTOR}
    disk.heal()
    disk.replace(ROOT / "a", b"1")


# ── Room ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_full_disk_refuses_until_something_is_removed() -> None:
    disk = simulated(capacity=10 * BLOCK)
    first = disk.create(ROOT / "0", 8 * BLOCK)
    refused(errno.ENOSPC, lambda: disk.create(ROOT / "1", 3 * BLOCK))
    disk.create(ROOT / "1", BLOCK + 1).close()
    assert disk.used_ratio(ROOT) == 1.0
    refused(errno.ENOSPC, lambda: disk.replace(ROOT / "a", b"1"))
    disk.replace(ROOT / "empty", b"")
    assert disk.files(ROOT) == {"0": 8 * BLOCK, "1": BLOCK + 1, "empty": 0}
    disk.remove(ROOT / "0")
    disk.sync_folder(ROOT)
    refused(errno.ENOSPC, lambda: disk.replace(ROOT / "a", b"1"))  # it is still open
    first.close()
    disk.replace(ROOT / "a", b"1")
    assert disk.used_bytes == 3 * BLOCK


def test_a_replacement_needs_room_beside_the_old_content() -> None:
    disk = simulated()
    disk.replace(ROOT / "a", b"1")
    disk.full_after(0)
    refused(errno.ENOSPC, lambda: disk.replace(ROOT / "a", b"2", backup=True))
    assert disk.files(ROOT) == {"a": 1}
    assert disk.read(ROOT / "a") == b"1"
    disk.full_after(BLOCK)
    disk.replace(ROOT / "a", b"2")
    disk.replace(ROOT / "a", b"3")


def test_a_sparse_file_takes_room_when_it_is_reserved() -> None:
    disk = simulated()
    file = disk.create(ROOT / "0", 10 * BLOCK, reserve=False)
    assert disk.used_bytes == 0
    disk.full_after(2 * BLOCK)
    file.reserve(BLOCK - 1, 2)
    file.reserve(0, 2 * BLOCK)
    refused(errno.ENOSPC, lambda: file.reserve(2 * BLOCK, 1))
    file.buffer[: 2 * BLOCK] = b"x" * 2 * BLOCK
    file.sync()


def test_a_write_without_room_is_found() -> None:
    disk = simulated()
    file = disk.create(ROOT / "0", 10 * BLOCK, reserve=False)
    file.reserve(0, BLOCK)
    file.buffer[BLOCK] = 1
    with pytest.raises(UnreservedWriteError, match="written at 4096"):
        file.sync()
    with pytest.raises(UnreservedWriteError):
        disk.crash()
    disk.forgiving = True
    file.sync()
    assert disk.used_bytes == 2 * BLOCK
    disk.full_after(0)
    file.buffer[3 * BLOCK] = 1
    with pytest.raises(UnreservedWriteError):  # now it would have ended the process
        file.sync()


def test_room_that_was_not_synced_may_be_gone_after_a_crash() -> None:
    disk = simulated()
    file = disk.create(ROOT / "0", 10 * BLOCK, reserve=False)
    file.reserve(0, 2 * BLOCK)
    assert {image.used_bytes for image in disk.crash_images(30)} == {0, 2 * BLOCK}
    file.sync()
    assert {image.used_bytes for image in disk.crash_images(30)} == {2 * BLOCK}


def test_a_file_of_another_broker_may_be_sparse() -> None:
    disk = simulated()
    disk.install(ROOT / "0", b"data".ljust(4 * BLOCK, b"\0"), reserved=False)
    assert disk.used_bytes == BLOCK
    file = disk.open(ROOT / "0")
    file.buffer[4] = 1
    file.sync()
    file.buffer[BLOCK] = 1
    with pytest.raises(UnreservedWriteError):
        file.sync()


# ── Rot ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_bits_rot_files_shrink_and_vanish() -> None:
    disk = simulated()
    file = disk.create(ROOT / "0", 4 * SECTOR)
    disk.flip(ROOT / "0", 5, 3)
    assert file.buffer[5] == 8
    at = disk.flip(ROOT / "0")
    assert bin(int.from_bytes(content(disk.crash()))).count("1") == (2 if at != 5 else file.buffer[5].bit_count())
    with pytest.raises(AssertionError, match="is open"):
        disk.cut(ROOT / "0", 3)
    file.close()
    disk.cut(ROOT / "0", 3)
    assert disk.files(ROOT) == {"0": 3}
    disk.lose(ROOT / "0")
    assert disk.files(ROOT) == {}
    assert all(image.files(ROOT) == {} for image in disk.crash_images(10))


def test_time_is_what_the_test_says() -> None:
    disk = simulated()
    file = disk.create(ROOT / "0", SECTOR)
    disk.now_ms += 1_000
    file.sync()
    assert disk.modified_ms(ROOT / "0") == disk.now_ms - 1_000
    file.buffer[0] = 1
    file.sync()
    assert disk.modified_ms(ROOT / "0") == disk.now_ms
    assert disk.crash().modified_ms(ROOT / "0") == disk.now_ms


def test_the_last_calls_are_remembered() -> None:
    disk = simulated()
    file = disk.create(ROOT / "0", SECTOR)
    file.sync()
    assert list(disk.history) == [("create", ROOT / "0"), ("sync", ROOT / "0")]
    assert disk.calls == 2


def content(disk: SimulatedDisk) -> bytes:
    found = disk.read(ROOT / "0")
    assert found is not None
    return found


def _typed(disk: SimulatedDisk) -> tuple[Disk, Iterator[Disk], File]:
    """mypy holds the twin to the port here."""
    return disk, disk.crash_images(1), disk.open(ROOT / "0")


# ── Permissions of files ────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root.parent)): path.stat().st_mode & 0o777 for path in (root, *root.rglob("*"))}


def test_only_the_owner_may_read_a_store(tmp_path: Path) -> None:
    """With everything in it: log, queues, index, tables and their backups, small files, and what is aside."""
    root = tmp_path / "parent" / "store"
    settings = StoreSettings(commit_log_file_size=8192, queue_file_entries=10, index_slots=8, index_entries=32)
    with umask(0o022):
        host = bytes([127, 0, 0, 1, 0, 0, 42, 159])
        store = Store.open(root, settings, store_host=host, now_ms=1, file_time="{:017}".format)
        for number in range(60):
            store.append([NewMessage("orders", 0, bytes(300), b"KEYS\1k\2", 1, host)], 1)
            store.dispatch()
            table = store.metadata(TOPICS)
            table.load()
            table.save(TopicConfigSerializeWrapper(data_version=DataVersion(counter=number)))
        store.flush(1)
        running = modes(root)
        store.close(1)
    found = {**running, **modes(root)}
    folders = {name for name in found if (root.parent / name).is_dir()}
    assert {"store/config/topics.json.bak", "store/checkpoint", "store/lock", "store/kourou-clean.json"} < found.keys()
    assert len(found) - len(folders) > 15
    assert {found[name] for name in folders} == {0o700}
    assert {found[name] for name in found.keys() - folders} == {0o600}
    assert root.parent.stat().st_mode & 0o777 == 0o700


def test_a_stricter_umask_counts(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path / "aside")
    with umask(0o277):
        disk.create(tmp_path / "file", 4096).close()
        disk.replace(tmp_path / "small", b"content")
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("file", "small")] == [0o400, 0o400]
