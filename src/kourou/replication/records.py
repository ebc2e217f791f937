"""Reassembles whole records from a stream of log bytes that may be split anywhere.

A slave appends only whole, valid records: its log always ends with a record, and invalid bytes from a master, or from a
peer that pretends to be one, never get into the log. A record contains its log offset, so a master whose log has
diverged is detected by its first record.
"""

from collections.abc import Callable
from typing import Final

from kourou.protocol.record import Found, Scanner

RECORD_MAX: Final = 20 * 1024 * 1024
"""The size of the largest record or filler that is accepted. A request to store a record is limited to 16 MiB."""

_HEAD_SIZE: Final = 8

_FILLER, _CUT, _END = int(Found.FILLER), int(Found.CUT), int(Found.END)


class BadCopyError(Exception):
    """The bytes do not continue this log. The text says why."""


class Assembler:
    """Turns pieces of a log into runs of whole records."""

    def __init__(self, start: int, segment_size: int, take: Callable[[memoryview, int], None]) -> None:
        """The next byte is the one at `start`, where a record begins.

        `take` gets runs of records, and the store time of the last record, or 0 if there are only fillers.
        """
        self.next_offset = start  # of the next byte
        self._segment_size = segment_size
        self._take = take
        self._pending = bytearray()  # the beginning of an incomplete record
        self._needed = 0  # how many bytes `pending` needs before it is examined again
        self._stored_ms = 0

    @property
    def pending(self) -> int:
        """How many bytes belong to an incomplete record."""
        return len(self._pending)

    def feed(self, data: memoryview) -> None:
        """Process the next bytes. Raises BadCopyError, and the errors of `take`."""
        while len(data):
            room = self._segment_size - self.next_offset % self._segment_size
            if len(data) < room:
                self._feed_in_segment(data)
                return
            self._feed_in_segment(data[:room])
            data = data[room:]
            if self._pending and self.next_offset % self._segment_size == 0:
                raise BadCopyError(
                    f"a record at {self.next_offset - self.pending} crosses the end of a segment of "
                    f"{self._segment_size} bytes: mappedFileSizeCommitLog must be the same on master and slave"
                )

    def _feed_in_segment(self, data: memoryview) -> None:
        while self._pending and len(data):
            missing = data[: self._needed - len(self._pending)]
            self._pending += missing
            self.next_offset += len(missing)
            data = data[len(missing) :]
            if len(self._pending) == self._needed:
                whole = self._pending
                self._pending = bytearray()
                self._scan(memoryview(whole), self.next_offset - len(whole))
        if len(data):
            start = self.next_offset
            self.next_offset += len(data)
            self._scan(data, start)

    def _scan(self, data: memoryview, start: int) -> None:
        """Pass on the whole records of `data`, which begins at this log offset, and keep the rest."""
        scanner = Scanner(data, crc=True, base=start)
        found = self._skip(scanner)
        while found == _FILLER:
            if (start + scanner.next_at) % self._segment_size:
                raise BadCopyError(
                    f"a segment ends at {start + scanner.next_at}, not at a multiple of {self._segment_size} bytes: "
                    "mappedFileSizeCommitLog must be the same on master and slave"
                )
            found = self._skip(scanner)
        at = scanner.at
        if at:
            self._take(data[:at], self._stored_ms)
        if at == len(data) and found == _END:
            return
        if found == _CUT:
            self._keep(data[at:], start + at)
        else:
            raise BadCopyError(f"no valid record at {start + at}: {scanner.reason}")

    def _skip(self, scanner: Scanner) -> int:
        before = scanner.next_at
        found = scanner.skip_records()
        if scanner.at > before:
            self._stored_ms = scanner.stored_ms
        return found

    def _keep(self, rest: memoryview, offset: int) -> None:
        needed = _HEAD_SIZE
        if len(rest) >= _HEAD_SIZE:
            needed = int.from_bytes(rest[:4], signed=True)
            if needed > RECORD_MAX:
                raise BadCopyError(f"the record at {offset} has {needed} bytes; the limit is {RECORD_MAX}")
        self._pending = bytearray(rest)
        self._needed = needed
