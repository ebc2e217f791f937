"""What a start makes of what it finds: after stops and crashes, with files missing, short, strange or stale.

The simulation (tests/simulation) finds the cases; the ones it found are told here.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_struct

from kourou.store.checkpoint import Checkpoint
from kourou.store.errors import BadStoreError
from kourou.store.records import find_record
from kourou.testing.disk import SimulatedCrash, SimulatedDisk
from kourou.testing.disk_parts import SECTOR

from .small import LOG, ROOT, SEGMENT, SETTINGS, SYNC, Small, message, new_disk

QUEUE = ROOT / "consumequeue" / "orders" / "0"
COUNT = 80
BODIES = [b"%05d" % number + bytes(300) for number in range(COUNT)]


def written(*, clean: bool, settings: object = SETTINGS) -> Small:
    """A store with messages in five segments, stopped, or killed."""
    small = Small(settings=settings)  # type: ignore[arg-type]
    small.fill(COUNT)
    small.now_ms += 5
    if clean:
        small.close()
    else:
        small.now_ms += 10_000
        small.store.flush(small.now_ms)
        small.store.abandon()
        small.disk = small.disk.kill()
    return small


def is_whole(small: Small) -> bool:
    return small.bodies() == BODIES and all(small.by_key(f"k{n}") == [BODIES[n]] for n in range(COUNT))


def names_below(disk: SimulatedDisk, folder: Path) -> Iterator[Path]:
    yield from (folder / name for name in disk.files(folder))
    for name in disk.folders(folder):
        yield from names_below(disk, folder / name)


@pytest.fixture(params=["clean", "killed"])
def small(request: pytest.FixtureRequest) -> Small:
    return written(clean=request.param == "clean")


# ── Files that are missing ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("folders", [["consumequeue"], ["index"], ["consumequeue", "index"], ["consumequeue/orders"]])
def test_queues_and_index_are_made_again(small: Small, folders: list[str]) -> None:
    for folder in folders:
        small.disk.remove_folder(ROOT / folder)
    again = small.again()
    assert again.store.report.rebuilt
    assert is_whole(again)
    again.close()
    assert is_whole(small.again())


def test_one_queue_of_several_is_made_again() -> None:
    small = Small()
    for queue_id in range(3):
        for number in range(30):
            small.send(message(b"%d %d" % (queue_id, number) + bytes(300), queue_id=queue_id))
    small.close()
    small.disk.remove_folder(ROOT / "consumequeue" / "orders" / "0")
    again = small.again()
    assert [len(again.bodies(queue_id=queue_id)) for queue_id in range(3)] == [30, 30, 30]


def test_a_start_that_makes_queues_again_may_crash_anywhere() -> None:
    """What it had done by then is not safe, although the checkpoint once said so."""

    def crashes(folder: str) -> Iterator[Small]:
        for boundary in range(1, 200):
            small = written(clean=True)
            small.disk.remove_folder(ROOT / folder)
            small.disk.crash_at = small.disk.calls + boundary
            try:
                small.again()
            except SimulatedCrash:
                yield from map(small.again, small.disk.crash_images(2))
            else:
                return

    for folder in ("consumequeue", "index"):
        assert all(map(is_whole, crashes(folder)))


@pytest.mark.parametrize("name", ["checkpoint", "kourou-clean.json"])
def test_small_files_may_be_missing(small: Small, name: str) -> None:
    with suppress(FileNotFoundError):
        small.disk.lose(ROOT / name)
    assert is_whole(small.again())


@pytest.mark.parametrize("content", [b"", b"x", b"\xff" * 4096, b"\x7f" * 48])
def test_a_checkpoint_may_be_garbage(small: Small, content: bytes) -> None:
    small.disk.install(ROOT / "checkpoint", content)
    assert is_whole(small.again())


@pytest.mark.parametrize("content", [b"", b"{}", b"[1", b'{"checkpoint":1}', b"\xff\xfe"])
def test_the_note_of_a_clean_stop_may_be_garbage(content: bytes) -> None:
    small = written(clean=True)
    small.disk.install(ROOT / "kourou-clean.json", content)
    again = small.again()
    assert not again.store.report.hinted
    assert is_whole(again)


def test_without_a_log_there_are_no_queues(small: Small) -> None:
    small.disk.remove_folder(LOG)
    again = small.again()
    assert again.store.log.end == 0
    assert again.bodies() == [] and again.by_key("k1") == []
    assert again.send(message(b"new", key="k1"))[0].queue_offset == 0
    assert again.by_key("k1") == [b"new"]


# ── Files that can't be right ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda disk: disk.lose(LOG / f"{SEGMENT:020}"), f"{SEGMENT:020} is missing before {2 * SEGMENT:020}"),
        (
            lambda disk: disk.cut(LOG / f"{SEGMENT:020}", 100),
            f"{SEGMENT:020} has 100 bytes where {SEGMENT} are expected",
        ),
        (lambda disk: disk.cut(LOG / f"{SEGMENT:020}", 0), f"{SEGMENT:020} has 0 bytes"),
        (lambda disk: disk.install(LOG / "notes.txt", b"x"), "notes.txt is not a segment"),
        (lambda disk: disk.install(LOG / f"{7:020}", bytes(SEGMENT)), f"{7:020}: its name is not a multiple"),
    ],
)
def test_broken_folders_are_refused(small: Small, change: Callable[[SimulatedDisk], None], reason: str) -> None:
    change(small.disk)
    before = {path: small.disk.read(path) for path in names_below(small.disk, ROOT)}
    with pytest.raises(BadStoreError, match=reason):
        small.again()
    after = {path: small.disk.read(path) for path in names_below(small.disk, ROOT)}
    after.pop(ROOT / "abort", None), before.pop(ROOT / "abort", None)
    assert after.keys() == before.keys()


def test_an_empty_last_segment_is_a_creation_cut_short(small: Small) -> None:
    last = small.names("commitlog")[-1]
    small.disk.install(LOG / f"{int(last) + SEGMENT:020}", b"")
    again = small.again()
    assert is_whole(again)
    again.fill(30, "more")
    assert len(again.bodies("more")) == 30


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda disk: disk.lose(QUEUE / f"{200:020}"), f"orders/0: {200:020} is missing before {400:020}"),
        (lambda disk: disk.cut(QUEUE / f"{0:020}", 20), f"orders/0/{0:020} has 20 bytes where 200 are expected"),
        (lambda disk: disk.install(QUEUE / "notes", b""), "orders/0/notes is not a segment"),
    ],
)
def test_a_broken_queue_is_named(small: Small, change: Callable[[SimulatedDisk], None], reason: str) -> None:
    """After a clean stop when it is first used, and after a crash at once."""
    change(small.disk)
    with pytest.raises(BadStoreError, match=reason):
        small.again().bodies()
    disk = small.disk.kill()
    disk.remove_folder(ROOT / "consumequeue")
    assert is_whole(small.again(disk))


def test_a_strange_index_file_is_named() -> None:
    small = written(clean=False)
    name = small.names("index")[0]
    small.disk.install(ROOT / "index" / name, bytes(777))
    with pytest.raises(BadStoreError, match=rf"index/{name} has 777 bytes.*remove the folder"):
        small.again()
    small.disk.remove_folder(ROOT / "index")
    assert is_whole(small.again())


# ── Other brokers ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_another_broker_ran_since_our_clean_stop() -> None:
    """It left no abort, and our note of a clean stop: the checkpoint tells that the note is old."""
    small = written(clean=True)
    note = small.disk.read(ROOT / "kourou-clean.json")
    assert note is not None
    later = small.again()
    later.now_ms += 5_000
    later.send(message(b"written by another"))
    later.close()
    later.disk.install(ROOT / "kourou-clean.json", note)
    again = later.again()
    assert not again.store.report.hinted
    assert again.bodies() == [*BODIES, b"written by another"]


def test_another_broker_may_leave_dispatch_behind() -> None:
    """A log that is longer than the queues, after a clean stop."""
    small = written(clean=True)
    checkpoint = Checkpoint.read(small.disk, ROOT / "checkpoint")
    later = small.again()
    later.append(message(b"not dispatched", key="late"))
    later.store.durability.require("replicas", 0, timeout_ms=None)
    later.close()
    small.disk.lose(ROOT / "kourou-clean.json")
    checkpoint.write(small.disk, ROOT / "checkpoint")
    again = small.again()
    assert again.bodies() == [*BODIES, b"not dispatched"]
    assert again.by_key("late") == [b"not dispatched"]


# ── Where the log ends ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_log_that_ends_with_its_segment() -> None:
    """The next one was made ahead, and is empty; or was not made at all."""
    for made in (True, False):
        small = Small()
        small.send(message(b"x" * (SEGMENT - 8 - 97 - 4100)), message(b"y" * 4000))
        small.store.log.make_room(2000) if made else None
        end = small.store.log.end
        small.store.abandon()
        again = small.again(small.disk.kill())
        assert again.store.log.end == end
        assert again.send(message(b"next"))[0].queue_offset == 2
        assert len(again.bodies()) == 3


def test_a_record_without_its_end_is_cut() -> None:
    small = Small()
    small.send(message(b"one"))
    small.store.flush(small.now_ms)
    offset = small.send(message(b"two" * 100, key="two"))[0].physical_offset
    small.store.abandon()
    disk = small.disk.kill()
    file = disk.open(LOG / f"{0:020}")
    file.buffer[offset + 250 : offset + 300] = bytes(50)
    again = small.again(disk)
    assert (again.bodies(), again.by_key("two")) == ([b"one"], [])
    assert again.store.report.cut_tail and "CRC" in again.store.report.end_reason
    assert not any(again.store.log.segments.file(0).buffer[offset:])
    assert again.send(message(b"another"))[0].physical_offset == offset


@pytest.mark.parametrize("lost", ["first sector", "last sector", "start of a sector"])
def test_a_lost_part_of_the_properties_is_noticed(lost: str) -> None:
    """The CRC covers the body alone, but neither topics nor properties have zeros."""
    small = Small()
    small.send(message(b"one"))
    small.store.flush(small.now_ms)
    (one,) = small.send(message(b"two", properties=b"a\1" + b"x" * 1500 + b"\2"))
    small.store.abandon()
    disk = small.disk.kill()
    buffer = disk.open(LOG / f"{0:020}").buffer
    sectors = range(one.physical_offset - one.physical_offset % SECTOR + SECTOR, one.physical_offset + one.size, SECTOR)
    at, size = {
        "first sector": (sectors[0], SECTOR),
        "last sector": (sectors[-1], one.physical_offset + one.size - sectors[-1]),
        "start of a sector": (sectors[1], 10),
    }[lost]
    buffer[at : at + size] = bytes(size)
    again = small.again(disk)
    assert again.bodies() == [b"one"]
    assert "missing" in again.store.report.end_reason


def test_zeros_in_properties_are_no_sign_of_loss_where_a_crc_vouches_for_them() -> None:
    small = Small()
    small.send(message(b"one", properties=b"a\1" + bytes(1500) + b"\2"))
    small.store.abandon()
    assert small.again(small.disk.kill()).bodies() == [b"one"]


def test_a_crc_over_all_of_a_record_shows_what_else_was_lost() -> None:
    small = Small(settings=replace(SETTINGS, record_crc=True))
    small.send(message(b"one"))
    small.store.flush(small.now_ms)
    (two,) = small.send(message(b"two"))
    small.store.abandon()
    disk = small.disk.kill()
    disk.open(LOG / f"{0:020}").buffer[two.physical_offset + 40 : two.physical_offset + 64] = bytes(24)
    assert small.again(disk).bodies() == [b"one"]


# ── Crashes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_killed_process_wrote_is_made_safe_by_the_next() -> None:
    """It is only in the system's memory until then, in all segments that were written to."""
    small = Small()
    small.fill(COUNT)
    small.store.abandon()
    again = small.again(small.disk.kill())
    assert again.store.durability.flushed == again.store.log.end
    again.send(message(b"after"))
    again.store.flush(again.now_ms)
    for image in again.disk.crash_images(5):
        assert small.again(image).bodies() == [*BODIES, b"after"]


