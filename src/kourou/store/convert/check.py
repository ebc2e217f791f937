"""Compares the new log with the old one: the CRC, offset, number and all bytes of each record."""

from collections.abc import Iterator

from kourou.protocol.record import PHYSICAL_OFFSET_AT, RECORD_CRC_SIZE, Scanner
from kourou.store.convert.offset_map import OffsetMap
from kourou.store.convert.source import Source, Walk
from kourou.store.convert.target import PREPARED_BEFORE_BODY, is_sealed
from kourou.store.errors import StoreError

_PHYSICAL_END = PHYSICAL_OFFSET_AT + 8


class NotEqualError(StoreError):
    """The new log is not a copy of the old one."""


def compare(old: Walk, new: Walk, target: Source, offsets: OffsetMap) -> Iterator[Scanner]:
    """The records of the old log, each equal to the one in the new log. Raises StoreError, OSError."""
    copies = iter(new)
    for scanner in old:
        copy = next(copies, None)
        if copy is None:
            raise _error(target, new, "the log ends, but records are missing")
        if copy.size != scanner.size or copy.prepared_offset != offsets.prepared(scanner):
            raise _error(target, new, "the record has another size, or refers to another record")
        if _fixed(copy, new.view) != _fixed(scanner, old.view):
            raise _error(target, new, f"the record is not that of log offset {scanner.physical_offset}")
        if is_sealed(scanner, old.view) and not is_sealed(copy, new.view):
            raise _error(target, new, "the CRC over the whole record is wrong")
        yield scanner
    if next(copies, None) is not None:
        raise _error(target, new, "there are more records than in the source")


def _fixed(scanner: Scanner, view: memoryview) -> tuple[bytes, bytes, bytes]:
    """The bytes of a record that a conversion does not change."""
    at, prepared = scanner.at, scanner.body_at - PREPARED_BEFORE_BODY
    end = scanner.next_at - (RECORD_CRC_SIZE if is_sealed(scanner, view) else 0)
    return (
        bytes(view[at : at + PHYSICAL_OFFSET_AT]),
        bytes(view[at + _PHYSICAL_END : prepared]),
        bytes(view[prepared + 8 : end]),
    )


def _error(target: Source, new: Walk, text: str) -> NotEqualError:
    part = target.entries if target.entries is not None else target.plain
    offset = new.place.offset
    base = offset - offset % target.file_size
    return NotEqualError(
        f"{part.path(base)} before {offset - base}: {text}. The disk lost writes, or the file was changed: "
        f"remove {target.paths.root} and convert again"
    )
