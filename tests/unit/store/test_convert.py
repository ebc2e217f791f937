"""Conversion of a store between DLedger's layout and the plain one, on a simulated disk."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from kourou.protocol.codes import SysFlag
from kourou.protocol.record import Found, decode_record
from kourou.store.convert.conversion import Conversion, Options, Report, Uncommitted
from kourou.store.convert.source import Place, Source, Walk
from kourou.store.disk import Disk
from kourou.store.dledger import UNIT, looks_like_dledger
from kourou.store.errors import BadStoreError, DiskFullError, StoreError
from kourou.store.records import Entries
from kourou.store.store import Store
from kourou.store.timers.layout import UNIT as TIMER_UNIT, TimerCheckpoint, Unit
from kourou.testing.disk import SimulatedCrash, SimulatedDisk

from .dledger_files import INDEX_SIZE, Written, numbered
from .small import BEGIN_MS, HOST, ROOT, SEGMENT, SETTINGS, Small, file_time, message, new_disk

TARGET = Path("/new")
BACK = Path("/back")
SMALL = replace(SETTINGS, index_slots=64, index_entries=256)
OPTIONS = Options(index_file_size=INDEX_SIZE, sync_bytes=3000, step=1500, settings=SMALL)


def convert(disk: Disk, source: Path = ROOT, target: Path = TARGET, options: Options = OPTIONS) -> Report:
    return Conversion(disk, Source(disk, source), target, options, None).run(BEGIN_MS + 10_000, file_time)


def opened(disk: Disk, root: Path = TARGET) -> Store:
    return Store.open(root, SMALL, store_host=HOST, now_ms=BEGIN_MS + 20_000, file_time=file_time, disk=disk)


def bodies(store: Store, topic: str = "orders", queue_id: int = 0, offset: int = 0) -> list[bytes]:
    found: list[bytes] = []
    while True:
        result = store.reader.get(topic, queue_id, offset, 32)
        if result.next_offset <= offset or not result.records:
            return found
        found += [bytes(decode_record(record, crc=True).body) for record in result.records]
        offset = result.next_offset


def by_key(store: Store, key: str, topic: str = "orders") -> list[bytes]:
    return [bytes(decode_record(one).body) for one in store.reader.query(topic, key, 64, 0, 2**50).records]


def snapshot(disk: SimulatedDisk, root: Path) -> dict[str, bytes]:
    """All files below a folder."""
    found = {}
    for name in disk.files(root):
        content = disk.peek(root / name)
        assert content is not None
        found[str(root / name)] = content
    for name in disk.folders(root):
        found.update(snapshot(disk, root / name))
    return found


def written(count: int = 70) -> Written:
    log = Written()
    for body in numbered(count):
        log.add(body)
    return log


# ── From DLedger ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_message_is_served_by_offset_and_by_key() -> None:
    disk = new_disk()
    written().install(disk, ROOT)
    before = snapshot(disk, ROOT)
    report = convert(disk)
    assert snapshot(disk, ROOT) == before
    assert (report.records, report.to, report.notes) == (70, "plain", [])
    assert not looks_like_dledger(TARGET, disk)
    store = opened(disk)
    assert bodies(store) == list(numbered(70))
    assert [by_key(store, f"k{number}") for number in range(70)] == [[body] for body in numbered(70)]
    first = decode_record(store.reader.get("orders", 0, 0, 1).records[0])
    assert (first.physical_offset, first.queue_offset) == (0, 0)
    assert store.report.damage == []
    store.append([message(b"next")], BEGIN_MS + 20_000)
    store.dispatch()
    assert bodies(store, offset=70) == [b"next"]
    store.close(BEGIN_MS + 20_000)


def test_the_old_log_before_the_divided_position_comes_first() -> None:
    small = Small()
    small.fill(40)
    small.settle()
    small.close()
    disk = small.disk
    end = small.store.log.end
    divided = end - end % SEGMENT + SEGMENT
    # Java's broker fills up the last file.
    last = Path(ROOT / "commitlog" / f"{end - end % SEGMENT:020}")
    content = bytearray(disk.peek(last) or b"")
    content[end % SEGMENT : end % SEGMENT + 8] = (divided - end).to_bytes(4) + bytes.fromhex("cbd43194")
    disk.install(last, bytes(content))
    disk.remove(ROOT / "commitlog" / f"{divided:020}")
    log = Written(start=divided, begin_ms=small.now_ms)
    log.ends["orders", 0] = 40
    for body in numbered(30):
        log.add(b"new" + body)
    log.install(disk, ROOT)
    report = convert(disk)
    assert (report.records, report.log_start) == (70, 0)
    store = opened(disk)
    assert bodies(store) == [*numbered(40), *(b"new" + body for body in numbered(30))]
    assert by_key(store, "k29") == [numbered(40)[29], b"new" + numbered(30)[29]]


def test_a_log_whose_first_segments_have_expired_begins_where_it_did() -> None:
    disk = new_disk()
    log = Written(start=5 * SEGMENT)
    log.index, log.ends["orders", 0] = 1000, 777
    for body in numbered(30):
        log.add(body)
    log.units = [bytes(UNIT.size)] * 1000 + log.units
    log.install(disk, ROOT)
    report = convert(disk)
    assert report.log_start == 5 * SEGMENT
    store = opened(disk)
    assert store.log.start == 5 * SEGMENT
    assert store.reader.offsets("orders", 0) == (777, 807)
    assert bodies(store, offset=777) == list(numbered(30))


def test_numbers_of_a_queue_whose_messages_have_expired_go_on() -> None:
    small = Small()
    for number in range(25):
        small.send(message(b"old %d" % number, "expired", 2))
    small.fill(60)
    small.settle()
    while small.store.log.start < 2 * SEGMENT:
        small.store.log.segments.remove_first()
    small.close()
    report = convert(small.disk, options=OPTIONS)
    assert report.to == "dledger"
    report = convert(small.disk, TARGET, BACK)
    assert report.log_start == 2 * SEGMENT
    store = opened(small.disk, BACK)
    assert store.reader.offsets("expired", 2) == (25, 25)
    store.append([message(b"new", "expired", 2)], BEGIN_MS + 20_000)
    store.dispatch()
    assert bodies(store, "expired", 2, 25) == [b"new"]


def test_references_to_other_records_follow_them() -> None:
    disk = new_disk()
    log = Written()
    halves, originals = {}, {}
    for number in range(60):
        halves[number] = log.add(b"half %d" % number, "RMQ_SYS_TRANS_HALF_TOPIC")
        if number % 2:
            log.add(b"committed %d" % number, sys_flag=SysFlag.TRANSACTION_COMMIT, prepared=halves[number // 2])
        originals[number] = log.add(b"late %d" % number, "SCHEDULE_TOPIC_XXXX", 3)
        log.add(b"copy %d" % number, "copies", prepared=~originals[number // 3])
        log.add(b"plain %d" % number, "plain")
    log.install(disk, ROOT)
    convert(disk)
    for root, target in ((TARGET, BACK), (BACK, Path("/again"))):
        records = {bytes(one.body): one for one in (s.message() for s in Walk(Source(disk, root), Place(0)))}
        for number in range(60):
            if number % 2:
                half = records[b"half %d" % (number // 2)].physical_offset
                assert records[b"committed %d" % number].prepared_offset == half
            original = records[b"late %d" % (number // 3)].physical_offset
            assert records[b"copy %d" % number].prepared_offset == ~original
            assert records[b"plain %d" % number].prepared_offset == 0
        convert(disk, root, target)


def test_timers_and_positions_of_delays_follow_their_messages() -> None:
    disk = new_disk()
    log = Written()
    offsets = [log.add(b"timed %d" % number, "rmq_sys_wheel_timer") for number in range(50)]
    log.install(disk, ROOT)
    units = [
        TIMER_UNIT.pack(*Unit(52, -1, 1, BEGIN_MS, 5000, offset, 200, 7, 0))
        for offset in (*offsets[10:20], log.at + 5000)
    ]
    disk.install(ROOT / "timerlog" / f"{0:020}", b"".join(units).ljust(4096, b"\0"))
    disk.install(ROOT / "timerwheel", b"wheel".ljust(5000, b"\0"))
    check = TimerCheckpoint(BEGIN_MS, 520, 20, 20, 1, 2, 3, offsets[30] - 48, 10, 1000)
    disk.install(ROOT / "config" / "timercheck", check.encode())
    disk.install(ROOT / "config" / "delayOffset.json", b'{"deliveredTo": %d, "offsetTable":{1:5}}' % (offsets[40] - 48))
    disk.install(ROOT / "config" / "consumerOffset.json", b'{"offsetTable":{"a@b":{0:7}}}')
    convert(disk)
    records = {bytes(one.body): one for one in (s.message() for s in Walk(Source(disk, TARGET), Place(0)))}
    data = disk.peek(TARGET / "timerlog" / f"{0:020}") or b""
    found = [Unit(*TIMER_UNIT.unpack_from(data, at)) for at in range(0, 11 * 52, 52)]
    expected = [records[b"timed %d" % number].physical_offset for number in range(10, 20)]
    assert [unit.physical_offset for unit in found] == [*expected, -1]
    assert [unit.slot_ms for unit in found] == [BEGIN_MS + 5000] * 11
    moved = TimerCheckpoint.decode(disk.peek(TARGET / "config" / "timercheck") or b"")
    assert moved == check._replace(delivered_from=records[b"timed 30"].physical_offset)
    position = records[b"timed 40"].physical_offset
    assert disk.peek(TARGET / "config" / "delayOffset.json") == b'{"deliveredTo": %d, "offsetTable":{1:5}}' % position
    assert disk.peek(TARGET / "config" / "consumerOffset.json") == b'{"offsetTable":{"a@b":{0:7}}}'
    assert disk.peek(TARGET / "timerwheel") == b"wheel".ljust(5000, b"\0")


def test_the_uncommitted_tail_is_kept_or_dropped_and_reported() -> None:
    disk = new_disk()
    written(50).install(disk, ROOT, committed=44)
    kept = convert(disk)
    assert (kept.records, kept.uncommitted, kept.uncommitted_dropped) == (50, 5, False)
    assert "5 entries up to 49 of term 3 are after the last committed one" in kept.notes[0]
    assert "they are kept" in kept.notes[0]
    dropped = convert(disk, target=BACK, options=replace(OPTIONS, uncommitted=Uncommitted.DROP))
    assert (dropped.records, dropped.uncommitted, dropped.uncommitted_dropped) == (45, 5, True)
    assert "they are dropped" in dropped.notes[0]
    assert bodies(opened(disk, BACK)) == list(numbered(45))


def test_a_tail_is_dropped_only_if_the_committed_index_is_known() -> None:
    disk = new_disk()
    folder = written(5).install(disk, ROOT)
    disk.lose(folder / "checkpoint")
    with pytest.raises(BadStoreError, match="has no checkpoint"):
        convert(disk, options=replace(OPTIONS, uncommitted=Uncommitted.DROP))
    assert "no checkpoint" in convert(disk).notes[0]


# ── And back ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plain_store_becomes_entries_and_an_index() -> None:
    small = Small()
    small.fill(100)
    small.settle()
    small.close()
    disk = small.disk
    before = snapshot(disk, ROOT)
    report = convert(disk)
    assert snapshot(disk, ROOT) == before
    assert (report.records, report.to, report.notes) == (100, "dledger", [])
    folder = TARGET / "dledger-n0"
    assert disk.peek(folder / "checkpoint") == b"committedIndex=99\nendIndex=99\n"
    assert disk.peek(folder / "currterm") == b"currTerm=0\nvoteLeader=\n"
    assert "abort" in disk.files(TARGET)  # the broker builds queues and index from the log
    assert disk.files(TARGET / "commitlog") == {}
    units = b"".join(disk.peek(folder / "index" / name) or b"" for name in sorted(disk.files(folder / "index")))
    number = 0
    for name in sorted(disk.files(folder / "data")):
        view = memoryview(disk.peek(folder / "data" / name) or b"")
        entries = Entries(view, int(name), 0)
        while (found := entries.step()) == Found.RECORD:
            size = entries.next_at - entries.at
            assert UNIT.unpack_from(units, number * 32) == (1, int(name) + entries.at, size, number, 0)
            number += 1
        assert found in (Found.FILLER, Found.END)
    assert number == 100
    assert not units[number * 32 :].strip(b"\0")
    convert(disk, TARGET, BACK)
    store = opened(disk, BACK)
    assert bodies(store) == small.again().bodies()
    # The way back gives the same log.
    for name in disk.files(ROOT / "commitlog"):
        assert disk.peek(BACK / "commitlog" / name) == before.get(str(ROOT / "commitlog" / name), bytes(SEGMENT))


def test_records_with_a_crc_over_all_of_them_get_a_new_one() -> None:
    small = Small(settings=replace(SETTINGS, record_crc=True))
    small.fill(30)
    small.settle()
    small.close()
    convert(small.disk)
    convert(small.disk, TARGET, BACK)
    store = Store.open(
        BACK, replace(SMALL, record_crc=True), store_host=HOST, now_ms=BEGIN_MS, file_time=file_time, disk=small.disk
    )
    assert len(bodies(store)) == 30
    assert (store.report.damage, store.report.log_end) == ([], small.store.log.end)


def test_records_of_removed_topics_are_left_out() -> None:
    small = Small()
    for number in range(20):
        small.send(message(b"old %d" % number, "gone"), message(b"stays %d" % number))
    small.store.remove_topic("gone")
    small.send(message(b"new", "gone"))
    small.settle()
    small.close()
    report = convert(small.disk)
    assert (report.records, report.left_out) == (21, 20)
    assert report.notes == ["20 records of removed topics, which no queue has, are left out"]
    convert(small.disk, TARGET, BACK)
    store = opened(small.disk, BACK)
    assert bodies(store, "gone") == [b"new"]
    assert bodies(store) == [b"stays %d" % number for number in range(20)]


def test_records_of_topics_that_apaches_broker_removed_are_left_out_too() -> None:
    small = Small()
    for number in range(20):
        small.send(message(b"old %d" % number, "gone"), message(b"stays %d" % number))
    small.settle()
    small.close()
    small.disk.remove_folder(ROOT / "consumequeue" / "gone")
    report = convert(small.disk)
    assert (report.records, report.left_out) == (20, 20)
    # After a crash the queues prove nothing.
    small.disk.install(ROOT / "abort", b"1")
    report = convert(small.disk, target=BACK)
    assert (report.records, report.left_out) == (40, 0)
    assert "was not stopped cleanly" in report.notes[0]


# ── Interrupted ─────────────────────────────────────────────────────────────────────────────────────────────────────


def dledger_disk() -> SimulatedDisk:
    disk = new_disk()
    log = Written()
    for body in numbered(26, 250):
        half = log.add(b"half" + body, "RMQ_SYS_TRANS_HALF_TOPIC")
        log.add(body, sys_flag=SysFlag.TRANSACTION_COMMIT, prepared=half)
    log.install(disk, ROOT)
    disk.install(ROOT / "config" / "topics.json", b"{}")
    return disk


def plain_disk() -> SimulatedDisk:
    small = Small()
    small.fill(45)
    small.settle()
    small.close()
    return small.disk


def messages_of(disk: SimulatedDisk, target: Path) -> list[bytes]:
    return [
        bytes(view.view[s.body_at : s.body_at + s.body_size])
        for view in [Walk(Source(disk, target), Place(0))]
        for s in view
    ]


@pytest.mark.parametrize("make", [dledger_disk, plain_disk])
@pytest.mark.parametrize("power", [True, False], ids=["power cut", "kill"])
def test_it_continues_after_a_crash_at_every_write(make: Callable[[], SimulatedDisk], power: bool) -> None:
    first = make()
    source = snapshot(first, ROOT)
    expected = messages_of(first, ROOT)
    begin = first.calls
    convert(first)
    total = first.calls - begin
    logs = {path: data for path, data in snapshot(first, TARGET).items() if "/commitlog/" in path or "/data/" in path}
    assert total > 20
    for number in range(1, total + 1):
        disk = make()
        disk.random = Random(number)
        disk.crash_at, disk.crash_after = disk.calls + number, number % 2 == 0
        with pytest.raises(SimulatedCrash):
            convert(disk)
        disk = disk.crash() if power else disk.kill()
        is_marked = disk.peek(TARGET / "kourou-converting.json") is not None
        is_complete = disk.peek(TARGET / "kourou-converted.json") is not None
        if is_marked:
            with pytest.raises(BadStoreError, match=r"incomplete|DLedger"):
                opened(disk)
        elif not is_complete:
            assert disk.files(TARGET / "commitlog") == {}, number
        disk.calls = 0
        report = convert(disk)
        assert report.records == len(expected)
        found = snapshot(disk, TARGET)
        assert {path: found.get(path) for path in logs} == logs, number
        assert messages_of(disk, TARGET) == expected
        assert snapshot(disk, ROOT) == source
        assert "kourou-converting" not in disk.folders(TARGET)


def test_two_crashes_in_a_row() -> None:
    expected = messages_of(plain_disk(), ROOT)
    for seed in range(60):
        random = Random(seed)
        disk = plain_disk()
        disk.random = random
        for _ in range(4):
            disk.crash_at = disk.calls + random.randrange(1, 30)
            try:
                convert(disk)
                break
            except SimulatedCrash:
                disk = disk.crash()
        disk.crash_at = None
        convert(disk)
        assert messages_of(disk, TARGET) == expected, seed


def test_a_full_disk_is_an_error_and_it_continues_later() -> None:
    disk = plain_disk()
    disk.full_after(SEGMENT + 20_000)
    with pytest.raises((DiskFullError, OSError)):
        convert(disk)
    disk.capacity = None
    report = convert(disk)
    assert (report.records, report.resumed) == (45, True)


def test_a_source_that_changed_is_not_continued() -> None:
    disk = dledger_disk()
    disk.crash_at = disk.calls + 12
    with pytest.raises(SimulatedCrash):
        convert(disk)
    disk = disk.kill()
    disk.install(ROOT / "dledger-n0" / "checkpoint", b"committedIndex=40\nendIndex=51\n")
    with pytest.raises(BadStoreError, match="has changed since the conversion began"):
        convert(disk)


def test_a_second_run_reports_what_is_done() -> None:
    disk = plain_disk()
    first = convert(disk)
    assert convert(disk) == first
    written(3).install(disk, Path("/other"))
    with pytest.raises(BadStoreError, match="was converted from /store"):
        convert(disk, Path("/other"), TARGET)


@pytest.mark.parametrize("target", [ROOT, ROOT / "inside", Path("/")])
def test_the_target_is_outside_of_the_source(target: Path) -> None:
    with pytest.raises(BadStoreError, match="it must be a new directory outside of /store"):
        convert(plain_disk(), target=target)


def test_other_files_in_the_target_are_not_touched() -> None:
    disk = plain_disk()
    disk.install(TARGET / "commitlog" / f"{0:020}", bytes(100))
    with pytest.raises(BadStoreError, match="/new is not empty"):
        convert(disk)
    assert disk.peek(TARGET / "commitlog" / f"{0:020}") == bytes(100)


def test_what_the_disk_did_not_keep_is_found_by_the_comparison() -> None:
    disk = plain_disk()
    disk.crash_at = None
    conversion = Conversion(disk, Source(disk, ROOT), TARGET, OPTIONS, lambda what, done, total: None)
    original = disk.replace

    def replace_and_rot(path: Path, content: bytes | list[bytes], *, backup: bool = False) -> None:
        original(path, content, backup=backup)
        if path.name == "checkpoint" and path.parent.name == "dledger-n0":
            disk.flip(TARGET / "dledger-n0" / "data" / f"{SEGMENT:020}", 300, 1)

    disk.replace = replace_and_rot  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="00000000000000008192"):
        conversion.run(BEGIN_MS, file_time)
    assert disk.peek(TARGET / "kourou-converting.json") is not None