def test_what_a_failed_sync_has_left_out_is_written_by_the_next_process() -> None:
    """The system takes it for written, and a sync alone would do nothing."""
    small = Small()
    small.fill(COUNT)
    small.disk.fail("sync", times=1)
    with pytest.raises(OSError, match="commitlog"):
        small.store.flush(small.now_ms)
    small.store.abandon()
    again = small.again(small.disk.kill())
    assert is_whole(again)
    for image in again.disk.crash_images(5):
        assert is_whole(small.again(image))


def test_a_reader_under_sync_flush_sees_nothing_that_a_crash_takes_back() -> None:
    small = Small(settings=SYNC)
    small.fill(10)
    small.store.abandon()
    again = small.again(small.disk.kill())
    seen = again.bodies()
    assert len(seen) == 10
    for image in again.disk.crash_images(5):
        assert small.again(image).bodies() == seen


def test_keys_are_found_whatever_a_crash_did_to_the_index() -> None:
    """Slots may lead to entries that were lost, and the header may speak of them."""
    for seed in range(8):
        small = Small(new_disk(seed))
        small.fill(10)
        small.now_ms += 10_000
        small.store.flush(small.now_ms)
        for number in range(10, 20):
            small.send(message(b"%d" % number, key=f"k{number}"))
        small.disk.write_back(0.5)
        for image in small.disk.crash_images(4):
            again = small.again(image)
            bodies = again.bodies()
            assert bodies[:10] == BODIES[:10]
            assert [again.by_key(f"k{n}") for n in range(len(bodies))] == [[body] for body in bodies]


