"""The machine's view of the log: its start and end, how far it is on disk, and its epochs.

The machine does not touch the bytes. The driver reads and writes them, and reports the result.
"""

from typing import Protocol

from kourou.store.epochs import Epochs


class Records(Protocol):
    """Finds the ends of records: a message carries whole records of one segment."""

    def batch_end(self, start: int, limit: int) -> int:
        """The end of the last record that ends within `limit` bytes of `start`, or the end of the first record."""


class Log:
    """See the module's text."""

    __slots__ = ("durable", "end", "epochs", "records", "start", "stored")

    def __init__(self, records: Records, start: int, end: int, epochs: Epochs) -> None:
        """A log after recovery: all of it is on disk. Epochs that start after its end have no bytes."""
        self.records = records
        self.start = start
        self.end = end  # with the bytes that the driver was told to append in this step
        self.stored = end  # without them
        self.durable = end  # on disk
        self.epochs = epochs  # as they are on disk; the last ones may start at the end, or (after a cut) after it

    @property
    def last(self) -> tuple[int, int]:
        """The epoch of the last byte, and the end. Of two logs, the one with the larger value is more up to date."""
        return self.epochs.before(self.stored), self.stored

    def has(self, offset: int, epoch: int) -> bool:
        """Is the byte before this offset of this epoch? All logs begin alike, with offset 0 and epoch 0."""
        if not epoch and offset:
            return False
        return self.start <= offset <= self.end and self.epochs.before(offset) == epoch

    def same_until(self, offset: int, epoch: int, end: int) -> int:
        """How far this log already has the bytes from `offset` to `end`, which are of this epoch."""
        if offset < self.end and self.epochs.at(offset) == epoch:
            return min(self.epochs.end_of(epoch, self.end), end)
        return offset

    def epochs_for(self, epoch: int) -> Epochs:
        """The epochs that must be on disk before a byte of this epoch is appended."""
        last = self.epochs.last
        if last is not None and last.number == epoch and last.start <= self.end:
            return self.epochs
        cut = self.epochs.cut(self.end)
        return cut if cut.last is not None and cut.last.number == epoch else cut.begun(epoch, self.end)

    def batch(self, start: int, limit: int) -> int:
        """The end of the bytes to send from `start` on: whole records of one epoch."""
        end = self.epochs.end_of(self.epochs.at(start), self.stored)
        return min(self.records.batch_end(start, limit), end)

    # ── Reports of the driver ──────────────────────────────────────────────────────────────────────────────────────

    def appended(self, end: int) -> None:
        self.end = self.stored = end
        self.durable = min(self.durable, end)

    def flushed(self, offset: int) -> None:
        self.durable = max(self.durable, min(offset, self.stored))

    def trimmed(self, start: int) -> None:
        self.start = max(self.start, start)
        self.epochs = self.epochs.trimmed(start)

    def restarted(self, start: int) -> None:
        self.start = self.end = self.stored = self.durable = start
