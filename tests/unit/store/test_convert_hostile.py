"""Conversion of files that are cut, damaged or absurd: an error names the file, the place and the remedy."""

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from kourou.store.convert import references
from kourou.store.convert.conversion import Conversion
from kourou.store.convert.source import Source
from kourou.store.dledger import ENTRY, UNIT
from kourou.store.errors import BadStoreError, StoreError
from kourou.testing.disk import SimulatedCrash, SimulatedDisk

from .dledger_files import INDEX_SIZE, Written, numbered
from .small import BEGIN_MS, ROOT, SEGMENT, SETTINGS, Small, file_time, message, new_disk
from .test_convert import (
    OPTIONS,
    TARGET,
    bodies,
    convert,
    dledger_disk,
    messages_of,
    opened,
    plain_disk,
    snapshot,
    written,
)

DATA = ROOT / "dledger-n0" / "data"
FIRST, SECOND = DATA / f"{0:020}", DATA / f"{SEGMENT:020}"
INDEX = ROOT / "dledger-n0" / "index" / f"{0:020}"


def overwrite(disk: SimulatedDisk, path: Path, at: int, data: bytes) -> None:
    content = bytearray(disk.peek(path) or b"")
    content[at : at + len(data)] = data
    disk.install(path, bytes(content))


def entry_at(disk: SimulatedDisk, number: int) -> tuple[Path, int]:
    """The file of an entry, and its place in it."""
    position = UNIT.unpack_from(disk.peek(INDEX) or b"", number * UNIT.size)[1]
    return DATA / f"{position - position % SEGMENT:020}", position % SEGMENT


def refused(disk: SimulatedDisk) -> str:
    with pytest.raises(StoreError) as error:
        convert(disk)
    assert disk.peek(TARGET / "kourou-converted.json") is None
    return str(error.value)


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        (0, 7, "an entry of kind 7"),
        (1, 2**31 - 1, "an entry of kind 1 with 2147483647 bytes"),
        (1, -5, "an entry of kind 1 with -5 bytes"),
        (1, 60, "an entry of kind 1 with 60 bytes"),
        (2, 99, "entry 99 of term 3 can't follow entry 24"),
        (2, -1, "entry -1 of term 3 can't follow entry 24"),
        (3, 2, "entry 25 of term 2 can't follow entry 24 of term 3"),
        (4, 5, "the entry says that it is at 5"),
        (8, 3, "with a record of 3 bytes"),
    ],
)
def test_an_invalid_committed_entry_is_an_error_and_an_uncommitted_one_the_end(
    field: int, value: int, why: str
) -> None:
    disk = new_disk()
    written(50).install(disk, ROOT)
    path, at = entry_at(disk, 25)
    head = [*ENTRY.unpack_from(disk.peek(path) or b"", at)]
    head[field] = value
    overwrite(disk, path, at, ENTRY.pack(*head))
    text = refused(disk)
    assert f"{path} at {at}: " in text
    assert why in text
    assert "entries up to 49 are committed, and the last one here is 24" in text
    assert "Convert the directory of another member of the group" in text
    disk.remove_folder(TARGET)
    disk.install(ROOT / "dledger-n0" / "checkpoint", b"committedIndex=20\nendIndex=49\n")
    report = convert(disk)
    assert report.records == 25
    assert any(f"{path} at {at}: " in note and "DLedger's log ends there" in note for note in report.notes)


def test_a_flipped_bit_in_a_body_is_found() -> None:
    disk = new_disk()
    written(50).install(disk, ROOT)
    path, at = entry_at(disk, 30)
    disk.flip(path, at + 48 + 100)
    assert f"{path} at {at}: entry 30 has no valid record: its body does not match its CRC" in refused(disk)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda disk: disk.cut(SECOND, 5000), "it has 5000 bytes, others have 8192. Restore it"),
        (lambda disk: disk.lose(SECOND), "it is missing: the next file is 00000000000000016384"),
        (lambda disk: disk.install(DATA / "notes.txt", b"x"), "its name is not an offset of 20 digits"),
        (lambda disk: disk.install(DATA / "00000000000000000007", bytes(SEGMENT)), "it is missing"),
    ],
)
def test_files_that_are_cut_or_missing_are_named(change: Callable[[SimulatedDisk], None], told: str) -> None:
    disk = new_disk()
    written(70).install(disk, ROOT)
    change(disk)
    assert told in refused(disk)


def test_a_single_file_that_was_cut_is_named() -> None:
    disk = new_disk()
    log = Written(start=3 * SEGMENT)
    log.add(b"one")
    log.install(disk, ROOT)
    disk.cut(DATA / f"{3 * SEGMENT:020}", 1000)
    text = refused(disk)
    assert "00000000000000024576 has 1000 bytes, which can't be the size of a segment that starts at 24576" in text


