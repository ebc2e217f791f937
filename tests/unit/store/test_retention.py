"""Which files go and when: the rules alone, and carried out on stores of both disks."""

import errno
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from kourou.protocol.hosts import encode_host
from kourou.protocol.record import decode_record, encode_record
from kourou.store.commit_log import NewMessage
from kourou.store.disk import Disk, RealDisk
from kourou.store.errors import DiskFullError
from kourou.store.jobs import Job, RemoveFiles, SyncQueues
from kourou.store.reading import GetStatus
from kourou.store.retention import (
    FOLLOW_MS,
    FULL_INTERVAL_MS,
    HOUR_MS,
    QUEUES_AT_ONCE,
    REQUESTED_ROUNDS,
    START_DELAY_MS,
    Decision,
    Retention,
    first_stored_ms,
    parse_hours,
)
from kourou.store.settings import FlushMode, StoreSettings
from kourou.store.store import Store
from kourou.testing.disk import SimulatedDisk, crash_everywhere

HOST = encode_host("127.0.0.1:10911")
NOON = 1_700_049_600_000  # 2023-11-15 12:00 UTC
SEGMENT = 16 * 1024
SETTINGS = StoreSettings(
    commit_log_file_size=SEGMENT,
    queue_file_entries=10,
    index_slots=16,
    index_entries=64,
    reserved_hours=72,
    delete_when="12",
    delete_batch=3,
)
DAYS_3 = 72 * HOUR_MS


def file_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y%m%d%H%M%S%f")[:17]


def message(body: bytes, topic: str = "orders", queue_id: int = 0, properties: bytes = b"") -> NewMessage:
    return NewMessage(topic, queue_id, body, properties, NOON, HOST)


# ── The rules ─────────────────────────────────────────────────────────────────────────────────────────────────────


def decide(
    retention: Retention, *ages_h: float, hour: int = 3, used: float = 0.1, asked: list[float] | None = None
) -> Decision:
    """A round at noon, with segments whose newest records are so many hours old."""

    def newest_ms() -> Iterator[int]:
        for age_h in ages_h:
            if asked is not None:
                asked.append(age_h)
            yield NOON - int(age_h * HOUR_MS)

    return retention.step(NOON, hour, used, newest_ms())


def test_nothing_goes_outside_of_its_hours() -> None:
    assert decide(Retention(SETTINGS), 1000, 900, hour=11) == Decision()


def test_expired_segments_go_in_their_hour() -> None:
    decision = decide(Retention(SETTINGS), 100, 80, 71, hour=12)
    assert (decision.remove, decision.full) == (2, False)
    assert decision.why == "it is 12 o'clock"


def test_a_segment_expires_at_its_last_millisecond() -> None:
    retention = Retention(SETTINGS)
    assert retention.step(NOON, 12, 0.0, [NOON - DAYS_3]).remove == 1
    assert retention.step(NOON - 1, 12, 0.0, [NOON - DAYS_3]).remove == 0


def test_the_first_one_that_is_not_expired_ends_it() -> None:
    assert decide(Retention(SETTINGS), 100, 10, 100, hour=12).remove == 1


def test_several_hours() -> None:
    retention = Retention(replace(SETTINGS, delete_when="04; 16 ;23"))
    assert [hour for hour in range(24) if decide(retention, 100, hour=hour).remove] == [4, 16, 23]


@pytest.mark.parametrize("text", ["", ";", "24", "-1", "4 16", "noon", "4;x"])
def test_hours_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="deleteWhen"):
        parse_hours(text)


def test_a_batch_at_a_time() -> None:
    assert decide(Retention(SETTINGS), *[100] * 10, hour=12).remove == SETTINGS.delete_batch


def test_no_more_ages_are_asked_for_than_needed() -> None:
    asked: list[float] = []
    decide(Retention(SETTINGS), 100, 10, 100, hour=12, asked=asked)
    assert asked == [100, 10]
    asked.clear()
    decide(Retention(SETTINGS), 100, 100, hour=3, asked=asked)
    assert asked == []


