"""Whole records from a log that is cut anywhere."""

import random

import pytest
from tests.unit.replication.logs import SEGMENT, filler, real_log

from kourou.protocol.record import Found, Scanner
from kourou.replication.records import RECORD_MAX, Assembler, BadCopyError

LOG = real_log(250)


def assembled(pieces: list[bytes], start: int = 0) -> tuple[bytes, Assembler]:
    taken = bytearray()
    assembler = Assembler(start, SEGMENT, lambda data, _: taken.extend(data))
    for piece in pieces:
        assembler.feed(memoryview(piece))
    return bytes(taken), assembler


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[at : at + size])
        at += size
    return pieces


@pytest.mark.parametrize("sizes", [[1], [7], [8], [89], [1000], [4096, 1, 3], [32 * 1024], [10**9]])
def test_the_log_is_the_same_however_it_is_cut(sizes: list[int]) -> None:
    assert len(LOG) > 2 * SEGMENT
    taken, assembler = assembled(cut(LOG, sizes))
    assert taken == LOG
    assert assembler.pending == 0
    assert assembler.next_offset == len(LOG)


def test_what_is_taken_ends_with_a_record_at_any_time() -> None:
    chance = random.Random(5)
    ends = {0}
    for start in range(0, len(LOG), SEGMENT):
        scanner = Scanner(LOG, start, min(start + SEGMENT, len(LOG)))
        while scanner.step() == Found.RECORD:
            ends.add(scanner.next_at)
        ends.add(min(start + SEGMENT, len(LOG)))
    taken = bytearray()
    assembler = Assembler(0, SEGMENT, lambda data, _: taken.extend(data))
    for piece in cut(LOG, [chance.randrange(1, 3000) for _ in range(100)]):
        assembler.feed(memoryview(piece))
        assert len(taken) in ends
        assert len(taken) + assembler.pending == assembler.next_offset


def test_the_store_time_of_the_last_record_is_told() -> None:
    times: list[int] = []
    Assembler(0, SEGMENT, lambda _, stored_ms: times.append(stored_ms)).feed(memoryview(LOG))
    scanner = Scanner(LOG, SEGMENT)
    scanner.skip_records()
    assert times[-1] == scanner.stored_ms


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00\x00\x00\x64garbage-", "its magic"),
        (bytes(64), "never written"),
        (LOG[:2] + b"\x00" + LOG[3:], "at 0"),
        (LOG[:300] + bytes([LOG[300] ^ 1]) + LOG[301:], "CRC"),
        (LOG[SEGMENT:], "its offset field says 65536"),
        (filler(100), "mappedFileSizeCommitLog"),
        ((RECORD_MAX + 1).to_bytes(4) + LOG[4:8], "the limit is"),
        (LOG[:1_500] + LOG[:500], "no valid record at"),
    ],
)
def test_nothing_invalid_gets_through(data: bytes, reason: str) -> None:
    taken = bytearray()
    assembler = Assembler(0, SEGMENT, lambda piece, _: taken.extend(piece))

    def feed_all() -> None:
        for piece in cut(data, [8, 1000]):
            assembler.feed(memoryview(piece))

    with pytest.raises(BadCopyError, match=reason):
        feed_all()
    assert LOG.startswith(bytes(taken))


def test_a_record_that_crosses_the_end_of_a_segment_is_refused() -> None:
    """As from a master with larger segments."""
    assembler = Assembler(0, SEGMENT // 4, lambda *_: None)
    with pytest.raises(BadCopyError, match="mappedFileSizeCommitLog must be the same"):
        assembler.feed(memoryview(LOG))
