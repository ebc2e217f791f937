"""A disk that fails, fills up, turns read-only or rots, and what the store says and does."""

import errno
import logging
import math
from dataclasses import replace
from pathlib import Path

import pytest

from kourou.store.backoff import FIRST_MS
from kourou.store.checkpoint import Checkpoint
from kourou.store.errors import DiskFailedError, DiskFullError
from kourou.store.jobs import PrepareSegment, RewriteLog, SyncLog, SyncQueues
from kourou.store.queue_rewrite import ReadEntries
from kourou.store.reading import GetStatus
from kourou.testing.disk import SimulatedDisk

from .small import LOG, ROOT, SEGMENT, SYNC, Small, message

# ── Syncs that fail ─────────────────────────────────────────────────────────────────────────────────────────────────


def failed(*, forget: bool = False, small: Small | None = None) -> Small:
    """The first three messages are safe; the sync of two more has failed."""
    small = small or Small(settings=replace(SYNC, read_uncommitted=True))
    small.fill(3)
    small.store.flush(small.now_ms)
    small.fill(2, "doubtful", 900)
    small.store.durability.wait(small.store.log.end, "somebody", small.now_ms)
    small.disk.fail("sync", where="*/commitlog/*")
    assert small.work() == []
    if forget:
        small.disk.evict()
    return small


def test_a_failed_sync_stops_writing_and_is_repaired() -> None:
    small = failed()
    reason = small.store.refusal
    assert reason is not None and "/store/commitlog could not be synced" in reason and "Input/output error" in reason
    with pytest.raises(DiskFailedError, match="resumes automatically"):
        small.append(message(b"refused"))
    assert len(small.bodies()) == 3  # reading goes on
    assert small.work() == ["somebody"]
    assert small.store.refusal is None
    small.send(message(b"goes on"))
    small.store.flush(small.now_ms)
    for image in small.disk.crash_images(5):
        again = small.again(image)
        assert len(again.bodies("doubtful")) == 2
        assert again.bodies()[-1] == b"goes on"


def test_rewriting_waits_for_the_disk() -> None:
    small = failed()
    small.disk.fail("create", times=3)
    attempts = 0
    while small.store.refusal is not None:
        jobs = small.later(FIRST_MS << 3)
        for job in jobs:
            job.run()
            small.store.finished(job, small.now_ms)
        attempts += sum(isinstance(job, RewriteLog) for job in jobs)
        assert not any(isinstance(job, RewriteLog) for job in small.later(1))
    assert attempts == 4
    assert len(small.bodies("doubtful")) == 2


def test_what_memory_forgot_is_lost_and_those_who_wait_are_told() -> None:
    small = failed(forget=True)
    end = small.store.durability.flushed
    assert small.work() == []
    assert small.store.log.end < small.store.durability.flushed + 2_000
    assert end <= small.store.log.end
    assert small.store.durability.take_cut() == ["somebody"]
    kept = len(small.bodies("doubtful"))
    assert kept < 2
    assert small.send(message(b"next", "doubtful"))[0].queue_offset == kept
    assert len(small.bodies("doubtful")) == kept + 1
    small.store.flush(small.now_ms)
    for image in small.disk.crash_images(5):
        again = small.again(image)
        assert len(again.bodies("doubtful")) == kept + 1
        assert len(again.bodies()) == 3


def test_numbers_go_on_behind_what_is_not_dispatched() -> None:
    """Under SYNC_FLUSH nothing doubtful was visible: its numbers were given out all the same."""
    small = Small(settings=SYNC)
    small.fill(3)
    small.settle()
    failed(small=small)
    small.settle()
    assert small.send(message(b"next", "doubtful"))[0].queue_offset == 2
    small.settle()
    assert len(small.bodies("doubtful")) == 3


def test_a_flush_after_a_failed_sync_is_refused() -> None:
    """The next sync would succeed without having written anything."""
    small = failed()
    with pytest.raises(DiskFailedError, match="could not be synced"):
        small.store.flush(small.now_ms)


def test_a_stop_after_a_failed_sync_writes_everything_anew() -> None:
    small = failed()
    small.close()
    again = small.again(small.disk.crash())
    assert again.store.report.hinted
    assert len(again.bodies("doubtful")) == 2