def test_a_disk_that_is_too_full_makes_it_due_at_any_hour() -> None:
    retention = Retention(SETTINGS)
    assert decide(retention, 100, 10, used=0.75).remove == 0
    decision = decide(retention, 100, 10, used=0.76)
    assert (decision.remove, decision.full, decision.hurry) == (1, False, False)
    assert decision.why == "the disk is 76.0% full"


def test_a_fuller_disk_takes_what_is_not_expired() -> None:
    retention = Retention(SETTINGS)
    assert decide(retention, 1, 1, used=0.85).remove == 0
    decision = decide(retention, 1, 1, used=0.86)
    assert (decision.remove, decision.full, decision.hurry) == (2, False, False)
    assert decide(retention, *[1] * 9, used=0.86).hurry


def test_beyond_the_last_level_nothing_may_be_written() -> None:
    retention = Retention(SETTINGS)
    assert not decide(retention, used=0.90).full
    assert decide(retention, used=0.91) == Decision(0, "the disk is 91.0% full", full=True)


def test_nothing_is_forced_where_that_is_forbidden() -> None:
    retention = Retention(replace(SETTINGS, force_clean_enabled=False))
    decision = decide(retention, 100, 1, used=0.99)
    assert (decision.remove, decision.full, decision.hurry) == (1, True, False)


@pytest.mark.parametrize(("given_ratio", "works_as"), [(0.99, 0.90), (0.5, 0.5), (0.1, 0.35)])
def test_the_last_level_has_bounds(given_ratio: float, works_as: float) -> None:
    retention = Retention(replace(SETTINGS, full_ratio=given_ratio))
    assert not decide(retention, used=works_as).full
    assert decide(retention, used=works_as + 0.001).full


@pytest.mark.parametrize(("given_ratio", "works_as"), [(0.99, 0.85), (0.5, 0.5), (0.1, 0.30)])
def test_the_level_of_force_has_bounds(given_ratio: float, works_as: float) -> None:
    retention = Retention(replace(SETTINGS, force_clean_ratio=given_ratio))
    assert decide(retention, 1, used=works_as).remove == 0
    assert decide(retention, 1, used=works_as + 0.001).remove == 1


def test_a_request_holds_for_some_rounds_and_forces_nothing() -> None:
    retention = Retention(SETTINGS)
    retention.request()
    assert decide(retention, 100, 1).why == "it was requested"
    assert [decide(retention, 100, 1).remove for _ in range(REQUESTED_ROUNDS)] == [1] * (REQUESTED_ROUNDS - 1) + [0]


@settings(deadline=None)
@given(
    ages=st.lists(st.floats(0, 200), max_size=12),
    used=st.floats(0, 1),
    hour=st.integers(0, 23),
    request=st.booleans(),
    force=st.booleans(),
)
def test_what_never_happens(ages: list[float], used: float, hour: int, request: bool, force: bool) -> None:
    retention = Retention(replace(SETTINGS, force_clean_enabled=force))
    if request:
        retention.request()
    decision = decide(retention, *ages, hour=hour, used=used)
    assert decision.remove <= min(len(ages), SETTINGS.delete_batch)
    assert decision.full == (used > 0.90)
    assert not decision.remove or request or hour == 12 or used > 0.75
    if not force or used <= 0.85:
        assert all(NOON - int(age_h * HOUR_MS) + DAYS_3 <= NOON for age_h in ages[: decision.remove])
    assert decide(retention, *ages, hour=3, used=0.5).remove <= decision.remove or request


# ── The time in a segment's first bytes ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("born", ["127.0.0.1:1", "[2001:db8::1]:1"])
@pytest.mark.parametrize("topic", ["t", "t" * 200])
def test_the_store_time_of_a_record_by_its_first_bytes(born: str, topic: str) -> None:
    record = encode_record(
        topic=topic,
        body=b"b",
        queue_id=0,
        queue_offset=7,
        physical_offset=4096,
        born_ms=1,
        born_host=encode_host(born),
        stored_ms=NOON,
        store_host=HOST,
    )
    assert first_stored_ms(record[:80], 4096) == NOON
    assert first_stored_ms(record[:80], 0) is None
    assert first_stored_ms(record[:79], 4096) is None
    assert first_stored_ms(bytes(80), 0) is None


