"""The commit log alone: records over segments, the next segment made ahead, and what a failed sync leaves."""

import errno
import threading
import zlib
from pathlib import Path
from random import Random

import pytest

from kourou._backend import PURE
from kourou.protocol.record import Found, Scanner, encode_filler
from kourou.store import writer
from kourou.store.backoff import FIRST_MS
from kourou.store.commit_log import CommitLog, no_room, with_room_for_crc
from kourou.store.disk import File, RealDisk
from kourou.store.errors import DiskFailedError, DiskFullError, IllegalMessageError
from kourou.store.jobs import SyncLog
from kourou.testing.disk import SimulatedDisk
from kourou.testing.disk_files import SimulatedFile

from .small import HOST, LOG, SEGMENT, message, new_disk

FIXED = 91 + len("orders")


def new_log(disk: SimulatedDisk | None = None) -> CommitLog:
    log = CommitLog(disk or new_disk(), LOG, SEGMENT, 8000, HOST)
    log.resume(0, 0)
    return log


def append(log: CommitLog, size: int, stored_ms: int = 1) -> int:
    """A record of exactly this size."""
    return log.append(message(b"x" * (size - FIXED)), b"orders", b"", 0, stored_ms)


def records(log: CommitLog) -> list[int]:
    """Where records are, and the filler as -1."""
    found = []
    for start in log.segments.starts:
        scanner = Scanner(log.segments.file(start).buffer, crc=True, base=start)
        while (what := scanner.step()) == Found.RECORD:
            found.append(start + scanner.at)
        found += [-1] if what == Found.FILLER else []
    return found


# ── Segments ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_record_leaves_room_for_a_filler() -> None:
    log = new_log()
    assert append(log, SEGMENT - 8) == 0
    assert log.end == SEGMENT - 8
    assert append(log, 100) == SEGMENT
    assert records(log) == [0, -1, SEGMENT]
    assert log.read(SEGMENT - 8, 8) == encode_filler(8)


def test_one_byte_more_goes_into_the_next_segment() -> None:
    log = new_log()
    append(log, 200)
    assert append(log, SEGMENT - 200 - 7) == SEGMENT
    assert records(log) == [0, -1, SEGMENT]


def test_a_record_that_no_segment_holds_is_refused() -> None:
    log = new_log()
    append(log, 200)
    with pytest.raises(IllegalMessageError, match=f"{SEGMENT - 7} bytes does not fit into a segment of {SEGMENT}"):
        append(log, SEGMENT - 7)
    with pytest.raises(IllegalMessageError, match="do not fit"):
        log.make_room(SEGMENT - 7)
    assert (log.end, records(log)) == (200, [0])


def test_room_for_a_batch_is_in_one_segment() -> None:
    log = new_log()
    append(log, 5000)
    log.make_room(3000)
    assert log.end == 5000
    log.make_room(3185)
    assert log.end == SEGMENT
    assert records(log) == [0, -1]


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (message(b"x" * 8001), "8001 bytes; the limit is 8000 .maxMessageSize"),
        (message(b"", topic=""), "a topic of 0 bytes"),
        (message(b"", topic="t" * 256), "a topic of 256 bytes"),
        (message(b"", properties=b"x" * 32768), "properties of 32768 bytes"),
    ],
)
def test_limits(what: object, reason: str) -> None:
    with pytest.raises(IllegalMessageError, match=reason):
        new_log().check(what, what.topic.encode())  # type: ignore[arg-type, attr-defined]


def test_a_host_is_of_either_kind() -> None:
    odd = message(b"")
    odd.born_host = b"123"
    with pytest.raises(IllegalMessageError, match="born host of 3 bytes"):
        new_log().check(odd, b"orders")


def test_every_body_has_its_crc() -> None:
    """Compiled, the CRC is made in pieces of 64, 16, 8 and 1."""
    log, random = new_log(), Random(7)
    for size in [*range(300), 1024, 4095, 7000]:
        body = random.randbytes(size)
        at = log.append(message(body), b"orders", b"", 0, 1)
        assert int.from_bytes(log.read(at + 8, 4)) == zlib.crc32(body) & 0x7FFFFFFF, f"a body of {size} bytes"


def test_bytes_of_another_log_over_segments() -> None:
    one, other = new_log(), new_log(new_disk(2))
    for size in (3000, 3000, 3000, 5000, SEGMENT - 8, 200):
        append(one, size)
    data = b"".join(bytes(one.segments.file(start).buffer) for start in one.segments.starts)[: one.end]
    for at in range(0, len(data), 1000):  # whatever the pieces are
        other.append_raw(memoryview(data)[at : at + 1000])
    assert (other.end, records(other)) == (one.end, records(one))
    assert append(other, 300) == append(one, 300)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.skipif(not PURE, reason="compiled, nobody can step in between; tests/crash kills the real thing")
