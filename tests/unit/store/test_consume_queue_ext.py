"""The extension of consume queues, on the real and on the simulated disk, and against what Java writes."""

import json
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kourou.store.consume_queue_ext import (
    ADDRESS_MAX,
    UNIT_SIZE_MAX,
    UNIT_SIZE_MIN,
    ConsumeQueueExt,
    Unit,
    is_address,
)
from kourou.store.disk import Disk, RealDisk
from kourou.store.errors import DiskFullError
from kourou.testing.disk import SimulatedDisk
from kourou.testing.disk_parts import BLOCK

RECORDING = Path(__file__).parents[2] / "data" / "java-queue-files-5.5.0.json"
FOLDER = Path("/store/consumequeue_ext/orders/3")
FILE_SIZE = 1000
BASE = -(2**63)
UNIT = Unit(7, 1_700_000_000_000, bytes(range(8)))  # of 28 bytes: 35 fit into a file
TAGS = 12345


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk(tmp_path / "aside") if request.param == "real" else SimulatedDisk(Random(1))


@pytest.fixture
def folder(disk: Disk, tmp_path: Path) -> Path:
    return tmp_path / "ext" if isinstance(disk, RealDisk) else FOLDER


def make(disk: Disk, folder: Path, newest: int = TAGS, file_size: int = FILE_SIZE) -> ConsumeQueueExt:
    ext = ConsumeQueueExt(disk, folder, file_size)
    ext.open(newest)
    return ext


def append(ext: ConsumeQueueExt, count: int) -> list[int]:
    """Units whose tags are their number from here on."""
    addresses = [ext.append(Unit(n, UNIT.stored_ms + n, UNIT.bit_map)) for n in range(count)]
    assert all(address is not None for address in addresses)
    return [address for address in addresses if address is not None]


@pytest.mark.parametrize(
    ("code", "expected"),
    [(0, False), (-1, False), (-(2**31), False), (ADDRESS_MAX, True), (BASE, True), (2**63 - 1, False)],
)
def test_addresses_are_far_below_any_hash(code: int, expected: bool) -> None:
    assert is_address(code) is expected


def test_a_unit_has_an_address(disk: Disk, folder: Path) -> None:
    ext = make(disk, folder)
    assert ext.append(UNIT) == BASE
    assert ext.append(Unit(-1, 5, b"")) == BASE + 28
    assert ext.read(BASE) == UNIT
    assert ext.read(BASE + 28) == Unit(-1, 5, b"")
    raw = disk.read_at(folder / f"{0:020}", 0, 100)
    expected = struct.pack(">hqqh", 28, 7, UNIT.stored_ms, 8) + UNIT.bit_map + struct.pack(">hqqh", 20, -1, 5, 0)
    assert raw == expected.ljust(100, b"\0")


@pytest.mark.parametrize("address", [TAGS, 0, -1, BASE + 1, BASE + 28, BASE + 999, BASE + 1000, ADDRESS_MAX])
def test_an_address_that_leads_nowhere(disk: Disk, folder: Path, address: int) -> None:
    ext = make(disk, folder)
    ext.append(UNIT)
    assert ext.read(address) is None


def test_a_unit_goes_into_one_file(disk: Disk, folder: Path) -> None:
    ext = make(disk, folder)
    addresses = append(ext, 80)
    # 35 units take 980 bytes; the next one would leave no four bytes.
    assert addresses[34] - BASE == 34 * 28
    assert addresses[35] - BASE == FILE_SIZE
    assert addresses[70] - BASE == 2 * FILE_SIZE
    assert [unit.tags_code for address in addresses if (unit := ext.read(address))] == list(range(80))
    assert disk.read_at(folder / f"{0:020}", 980, 20) == b"\xff\xff".ljust(20, b"\0")


def test_the_last_four_bytes_stay_free(disk: Disk, folder: Path) -> None:
    ext = make(disk, folder)
    assert ext.append(Unit(1, 2, bytes(FILE_SIZE - 4 - UNIT_SIZE_MIN))) == BASE
    assert ext.append(Unit(1, 2, bytes(FILE_SIZE - 3 - UNIT_SIZE_MIN))) is None
    assert ext.append(UNIT) == BASE + FILE_SIZE


def test_a_unit_that_is_too_large(disk: Disk, folder: Path) -> None:
    ext = make(disk, folder, file_size=100_000)
    assert ext.append(Unit(1, 2, bytes(UNIT_SIZE_MAX - UNIT_SIZE_MIN))) == BASE
    assert ext.append(Unit(1, 2, bytes(UNIT_SIZE_MAX - UNIT_SIZE_MIN + 1))) is None
    assert ext.end == UNIT_SIZE_MAX


def test_the_bytes_of_java(tmp_path: Path) -> None:
    recording: dict[str, Any] = json.loads(RECORDING.read_text())
    ext = make(RealDisk(tmp_path / "aside"), tmp_path / "ext", file_size=recording["sizes"][1])
    answers = [
        str(ext.append(Unit(tags_code, stored_ms, bytes.fromhex(bit_map))))
        for command, tags_code, stored_ms, bit_map in (line for line in recording["script"] if line[0] == "ext")
    ]
    assert answers == recording["answers"]
    expected = {Path(name).name: raw for name, raw in recording["files"].items() if "consumequeue_ext" in name}
    assert len(expected) == 4
    assert {path.name: path.read_bytes().hex() for path in (tmp_path / "ext").iterdir()} == expected


