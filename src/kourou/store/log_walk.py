"""Reads the records of the log with plain reads, for a worker thread: it never waits for a page of the mapped log.

A read releases the interpreter lock, and a compiled scanner needs less than a millisecond for each block. So the owner
of the store is not blocked meanwhile.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kourou.protocol.record import Found, Scanner
from kourou.store.disk import Disk
from kourou.store.records import OFFSET_END, find_record, scan
from kourou.store.segments import segment_name

CHUNK: Final = 256 * 1024
"""Bytes of the log that are read and scanned at a time."""

RECORD_MAX: Final = 64 * 1024 * 1024
"""A record that states a larger size is damaged."""


@dataclass(slots=True)
class LogWalk:
    """The position of a walk, and its end: `end` is where a record ends."""

    disk: Disk
    folder: Path
    file_size: int
    at: int
    end: int

    def records(self, budget: int) -> Iterator[Scanner]:
        """Scanners at the records from here on, until about `budget` bytes are read. Raises OSError.

        Damaged parts are skipped. At the end, `at` is after the last record.
        """
        size = CHUNK
        while self.at < self.end and budget > 0:
            data = self._read(self.at, size)
            budget -= max(len(data), 1)
            start, size = self.at, CHUNK
            scanner = scan(data, start, crc=True)
            found = scanner.step()
            while found == Found.RECORD:
                yield scanner
                self.at = start + scanner.next_at
                found = scanner.step()
            if found == Found.FILLER:
                self.at = self._next_file(start)
            elif self.at == start:
                needed = int.from_bytes(data[:4])
                if found == Found.CUT and len(data) < needed <= min(RECORD_MAX, self._next_file(start) - start):
                    size = needed
                else:
                    self._pass_over(budget)

    def record(self, offset: int, size: int) -> Scanner | None:
        """A scanner at the record at an offset, if a complete one of this size is there. Raises OSError."""
        if not 0 < size <= RECORD_MAX or offset < 0 or offset + size > self.end:
            return None
        try:
            data = self._read(offset, size)
        except FileNotFoundError:
            return None
        scanner = scan(data, offset, crc=True)
        return scanner if scanner.step() == Found.RECORD and scanner.size == size else None

    def _next_file(self, offset: int) -> int:
        return offset - offset % self.file_size + self.file_size

    def _read(self, offset: int, size: int) -> bytes:
        at = offset % self.file_size
        size = min(size, self.file_size - at, max(self.end, offset) - offset)
        return self.disk.read_at(self.folder / segment_name(offset - at), at, size)

    def _pass_over(self, budget: int) -> None:
        """Continue at the next bytes that look like a record, or with the next file."""
        start, following = self.at + 1, min(self._next_file(self.at), self.end)
        while start < following and budget > 0:
            data = self._read(start, CHUNK + OFFSET_END)
            budget -= max(len(data), 1)
            found = find_record(data, 0, start)
            if found is not None:
                self.at = start + found
                return
            start += CHUNK
        self.at = min(start, following)