def test_queues_that_the_checkpoint_covers_are_left_alone() -> None:
    small = Small()
    for number in range(50):
        small.send(message(b"old", f"t{number}", key="k"))
    small.store.flush(small.now_ms)
    small.send(message(b"new", "t7"))
    after = small.disk.kill()
    after.history.clear()
    calls = after.calls
    again = small.again(after)
    assert again.bodies("t7") == [b"old", b"new"]
    assert again.bodies("t8") == [b"old"]
    touched = {path.parts[3] for _, path in after.history if "consumequeue" in path.parts[:-1]}
    assert touched == {"t7"}
    assert after.calls - calls < 50


def test_a_queue_without_what_the_checkpoint_covers_is_filled_again() -> None:
    small = written(clean=False)
    small.settle()
    after = small.disk.kill()
    path = ROOT / "consumequeue" / "orders" / "0"
    for name in list(after.files(path))[-1:]:
        content = bytearray(after.read(path / name) or b"")
        content[20:] = bytes(len(content) - 20)
        after.install(path / name, bytes(content))
    assert is_whole(small.again(after))


def test_queue_offsets_go_on_without_gap_after_a_crash() -> None:
    small = Small()
    small.fill(10)
    small.store.flush(small.now_ms)
    small.fill(5)
    for image in small.disk.crash_images(10):
        again = small.again(image)
        count = len(again.bodies())
        assert 10 <= count <= 15
        assert again.send(message(b"next"))[0].queue_offset == count
        assert again.bodies()[-1] == b"next"