@pytest.mark.parametrize("properties", [b"", b"a\1\0\2"])
def test_a_record_is_none_until_all_of_it_is_there(monkeypatch: pytest.MonkeyPatch, properties: bytes) -> None:
    log = new_log()
    append(log, 200)

    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(writer, "publish", killed)
    what = with_room_for_crc(properties) if properties else properties
    with pytest.raises(Killed):
        log.append(message(b"x" * 50), b"orders", what, 0, 1, bool(properties))
    assert records(log) == [0]
    scanner = Scanner(log.segments.file(0).buffer, 200, crc=True, base=0)
    assert (scanner.step(), scanner.reason) == (Found.END, "never written")


# ── Going on ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("end", [0, 700, SEGMENT - 8, SEGMENT])
def test_it_goes_on_where_recovery_says(end: int) -> None:
    disk = new_disk()
    before = new_log(disk)
    if end:
        append(before, 700)
    if end > 700:
        append(before, SEGMENT - 8 - 700)
    before.close()
    log = CommitLog(disk, LOG, SEGMENT, 8000, HOST)
    log.segments.load()
    log.resume(end, 77)
    assert (log.end, log.stored_ms) == (end, 77)
    assert append(log, 200) == (SEGMENT if end > 700 else end)
    assert log.segments.starts[-1] == (SEGMENT if end > 700 else 0)


def test_reading_ends_with_the_log() -> None:
    log = new_log()
    append(log, 200)
    assert len(log.read(0, 200)) == 200
    for offset, size in ((0, 201), (200, 1), (SEGMENT, 1), (0, -1)):
        with pytest.raises(KeyError):
            log.read(offset, size)


def test_what_is_to_be_synced() -> None:
    log = new_log()
    assert log.sync_target(0) == ([], 0, 0)
    append(log, 5000, 1)
    append(log, 5000, 2)
    files, upto, stored_ms = log.sync_target(0)
    assert ([file.path.name for file in files], upto, stored_ms) == (
        [f"{0:020}", f"{SEGMENT:020}"],
        SEGMENT + 5000,
        2,
    )
    assert log.sync_target(upto) == ([], upto, 2)
    append(log, 100, 3)
    files, upto, stored_ms = log.sync_target(upto)
    assert ([file.path.name for file in files], upto, stored_ms) == ([f"{SEGMENT:020}"], SEGMENT + 5100, 3)


# ── The next segment, made ahead ────────────────────────────────────────────────────────────────────────────────────


def test_a_segment_made_ahead_is_used() -> None:
    disk = new_disk()
    log = new_log(disk)
    job = log.prepare_spare(warm=False)
    assert job is not None and job.start == 0
    assert log.prepare_spare(warm=False) is None
    job.run()
    log.spare_prepared(job)
    calls = disk.calls
    append(log, 200)
    assert disk.calls == calls
    job = log.prepare_spare(warm=True)
    assert job is not None and job.start == SEGMENT


