"""The log that is written: where the next record goes, and the bytes around it.

Both layouts have the same rule: a record never spans two segments, and 8 bytes remain free for the filler. So the
position of a record follows from the sizes of the records before it, and `Placement` can compute it again.
"""

import struct
from pathlib import Path
from typing import Final

from kourou.protocol.record import (
    FILLER_SIZE_MIN,
    PHYSICAL_OFFSET_AT,
    RECORD_CRC_SIZE,
    CorruptRecordError,
    Scanner,
    check_record_crc,
    crc_property,
    encode_filler,
)
from kourou.store.commit_log import no_room
from kourou.store.disk import Disk, File
from kourou.store.dledger import BLANK, BLANK_MAGIC, ENTRY, ENTRY_HEAD, ENTRY_MAGIC, UNIT
from kourou.store.errors import BadStoreError
from kourou.store.file_room import reserve, zero_tail
from kourou.store.segments import segment_name

PREPARED_BEFORE_BODY: Final = 12
"""How many bytes before the body the offset of the half message or the original is."""

_INT64: Final = struct.Struct(">q")
_INDEX_STEP: Final = 64 * 1024  # bytes of the index that are reserved at a time


class Placement:
    """Computes the position of the next record. `head` is the number of bytes before each record: 0 or 48."""

    __slots__ = ("at", "file_size", "head")

    def __init__(self, file_size: int, head: int, at: int) -> None:
        self.file_size = file_size
        self.head = head
        self.at = at

    def place(self, size: int) -> int:
        """The offset of the next record, which has this size."""
        needed = self.head + size
        left = self.file_size - self.at % self.file_size
        start = self.at if needed + FILLER_SIZE_MIN <= left else self.at + left
        self.at = start + needed
        return start + self.head


class TargetLog:
    """The segments of the new log, and in DLedger's layout its index. Nothing is durable before `sync`."""

    def __init__(self, disk: Disk, folder: Path, file_size: int, index: tuple[Path, int] | None) -> None:
        self._disk = disk
        self._folder = folder
        self._index = None if index is None else _Index(disk, *index)
        self._placement = Placement(file_size, 0 if index is None else ENTRY_HEAD, 0)
        self._file: File | None = None  # the segment that is written, and its first offset
        self._base = 0
        self._dirty: list[File] = []

    @property
    def head(self) -> int:
        return self._placement.head

    @property
    def at(self) -> int:
        """Where the next record, or its filler, goes."""
        return self._placement.at

    def resume(self, at: int, records: int) -> None:
        """Continue at this offset: existing bytes after it were not durable. Raises OSError."""
        placement, size = self._placement, self._placement.file_size
        placement.at = at
        self._base = at - at % size
        for name in sorted(self._disk.files(self._folder), reverse=True):
            if name.isdigit() and int(name) > at:
                self._disk.remove(self._folder / name)
                self._disk.sync_folder(self._folder)
        if segment_name(self._base) in self._disk.files(self._folder):
            self._file = self._disk.open(self._folder / segment_name(self._base))
            zero_tail(self._disk, self._file, at - self._base)
        if self._index is not None:
            self._index.resume(records)

    def put(self, scanner: Scanner, view: memoryview, prepared: int, number: int) -> int:
        """Copy a record; returns its new log offset. `number` counts records from 0. Raises StoreError, OSError."""
        placement, size = self._placement, scanner.size
        if placement.head + size + FILLER_SIZE_MIN > placement.file_size:
            raise BadStoreError(
                f"the record of {size} bytes at log offset {scanner.physical_offset} does not fit into a segment of "
                f"{placement.file_size} bytes, with the {placement.head} bytes that DLedger puts before it. Let it "
                "expire before the conversion"
            )
        before = placement.at
        offset = placement.place(size)
        start = offset - placement.head
        if self._file is None or start >= self._base + placement.file_size:
            self._next_segment(before, start)
        assert self._file is not None
        buffer, at = self._file.buffer, offset - self._base
        record = bytearray(view[scanner.at : scanner.next_at])
        sealed = is_sealed(scanner, view)
        _INT64.pack_into(record, PHYSICAL_OFFSET_AT, offset)
        _INT64.pack_into(record, scanner.body_at - scanner.at - PREPARED_BEFORE_BODY, prepared)
        if sealed:
            record[-RECORD_CRC_SIZE:] = crc_property(memoryview(record)[:-RECORD_CRC_SIZE])
        buffer[at : at + size] = record
        if self._index is not None:
            entry = ENTRY_HEAD + size
            ENTRY.pack_into(buffer, at - ENTRY_HEAD, ENTRY_MAGIC, entry, number, 0, start, 0, 0, 0, size)
            self._index.put(number, UNIT.pack(ENTRY_MAGIC, start, entry, number, 0))
        return offset

    def _next_segment(self, before: int, start: int) -> None:
        size = self._placement.file_size
        if self._file is not None:
            left = self._base + size - before
            filler = encode_filler(left) if self._index is None else BLANK.pack(BLANK_MAGIC, left)
            self._file.buffer[before - self._base : before - self._base + len(filler)] = filler
            self._dirty.append(self._file)
        self._base = start - start % size
        path = self._folder / segment_name(self._base)
        try:
            self._file = self._disk.create(path, size)
        except OSError as error:
            raise no_room(path, size, error) from error

    def begin(self) -> None:
        """Create the first segment, even if no record follows: both logs begin at the same offset."""
        if self._file is None:
            self._next_segment(self.at, self.at)

    def sync(self) -> None:
        """Make everything durable. Raises OSError."""
        files = [*self._dirty, self._file] if self._file is not None else self._dirty
        for file in files:
            file.sync()
        for file in self._dirty:
            file.close()
        self._dirty.clear()
        if self._index is not None:
            self._index.sync()

    def close(self) -> None:
        for file in (*self._dirty, self._file):
            if file is not None:
                file.close()
        if self._index is not None:
            self._index.close()


