"""A store from its opening to its end: what is visible, what is safe, and what is left behind."""

import os
import struct
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kourou.protocol.codes import SysFlag
from kourou.protocol.hashes import index_hash
from kourou.protocol.record import decode_record
from kourou.store.checkpoint import Checkpoint
from kourou.store.disk import RealDisk
from kourou.store.durability import FLUSHED
from kourou.store.errors import BadSettingError, DiskFailedError, IllegalMessageError, StoreInUseError
from kourou.store.jobs import PrepareSegment, SupplyPages, SyncLog, SyncQueues
from kourou.store.reading import GetStatus
from kourou.store.settings import StoreSettings
from kourou.store.store import Store
from kourou.store.worker import Worker

from .small import BEGIN_MS, HOST, LOG, ROOT, SEGMENT, SETTINGS, SYNC, Small, file_time, message, new_disk

# ── Writing and seeing ──────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_sent_can_be_read() -> None:
    small = Small()
    first, second = small.send(message(b"one", key="a"), message(b"two", queue_id=1))
    assert (first.physical_offset, first.queue_offset, second.queue_offset) == (0, 0, 0)
    assert second.physical_offset == first.size
    assert small.bodies() == [b"one"]
    assert small.bodies(queue_id=1) == [b"two"]
    assert small.by_key("a") == [b"one"]


def test_an_append_is_visible_only_after_dispatch() -> None:
    small = Small()
    small.append(message(b"one"))
    assert small.bodies() == []
    assert small.store.reader.record_at(0) is None
    small.store.dispatch()
    assert small.bodies() == [b"one"]


def test_under_sync_flush_only_what_is_safe_is_visible() -> None:
    small = Small(settings=SYNC)
    small.send(message(b"one"))
    assert small.bodies() == []
    small.work()
    assert small.bodies() == []
    small.store.dispatch()
    assert small.bodies() == [b"one"]


def test_under_sync_flush_readers_may_be_told_of_what_is_not_safe() -> None:
    small = Small(settings=replace(SYNC, read_uncommitted=True))
    small.send(message(b"one"))
    assert small.bodies() == [b"one"]
    assert small.store.durability.flushed == 0
    small.store.reconfigure(SYNC)
    small.send(message(b"two"))
    assert small.bodies() == [b"one"]


def test_nobody_sees_beyond_what_is_confirmed() -> None:
    small = Small()
    small.store.durability.require("replicas", 0, timeout_ms=None)
    second = small.append(message(b"one"), message(b"two"))[1].physical_offset
    small.store.durability.reached("replicas", second)
    small.store.dispatch()
    assert small.bodies() == [b"one"]
    small.store.durability.drop("replicas")
    small.store.dispatch()
    assert small.bodies() == [b"one", b"two"]


def test_a_watermark_may_be_anywhere_in_a_record() -> None:
    """A master sends its log in pieces of any size, and a replica acknowledges what it has got."""
    small = Small()
    small.store.durability.require("replicas", 0, timeout_ms=3_000)
    ends = [place.physical_offset + place.size for place in small.append(*(message(bytes(3_000)) for _ in range(4)))]
    for offset in range(0, small.store.log.end + 1, 7):
        small.store.durability.reached("replicas", offset)
        small.store.dispatch()
        assert len(small.bodies()) == sum(end <= offset for end in ends)


def test_half_messages_and_rollbacks_have_no_place_in_a_queue() -> None:
    small = Small()
    kinds = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK, SysFlag(0))
    appended = small.send(*(message(b"%d" % kind, sys_flag=int(kind), key="k") for kind in kinds))
    assert [one.queue_offset for one in appended] == [0, 0, 0, 1]
    assert small.bodies() == [b"8", b"0"]
    assert small.by_key("k") == [b"4", b"8", b"0"]
    small.close()
    again = small.again()
    assert again.send(message(b"next"))[0].queue_offset == 2
    assert len(again.bodies()) == 3


def test_tags_are_in_the_index_as_a_key_of_their_own() -> None:
    """As Apache's broker has them since 5.5: the hash of `topic#T#tags`, after all keys."""
    small = Small()
    small.send(message(b"one", key="paid", properties=b"TAGS\1paid\2"), message(b"two", properties=b"TAGS\1\xc3\xa9\2"))
    small.send(message(b"three", properties=b"TAGS\1\2"))

    def by_tags(tags: str) -> list[bytes]:
        records = small.store.reader.query("orders", f"T#{tags}", 8, 0, 2**50).records
        return [bytes(decode_record(record).body) for record in records]

    assert [by_tags(tags) for tags in ("paid", "é", "", "other")] == [[b"one"], [b"two"], [], []]
    assert small.by_key("paid") == small.by_key("T#paid") == [b"one"]
    (name,) = small.names("index")
    content = small.disk.read(ROOT / "index" / name)
    assert content is not None
    hashes = [hash_ for hash_, _, _, _ in struct.iter_unpack(">iqii", content[40 + 8 * 4 + 20 :][:60])]
    assert hashes == [index_hash(key) for key in ("orders#paid", "orders#T#paid", "orders#T#é")]


