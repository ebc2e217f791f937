"""Where the records of a log begin: one after the other, and the next segment goes on where a filler ends one.

    segment    │ record │ record │ … │ filler ║ record │ record │ … │ zeros: the log ends here
               └ `walk` and `goes_on_at` know this; everything else in the store asks them

A scanner reads one stretch of a segment. `scan` makes all scanners over files of a log: a log whose records have
something before them would be read by a change here.

Where something is damaged, `find_record` looks for the next bytes that are a record by their own account: the magic is
there, and the physical offset is right.
"""

from collections.abc import Iterator
from typing import Final

from kourou.protocol.record import Found, Scanner
from kourou.store.segments import Segments

OFFSET_AT: Final = 28
OFFSET_END: Final = 36
"""Where in a record its physical offset is."""

_MAGIC_AT: Final = 4
_MAGIC_START: Final = b"\xda\xa3\x20"  # of both kinds of records
_MAGIC_LAST: Final = (0xA7, 0xAB)
_WINDOW: Final = 1024 * 1024


def scan(data: bytes | memoryview, base: int, start: int = 0, end: int | None = None, *, crc: bool = False) -> Scanner:
    """A scanner over `data[start:end]`, where a record begins at `start`; the log's offset of `data[0]` is `base`.

    `crc`: a record whose body does not fit its CRC is bad.
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
    """Where the log goes on after what ended the records of a segment; None: not at once, or not at all."""
    at_end = found == Found.END and scanner.at >= file_size
    return base + file_size if at_end or found == Found.FILLER else None


def walk(segments: Segments, start: int, end: int) -> Iterator[Scanner]:
    """A scanner at each record from `start`, where one begins, to `end`. After damage the next segment follows.

    Raises OSError.
    """
    while start < end and segments.holds(start):
        scanner = scan_segment(segments, start, end)
        while scanner.step() == Found.RECORD:
            yield scanner
        start += segments.file_size - start % segments.file_size


def find_record(data: bytes | memoryview, start: int, base: int) -> int | None:
    """Where in `data`, from `start` on, something is a record by its own account; `base` is the offset of `data[0]`."""
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