# ── On a store ────────────────────────────────────────────────────────────────────────────────────────────────────


class Shop:
    """A store whose jobs run at once, and whose disk is as full as the test says."""

    def __init__(self, disk: Disk, root: Path, settings: StoreSettings = SETTINGS, now_ms: int = NOON) -> None:
        self.disk = disk
        self.root = root
        self.now_ms = now_ms
        self.store = Store.open(root, settings, store_host=HOST, now_ms=now_ms, file_time=file_time, disk=disk)

    def send(self, *messages: NewMessage) -> list[int]:
        done = self.store.append(messages, self.now_ms)
        self.store.dispatch()
        return [appended.physical_offset for appended in done]

    def fill(self, segments: int, topic: str = "orders", queue_id: int = 0, step_ms: int = HOUR_MS) -> None:
        """Seven records a segment; the clock goes on after each segment."""
        for _ in range(segments):
            self.send(*(message(b"x" * 2100, topic, queue_id, b"KEYS\1k%d\2" % n) for n in range(7)))
            self.now_ms += step_ms
        self.store.flush(self.now_ms)

    def tick(self, after_ms: int = 0) -> list[Job]:
        """Time passes, and the jobs that are due are done."""
        self.now_ms += after_ms
        done = self.store.jobs(self.now_ms)
        for job in done:
            job.run()
            self.store.finished(job, self.now_ms)
        return done

    def settle(self) -> None:
        """Rounds until nothing goes any more."""
        for _ in range(50):
            self.tick(SETTINGS.clean_interval_ms)

    def at(self, hour: int, days: int = 0) -> None:
        self.now_ms += days * 24 * HOUR_MS
        self.now_ms += (hour - self.now_ms // HOUR_MS) % 24 * HOUR_MS

    @property
    def on_disk(self) -> list[int]:
        """The first offsets of the log's files, but for the one that is prepared ahead."""
        starts = sorted(map(int, self.disk.files(self.root / "commitlog")))
        return [start for start in starts if start < self.store.log.segments.end]

    def queue_files(self, topic: str = "orders", queue_id: int = 0) -> list[int]:
        return sorted(int(name) // 20 for name in self.disk.files(self.root / "consumequeue" / topic / str(queue_id)))


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    if request.param == "real":
        real = RealDisk(tmp_path / "store" / "kourou-aside")
        monkeypatch.setattr(real, "used_ratio", lambda folder: 0.1)
        return real
    return SimulatedDisk(Random(1))


@pytest.fixture
def shop(disk: Disk, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(disk, tmp_path / "store")
    yield shop
    shop.store.abandon()


@pytest.fixture
def fullness(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    def set_ratio(ratio: float) -> None:
        monkeypatch.setattr(shop.disk, "used_ratio", lambda folder: ratio)

    return set_ratio


def test_old_segments_go_and_queues_and_index_follow(shop: Shop) -> None:
    shop.fill(10)
    index_files = len(shop.store.index.names) if shop.store.index else 0
    shop.at(12, days=3)
    shop.settle()
    store = shop.store
    # The last segment stays although all of its records are long expired.
    assert shop.on_disk == store.log.segments.starts == [9 * SEGMENT]
    assert store.log.start == 9 * SEGMENT
    queue = store.queues.get("orders", 0)
    assert queue is not None
    assert (queue.start, queue.end) == (63, 70)
    assert shop.queue_files() == [60]
    assert store.index is not None
    assert len(store.index.names) < index_files
    assert sorted(shop.disk.files(shop.root / "index")) == store.index.names
    assert not store.reader.query("orders", "k3", 64, 0, 2**60).records[1:]


def test_it_takes_a_batch_a_round(shop: Shop) -> None:
    shop.fill(10)
    shop.at(12, days=3)
    starts = []
    for _ in range(5):
        shop.tick(SETTINGS.clean_interval_ms)
        starts.append(shop.on_disk[0] // SEGMENT)
    assert starts == [3, 6, 9, 9, 9]
    assert shop.tick(1) == []


def test_what_is_not_expired_stays(shop: Shop) -> None:
    shop.fill(6, step_ms=24 * HOUR_MS)
    shop.at(12)
    shop.settle()
    # Segment n has records of day n only: by the noon of day 6, 0 to 2 have been over for three days, by what follows.
    assert shop.on_disk[0] == 3 * SEGMENT


def test_the_age_is_that_of_records_not_of_files(shop: Shop) -> None:
    shop.fill(3)
    if isinstance(shop.disk, SimulatedDisk):
        shop.disk.now_ms = shop.now_ms + DAYS_3  # touched, copied or restored since
    for file in [shop.store.log.segments.file(0)]:
        file.buffer[0] = file.buffer[0]
    shop.at(12, days=3)
    shop.tick(1)
    assert shop.on_disk == [2 * SEGMENT]


def test_without_a_readable_record_the_files_time_counts(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.fill(3)
    shop.store.log.segments.file(SEGMENT).buffer[4] ^= 0xFF
    shop.at(12, days=3)
    times = {0: shop.now_ms - DAYS_3 + 2, SEGMENT: 0}
    monkeypatch.setattr(shop.disk, "modified_ms", lambda path: times[int(path.name)])
    shop.tick(1)
    assert shop.on_disk == [0, SEGMENT, 2 * SEGMENT]
    shop.tick(SETTINGS.clean_interval_ms)
    assert shop.on_disk == [2 * SEGMENT]


def test_nothing_goes_right_after_a_start(shop: Shop) -> None:
    shop.fill(4)
    shop.store.close(shop.now_ms)
    shop.at(12, days=3)
    again = Shop(shop.disk, shop.root, now_ms=shop.now_ms)
    again.tick()
    again.tick(START_DELAY_MS - 1)
    assert len(again.on_disk) == 4
    again.tick(SETTINGS.clean_interval_ms)
    assert len(again.on_disk) == 1
    again.store.abandon()


def test_a_request_is_heard_at_once_and_whatever_the_hour(shop: Shop) -> None:
    shop.fill(3)
    shop.at(5, days=4)
    shop.settle()
    assert len(shop.on_disk) == 3
    shop.store.remove_expired()
    shop.tick()
    assert shop.on_disk == [2 * SEGMENT]


def test_consumers_are_not_waited_for_and_are_told_where_to_go_on(shop: Shop) -> None:
    shop.fill(4)
    shop.at(12, days=3)
    shop.tick(1)
    reader = shop.store.reader
    # The log has moved, the queue not yet: what it still speaks of is said to be going.
    removing = reader.get("orders", 0, 0, 32)
    assert removing.status is GetStatus.FOUND or removing.status is GetStatus.MESSAGE_WAS_REMOVING
    shop.settle()
    result = reader.get("orders", 0, 0, 32)
    assert (result.status, result.next_offset) == (GetStatus.OFFSET_TOO_SMALL, 21)
    result = reader.get("orders", 0, result.next_offset, 32)
    assert (result.status, len(result.records)) == (GetStatus.FOUND, 7)


def test_a_reader_keeps_what_it_holds(shop: Shop) -> None:
    shop.fill(4)
    held = shop.store.reader.get("orders", 0, 0, 7).records
    bodies = [decode_record(record, crc=True).body for record in held]
    shop.at(12, days=3)
    shop.settle()
    assert shop.on_disk == [3 * SEGMENT]
    assert [decode_record(record, crc=True).body for record in held] == bodies == [b"x" * 2100] * 7
    assert shop.store.reader.record_at(0) is None


def test_what_is_not_dispatched_or_not_safe_stays(disk: Disk, tmp_path: Path) -> None:
    shop = Shop(disk, tmp_path / "store", replace(SETTINGS, flush_mode=FlushMode.SYNC))
    shop.fill(2)
    for _ in range(4):
        shop.send(*(message(b"x" * 2100) for _ in range(7)))
    shop.now_ms += START_DELAY_MS
    shop.at(12, days=4)
    removal = next(job for job in shop.store.jobs(shop.now_ms) if isinstance(job, RemoveFiles))
    # All six segments are old enough; the sync went into the second one.
    assert [path.name for path in removal.paths] == [f"{0:020}"]
    shop.store.abandon()


def test_nothing_goes_while_files_are_being_synced(shop: Shop) -> None:
    shop.fill(4)
    shop.send(message(b"one more"))
    shop.at(12, days=3)
    shop.store._clock.log_ms = shop.store._clock.queues_ms = 0
    under_way = [job for job in shop.store.jobs(shop.now_ms) if not isinstance(job, RemoveFiles)]
    assert under_way
    assert not [job for job in shop.store.jobs(shop.now_ms + HOUR_MS) if isinstance(job, RemoveFiles)]


def test_many_queues_follow_some_at_a_time(tmp_path: Path) -> None:
    shop = Shop(SimulatedDisk(Random(1)), tmp_path / "store")
    count = 2 * QUEUES_AT_ONCE + 5
    for queue_id in range(count):
        shop.send(message(b"first", "wide", queue_id))
    shop.fill(3)
    for queue_id in range(count):
        shop.send(message(b"last", "wide", queue_id))
    shop.store.flush(shop.now_ms)
    shop.at(12, days=3)

    def moved() -> int:
        queues = [shop.store.queues.get("wide", queue_id) for queue_id in range(count)]
        return sum(1 for queue in queues if queue is not None and queue.start == 1)

    moves = [moved()]
    while moves[-1] < count:
        shop.tick(FOLLOW_MS)
        moves.append(moved())
        assert moves[-1] - moves[-2] <= QUEUES_AT_ONCE
        assert len(moves) < 20


def test_queues_that_nobody_opened_follow_too(shop: Shop) -> None:
    shop.send(message(b"alone", "lonely"))
    shop.fill(6)
    shop.send(*(message(b"last", topic) for topic in ("lonely", "newest")))
    shop.store.close(shop.now_ms)
    shop.at(12, days=3)
    again = Shop(shop.disk, shop.root, now_ms=shop.now_ms)
    assert not list(again.store.queues.opened())
    again.now_ms += START_DELAY_MS
    again.settle()
    # The one with several files was opened for it; the other one will know where it begins.
    assert again.queue_files() == [30, 40]
    assert {queue.topic for queue in again.store.queues.opened()} == {"orders"}
    assert again.store.reader.offsets("lonely", 0) == (1, 2)
    again.store.abandon()


def test_the_store_opens_again_after_all_that(shop: Shop) -> None:
    shop.fill(8)
    shop.at(12, days=3)
    shop.settle()
    shop.send(message(b"after", properties=b"KEYS\1after\2"))
    shop.store.close(shop.now_ms)
    again = Shop(shop.disk, shop.root, now_ms=shop.now_ms)
    assert again.store.log.start == 7 * SEGMENT
    assert again.store.reader.offsets("orders", 0) == (49, 57)
    assert len(again.store.reader.query("orders", "after", 32, 0, 2**60).records) == 1
    again.store.abandon()


# ── A disk that is full, or fails ─────────────────────────────────────────────────────────────────────────────────


def test_a_full_disk_refuses_writes_and_takes_them_again(
    shop: Shop, fullness: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    shop.fill(1)
    fullness(0.95)
    shop.tick(SETTINGS.clean_interval_ms)
    with pytest.raises(DiskFullError, match=r"95\.0% full.*above 90%.*diskSpaceWarningLevelRatio") as refused:
        shop.send(message(b"no"))
    assert refused.value.retriable
    assert shop.store.refusal == str(refused.value)
    assert str(shop.root) in str(refused.value)
    assert len(shop.store.reader.get("orders", 0, 0, 32).records) == 7  # reading goes on
    fullness(0.90)
    shop.tick(FULL_INTERVAL_MS - 1)
    assert shop.store.refusal
    shop.tick(1)
    assert not shop.store.refusal
    shop.send(message(b"yes"))
    levels = [(record.levelname, record.message.split(":")[0]) for record in caplog.records if "full" in record.message]
    assert [level for level, _ in levels] == ["ERROR", "INFO"]


def test_a_full_disk_gets_no_spare_segment(shop: Shop, fullness: Callable[[float], None]) -> None:
    fullness(0.95)
    assert shop.tick(SETTINGS.clean_interval_ms) == []
    fullness(0.5)
    assert [type(job).__name__ for job in shop.tick(FULL_INTERVAL_MS)] == ["PrepareSegment"]


def test_a_nearly_full_disk_loses_segments_without_a_break(shop: Shop, fullness: Callable[[float], None]) -> None:
    shop.fill(12)
    shop.now_ms += START_DELAY_MS
    fullness(0.87)
    left = []
    for _ in range(5):
        shop.tick()
        left.append(len(shop.on_disk))
    # Three a round, and the next round as soon as they are gone; never the last one.
    assert left == [9, 6, 3, 1, 1]
    assert shop.store.refusal is None


def test_segments_that_can_not_be_removed_are_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk(Random(1))
    shop = Shop(disk, tmp_path / "store")
    shop.fill(5)
    shop.at(12, days=3)
    disk.fail("remove", errno.EIO, where="*/commitlog/*", after=1, times=2)
    shop.tick(SETTINGS.clean_interval_ms)
    # They are no part of the log any more, whatever becomes of the files.
    assert shop.store.log.start == 3 * SEGMENT
    assert shop.on_disk == [SEGMENT, 2 * SEGMENT, 3 * SEGMENT, 4 * SEGMENT]
    assert "could not be removed" in caplog.text
    shop.tick(SETTINGS.clean_interval_ms)
    assert shop.on_disk[0] == SEGMENT
    shop.tick(SETTINGS.clean_interval_ms)
    assert (shop.on_disk, shop.store.log.start) == ([3 * SEGMENT, 4 * SEGMENT], 3 * SEGMENT)
    shop.tick(SETTINGS.clean_interval_ms)
    assert shop.on_disk == [4 * SEGMENT]
    shop.store.abandon()


def test_a_disk_that_can_not_be_asked_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk(Random(1))
    shop = Shop(disk, tmp_path / "store")
    shop.fill(3)
    shop.at(12, days=3)
    disk.fail("list", errno.EIO, times=math.inf)
    assert not [job for job in shop.tick(1) if isinstance(job, RemoveFiles)]
    assert "can't determine which files" in caplog.text
    disk.heal()
    shop.tick(SETTINGS.clean_interval_ms)
    assert len(shop.on_disk) == 1
    shop.store.abandon()


def test_a_queue_that_fails_stops_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk(Random(1))
    shop = Shop(disk, tmp_path / "store")
    shop.fill(2, queue_id=0)
    shop.fill(2, queue_id=1)
    shop.fill(1, queue_id=1)
    shop.at(12, days=3)
    disk.fail("read", errno.EIO, where="*/consumequeue/orders/0/*", times=math.inf)
    shop.settle()
    assert "the expired part of queue 0 of orders" in caplog.text
    assert shop.store.reader.offsets("orders", 1)[0] == 14
    shop.store.abandon()


def test_a_crash_at_every_boundary_leaves_a_store_that_opens(tmp_path: Path) -> None:
    root = tmp_path / "store"

    def run(disk: SimulatedDisk) -> None:
        shop = Shop(disk, root)
        shop.fill(7)
        shop.at(12, days=3)
        for _ in range(6):
            shop.tick(SETTINGS.clean_interval_ms)
        shop.store.close(shop.now_ms)

    count = 0
    for disk in crash_everywhere(run, seed=7):
        count += 1
        shop = Shop(disk, root, now_ms=NOON + 100 * HOUR_MS)
        starts = shop.store.log.segments.starts
        assert starts == list(range(starts[0], starts[-1] + 1, SEGMENT)) if starts else True
        start, end = shop.store.reader.offsets("orders", 0)
        if end:
            found = shop.store.reader.get("orders", 0, start, 32)
            assert found.status is GetStatus.FOUND
            assert start == shop.store.log.start // SEGMENT * 7
        shop.store.abandon()
    assert count > 50


# ── Topics and queues ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_queues_of_a_topic_go(shop: Shop) -> None:
    shop.send(*(message(b"m", "gone", queue_id) for queue_id in range(3)), message(b"m", "stays"))
    shop.store.flush(shop.now_ms)
    assert shop.store.remove_topic("gone") == 3
    assert shop.disk.folders(shop.root / "consumequeue") == ["stays"]
    assert shop.store.reader.get("gone", 0, 0, 1).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert shop.store.reader.get("stays", 0, 0, 1).status is GetStatus.FOUND
    assert shop.store.remove_topic("gone") == 0


def test_a_topic_that_is_made_again_begins_at_0(shop: Shop) -> None:
    shop.send(*(message(b"old", "orders") for _ in range(5)))
    shop.store.remove_topic("orders")
    shop.send(message(b"new", "orders"))
    assert shop.store.reader.offsets("orders", 0) == (0, 1)
    (record,) = shop.store.reader.get("orders", 0, 0, 32).records
    assert decode_record(record).body == b"new"


def test_a_topic_goes_while_its_queues_are_being_synced(shop: Shop) -> None:
    """The worker still has the files of the queue in its hands: they must stay open until it is done."""
    shop.send(*(message(b"m", "gone") for _ in range(3)), message(b"m", "stays"))
    shop.store._clock.queues_ms = shop.store._clock.queues_thorough_ms = 0
    (job,) = [job for job in shop.store.jobs(shop.now_ms) if isinstance(job, SyncQueues)]
    shop.store.remove_topic("gone")
    job.run()
    assert job.error is None
    shop.store.finished(job, shop.now_ms)
    shop.send(message(b"m", "gone"))
    shop.store.close(shop.now_ms)
    assert shop.disk.read(shop.root / "abort") is None


def test_unused_topics_go(shop: Shop) -> None:
    shop.send(*(message(b"m", topic) for topic in ("a", "b", "c", "SCHEDULE_TOPIC_XXXX")))
    assert shop.store.remove_unused_topics({"b", "SCHEDULE_TOPIC_XXXX"}) == ["a", "c"]
    assert shop.disk.folders(shop.root / "consumequeue") == ["SCHEDULE_TOPIC_XXXX", "b"]


def test_queues_without_messages_go(shop: Shop) -> None:
    shop.send(message(b"m", "old", 0), message(b"m", "old", 1), message(b"m", "kept", 0))
    shop.fill(3)
    shop.send(message(b"m", "old", 1))
    shop.store.flush(shop.now_ms)
    assert shop.store.remove_expired_queues() == 0
    shop.at(12, days=3)
    shop.settle()
    assert shop.store.remove_expired_queues(keep={"kept"}) == 1
    assert shop.store.queues.of_topic("old") == [1]
    assert shop.store.queues.of_topic("kept") == [0]
    assert shop.store.reader.offsets("old", 1) == (1, 2)


def test_a_queue_with_messages_on_their_way_stays(disk: Disk, tmp_path: Path) -> None:
    shop = Shop(disk, tmp_path / "store", replace(SETTINGS, flush_mode=FlushMode.SYNC))
    shop.send(message(b"m", "old"))
    shop.fill(3)
    shop.now_ms += START_DELAY_MS
    shop.at(12, days=3)
    shop.settle()
    shop.send(message(b"not safe yet", "old"))
    assert shop.store.remove_expired_queues() == 0
    shop.store.flush(shop.now_ms)
    assert shop.store.reader.offsets("old", 0) == (1, 2)
    shop.store.abandon()


@pytest.mark.parametrize("topic", ["/rders", "../up", "..", "a\0b"])
def test_a_topic_leads_nowhere_else(shop: Shop, topic: str) -> None:
    """What a flipped bit can make of `orders`."""
    before = sorted(shop.root.parent.rglob("*"))
    shop.send(message(b"m", topic))
    shop.store.flush(shop.now_ms)
    assert shop.store.reader.offsets(topic, 0) == (0, 1)
    if isinstance(shop.disk, RealDisk):
        new = set(shop.root.parent.rglob("*")) - set(before)
        assert all(path.is_relative_to(shop.root) for path in new)
    shop.store.remove_topic(topic)
    assert shop.disk.folders(shop.root / "consumequeue") == []
    assert shop.disk.files(shop.root / "commitlog")
