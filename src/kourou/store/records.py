"""Where the records of a log begin: one after the other; after a filler the log continues in the next segment.

    segment    │ record │ record │ … │ filler ║ record │ record │ … │ zeros: the log ends here
               └ `walk` and `goes_on_at` implement this for the whole store

A scanner reads a part of one segment. `scan` creates all scanners over log files. In DLedger's layout each record has
48 bytes before it: `Entries` moves a scanner over these (dledger.py draws them).

After damage, `find_record` searches the next bytes that look like a record: the magic is there, and the log offset is
right.
"""

from collections.abc import Iterator
from typing import Final

from kourou.protocol.record import RECORD_SIZE_MIN, Found, Scanner
from kourou.store.dledger import BLANK, BLANK_MAGIC, ENTRY, ENTRY_HEAD, ENTRY_MAGIC
from kourou.store.segments import Segments

OFFSET_AT: Final = 28
OFFSET_END: Final = 36
"""The position of the log offset in a record."""

_MAGIC_AT: Final = 4
_MAGIC_START: Final = b"\xda\xa3\x20"  # of both kinds of records
_MAGIC_LAST: Final = (0xA7, 0xAB)
_WINDOW: Final = 1024 * 1024


def scan(data: bytes | memoryview, base: int, start: int = 0, end: int | None = None, *, crc: bool = False) -> Scanner:
    """A scanner over `data[start:end]`, where a record begins at `start`; `base` is the log offset of `data[0]`.

    `crc`: a record whose body does not match its CRC is invalid.
    """
    return Scanner(data, start, end, crc=crc, base=base)


def scan_segment(segments: Segments, offset: int, end: int | None = None, *, crc: bool = False) -> Scanner:
    """A scanner from an offset of the log, where a record begins, to the end of its segment, or to `end`.

    Raises KeyError if no segment has that offset, OSError.
    """
    base = offset - offset % segments.file_size
    stop = segments.file_size if end is None else min(end - base, segments.file_size)
    return scan(segments.file(offset).buffer, base, offset - base, stop, crc=crc)


def goes_on_at(scanner: Scanner, found: int, base: int, file_size: int) -> int | None:
    """Where the log continues after the end of a segment's records; None: not directly, or not at all."""
    at_end = found == Found.END and scanner.at >= file_size
    return base + file_size if at_end or found == Found.FILLER else None


def walk(segments: Segments, start: int, end: int) -> Iterator[Scanner]:
    """A scanner at each record from `start`, where one begins, to `end`. After damage, the next segment follows.

    Raises OSError.
    """
    while start < end and segments.holds(start):
        scanner = scan_segment(segments, start, end)
        while scanner.step() == Found.RECORD:
            yield scanner
        start += segments.file_size - start % segments.file_size


def find_record(data: bytes | memoryview, start: int, base: int) -> int | None:
    """The position in `data`, from `start` on, of bytes that look like a record; `base` is the offset of `data[0]`."""
    while start < len(data):
        window = bytes(data[start : start + _WINDOW + OFFSET_END])
        found = window.find(_MAGIC_START, _MAGIC_AT)
        while 0 <= found < _WINDOW + _MAGIC_AT:
            place = found - _MAGIC_AT
            is_magic = window[found + 3 : found + 4] and window[found + 3] in _MAGIC_LAST
            if is_magic and int.from_bytes(window[place + OFFSET_AT : place + OFFSET_END]) == base + start + place:
                return start + place
            found = window.find(_MAGIC_START, found + 1)
        start += _WINDOW
    return None


class Entries:
    """Moves over the entries of one segment in DLedger's layout. After RECORD, `scanner` is at the entry's record.

    Entries count up from the first one, terms never fall, and each entry states its position; `index` and `term` are
    those of the entry before `start`, if they are known.
    """

    def __init__(
        self, data: memoryview, base: int, start: int, index: int = -1, term: int = -1, *, crc: bool = True
    ) -> None:
        self._data = data
        self._base = base
        self.scanner = scan(data, base, start, crc=crc)
        self.at = self.next_at = start
        self.index = index
        self.term = term
        self.reason = ""

    def step(self) -> int:
        """Move to the next entry and return a `Found`. After any result but RECORD and FILLER it stays where it is."""
        self.at = at = self.next_at
        room = len(self._data) - at
        if room < BLANK.size:
            return self._stop(Found.CUT, f"{room} bytes are left") if room else self._stop(Found.END, "the range ends")
        magic, size = BLANK.unpack_from(self._data, at)
        if magic == size == 0:
            return self._stop(Found.END, "never written")
        if magic == BLANK_MAGIC and BLANK.size <= size <= room:
            self.next_at = at + size
            return self._stop(Found.FILLER, "the rest is unused") if size == room else self.step()
        if magic != ENTRY_MAGIC or not ENTRY_HEAD + RECORD_SIZE_MIN <= size <= room:
            return self._stop(Found.BAD, f"an entry of kind {magic} with {size} bytes, and {room} are left")
        _, _, index, term, position, _, _, _, body_size = ENTRY.unpack_from(self._data, at)
        if position != self._base + at or body_size != size - ENTRY_HEAD:
            return self._stop(Found.BAD, f"the entry says that it is at {position} with a record of {body_size} bytes")
        if index < 0 or (self.index >= 0 and index != self.index + 1) or term < max(self.term, 0):
            return self._stop(
                Found.BAD, f"entry {index} of term {term} can't follow entry {self.index} of term {self.term}"
            )
        self.scanner.move(at + ENTRY_HEAD, at + size)
        if self.scanner.step() != Found.RECORD or self.scanner.next_at != at + size:
            return self._stop(Found.BAD, f"entry {index} has no valid record: {self.scanner.reason or 'it is shorter'}")
        self.index, self.term, self.next_at = index, term, at + size
        return Found.RECORD

    def _stop(self, found: Found, reason: str) -> int:
        self.reason = reason
        return found