def test_missing_newest_files_are_noticed_by_the_committed_index() -> None:
    disk = new_disk()
    written(70).install(disk, ROOT)
    newest = sorted(disk.files(DATA))[-1]
    disk.lose(DATA / newest)
    text = refused(disk)
    assert "entries up to 69 are committed" in text


@pytest.mark.parametrize("text", [b"committedIndex=many\n", b"committedIndex=\nendIndex=5\n"])
def test_a_damaged_checkpoint_is_an_error(text: bytes) -> None:
    disk = new_disk()
    written(5).install(disk, ROOT)
    disk.install(ROOT / "dledger-n0" / "checkpoint", text)
    told = refused(disk)
    assert "/store/dledger-n0/checkpoint: 'committedIndex' should be a number" in told
    assert "checkpoint.bak" in told


@pytest.mark.parametrize("damage", ["cut", "empty", "gone", "other"])
def test_an_index_that_differs_is_noted_and_the_data_counts(damage: str) -> None:
    disk = new_disk()
    written(50).install(disk, ROOT)
    if damage == "cut":
        disk.cut(INDEX, 500)
    elif damage == "empty":
        disk.install(INDEX, bytes(INDEX_SIZE))
    elif damage == "gone":
        disk.lose(INDEX)
    else:
        overwrite(disk, INDEX, 49 * UNIT.size, UNIT.pack(1, 5, 300, 49, 3))
    report = convert(disk)
    assert report.records == 50
    assert any("/store/dledger-n0/index: the index does not have entry 49" in note for note in report.notes)
    assert bodies(opened(disk)) == list(numbered(50))


def test_a_blank_before_the_first_entry_is_skipped() -> None:
    disk = new_disk()
    log = Written()
    log.at = 1000
    struct.pack_into(">ii", log._segment(), 0, -1, 1000)
    for body in numbered(10):
        log.add(body)
    log.install(disk, ROOT)
    assert convert(disk).records == 10


@pytest.mark.parametrize("size", [0, 4, -9, 2**31 - 1])
def test_a_blank_of_an_absurd_size_is_an_error(size: int) -> None:
    disk = new_disk()
    written(50).install(disk, ROOT)
    path, at = entry_at(disk, 25)
    overwrite(disk, path, at, struct.pack(">ii", -1, size))
    assert f"{path} at {at}: an entry of kind -1 with {size} bytes" in refused(disk)


def test_entries_that_are_elsewhere_are_asked_for() -> None:
    disk = new_disk()
    written(20).install(disk, ROOT)
    elsewhere = Path("/fast/data")
    for name in disk.files(DATA):
        disk.install(elsewhere / name, disk.peek(DATA / name) or b"")
        disk.lose(DATA / name)
    text = refused(disk)
    assert "/store/dledger-n0/data is empty" in text
    assert "--dledger-data" in text
    source = Source(disk, ROOT, data=elsewhere)
    assert Conversion(disk, source, TARGET, OPTIONS, None).run(BEGIN_MS, file_time).records == 20


def test_logs_of_several_members_need_a_choice() -> None:
    disk = new_disk()
    written(5).install(disk, ROOT)
    written(5).install(disk, ROOT, member="n1")
    assert "choose one with --self-id: n0, n1" in refused(disk)


def test_an_old_log_that_does_not_meet_dledgers_is_refused() -> None:
    small = Small()
    small.fill(10)
    small.close()
    log = Written(start=5 * SEGMENT)
    log.add(b"new")
    log.install(small.disk, ROOT)
    assert "the old log must end where DLedger's begins" in refused(small.disk)


def test_segments_of_two_sizes_are_refused() -> None:
    small = Small()
    small.fill(10)
    small.close()
    log = Written(start=2 * SEGMENT, size=2 * SEGMENT)
    log.add(b"new")
    log.install(small.disk, ROOT)
    assert "no broker could read both" in refused(small.disk)


def plain(count: int = 60) -> Small:
    small = Small()
    small.fill(count)
    small.settle()
    small.close()
    return small


def test_damage_inside_a_plain_log_is_an_error() -> None:
    small = plain()
    path = ROOT / "commitlog" / f"{SEGMENT:020}"
    overwrite(small.disk, path, 0, b"damaged!")
    text = refused(small.disk)
    assert f"{path} at 0: its magic is" in text
    assert "a valid record follows" in text
    assert "Let a broker open and close the source" in text


def test_zeros_inside_a_plain_log_are_an_error() -> None:
    small = plain()
    path = ROOT / "commitlog" / f"{SEGMENT:020}"
    small.disk.install(path, bytes(SEGMENT))
    assert f"{path} at 0: never written, but later files have data" in refused(small.disk)


def test_a_torn_end_of_a_plain_log_is_left_out_and_noted() -> None:
    small = plain()
    end = small.store.log.end
    path = ROOT / "commitlog" / f"{end - end % SEGMENT:020}"
    overwrite(small.disk, path, end % SEGMENT, struct.pack(">iI", 300, 0xDAA320A7))
    report = convert(small.disk)
    assert report.records == 60
    assert f"{path} at {end % SEGMENT}: " in report.notes[0]