class _Index:
    """DLedger's index: a unit for each entry."""

    def __init__(self, disk: Disk, folder: Path, file_size: int) -> None:
        self._disk = disk
        self._folder = folder
        self._file_size = file_size
        self._files: dict[int, File] = {}  # by their first byte; those that are not synced, and the last
        self._reserved = 0

    def resume(self, records: int) -> None:
        """The first units are durable. The others are written again, and no unit may be left after them."""
        end = records * UNIT.size
        for name in sorted(self._disk.files(self._folder), reverse=True):
            if name.isdigit() and int(name) >= end:
                self._disk.remove(self._folder / name)
                self._disk.sync_folder(self._folder)
        base = end - end % self._file_size
        if segment_name(base) in self._disk.files(self._folder):
            self._files[base] = self._disk.open(self._folder / segment_name(base))
            zero_tail(self._disk, self._files[base], end - base)
        self._reserved = end

    def put(self, number: int, unit: bytes) -> None:
        position = number * UNIT.size
        at = position % self._file_size
        base = position - at
        if base not in self._files:
            self._files[base] = self._disk.create(self._folder / segment_name(base), self._file_size, reserve=False)
            self._reserved = position
        file = self._files[base]
        if position + len(unit) > self._reserved:
            step = min(_INDEX_STEP, self._file_size - at)
            reserve(file, at, step)
            self._reserved = position + step
        file.buffer[at : at + len(unit)] = unit

    def sync(self) -> None:
        for base, file in sorted(self._files.items()):
            file.sync()
            if base != max(self._files):
                file.close()
        self._files = {base: file for base, file in self._files.items() if base == max(self._files)}

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def is_sealed(scanner: Scanner, view: memoryview) -> bool:
    """True if the record ends with a valid CRC over the whole record. Clients can also send a property of that name."""
    if not bytes(view[scanner.next_at - RECORD_CRC_SIZE : scanner.next_at]).startswith(b"__CRC32#\x01"):
        return False
    try:
        check_record_crc(view, scanner.at)
    except CorruptRecordError:
        return False
    return True