def test_times_never_go_back_along_the_log() -> None:
    small = Small()
    small.send(message(b"one"))
    small.now_ms -= 60_000
    assert small.send(message(b"two"))[0].stored_ms == BEGIN_MS


def test_a_batch_goes_in_as_a_whole_or_not_at_all() -> None:
    small = Small()
    batch = [message(b"x" * 1000), message(b"x" * 5000), message(b"y")]
    with pytest.raises(IllegalMessageError, match="5000"):
        small.store.append(batch, small.now_ms, together=True)
    assert small.store.log.end == 0
    with pytest.raises(IllegalMessageError, match="5000"):
        small.store.append(batch, small.now_ms)
    assert small.store.log.end > 1000  # the first one is in
    small.fill(17)
    assert SEGMENT - 2_000 < small.store.log.end < SEGMENT
    appended = small.store.append([message(b"x" * 900) for _ in range(3)], small.now_ms, together=True)
    assert [one.physical_offset // SEGMENT for one in appended] == [1, 1, 1]


def test_every_record_may_have_a_crc_over_all_of_it() -> None:
    small = Small(settings=replace(SETTINGS, record_crc=True))
    small.send(message(b"one"), message(b"two", properties=b"a\1b"))
    records = small.store.reader.get("orders", 0, 0, 2).records
    assert [bytes(record[-20:-11]) for record in records] == [b"__CRC32#\1", b"__CRC32#\1"]
    assert bytes(records[1][-24:-20]) == b"a\1b\2"


def test_properties_with_zeros_always_have_one() -> None:
    small = Small()
    small.send(message(b"one", properties=b"a\1b\0\2"))
    assert bytes(small.store.reader.get("orders", 0, 0, 1).records[0][-20:]).startswith(b"__CRC32#\1")


# ── Safety ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_all_who_wait_are_answered_by_one_sync() -> None:
    small = Small(settings=SYNC)
    for token in ("a", "b"):
        small.append(message(token.encode()))
        assert not small.store.durability.wait(small.store.log.end, token, small.now_ms)
    (job,) = [job for job in small.later(0) if isinstance(job, SyncLog)]
    small.append(message(b"c"))
    assert not small.store.durability.wait(small.store.log.end, "c", small.now_ms)
    job.run()
    assert small.store.finished(job, small.now_ms) == ["a", "b"]
    assert small.store.durability.wait(job.upto, "d", small.now_ms)
    assert small.work(0) == ["c"]


def test_who_waits_too_long_is_told() -> None:
    small = Small(settings=SYNC)
    small.append(message(b"one"))
    small.store.durability.wait(small.store.log.end, "a", small.now_ms)
    assert small.store.durability.late(small.now_ms + 4_999) == []
    assert small.store.durability.late(small.now_ms + 5_000) == [("a", FLUSHED)]


def test_a_flush_makes_everything_durable() -> None:
    small = Small(settings=SYNC)
    small.fill(60)
    small.store.durability.wait(small.store.log.end, "a", small.now_ms)
    assert small.store.flush(small.now_ms) == ["a"]
    for image in small.disk.crash_images(5):
        assert len(small.again(image).bodies()) == 60


def test_a_flush_takes_back_the_jobs_under_way() -> None:
    """A second sync beside a first one that fails would succeed, and mean nothing."""
    small = Small(settings=SYNC)
    small.append(message(b"one"))
    jobs = small.later()
    (job,) = [job for job in jobs if isinstance(job, SyncLog)]
    small.disk.fail("sync")
    job.run()
    with pytest.raises(DiskFailedError, match="could not be synced"):
        small.store.flush(small.now_ms)
    assert small.store.durability.flushed == 0
    assert small.store.finished(job, small.now_ms) == []


def test_jobs_are_given_out_once() -> None:
    small = Small()
    small.send(message(b"one"))
    first = small.later(20_000)
    assert {type(job) for job in first} == {PrepareSegment, SyncLog, SyncQueues}
    assert small.later(20_000) == []
    for job in first:
        job.run()
        small.store.finished(job, small.now_ms)
    second = small.later(20_000)
    assert [type(job) for job in second] == [SyncQueues]  # the checkpoint speaks of what was not safe at the first
    for job in second:
        job.run()
        small.store.finished(job, small.now_ms)
    assert small.later(20_000) == []


def supplies(small: Small) -> list[SupplyPages]:
    """What has to be brought into memory now; it is there by the next call."""
    found = []
    for job in small.later():
        job.run()
        small.store.finished(job, small.now_ms)
        if isinstance(job, SupplyPages):
            found.append(job)
    return found


def test_pages_are_in_memory_before_they_are_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kourou.store.log_sync.SUPPLY_MIN", 1024)
    monkeypatch.setattr("kourou.store.log_sync.SUPPLY_MAX", 2048)
    small = Small()
    small.send(message(b"before anybody looked"))
    assert supplies(small) == [], "an idle log needs none"
    small.send(message(b"x"))
    end = small.store.log.end
    (job,) = supplies(small)
    assert (job.start, job.size) == (end, 1024)
    small.send(message(b"x"))
    assert small.store.log.end - end < 512
    assert supplies(small) == [], "more than half is there yet"
    small.fill(4, size=100)
    (job,) = supplies(small)
    assert job.start == end + 1024
    assert supplies(small) == [], "nobody writes"


def test_pages_of_the_next_segment_are_of_another_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kourou.store.log_sync.SUPPLY_MIN", 1 << 20)
    small = Small()
    supplies(small)
    size = small.store.log.segments.file_size
    seen = set()
    while small.store.log.end < 3 * size:
        small.fill(1)
        for job in supplies(small):
            assert job.start + job.size == size, "to its end, and not beyond"
            seen.add(job.file.path.name)
    assert len(seen) >= 3


# ── The end ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_abort_file_is_durable_while_a_store_is_open() -> None:
    small = Small()
    assert small.disk.read(ROOT / "abort") == str(os.getpid()).encode()
    assert all(image.read(ROOT / "abort") for image in small.disk.crash_images(20))
    small.close()
    assert not any(image.read(ROOT / "abort") for image in small.disk.crash_images(20))


def test_a_clean_stop_leaves_no_abort_and_a_quick_start() -> None:
    small = Small()
    small.fill(60)
    assert "abort" in small.names("")
    small.close()
    assert "abort" not in small.names("")
    assert small.names("") == ["checkpoint", "kourou-clean.json", "lock"]
    again = small.again(small.disk.crash())
    assert (again.store.report.hinted, again.store.report.records) == (True, 0)
    assert again.names("") == ["abort", "checkpoint", "lock"]
    assert len(again.bodies()) == 60


def test_starts_change_nothing_by_themselves() -> None:
    small = Small()
    small.fill(20)
    small.close()
    index = small.names("index")[0]
    before = small.disk.read(ROOT / "index" / index)
    for _ in range(3):
        small = small.again()
        small.close()
    assert small.disk.read(ROOT / "index" / index) == before


def test_a_stop_with_jobs_under_way() -> None:
    small = Small()
    small.fill(30)
    jobs = small.later()
    jobs[0].run()
    small.close()
    before = small.disk.calls
    for job in jobs:
        job.run()
    assert small.disk.calls == before, "a job has done something after the end"
    again = small.again()
    assert again.store.report.hinted
    assert len(again.bodies()) == 30


def test_a_job_does_nothing_once_a_store_is_abandoned() -> None:
    small = Small()
    small.fill(30)
    jobs = small.later()
    small.store.abandon()
    before = small.disk.calls
    for job in jobs:
        job.run()
    assert small.disk.calls == before
    assert len(small.again(small.disk.kill()).bodies()) == 30


def test_the_lock_is_released_however_it_ends() -> None:
    small = Small()
    with pytest.raises(StoreInUseError, match="already open"):
        small.again()
    small.disk.fail("replace", where="*/checkpoint")
    small.send(message(b"one"))
    with pytest.raises(OSError, match="checkpoint"):
        small.close()
    assert small.again().bodies() == [b"one"]


def test_an_open_that_fails_lets_go_of_the_lock() -> None:
    small = Small()
    small.fill(3)
    small.close()
    small.disk.fail("replace", where="*/abort")
    with pytest.raises(DiskFailedError, match=r"/store/abort: Input/output error; the store in /store can't be opened"):
        small.again()
    assert small.again().store.report.hinted


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (replace(SETTINGS, delete_when="25"), "deleteWhen=25: hours from 00 to 23"),
        (replace(SETTINGS, delete_when="noon"), "deleteWhen=noon"),
        (replace(SETTINGS, delay_levels="1s 2x"), "messageDelayLevel=1s 2x: times are expected"),
        (replace(SETTINGS, delay_levels=""), "messageDelayLevel="),
    ],
)
def test_settings_that_make_no_sense_are_named(settings: StoreSettings, reason: str) -> None:
    disk = new_disk()
    with pytest.raises(BadSettingError, match=reason):
        Small(disk, settings)
    assert Small(disk).bodies() == [], "the lock is free"