def test_a_sector_of_zeros_in_properties_is_damage() -> None:
    small = Small()
    for number in range(30):
        small.send(message(b"%d" % number, properties=b"a\1" + b"x" * 2000 + b"\2"))
    small.settle()
    small.close()
    path = ROOT / "commitlog" / f"{0:020}"
    overwrite(small.disk, path, 1024, bytes(512))
    text = refused(small.disk)
    assert f"{path} at 0: its queue offset is absurd, or part of its topic or properties is missing; but at" in text


@pytest.mark.parametrize("number", [-1, 2**62, -(2**63)])
def test_an_absurd_queue_offset_is_damage(number: int) -> None:
    small = plain()
    path = ROOT / "commitlog" / f"{0:020}"
    overwrite(small.disk, path, 20, struct.pack(">q", number))
    assert f"{path} at 0: its queue offset is absurd" in refused(small.disk)


def test_topics_that_are_not_utf8_are_converted() -> None:
    disk = new_disk()
    log = written(10)
    first = DATA / f"{0:020}"
    log.install(disk, ROOT)
    at = (disk.peek(first) or b"").index(b"orders")
    overwrite(disk, first, at, b"or\xacers")
    report = convert(disk)
    assert report.records == 10
    assert bodies(opened(disk), offset=1) == list(numbered(10))[1:]


@pytest.mark.parametrize("seed", range(40))
def test_random_damage_is_an_error_or_noted(seed: int) -> None:
    random = Random(seed)
    disk = random.choice((dledger_disk, plain_disk))()
    expected = messages_of(disk, ROOT)
    before = snapshot(disk, ROOT)
    for path in random.choices([path for path in before if before[path]], k=random.choice((1, 1, 2, 5))):
        content = bytearray(before[path])
        at = random.randrange(random.choice((len(content), min(len(content), 400))))
        new = random.choice((random.randbytes(8), bytes(512), b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0\0\0\1"))
        content[at : at + len(new)] = new[: len(content) - at]
        disk.install(Path(path), bytes(content[: random.choice((len(content), at, len(content)))]))
    try:
        report = convert(disk)
    except StoreError as error:
        told = str(error)
    else:
        told = ""
    if told:
        assert "/store" in told
        return
    found = messages_of(disk, TARGET)
    assert {*found} <= {*expected}
    assert found == expected or report.notes


def test_a_record_that_does_not_fit_with_its_head_is_named() -> None:
    small = Small(settings=replace(SETTINGS, max_body_size=SEGMENT))
    head = small.store.size_of(message(b""))
    small.send(message(bytes(SEGMENT - head - 8)))
    small.close()
    text = refused(small.disk)
    assert "does not fit into a segment of 8192 bytes, with the 48 bytes that DLedger puts before it" in text


def test_an_empty_source_is_refused() -> None:
    disk = new_disk()
    with pytest.raises(BadStoreError, match="has no log"):
        convert(disk)


@pytest.mark.parametrize("part", ["kourou-converting.json", "kourou-converting/pairs-000001"])
def test_damaged_progress_is_an_error(part: str) -> None:
    disk = new_disk()
    written(50).install(disk, ROOT)
    disk.crash_at = disk.calls + 14
    with pytest.raises(SimulatedCrash):
        convert(disk)
    disk = disk.kill()
    assert disk.peek(TARGET / part) is not None
    disk.install(TARGET / part, b"{]")
    with pytest.raises(BadStoreError, match="Remove /new and convert again"):
        convert(disk)


def test_absurd_files_beside_the_log_are_copied_or_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "FILE_SIZE_MAX", 10_000)
    disk = new_disk()
    written(5).install(disk, ROOT)
    disk.install(ROOT / "timerlog" / f"{0:020}", b"\xff" * 5000)
    disk.install(ROOT / "timerlog" / f"{5000:020}", b"\0" * 7)
    disk.install(ROOT / "config" / "timercheck", b"short")
    disk.install(ROOT / "config" / "huge.json", bytes(10_001))
    disk.install(ROOT / "consumequeue" / "orders" / "0" / f"{0:020}", b"\x7f" * 333)
    disk.install(ROOT / "consumequeue" / "orders" / "x" / "y", b"")
    report = convert(disk)
    assert report.records == 5
    assert any("/store/consumequeue does not match the log" in note for note in report.notes)
    assert any("huge.json is not copied: 10001 bytes" in note for note in report.notes)
    assert disk.peek(TARGET / "timerlog" / f"{0:020}") == b"\xff" * 5000
    assert disk.peek(TARGET / "config" / "timercheck") == b"short"
    assert bodies(opened(disk)) == list(numbered(5))