def test_queues_without_all_their_entries_are_made_again() -> None:
    small = written(clean=False)
    path = ROOT / "consumequeue" / "orders" / "0" / f"{0:020}"
    small.disk.install(path, bytes(200))
    assert is_whole(small.again())


# ── Damage ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def damaged(disk: SimulatedDisk, offset: int, size: int = 1) -> None:
    path = LOG / f"{offset - offset % SEGMENT:020}"
    content = bytearray(disk.read(path) or b"")
    at = offset % SEGMENT
    content[at : at + size] = bytes(byte ^ 0x55 for byte in content[at : at + size])
    disk.install(path, bytes(content))


@pytest.mark.parametrize("at", [0, 4, 8, 90, 200])
@pytest.mark.parametrize("ours", [True, False])
def test_damage_amid_what_was_safe_is_not_the_end(at: int, ours: bool) -> None:
    small = written(clean=False)
    offset = (small.disk.read(LOG / f"{0:020}") or b"").index(BODIES[10]) - 88
    damaged(small.disk, offset + at)
    if not ours:  # another broker's checkpoint knows times alone
        by_time = replace_struct(Checkpoint.read(small.disk, ROOT / "checkpoint"), flushed_physical=0)
        by_time.write(small.disk, ROOT / "checkpoint")
    again = small.again()
    assert f"bytes at {offset} are invalid" in again.store.report.damage[0]
    assert f"commitlog/{0:020}" in again.store.report.damage[0]
    assert again.bodies() == BODIES[:10] + BODIES[11:]
    assert again.bodies(offset=11) == BODIES[11:]
    assert again.send(message(b"next"))[0].queue_offset == COUNT