def test_the_checkpoint_has_what_replicas_would_want_to_know() -> None:
    small = Small()
    small.fill(2)
    small.close()

    def checkpoint() -> Checkpoint:
        return Checkpoint.read(small.disk, ROOT / "checkpoint")

    assert (checkpoint().master_flushed, checkpoint().confirm) == (0, 0)
    again = small.again()
    last = again.store.queues.ensure("orders", 0).entry(1)[0]
    again.store.master_flushed = 77
    again.fill(1)
    again.close()
    assert (checkpoint().master_flushed, checkpoint().confirm) == (77, last)
    again = small.again()
    confirmed = again.store.log.end
    again.store.durability.require("replicas", confirmed, timeout_ms=None)
    again.fill(1)
    again.store.flush(again.now_ms)
    assert (checkpoint().master_flushed, checkpoint().confirm) == (77, confirmed)


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    def open_it() -> Store:
        return Store.open(tmp_path, SETTINGS, store_host=HOST, now_ms=BEGIN_MS, file_time=file_time)

    store = open_it()
    with pytest.raises(StoreInUseError, match=rf"{tmp_path} is already open .*stop the broker that uses it"):
        open_it()
    store.close(BEGIN_MS)
    open_it().close(BEGIN_MS)


def test_threads_do_the_work(tmp_path: Path) -> None:
    """The whole way on a real disk: append, group commit by a worker, visible, clean stop."""
    woken = threading.Event()
    disk = RealDisk(tmp_path / "kourou-aside")
    store = Store.open(tmp_path, SYNC, store_host=HOST, now_ms=BEGIN_MS, file_time=file_time, disk=disk)
    worker = Worker(woken.set)
    answered: set[object] = set()
    for number in range(100):
        store.append([message(b"%03d" % number + bytes(400))], BEGIN_MS + number)
        store.durability.wait(store.log.end, number, BEGIN_MS)
        for job in store.jobs(BEGIN_MS + number):
            worker.submit(job)
        for job in worker.finished(wait=number % 10 == 9):
            answered |= set(store.finished(job, BEGIN_MS + number))
    for job in worker.close():
        answered |= set(store.finished(job, BEGIN_MS + 100))
    answered |= set(store.flush(BEGIN_MS + 100))
    assert answered == set(range(100))
    assert woken.is_set()
    assert store.reader.offsets("orders", 0) == (0, 100)
    store.close(BEGIN_MS + 100)
    assert not (tmp_path / "abort").exists()