def test_a_stop_that_can_not_do_so_is_no_clean_one() -> None:
    small = failed()
    small.disk.fail("create", times=math.inf)
    with pytest.raises(DiskFailedError):
        small.close()
    assert "abort" in small.names("")
    small.disk.heal()
    again = small.again()
    assert len(again.bodies("doubtful")) == 2
    for image in again.disk.crash_images(5):
        assert len(small.again(image).bodies("doubtful")) == 2


def kept(small: Small) -> int:
    """Up to where the checkpoint says that queues and index are durable."""
    return Checkpoint.read(small.disk, ROOT / "checkpoint").covered


def is_whole(small: Small, **counts: int) -> bool:
    """Are so many messages in these topics, and has the index all their keys?"""
    return all(
        len(small.bodies(topic)) == count and all(small.by_key(f"k{number}", topic) for number in range(count))
        for topic, count in counts.items()
    )


@pytest.mark.parametrize("forget", [True, False], ids=["pages are dropped", "pages stay"])
@pytest.mark.parametrize("where", ["*/consumequeue/*", "*/index/*", "*/consumequeue/orders2/*", "*/[ci]*[ex]*/*"])
def test_queues_and_index_that_can_not_be_synced_are_written_again(where: str, forget: bool) -> None:
    """The next sync would succeed without writing what the first one left out."""
    small = Small()
    small.fill(30)
    small.store.flush(small.now_ms)
    small.fill(30, "orders2")
    before = kept(small)
    small.fill(25, "others")
    small.disk.fail("sync", where=where, times=math.inf)
    small.work(70_000)
    small.disk.heal()
    assert kept(small) == before, "nothing is known of what comes after it"
    if forget:
        small.disk.evict()
    small.fill(3, "more")
    small.settle()
    assert kept(small) == small.store.log.end, "checkpoints go on"
    counts = {"orders": 30, "orders2": 30, "others": 25, "more": 3}
    assert is_whole(small, **counts)
    for image in small.disk.crash_images(5):
        assert is_whole(small.again(image), **counts)
    small.close()
    assert "abort" not in small.names("")
    assert is_whole(small.again(small.disk.crash()), **counts)


def test_queues_are_written_again_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kourou.store.queue_rewrite.ENTRIES_MAX", 7)
    small = Small()
    small.fill(100)
    small.disk.fail("sync", where="*/consumequeue/*", times=10)
    small.work(70_000)
    small.disk.evict()
    slices = 0
    for _ in range(100):
        slices += sum(isinstance(job, ReadEntries) for job in small.run(1_000))
    assert slices >= 100 // 7
    assert kept(small) == small.store.log.end and is_whole(small, orders=100)


def test_a_disk_that_fails_for_long_is_asked_again_and_again() -> None:
    small = Small()
    small.fill(30)
    small.disk.fail("sync", where="*/consumequeue/*", times=math.inf)
    for _ in range(20):
        small.work(5_000)
        small.fill(2)
        small.disk.evict()
    assert kept(small) == 0
    small.disk.heal()
    small.settle()
    assert kept(small) == small.store.log.end
    assert len(small.bodies()) == 70
    for image in small.disk.crash_images(5):
        assert len(small.again(image).bodies()) == 70


def test_the_log_is_cut_while_queues_are_written_again() -> None:
    """Other records get the places of those that were cut, and their entries stay."""
    small = Small()
    ends = [(place.physical_offset + place.size) for place in small.send(*(message(b"old") for _ in range(20)))]
    small.disk.fail("sync", where="*/consumequeue/*")
    small.work(70_000)
    small.disk.evict()
    (job,) = [job for job in small.later(1_000) if isinstance(job, ReadEntries)]
    job.run()
    small.store.truncate(ends[9], small.now_ms)
    small.send(*(message(b"newer") for _ in range(5)))
    small.store.finished(job, small.now_ms)
    small.settle()
    assert small.bodies() == [b"old"] * 10 + [b"newer"] * 5
    for image in small.disk.crash_images(5):
        assert small.again(image).bodies() == [b"old"] * 10 + [b"newer"] * 5


def test_a_topic_is_removed_while_its_queues_are_written_again() -> None:
    small = Small()
    small.fill(20)
    small.fill(5, "others")
    small.disk.fail("sync", where="*/consumequeue/*", times=2)
    small.work(70_000)
    (job,) = [job for job in small.later(1_000) if isinstance(job, ReadEntries)]
    job.run()
    small.store.remove_topic("orders")
    small.store.keep_removed()
    small.send(message(b"new"))
    small.store.finished(job, small.now_ms)
    small.settle()
    assert small.bodies() == [b"new"] and len(small.bodies("others")) == 5
    assert kept(small) == small.store.log.end


