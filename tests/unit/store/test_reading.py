"""Reading a store: every answer that an offset can get, limits, filters, and records by id, key and time."""

import errno
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from kourou.protocol.codes import SysFlag
from kourou.protocol.hashes import java_hash
from kourou.protocol.hosts import encode_host
from kourou.protocol.record import decode_record
from kourou.store.backoff import FIRST_MS
from kourou.store.commit_log import NewMessage
from kourou.store.consume_queue import Boundary
from kourou.store.disk import Disk, RealDisk
from kourou.store.reading import WALK_BYTES_MAX, GetResult, GetStatus, Reader, ReadLimits
from kourou.store.settings import FlushMode, StoreSettings
from kourou.store.store import Store
from kourou.testing.disk import SimulatedDisk

HOST = encode_host("127.0.0.1:10911")
NOW = 1_700_000_000_000
SEGMENT = 16 * 1024
ENTRIES = 1000
SETTINGS = StoreSettings(commit_log_file_size=SEGMENT, queue_file_entries=ENTRIES, index_slots=64, index_entries=256)


def file_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y%m%d%H%M%S%f")[:17]


def opened(disk: Disk, root: Path, settings: StoreSettings = SETTINGS, now_ms: int = NOW) -> Store:
    return Store.open(root, settings, store_host=HOST, now_ms=now_ms, file_time=file_time, disk=disk)


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk(tmp_path / "store" / "kourou-aside") if request.param == "real" else SimulatedDisk(Random(1))


@pytest.fixture
def store(disk: Disk, tmp_path: Path) -> Iterator[Store]:
    store = opened(disk, tmp_path / "store")
    yield store
    store.abandon()


def message(
    body: bytes = b"body", *, tag: str = "", keys: str = "", queue_id: int = 0, sys_flag: int = 0
) -> NewMessage:
    properties = (f"TAGS\1{tag}\2" if tag else "") + (f"KEYS\1{keys}\2" if keys else "")
    return NewMessage("orders", queue_id, body, properties.encode(), NOW, HOST, sys_flag=sys_flag)


def message_with_id(unique_key: str) -> NewMessage:
    return NewMessage("orders", 0, b"body", f"UNIQ_KEY\1{unique_key}\2".encode(), NOW, HOST)


def send(store: Store, *messages: NewMessage, now_ms: int = NOW) -> list[int]:
    """Append and dispatch; where the records are."""
    done = store.append(messages, now_ms)
    store.dispatch()
    return [appended.physical_offset for appended in done]


def numbered(count: int, size: int = 100) -> list[NewMessage]:
    return [message(b"%d" % number + b"." * size) for number in range(count)]


def numbers(result: GetResult) -> list[int]:
    """The numbers of `numbered` messages, whose CRCs must hold."""
    return [int(bytes(decode_record(record, crc=True).body).split(b".")[0]) for record in result.records]


def get(store: Store, offset: int, max_count: int = 32) -> GetResult:
    return store.reader.get("orders", 0, offset, max_count)


def answer(result: GetResult) -> tuple[GetStatus, int]:
    return result.status, result.next_offset


def lose_first_segments(store: Store, count: int) -> None:
    """As retention does it, before the queues follow."""
    for _ in range(count):
        store.disk.remove(store.log.segments.drop_first())


# ── The status of an offset ───────────────────────────────────────────────────────────────────────────────────────


def test_a_queue_that_nobody_knows(store: Store) -> None:
    for offset in (0, 5):
        assert answer(get(store, offset)) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    send(store, message())
    assert answer(store.reader.get("orders", 1, 0, 32)) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    assert answer(store.reader.get("other", 0, 0, 32)) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)


def test_a_queue_without_messages(store: Store) -> None:
    store.append([message()], NOW)  # it has a place to come, and nothing visible yet
    for offset in (0, 5):
        assert answer(get(store, offset)) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)