def test_a_warm_segment_cools_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the memory of every segment that ever was would be locked."""
    heard: list[tuple[str, int]] = []
    for name in ("warm", "cool"):
        monkeypatch.setattr(SimulatedFile, name, lambda file, name=name: heard.append((name, int(file.path.name))))
    log = new_log()
    for start in (0, SEGMENT):
        job = log.prepare_spare(warm=True)
        assert job is not None
        job.run()
        log.spare_prepared(job)
        assert append(log, 5000) == start
    assert heard == [("warm", 0), ("warm", SEGMENT), ("cool", 0)]


def test_a_segment_made_too_late_does_not_replace_the_one_in_use() -> None:
    """Or all that is written to that one would be lost with its name."""
    disk = new_disk()
    log = new_log(disk)
    append(log, 5000)
    job = log.prepare_spare(warm=False)
    assert job is not None
    append(log, 5000)
    job.run()  # a slow worker gets to it now
    log.spare_prepared(job)
    assert (job.done, job.file) == (False, None)
    found = disk.kill().read(LOG / f"{SEGMENT:020}")
    assert found is not None and found[:5000] == log.read(SEGMENT, 5000)
    following = log.prepare_spare(warm=False)
    assert following is not None and following.start == 2 * SEGMENT


def test_a_segment_that_is_ready_and_not_given_back_is_used() -> None:
    disk = new_disk()
    log = new_log(disk)
    append(log, 5000)
    job = log.prepare_spare(warm=False)
    assert job is not None
    job.run()
    calls = disk.calls
    append(log, 5000)
    assert disk.calls == calls
    log.spare_prepared(job)
    found = disk.kill().read(LOG / f"{SEGMENT:020}")
    assert found is not None and found[:5000] == log.read(SEGMENT, 5000)


class SlowDisk(RealDisk):
    """The creation of a file waits for the test."""

    def __init__(self, aside: Path) -> None:
        super().__init__(aside)
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def create(self, path: Path, size: int, *, reserve: bool = True, content: memoryview | None = None) -> File:
        self.begun.set()
        assert self.go_on.wait(60)
        return super().create(path, size, reserve=reserve, content=content)


def test_a_segment_that_is_being_made_is_waited_for(tmp_path: Path) -> None:
    disk = SlowDisk(tmp_path / "aside")
    log = CommitLog(disk, tmp_path / "log", SEGMENT, 8000, HOST)
    log.resume(0, 0)
    append(log, 5000)
    job = log.prepare_spare(warm=False)
    assert job is not None
    disk.begun.clear()
    disk.go_on.clear()
    worker = threading.Thread(target=job.run)
    worker.start()
    assert disk.begun.wait(60)
    threading.Thread(target=disk.go_on.set).start()
    append(log, 5000)  # needs it, and waits
    worker.join()
    assert (tmp_path / "log" / f"{SEGMENT:020}").read_bytes()[:5000] == log.read(SEGMENT, 5000)
    log.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_for_a_segment(code: int) -> None:
    disk = new_disk()
    log = new_log(disk)
    append(log, 5000)
    disk.fail("create", code)
    with pytest.raises(DiskFullError, match=f"no room for {SEGMENT} bytes at {LOG}/{SEGMENT:020}"):
        append(log, 5000)
    assert (log.end, records(log)) == (5000, [0])
    assert append(log, 1000) == 5000  # what fits still goes in
    log.now_ms += FIRST_MS - 1
    with pytest.raises(DiskFullError, match="no room for"):  # the disk is not asked for each message
        append(log, 5000)
    log.now_ms += 1
    assert append(log, 5000) == SEGMENT


def test_a_segment_that_can_not_be_made() -> None:
    disk = new_disk()
    log = new_log(disk)
    disk.fail("create", errno.EIO)
    with pytest.raises(DiskFailedError, match=f"{LOG}/{0:020} can't be written: Input/output error"):
        append(log, 5000)
    log.now_ms += FIRST_MS
    assert append(log, 5000) == 0
    assert "can't be written" in str(no_room(LOG, 1, OSError("without a number")))


# ── After a failed sync ─────────────────────────────────────────────────────────────────────────────────────────────


def failed_log(disk: SimulatedDisk, *, forget: bool) -> CommitLog:
    """Three segments, of which the first 3000 bytes are safe; memory may have forgotten the rest."""
    log = new_log(disk)
    append(log, 3000)
    for file in log.sync_target(0)[0]:
        file.sync()
    for _ in range(4):
        append(log, 5000)
    disk.fail("sync", where=f"*/{SEGMENT:020}")
    job = SyncLog(*log.sync_target(3000))
    job.run()
    assert job.error is not None
    log.sync_failed(job.error, 3000)
    if forget:
        disk.evict()
    return log


def test_nothing_is_written_after_a_failed_sync() -> None:
    log = failed_log(new_disk(), forget=False)
    assert log.failed is not None and "could not be synced at offset 3000: " in log.failed
    for refused in (lambda: append(log, 200), lambda: log.make_room(1), lambda: log.append_raw(memoryview(b"x"))):
        with pytest.raises(DiskFailedError, match=r"Input/output error.*resumes automatically"):
            refused()
    assert log.prepare_spare(warm=False) is None


def test_what_memory_still_has_is_written_anew() -> None:
    disk = new_disk()
    log = failed_log(disk, forget=False)
    end = log.end
    job = log.rewrite(3000, sealed=False)
    job.run()
    assert (job.error, job.held) == (None, end)
    log.rewritten(job)
    assert (log.end, log.failed) == (end, None)
    assert append(log, 200) == end
    for image in disk.crash_images(5):
        for start in log.segments.starts:
            stop = min(end - start, SEGMENT)
            found = image.read(LOG / f"{start:020}")
            assert found is not None and found[:stop] == log.segments.slice(start, stop)


def test_what_memory_has_forgotten_is_lost() -> None:
    """And what is behind it: a log has no holes. The segments behind go, the newest first."""
    disk = new_disk()
    log = failed_log(disk, forget=True)
    job = log.rewrite(3000, sealed=False)
    job.run()
    assert job.error is None
    log.rewritten(job)
    assert 3000 <= log.end < SEGMENT + 5000
    assert log.failed is None
    assert sorted(disk.files(LOG)) == [f"{start:020}" for start in log.segments.starts]
    assert not any(log.segments.file(log.end).buffer[log.end % SEGMENT :])
    expected = log.end
    assert append(log, 200) == expected


def test_rewriting_that_fails_is_done_again() -> None:
    disk = new_disk()
    log = failed_log(disk, forget=False)
    disk.fail("create", errno.ENOSPC, after=1)
    job = log.rewrite(3000, sealed=False)
    job.run()
    assert job.error is not None and job.error.errno == errno.ENOSPC
    again = log.rewrite(3000, sealed=False)
    again.run()
    log.rewritten(again)
    assert log.failed is None


# ── Other ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_room_for_a_crc() -> None:
    assert with_room_for_crc(b"") == bytes(20)
    assert with_room_for_crc(b"a\1b") == b"a\1b\2" + bytes(20)
    assert with_room_for_crc(b"a\1b\2") == b"a\1b\2" + bytes(20)
    full = b"a\1" + b"x" * 32760
    assert with_room_for_crc(full) is full