def test_names_that_can_not_be_synced_are_made_again_by_the_next_start(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing short of another change to a folder has the system write it once more."""
    small = Small()
    small.fill(30)
    small.disk.fail("sync_folder", where="*/consumequeue/*")
    small.work(70_000)
    assert "the next start will rebuild them" in caplog.text
    small.fill(3, "more")
    assert not any(isinstance(job, SyncQueues) for job in small.later(70_000))
    small.close()
    assert "abort" in small.names("")
    for image in small.disk.crash_images(5):
        again = small.again(image)
        assert (len(again.bodies()), len(again.bodies("more"))) == (30, 3)


def test_too_many_open_files_are_no_reason_to_doubt() -> None:
    """The folder could not be opened, and so the disk was not asked: it is enough to try again."""
    small = Small()
    small.fill(30)
    small.disk.fail("sync_folder", errno.EMFILE, where="*/consumequeue/*")
    small.work(70_000)
    small.settle()
    assert kept(small) == small.store.log.end
    for image in small.disk.crash_images(5):
        assert len(small.again(image).bodies()) == 30


def test_a_checkpoint_that_finds_no_room_is_tried_again() -> None:
    small = Small()
    small.fill(3)
    small.disk.fail("replace", errno.ENOSPC, where="*/checkpoint")
    small.work(70_000)
    assert not any(isinstance(job, SyncQueues) for job in small.later(10)), "not at once"
    (job,) = [job for job in small.later(70_000) if isinstance(job, SyncQueues)]
    job.run()
    assert job.error is None
    small.store.finished(job, small.now_ms)
    small.close()
    assert small.again().store.report.hinted


# ── No room ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_full_disk_refuses_and_resumes() -> None:
    small = Small()
    small.fill(1, size=3_000)
    small.disk.full_after(0)
    taken = 1
    refusal = ""
    while not refusal:
        try:
            small.send(message(b"x" * 1_000))
            taken += 1
        except DiskFullError as error:
            refusal = str(error)
    assert refusal.startswith(f"no room for {SEGMENT} bytes at {LOG}/{SEGMENT:020}: No space left on device")
    assert taken > 1, "the room that was reserved is used up first"
    assert len(small.bodies()) == taken
    assert small.work(20_000) == []
    small.disk.capacity = None
    small.settle()
    assert small.send(message(b"goes on"))[0].queue_offset == taken
    assert len(small.bodies()) == taken + 1


def test_queues_without_room_catch_up() -> None:
    small = Small()
    small.send(message(b"first"))
    small.disk.full_after(0)
    small.append(*(message(b"%d" % number, "others", number) for number in range(3)))
    with pytest.raises(DiskFullError, match="/store/consumequeue/others/0/"):
        small.store.dispatch()
    assert small.bodies() == [b"first"]
    small.disk.capacity = None
    small.store.dispatch()
    assert [small.bodies("others", number) for number in range(3)] == [[b"0"], [b"1"], [b"2"]]


def test_an_index_without_room_catches_up_without_doubles() -> None:
    small = Small()
    small.append(message(b"one", key="a b c"))
    small.disk.fail("create", errno.ENOSPC, where="*/index/*")
    with pytest.raises(DiskFullError, match="/store/index/"):
        small.store.dispatch()
    small.store.dispatch()
    assert small.bodies() == [b"one"]
    assert [small.by_key(key) for key in "abc"] == [[b"one"]] * 3


def test_a_segment_that_can_not_be_prepared_is_tried_later(caplog: pytest.LogCaptureFixture) -> None:
    small = Small()
    small.disk.fail("create", errno.ENOSPC)
    small.work()
    assert "the next segment can't be prepared; this will be retried: [Errno 28] No space left on device" in caplog.text
    assert not any(isinstance(job, PrepareSegment) for job in small.later(FIRST_MS - 1))
    assert any(isinstance(job, PrepareSegment) for job in small.later(1))


def test_a_store_on_a_full_disk_can_not_be_opened() -> None:
    small = Small()
    small.fill(3)
    small.close()
    small.disk.full_after(0)
    with pytest.raises(DiskFullError, match=r"/store/abort: No space left on device.*Free some space, and start again"):
        small.again()
    small.disk.capacity = None
    assert small.again().store.report.hinted


# ── Read-only ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_disk_that_turns_read_only() -> None:
    small = Small()
    small.fill(5)
    small.disk.read_only = True
    small.settle()
    with pytest.raises(DiskFailedError, match="Read-only file system"):
        small.append(message(b"refused"))
    assert len(small.bodies()) == 5
    small.disk.heal()
    small.settle()
    small.send(message(b"goes on"))
    assert len(small.bodies()) == 6


def test_a_read_only_store_can_not_be_opened() -> None:
    small = Small()
    small.close()
    small.disk.read_only = True
    with pytest.raises(DiskFailedError, match=r"Read-only file system; the store in /store can't be opened"):
        small.again()


def test_a_folder_that_can_not_be_read_is_named() -> None:
    small = Small()
    small.send(message(b"one"))
    small.close()
    again = small.again()
    again.disk.fail("list", where="*/consumequeue/orders/0")
    with pytest.raises(DiskFailedError, match=r"/store/consumequeue/orders/0 can't be read: .*Input/output error"):
        again.append(message(b"two"))
    assert again.send(message(b"two"))[0].queue_offset == 1


# ── Rot ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def flipped(disk: SimulatedDisk, path: Path, at: int) -> SimulatedDisk:
    disk.flip(path, at)
    return disk


def test_a_damaged_record_is_passed_over_and_named(caplog: pytest.LogCaptureFixture) -> None:
    small = Small()
    small.fill(3)
    offset = small.store.queues.ensure("orders", 0).entry(1)[0]
    small.close()
    again = small.again(flipped(small.disk, LOG / f"{0:020}", offset + 100))
    with caplog.at_level(logging.ERROR):
        found = again.store.reader.get("orders", 0, 0, 32)
    assert (len(found.records), found.next_offset) == (2, 3)
    assert f"at {offset} is damaged" in caplog.text
    assert again.by_key("k1") == []
    assert again.store.reader.record_at(offset) is None


def test_only_what_is_damaged_is_passed_over() -> None:
    small = Small()
    small.fill(3)
    entry = small.store.queues.ensure("orders", 0).entry(1)
    small.close()
    again = small.again(flipped(small.disk, LOG / f"{0:020}", entry[0] + 100))
    assert again.store.reader.get("orders", 0, 1, 1).status is GetStatus.FOUND
    assert again.store.reader.get("orders", 0, 1, 1).next_offset == 3


def test_an_entry_that_leads_nowhere_is_made_again() -> None:
    small = Small()
    small.fill(3)
    small.close()
    path = ROOT / "consumequeue" / "orders" / "0" / f"{0:020}"
    for at in (20, 27, 31):  # in the offset and in the size of the second entry
        again = small.again(flipped(small.disk.kill(), path, at))
        assert [body[:5] for body in again.bodies()] == [b"00000"]
        again.settle()
        assert [body[:5] for body in again.bodies()] == [b"00000", b"00001", b"00002"]


def test_a_missing_entry_ends_a_read_and_a_restart_finds_it() -> None:
    """The record is there: to pass it over would lose it for good."""
    small = Small()
    small.fill(5)
    file = small.store.queues.ensure("orders", 0)
    file.entries(2, 1)[:] = bytes(20)
    found = small.store.reader.get("orders", 0, 0, 32)
    assert (len(found.records), found.next_offset) == (2, 2)
    assert small.store.reader.get("orders", 0, 2, 32).status is GetStatus.OFFSET_FOUND_NULL
    assert small.store.reader.get("orders", 0, 2, 32).next_offset == 2
    small.store.abandon()
    assert len(small.again(small.disk.kill()).bodies()) == 5


def test_memory_is_not_trusted_after_a_failed_sync() -> None:
    small = failed(forget=True)
    assert len(small.bodies()) == 3
    for found in small.store.reader.get("doubtful", 0, 0, 32).records:
        assert bytes(found[88:93]) in (b"00000", b"00001")


def test_a_sync_job_that_fails_has_its_error() -> None:
    small = Small()
    small.fill(3)
    (job,) = [job for job in small.later(20_000) if isinstance(job, SyncLog)]
    small.disk.fail("sync")
    job.run()
    job.run()  # once is enough
    assert job.error is not None and job.error.errno == errno.EIO