@pytest.mark.parametrize(
    ("offset", "status", "next_offset", "count"),
    [
        (-1, GetStatus.OFFSET_TOO_SMALL, 0, 0),
        (0, GetStatus.FOUND, 5, 5),
        (4, GetStatus.FOUND, 5, 1),
        (5, GetStatus.OFFSET_OVERFLOW_ONE, 5, 0),
        (6, GetStatus.OFFSET_OVERFLOW_BADLY, 5, 0),
        (2**62, GetStatus.OFFSET_OVERFLOW_BADLY, 5, 0),
    ],
)
def test_around_a_queue_of_five(store: Store, offset: int, status: GetStatus, next_offset: int, count: int) -> None:
    send(store, *numbered(5))
    result = get(store, offset)
    assert answer(result) == (status, next_offset)
    assert numbers(result) == list(range(5))[5 - count :]
    assert (result.min_offset, result.max_offset) == (0, 5)


def test_before_the_start_of_a_queue(store: Store) -> None:
    send(store, *numbered(20, 4000))  # three a segment
    lose_first_segments(store, 2)
    store.queues.log_start = store.log.start
    store.queues.expire("orders", 0)
    result = get(store, 0)
    assert answer(result) == (GetStatus.OFFSET_TOO_SMALL, 6)
    assert (result.min_offset, result.max_offset) == (6, 20)
    assert numbers(get(store, 6, 4)) == [6, 7, 8, 9]


def test_a_queue_all_of_whose_messages_are_gone(store: Store) -> None:
    send(store, message(queue_id=1), *numbered(8, 4000))
    lose_first_segments(store, 1)
    store.queues.log_start = store.log.start
    store.queues.expire("orders", 1)
    assert store.reader.offsets("orders", 1) == (1, 1)
    assert answer(store.reader.get("orders", 1, 0, 32)) == (GetStatus.OFFSET_TOO_SMALL, 1)
    assert answer(store.reader.get("orders", 1, 1, 32)) == (GetStatus.OFFSET_OVERFLOW_ONE, 1)
    assert answer(store.reader.get("orders", 1, 2, 32)) == (GetStatus.OFFSET_OVERFLOW_BADLY, 1)


def test_messages_that_are_being_removed(store: Store) -> None:
    send(store, *numbered(20, 4000))
    lose_first_segments(store, 2)
    # The queue has not followed yet. Those that are gone are passed over.
    result = get(store, 0)
    assert result.status is GetStatus.FOUND
    assert numbers(result) == list(range(6, 20))
    lose_first_segments(store, 4)
    assert answer(store.reader.get("orders", 0, 0, 32, max_size=1)) == (GetStatus.FOUND, 19)
    store.queues.ensure("orders", 0).truncate(6 * SEGMENT)
    assert answer(get(store, 0)) == (GetStatus.MESSAGE_WAS_REMOVING, 18)


def test_the_last_reason_counts(store: Store) -> None:
    send(store, *(message(b"x" * 4000, tag=tag) for tag in ("a", "a", "a", "b")))
    lose_first_segments(store, 1)
    removed_then_other = store.reader.get("orders", 0, 0, 32, accepts=lambda code: code == java_hash("a"))
    assert answer(removed_then_other) == (GetStatus.NO_MATCHED_MESSAGE, 4)
    other_then_removed = store.reader.get("orders", 0, 0, 32, accepts_record=lambda record: False)
    assert answer(other_then_removed) == (GetStatus.NO_MATCHED_MESSAGE, 4)
    assert answer(store.reader.get("orders", 0, 0, 32, accepts=lambda code: code == java_hash("b"))) == (
        GetStatus.FOUND,
        4,
    )