def test_zeros_amid_what_was_safe_are_not_the_end_either() -> None:
    small = written(clean=False)
    path = LOG / f"{SEGMENT:020}"
    content = bytearray(small.disk.read(path) or b"")
    content[2 * SECTOR : 3 * SECTOR] = bytes(SECTOR)
    small.disk.install(path, bytes(content))
    again = small.again()
    assert again.store.report.damage
    found = set(again.bodies()) | set(again.bodies(offset=40))
    assert len(found & set(BODIES)) >= COUNT - 4


def test_what_was_stored_in_the_millisecond_of_the_checkpoint_may_have_come_after_it() -> None:
    """Three records of one millisecond: the first is safe, the second is torn, the third has arrived by luck."""
    small = Small()
    small.send(message(b"one"))
    small.store.flush(small.now_ms)
    two, _ = small.send(message(b"two" * 100), message(b"three" * 100))
    small.store.abandon()
    disk = small.disk.kill()
    disk.open(LOG / f"{0:020}").buffer[two.physical_offset + 200] ^= 1
    again = small.again(disk)
    assert again.bodies() == [b"one"]
    assert not again.store.report.damage
    assert again.send(message(b"next"))[0].queue_offset == 1


def test_damage_in_a_queue_offset_does_not_cost_the_queue() -> None:
    """The first record claims a place far away; those behind it know better."""
    small = written(clean=False)
    content = bytearray(small.disk.read(LOG / f"{0:020}") or b"")
    content[24] ^= 1
    small.disk.install(LOG / f"{0:020}", bytes(content))
    small.disk.remove_folder(ROOT / "consumequeue")
    assert small.again().bodies(offset=1) == BODIES[1:]


@pytest.mark.parametrize("queue_offset", [-1, -(2**63), 2**58 + 1, 2**63 - 1])
def test_a_queue_offset_that_can_not_be_is_passed_over(queue_offset: int) -> None:
    small = written(clean=False)
    content = bytearray(small.disk.read(LOG / f"{0:020}") or b"")
    content[20:28] = queue_offset.to_bytes(8, signed=True)
    small.disk.install(LOG / f"{0:020}", bytes(content))
    small.disk.remove_folder(ROOT / "consumequeue")
    again = small.again()
    assert again.bodies(offset=1) == BODIES[1:]
    assert again.store.reader.offsets("orders", 0)[1] == COUNT


def test_a_damaged_topic_stays_below_the_folder() -> None:
    small = Small()
    small.send(message(b"one", "o" * 20), message(b"two", "o" * 20))
    small.store.abandon()
    disk = small.disk.kill()
    buffer = disk.open(LOG / f"{0:020}").buffer
    at = bytes(buffer).index(b"o" * 20)
    buffer[at : at + 3] = b"../"
    again = small.again(disk)
    assert {path.parts[2] for path in names_below(again.disk, ROOT) if len(path.parts) > 3} == {
        "commitlog",
        "consumequeue",
    }
    assert again.bodies("o" * 20, offset=1) == [b"two"]


def test_the_next_record_is_one_that_knows_its_place() -> None:
    content = bytearray(300)
    content[100:108] = b"\0\0\0\x70\xda\xa3\x20\xa7"
    content[128:136] = (5000 + 100).to_bytes(8)
    view = memoryview(content)
    assert find_record(view, 10, 5000) == 100
    assert find_record(view, 101, 5000) is None
    assert find_record(view, 10, 6000) is None
    assert find_record(view[:120], 10, 5000) is None