# ── Removing ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_removed_topic_begins_anew() -> None:
    small = Small()
    small.fill(15)
    assert small.store.remove_topic("orders") == 1
    assert small.store.reader.get("orders", 0, 0, 1).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert small.send(message(b"new"))[0].queue_offset == 0
    assert small.bodies() == [b"new"]


@pytest.mark.parametrize("way", ["stop", "kill", "rebuild"])
def test_the_new_life_of_a_topic_survives(way: str) -> None:
    small = Small()
    small.fill(15)
    small.store.remove_topic("orders")
    small.send(message(b"new 0"), message(b"new 1"))
    if way == "stop":
        small.close()
    else:
        small.store.abandon()
        small.disk = small.disk.kill()
    if way == "rebuild":
        small.disk.remove_folder(ROOT / "consumequeue")
    again = small.again()
    assert again.bodies() == [b"new 0", b"new 1"]
    assert again.send(message(b"new 2"))[0].queue_offset == 2


def test_a_topic_removed_while_some_of_it_is_not_visible() -> None:
    """Those never become visible, and the next message begins again."""
    small = Small(settings=SYNC)
    small.fill(3)
    small.settle()
    small.append(message(b"not safe yet"))
    small.store.remove_topic("orders")
    assert small.append(message(b"after"))[0].queue_offset == 0
    small.settle()
    assert small.bodies() == [b"after"]


def test_a_removal_that_fails() -> None:
    small = Small(settings=SYNC)
    small.fill(25)
    small.settle()
    small.append(message(b"not safe yet"))
    small.disk.fail("remove_folder", where="*/consumequeue/*")
    with pytest.raises(OSError, match="consumequeue"):
        small.store.remove_topic("orders")
    assert small.append(message(b"after"))[0].queue_offset == 26
    small.settle()
    assert small.bodies(offset=25) == [b"not safe yet", b"after"]
    small.store.remove_topic("orders")
    assert small.disk.folders(ROOT / "consumequeue") == []