@pytest.mark.parametrize(("code", "next_offset"), [(errno.ENOENT, 8), (errno.EIO, 5), (errno.EMFILE, 5)])
def test_a_queue_file_that_can_not_be_read(
    code: int, next_offset: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If it was removed, reading continues after it. Otherwise no reader skips messages that may be read later."""
    disk = SimulatedDisk(Random(1))
    store = opened(disk, tmp_path / "store", replace(SETTINGS, queue_file_entries=4))
    send(store, *numbered(10))
    store.close(NOW)
    store = opened(disk, tmp_path / "store", replace(SETTINGS, queue_file_entries=4))
    disk.fail("open", code, where="*/consumequeue/*/00000000000000000080", times=math.inf)
    assert numbers(get(store, 2)) == [2, 3]  # no further than the file
    assert answer(get(store, 5)) == (GetStatus.OFFSET_FOUND_NULL, next_offset)
    assert "queue 0 of orders can't be read" in caplog.text
    assert numbers(get(store, 8)) == [8, 9]
    disk.heal()
    assert numbers(get(store, 5)) == [5, 6, 7]
    store.abandon()


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EIO, errno.EMFILE])
def test_a_segment_that_can_not_be_read_costs_its_own_records_only(
    code: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If it is gone, they are passed over. Otherwise reading ends before them, for they may be read later."""
    disk = SimulatedDisk(Random(1))
    store = opened(disk, tmp_path / "store")
    places = send(store, *numbered(9, 4000))
    store.close(NOW)
    store = opened(disk, tmp_path / "store")
    disk.fail("open", code, where=f"*/commitlog/{SEGMENT:020}", times=math.inf)
    if code == errno.ENOENT:
        assert numbers(get(store, 0)) == [0, 1, 2, 6, 7, 8]
        assert answer(get(store, 3)) == (GetStatus.FOUND, 9)
    else:
        assert numbers(get(store, 0)) == [0, 1, 2]
        assert answer(get(store, 3)) == (GetStatus.OFFSET_FOUND_NULL, 3)
    assert numbers(get(store, 6)) == [6, 7, 8]
    assert store.reader.record_at(places[3]) is None
    assert store.reader.record_at(places[6]) is not None
    assert ("is gone" if code == errno.ENOENT else "can't be read") in caplog.text
    disk.heal()
    assert numbers(get(store, 3)) == [3, 4, 5, 6, 7, 8]
    store.abandon()


# ── Limits ────────────────────────────────────────────────────────────────────────────────────────────────────────


def limited(store: Store, **limits: int) -> Reader:
    return Reader(store.log, store.queues, store.index, lambda: store.dispatched, ReadLimits(**limits))


def test_no_more_than_asked_for(store: Store) -> None:
    send(store, *numbered(10))
    result = get(store, 2, 3)
    assert (numbers(result), result.next_offset) == ([2, 3, 4], 5)
    assert result.size == sum(map(len, result.records))


def test_no_more_than_fits_into_an_answer(store: Store) -> None:
    send(store, *numbered(50))
    assert numbers(get(store, 0, 1000)) == list(range(32))
    reader = limited(store, memory_count=5)
    assert numbers(reader.get("orders", 0, 1, 1000)) == [1, 2, 3, 4, 5]


def test_no_more_bytes_than_fit_into_an_answer(store: Store) -> None:
    send(store, *numbered(10))
    size = len(get(store, 0, 1).records[0])
    for bytes_allowed, count in ((1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (3 * size, 3)):
        reader = limited(store, memory_size=bytes_allowed)
        assert len(reader.get("orders", 0, 0, 32).records) == count
        assert len(store.reader.get("orders", 0, 0, 32, max_size=bytes_allowed).records) == count


def test_less_from_far_behind(store: Store) -> None:
    places = send(store, *numbered(60))
    size = len(get(store, 0, 1).records[0])
    window = store.log.end - places[30]
    reader = limited(store, memory_window=window, disk_count=8, memory_count=32)
    assert numbers(reader.get("orders", 0, 0, 60)) == list(range(8))
    # Near the end of the window, the ones behind it count as in memory.
    assert numbers(reader.get("orders", 0, 25, 60)) == list(range(25, 57))
    assert numbers(reader.get("orders", 0, 30, 20)) == list(range(30, 50))
    by_size = limited(store, memory_window=window, disk_count=100, disk_size=3 * size)
    assert numbers(by_size.get("orders", 0, 0, 60)) == [0, 1, 2]


def test_in_bulk_sizes_alone_count(store: Store) -> None:
    places = send(store, *numbered(60))
    size = len(get(store, 0, 1).records[0])
    assert numbers(store.reader.get("orders", 0, 0, 1000, is_bulk=True)) == list(range(60))
    assert numbers(store.reader.get("orders", 0, 7, 40, is_bulk=True)) == list(range(7, 47))
    reader = limited(store, memory_window=store.log.end - places[30], memory_size=12 * size, disk_size=3 * size)
    assert numbers(reader.get("orders", 0, 0, 60, is_bulk=True)) == [0, 1, 2]
    assert len(reader.get("orders", 0, 40, 60, is_bulk=True).records) in (11, 12)


def test_limits_are_those_of_the_settings(store: Store) -> None:
    send(store, *numbered(60))
    store.reconfigure(replace(SETTINGS, memory_read_count=40))
    assert numbers(get(store, 0, 1000)) == list(range(40))


def test_a_filtered_read_looks_through_as_much_as_the_settings_say(store: Store) -> None:
    send(store, *numbered(60))
    for size, looked_at in ((16_000, 60), (400, 20), (401, 21), (500, 25)):
        store.reconfigure(replace(SETTINGS, filter_read_size=size))
        result = store.reader.get("orders", 0, 0, 20, accepts=lambda _: False)
        assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, looked_at)


def test_a_read_says_how_far_behind_it_is(store: Store) -> None:
    places = send(store, *numbered(10))
    assert get(store, 0, 3).behind == store.log.end - places[2]
    assert get(store, 9, 3).behind == store.log.end - places[9]


def test_a_queue_file_ends_a_read(disk: Disk, tmp_path: Path) -> None:
    store = opened(disk, tmp_path / "store", replace(SETTINGS, queue_file_entries=4))
    send(store, *numbered(10))
    offset, read = 0, []
    while True:
        result = get(store, offset)
        if result.status is not GetStatus.FOUND:
            break
        read.append(numbers(result))
        offset = result.next_offset
    assert read == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    store.abandon()


# ── Filters ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_by_the_code_of_tags(store: Store) -> None:
    send(store, *(message(tag=tag) for tag in ("a", "b", "", "a")))
    seen: list[int] = []

    def is_a(code: int) -> bool:
        seen.append(code)
        return code == java_hash("a")

    result = store.reader.get("orders", 0, 0, 32, accepts=is_a)
    assert [decode_record(record).queue_offset for record in result.records] == [0, 3]
    assert answer(result) == (GetStatus.FOUND, 4)
    assert seen == [java_hash("a"), java_hash("b"), 0, java_hash("a")]


def test_by_the_record_where_the_tags_fit(store: Store) -> None:
    send(store, message(b"1", tag="a"), message(b"2", tag="b"), message(b"3", tag="a"))
    looked_at: list[bytes] = []

    def is_three(record: memoryview) -> bool:
        body = bytes(decode_record(record).body)
        looked_at.append(body)
        return body == b"3"

    result = store.reader.get("orders", 0, 0, 32, accepts=lambda code: code == java_hash("a"), accepts_record=is_three)
    assert [decode_record(record).queue_offset for record in result.records] == [2]
    assert looked_at == [b"1", b"3"]


def test_nothing_fits(store: Store) -> None:
    send(store, *(message(tag="a") for _ in range(5)))
    assert answer(store.reader.get("orders", 0, 1, 32, accepts=lambda _: False)) == (GetStatus.NO_MATCHED_MESSAGE, 5)
    assert answer(store.reader.get("orders", 0, 1, 32, accepts_record=lambda _: False)) == (
        GetStatus.NO_MATCHED_MESSAGE,
        5,
    )


def test_what_does_not_fit_counts_for_no_limit(store: Store) -> None:
    send(store, *(message(tag="ab"[number % 10 == 0]) for number in range(100)))
    result = store.reader.get("orders", 0, 0, 5, accepts=lambda code: code == java_hash("b"))
    # The next one that does not fit is passed over only when the answer is not full yet.
    assert [decode_record(record).queue_offset for record in result.records] == [0, 10, 20, 30, 40]
    assert result.next_offset == 41


def test_a_filter_gives_up_for_now_after_many_entries(store: Store) -> None:
    for _ in range(9):
        send(store, *(message(b"", tag="a") for _ in range(100)))
    send(store, message(b"", tag="b"))
    result = store.reader.get("orders", 0, 0, 32, accepts=lambda code: code == java_hash("b"))
    assert answer(result) == (GetStatus.NO_MATCHED_MESSAGE, ReadLimits().scan_count)
    result = store.reader.get("orders", 0, 800, 32, accepts=lambda code: code == java_hash("b"))
    assert (answer(result), len(result.records)) == ((GetStatus.FOUND, 901), 1)
    # A larger request examines more entries.
    result = store.reader.get("orders", 0, 0, 900, accepts=lambda _: False)
    assert result.next_offset == 900


# ── Blanks ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_blanks_are_passed_over(store: Store) -> None:
    """What a queue has in place of messages that the log lost, and before its first one."""
    send(store, *numbered(2))
    queue = store.queues.ensure("orders", 0)
    queue.next_offset = 5
    places = [entry.physical_offset for entry in store.append([message(b"5.")], NOW)]
    queue.put(places[0], store.log.end - places[0], 0, 5)
    # Their impossible size ends a read that has found something.
    assert (numbers(get(store, 0)), answer(get(store, 0))) == ([0, 1], (GetStatus.FOUND, 2))
    assert (numbers(get(store, 2)), answer(get(store, 2))) == ([5], (GetStatus.FOUND, 6))
    store.queues.ensure("orders", 0).truncate(places[0])
    assert answer(get(store, 2)) == (GetStatus.MESSAGE_WAS_REMOVING, 5)


# ── Records in use ────────────────────────────────────────────────────────────────────────────────────────────────


def test_records_stay_as_they_are_when_the_log_goes_on_and_segments_go(store: Store) -> None:
    send(store, *numbered(3, 4000))
    held = get(store, 0)
    copies = [bytes(record) for record in held.records]
    send(store, *numbered(9, 4000))  # the log goes on in other segments
    store.flush(NOW)
    assert list(map(bytes, held.records)) == copies
    lose_first_segments(store, 2)
    assert list(map(bytes, held.records)) == copies
    assert numbers(held) == [0, 1, 2]
    store.abandon()
    assert numbers(held) == [0, 1, 2]


def test_records_are_slices_of_the_log(store: Store) -> None:
    (place,) = send(store, message(b"zero copy"))
    (record,) = get(store, 0).records
    assert isinstance(record, memoryview)
    at = bytes(record).index(b"zero")
    store.log.segments.file(place).buffer[place + at] ^= 0x20
    assert b"Zero copy" in bytes(record)


# ── By id ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_by_the_place_in_the_log(store: Store) -> None:
    places = send(store, *numbered(5, 4000))
    for number, place in enumerate(places):
        record = store.reader.record_at(place)
        assert record is not None
        assert decode_record(record, crc=True).queue_offset == number
        found = store.reader.message_at(place)
        assert found is not None
        assert (found.topic, found.queue_offset, found.physical_offset) == ("orders", number, place)


def test_places_where_no_record_begins(store: Store) -> None:
    places = send(store, *numbered(5, 4000))
    filler = places[2] + len(get(store, 2, 1).records[0])
    for place in (-1, 1, places[1] + 4, filler, SEGMENT - 1, store.log.end, store.log.end + 1, 2**62):
        assert store.reader.record_at(place) is None
        assert store.reader.message_at(place) is None


@pytest.mark.parametrize("queue_id", [0, 7], ids=["of a queue", "of no queue"])
@pytest.mark.parametrize("count", [0, 12], ids=["near the start", "deep in the log"])
def test_a_record_in_the_body_of_another_is_none(store: Store, queue_id: int, count: int) -> None:
    """Its sender may know where it will be stored, so that every field is right, and the CRC."""
    send(store, *numbered(count, 1000))
    (genuine,) = send(store, message(b"genuine", keys="k"))
    forged = bytearray(store.reader.record_at(genuine) or b"")
    place = store.log.end + 88
    forged[12:16], forged[28:36] = queue_id.to_bytes(4), place.to_bytes(8)
    (outer,) = send(store, message(bytes(forged)))
    assert outer + 88 == place
    assert decode_record(store.log.read(place, len(forged)), crc=True).physical_offset == place
    assert store.reader.record_at(outer) is not None
    assert store.reader.record_at(place) is None
    assert store.reader.message_at(place) is None


def test_a_record_of_a_removed_topic_is_found_by_the_index_or_near_the_start(store: Store) -> None:
    places = send(store, *numbered(2), *(message_with_id(f"ID{number}") for number in range(3)))
    store.remove_topic("orders")
    assert all(store.reader.record_at(place) is not None for place in places)


def test_a_long_walk_is_not_made_for_an_offset(tmp_path: Path) -> None:
    store = opened(SimulatedDisk(Random(1)), tmp_path / "store", replace(SETTINGS, commit_log_file_size=1 << 20))
    places = send(store, *numbered(2), *numbered(20, 4000), message_with_id("ID"), *numbered(1))
    assert places[-1] > WALK_BYTES_MAX
    assert all(store.reader.record_at(place) is not None for place in places)
    store.remove_topic("orders")
    found = [store.reader.record_at(place) is not None for place in (places[1], *places[-2:])]
    assert found == [True, True, False], "near the start; in the index; neither"
    store.abandon()


def test_a_record_that_does_not_hold(store: Store) -> None:
    (place,) = send(store, message(b"body"))
    store.log.segments.file(0).buffer[88] ^= 1
    assert store.reader.record_at(place) is None


# ── By key ────────────────────────────────────────────────────────────────────────────────────────────────────────


def by_key(store: Store, key: str, max_count: int = 64, begin_ms: int = 0, end_ms: int = 2**60) -> list[bytes]:
    result = store.reader.query("orders", key, max_count, begin_ms, end_ms)
    return [bytes(decode_record(record, crc=True).body) for record in result.records]


def test_by_key_oldest_first(store: Store) -> None:
    send(store, message(b"1", keys="a"), message(b"2", keys="b"), message(b"3", keys="a b"), message(b"4"))
    assert by_key(store, "a") == [b"1", b"3"]
    assert by_key(store, "b") == [b"2", b"3"]
    assert by_key(store, "a b") == by_key(store, "c") == by_key(store, "") == []
    assert store.reader.query("other", "a", 64, 0, 2**60).records == []


def test_of_many_the_newest(store: Store) -> None:
    send(store, *(message(b"%d" % number, keys="k") for number in range(10)))
    assert by_key(store, "k", 3) == [b"7", b"8", b"9"]


def test_by_key_and_time(store: Store) -> None:
    for number in range(5):
        send(store, message(b"%d" % number, keys="k"), now_ms=NOW + number * 10_000)
    assert by_key(store, "k", begin_ms=NOW + 10_000, end_ms=NOW + 30_000) == [b"1", b"2", b"3"]
    assert by_key(store, "k", begin_ms=NOW + 40_000) == [b"4"]
    assert by_key(store, "k", end_ms=NOW) == [b"0"]
    assert by_key(store, "k", end_ms=NOW - 1) == by_key(store, "k", begin_ms=NOW + 40_001) == []


def test_a_query_says_how_far_the_index_is(store: Store) -> None:
    places = send(store, message(keys="k"), now_ms=NOW + 7)
    result = store.reader.query("orders", "none", 64, 0, 2**60)
    assert (result.index_ms, result.index_physical) == (NOW + 7, places[0])


def test_records_that_are_gone_are_not_found_by_key(store: Store) -> None:
    send(store, *(message(b"x" * 4000, keys="k") for _ in range(9)))
    lose_first_segments(store, 2)
    assert len(by_key(store, "k")) == 3


def test_without_an_index_nothing_is_found(disk: Disk, tmp_path: Path) -> None:
    store = opened(disk, tmp_path / "store", replace(SETTINGS, index_enabled=False))
    send(store, message(keys="k"))
    assert by_key(store, "k") == []
    assert disk.files(tmp_path / "store" / "index") == {}
    store.abandon()


# ── By time ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def timed(store: Store) -> Store:
    """Store times 0, 10, 10, 10, 20 and 30 ms after the hour, in three segments."""
    for after in (0, 10, 10, 10, 20, 30):
        send(store, message(b"x" * 6000), now_ms=NOW + after)
    return store


@pytest.mark.parametrize(
    ("after", "lower", "upper"),
    [(-5, 0, 0), (0, 0, 0), (5, 1, 0), (10, 1, 3), (15, 4, 3), (20, 4, 4), (25, 5, 4), (30, 5, 5), (31, 6, 5)],
)
def test_the_offset_at_a_time(timed: Store, after: int, lower: int, upper: int) -> None:
    assert timed.reader.offset_by_time("orders", 0, NOW + after, Boundary.LOWER) == lower
    assert timed.reader.offset_by_time("orders", 0, NOW + after, Boundary.UPPER) == upper


def test_the_offset_at_a_time_when_the_beginning_is_gone(timed: Store) -> None:
    lose_first_segments(timed, 1)
    timed.queues.log_start = timed.log.start
    timed.queues.expire("orders", 0)
    assert timed.reader.offsets("orders", 0) == (2, 6)
    assert timed.reader.offset_by_time("orders", 0, 0, Boundary.LOWER) == 2
    assert timed.reader.offset_by_time("orders", 0, 0, Boundary.UPPER) == 2
    assert timed.reader.offset_by_time("orders", 0, NOW + 20, Boundary.LOWER) == 4


def test_the_offset_at_a_time_of_an_unknown_queue(store: Store) -> None:
    for boundary in Boundary:
        assert store.reader.offset_by_time("orders", 0, NOW, boundary) == 0


def test_store_times(timed: Store) -> None:
    reader = timed.reader
    assert [reader.stored_ms_of("orders", 0, offset) - NOW for offset in range(6)] == [0, 10, 10, 10, 20, 30]
    assert reader.stored_ms_of("orders", 0, 6) == reader.stored_ms_of("orders", 0, -1) == -1
    assert reader.stored_ms_of("orders", 1, 0) == -1
    assert reader.earliest_ms("orders", 0) == NOW
    assert reader.earliest_ms("orders", 1) == -1
    lose_first_segments(timed, 1)
    assert reader.stored_ms_of("orders", 0, 0) == -1  # gone, though the queue does not know yet


# ── What is not safe is not seen ──────────────────────────────────────────────────────────────────────────────────


def nothing_is_seen(store: Store, place: int, before: int) -> bool:
    """No way of reading shows the message with key `k` at this place."""
    return (
        store.reader.record_at(place) is None
        and store.reader.message_at(place) is None
        and by_key(store, "k") == []
        and store.reader.offsets("orders", 0) in ((0, before), (0, 0))
        and not get(store, before).records
        and store.reader.offset_by_time("orders", 0, 2**60, Boundary.LOWER) == before
    )


def test_under_sync_flush_only_what_is_safe_is_seen(disk: Disk, tmp_path: Path) -> None:
    store = opened(disk, tmp_path / "store", replace(SETTINGS, flush_mode=FlushMode.SYNC))
    (first,) = send(store, message(b"first", keys="first"))
    assert nothing_is_seen(store, first, before=0)
    sync = next(job for job in store.jobs(NOW) if type(job).__name__ == "SyncLog")
    (second,) = send(store, message(b"second", keys="k"))
    sync.run()
    store.finished(sync, NOW)
    store.dispatch()
    # The sync began before the second message was written: it says nothing about it.
    assert by_key(store, "first") == [b"first"]
    assert nothing_is_seen(store, second, before=1)
    store.flush(NOW)
    assert by_key(store, "k") == [b"second"]
    assert store.reader.record_at(second) is not None
    assert answer(get(store, 1)) == (GetStatus.FOUND, 2)
    store.abandon()


def test_a_sync_that_fails_shows_nothing(tmp_path: Path) -> None:
    disk = SimulatedDisk(Random(1))
    store = opened(disk, tmp_path / "store", replace(SETTINGS, flush_mode=FlushMode.SYNC))
    (place,) = send(store, message(b"doubtful", keys="k"))
    disk.fail("sync", errno.EIO, where="*/commitlog/*")
    for job in store.jobs(NOW):
        job.run()
        store.finished(job, NOW)
    store.dispatch()
    assert store.refusal
    assert nothing_is_seen(store, place, before=0)
    for job in store.jobs(NOW + FIRST_MS):  # the segment is written again
        job.run()
        store.finished(job, NOW)
    store.dispatch()
    assert by_key(store, "k") == [b"doubtful"]
    store.abandon()


def test_what_others_have_not_confirmed_is_not_seen(store: Store) -> None:
    store.durability.require("replicas", 0, timeout_ms=None)
    (place,) = send(store, message(b"one", keys="k"))
    assert nothing_is_seen(store, place, before=0)
    store.durability.reached("replicas", store.log.end)
    store.dispatch()
    assert by_key(store, "k") == [b"one"]


def test_half_messages_are_seen_by_id_and_key_only(store: Store) -> None:
    places = send(
        store,
        message(b"half", keys="k", sys_flag=SysFlag.TRANSACTION_PREPARED),
        message(b"back", keys="k", sys_flag=SysFlag.TRANSACTION_ROLLBACK),
        message(b"done", keys="k", sys_flag=SysFlag.TRANSACTION_COMMIT),
    )
    assert [bytes(decode_record(record).body) for record in get(store, 0).records] == [b"done"]
    assert by_key(store, "k") == [b"half", b"done"]
    assert all(store.reader.record_at(place) is not None for place in places)
