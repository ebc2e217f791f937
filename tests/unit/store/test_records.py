"""Where records begin: over the ends of segments, after damage, and among bytes that only look like records."""

from random import Random

import pytest

from kourou.protocol.record import Found
from kourou.store.records import OFFSET_AT, OFFSET_END, find_record, goes_on_at, scan, scan_segment, walk

from .small import SEGMENT, Small, message


@pytest.fixture
def small() -> Small:
    """A log of three segments."""
    small = Small()
    small.fill(40)
    assert len(small.store.log.segments) == 3
    return small


def offsets(small: Small) -> list[int]:
    queue = small.store.queues.ensure("orders", 0)
    return [queue.entry(number)[0] for number in range(queue.end)]


def test_a_walk_comes_by_every_record(small: Small) -> None:
    log, expected = small.store.log, offsets(small)
    assert [record.physical_offset for record in walk(log.segments, 0, log.end)] == expected
    assert [record.physical_offset for record in walk(log.segments, expected[7], expected[30])] == expected[7:30]
    assert [record.physical_offset for record in log.records(expected[35])] == expected[35:]
    assert list(log.records(log.end)) == []


def test_after_damage_the_next_segment_follows(small: Small) -> None:
    log, expected = small.store.log, offsets(small)
    log.segments.slice(expected[3], 8)[4:8] = b"\0\0\0\1"
    found = [record.physical_offset for record in log.records(0)]
    assert found == expected[:3] + [offset for offset in expected if offset >= SEGMENT]


def test_a_segment_may_be_scanned_in_part(small: Small) -> None:
    log, expected = small.store.log, offsets(small)
    scanner = scan_segment(log.segments, expected[1], expected[3] - 1)
    assert [scanner.step(), scanner.step()] == [Found.RECORD, Found.CUT]
    with pytest.raises(KeyError):
        scan_segment(log.segments, 99 * SEGMENT)


def test_where_the_log_goes_on(small: Small) -> None:
    segments = small.store.log.segments
    for base, following in ((0, SEGMENT), (SEGMENT, 2 * SEGMENT), (2 * SEGMENT, None)):
        scanner = scan_segment(segments, base)
        assert goes_on_at(scanner, scanner.skip_records(), base, SEGMENT) == following


def test_a_record_may_end_with_its_segment() -> None:
    record = bytes(Small().append(message(b"x"))[0].size)
    scanner = scan(record, 0, len(record))
    assert goes_on_at(scanner, scanner.step(), 0, len(record)) == len(record)


def test_the_next_record_is_found_over_windows(monkeypatch: pytest.MonkeyPatch, small: Small) -> None:
    """Wherever a window ends: between two records, amid the magic, amid the offset."""
    data = bytes(small.store.log.segments.file(0).buffer)
    expected = [offset for offset in offsets(small) if offset < SEGMENT]
    for window in (1, 5, 64, 401, 4096, SEGMENT):
        monkeypatch.setattr("kourou.store.records._WINDOW", window)
        for offset in expected[:4]:
            assert find_record(data, offset, 0) == offset
            assert find_record(data, offset - 3 if offset else 0, 0) == offset
        assert find_record(data, expected[-1] + 1, 0) is None
        assert find_record(data, 0, 77) is None, "they are not where they say"


def test_a_body_full_of_magics_is_passed_in_time() -> None:
    record = bytearray(Random(1).randbytes(200))
    record[4:8], record[OFFSET_AT:OFFSET_END] = b"\xda\xa3\x20\xab", (300_000).to_bytes(8)
    data = b"\xda\xa3\x20\xa7" * 75_000 + bytes(record)
    assert find_record(data, 1, 0) == 300_000