@pytest.mark.parametrize("again", [True, False], ids=["made again", "not made again"])
def test_a_removed_topic_does_not_come_back_after_a_crash(again: bool) -> None:
    small = Small()
    small.store.flush(small.now_ms)
    for number in range(60):
        small.send(message(b"old", "orders", number), message(b"other", "others", number))
    small.store.remove_topic("orders")
    small.store.keep_removed()
    if again:
        small.send(message(b"new", "orders", 7))
    for image in [*small.disk.crash_images(10), small.disk.kill()]:
        found = small.again(image)
        queues = {queue_id: found.bodies("orders", queue_id) for queue_id in range(60)}
        assert {queue_id: bodies for queue_id, bodies in queues.items() if bodies} in ({7: [b"new"]}, {})
        assert found.send(message(b"newer", "orders", 3))[0].queue_offset == 0


def test_what_a_crash_took_from_the_log_was_not_removed_when_it_is_written_again() -> None:
    small = Small()
    small.fill(3)
    small.store.flush(small.now_ms)
    end = small.store.log.end
    small.append(message(b"lost, perhaps"))
    small.store.remove_topic("orders")
    small.store.keep_removed()
    for image in small.disk.crash_images(20):
        found = small.again(image)
        if found.store.log.end > end:
            continue
        found.send(message(b"new"))
        killed = found.again(found.disk.kill())
        assert killed.bodies() == [b"new"]


def test_removals_are_forgotten_with_the_log() -> None:
    small = Small()
    small.fill(3)
    small.store.remove_topic("orders")
    assert small.store.removed.until
    small.store.removed.forget_before(small.store.log.end)
    assert not small.store.removed.until
    small.close()
    assert small.again().store.removed.until == {}


def test_a_disk_of_its_own_for_the_log() -> None:
    disk = new_disk()
    elsewhere = Path("/fast/log")
    store = Store.open(
        ROOT, SETTINGS, store_host=HOST, now_ms=BEGIN_MS, file_time=file_time, disk=disk, commit_log=elsewhere
    )
    store.append([message(b"one")], BEGIN_MS)
    assert disk.files(elsewhere) and not disk.files(LOG)


# ── What those above are told ───────────────────────────────────────────────────────────────────────────────────────


def test_queues_with_new_entries_are_named_once() -> None:
    small = Small()
    small.send(message(b"one"), message(b"two"), message(b"three", "others", 7))
    assert small.store.has_arrived
    assert small.store.take_arrived() == [("orders", 0), ("others", 7)]
    assert small.store.take_arrived() == []
    small.append(message(b"four"))
    assert small.store.take_arrived() == [], "nobody can see it yet"
    small.store.dispatch()
    assert small.store.take_arrived() == [("orders", 0)]


def test_removed_queues_have_not_arrived() -> None:
    small = Small()
    small.send(message(b"one"), message(b"two", "others"))
    small.store.remove_topic("orders")
    assert small.store.take_arrived() == [("others", 0)]


def test_records_of_another_log_arrive_when_they_are_whole() -> None:
    """A replica appends pieces of its master's log that end anywhere, over several segments."""
    master, replica = Small(), Small()
    master.fill(40)
    log = master.store.log
    data = b"".join(bytes(log.segments.slice(start, min(SEGMENT, log.end - start))) for start in log.segments.starts)
    seen = 0
    for at in range(0, len(data), 1_000):
        replica.store.log.append_raw(memoryview(data[at : at + 1_000]))
        replica.store.dispatch()
        arrived, bodies = replica.store.take_arrived(), replica.bodies()
        assert arrived == ([("orders", 0)] if len(bodies) > seen else [])
        seen = len(bodies)
    assert replica.bodies() == master.bodies()


def test_nothing_arrives_by_a_start() -> None:
    small = Small()
    small.fill(3)
    small.store.abandon()
    assert small.again(small.disk.kill()).store.take_arrived() == []


def test_how_far_the_log_is_safe_and_visible() -> None:
    small = Small(settings=SYNC)
    end = small.append(message(b"one"))[0].size
    assert (small.store.durability.flushed, small.store.dispatched) == (0, 0)
    small.work()
    assert (small.store.durability.flushed, small.store.dispatched) == (end, 0)
    small.store.dispatch()
    assert (small.store.durability.flushed, small.store.dispatched) == (end, end)