# ── Opening and cutting ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [0, 1, 34, 35, 36, 70, 80])
def test_it_goes_on_behind_the_newest_unit(disk: Disk, folder: Path, count: int) -> None:
    ext = make(disk, folder)
    addresses = append(ext, count)
    ext.close()
    newest = addresses[-1] if addresses else TAGS
    again = make(disk, folder, newest)
    assert again.end == ext.end
    assert make(disk, folder, TAGS).end == ext.end, "without an address it is found by looking at the last file"
    addresses += append(again, 1)
    assert [unit.tags_code for address in addresses if (unit := again.read(address))] == [*range(count), 0]


@pytest.mark.parametrize("keep", [1, 20, 35, 36, 79])
def test_units_behind_the_newest_go(disk: Disk, folder: Path, keep: int) -> None:
    ext = make(disk, folder)
    addresses = append(ext, 80)
    ext.truncate(addresses[keep - 1])
    assert ext.end == addresses[keep - 1] - BASE + 28
    assert [address for address in addresses if ext.read(address) is None] == addresses[keep:]
    assert ext.append(UNIT) is not None
    assert ext.read(addresses[keep - 1]) is not None
    # The same by opening.
    ext.close()
    assert make(disk, folder, addresses[keep - 1]).end == addresses[keep - 1] - BASE + 28


def test_cutting_where_nothing_is_changes_nothing(disk: Disk, folder: Path) -> None:
    ext = make(disk, folder)
    addresses = append(ext, 80)
    ext.truncate(TAGS)
    ext.truncate(BASE + 10**6)
    assert ext.read(addresses[79]) is not None


@pytest.mark.parametrize(("lost", "goes_on_at"), [(79, 3000), (10, 3000)])
def test_an_address_is_not_given_out_twice(disk: Disk, folder: Path, lost: int, goes_on_at: int) -> None:
    """The queue knows of a unit that is not there any more."""
    ext = make(disk, folder)
    addresses = append(ext, 80)
    ext.close()
    offset = addresses[lost] - BASE
    file = disk.open(folder / f"{offset - offset % FILE_SIZE:020}")
    file.buffer[offset % FILE_SIZE : offset % FILE_SIZE + 2] = b"\0\0"
    file.sync()
    file.close()
    ext = make(disk, folder, addresses[lost])
    assert ext.append(UNIT) == BASE + goes_on_at
    assert ext.read(addresses[lost]) is None
    assert ext.read(addresses[9]) is not None


def test_all_files_are_lost(disk: Disk, folder: Path) -> None:
    ext = make(disk, folder, BASE + 5500)
    assert ext.append(UNIT) == BASE + 6000
    ext.close()
    assert make(disk, folder, BASE + 6000).read(BASE + 6000) == UNIT


def test_the_last_files_are_lost(disk: Disk, folder: Path) -> None:
    ext = make(disk, folder)
    append(ext, 80)
    ext.close()
    ext = make(disk, folder, BASE + 5500)
    assert ext.append(UNIT) == BASE + 6000
    assert list(disk.files(folder)) == [f"{6000:020}"]


@pytest.mark.parametrize(
    ("oldest", "left"), [(TAGS, 3), (BASE, 3), (BASE + 999, 3), (BASE + 1000, 2), (BASE + 2500, 1)]
)
def test_files_of_older_addresses_go(disk: Disk, folder: Path, oldest: int, left: int) -> None:
    ext = make(disk, folder)
    addresses = append(ext, 80)
    assert ext.expire(oldest) == 3 - left
    assert len(disk.files(folder)) == left
    assert ext.read(addresses[79]) is not None
    ext.close()
    assert make(disk, folder, addresses[79]).end == ext.end


# ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_files_to_sync(disk: Disk, folder: Path) -> None:
    ext = make(disk, folder)
    assert ext.dirty_files() == []
    append(ext, 10)
    assert [file.path for file in ext.dirty_files()] == [folder / f"{0:020}"]
    assert ext.dirty_files() == []
    append(ext, 30)
    assert [file.path for file in ext.dirty_files()] == [folder / f"{0:020}", folder / f"{1000:020}"]


def test_it_is_unmapped_when_it_is_synced(disk: Disk, folder: Path) -> None:
    ext = make(disk, folder)
    addresses = append(ext, 10)
    ext.release()
    (file,) = ext.dirty_files()
    file.sync()
    ext.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.reserve(0, 1)
    assert ext.read(addresses[9]) is not None
    assert append(ext, 1) == [BASE + 280]


def test_what_was_synced_survives_any_crash() -> None:
    disk = SimulatedDisk(Random(2))
    ext = make(disk, FOLDER, file_size=5000)
    addresses = append(ext, 300)
    for file in ext.dirty_files():
        file.sync()
    append(ext, 400)
    for image in disk.crash_images(50):
        found = make(image, FOLDER, addresses[-1], file_size=5000)
        assert [unit.tags_code for address in addresses if (unit := found.read(address))] == list(range(300))
        again = append(found, 400)
        assert make(image, FOLDER, again[-1], file_size=5000).end == found.end
        # As Java looks for the end: from unit to unit.
        assert make(image, FOLDER, TAGS, file_size=5000).end == found.end


def test_a_full_disk_refuses_and_goes_on_later() -> None:
    disk = SimulatedDisk(Random(1), capacity=BLOCK)
    ext = make(disk, FOLDER)
    append(ext, 35)
    for _ in range(2):
        with pytest.raises(DiskFullError, match=f"no room for .*{1000:020}"):
            ext.append(UNIT)
    disk.capacity = None
    assert ext.append(UNIT) == BASE + 1000
    assert make(disk, FOLDER, BASE + 1000).end == 1028
