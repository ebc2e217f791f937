"""The history of a log: which epoch (the time of one master, a Raft term) wrote which bytes.

    offset   0              300            300 … 900            900 … end
    epoch    │ 1            │ 4                                 │ 7            entries (1, 0), (4, 300), (7, 900)

An entry has the number of an epoch and the offset of its first byte; the epoch ends where the next one starts, the last
one where the log ends. Numbers and offsets both grow from entry to entry.

One writer owns an epoch and writes its bytes in order. So two logs that have a byte of the same epoch at the same
offset are equal up to there, and `diverges_at` compares two logs by their entries alone.

The file is Apache's `epochFileCheckpoint`: the number of entries, the CRC-32 of the lines that follow (its sign bit
cleared; 0: not checked), and a line `epoch-startOffset` per entry.

    1
    1725254278
    1-0

A crash at any time leaves a valid file and log if writes have this order:

    a new epoch    1  the file with the new entry     2  the first byte of the epoch
    a cut          1  the log, durably                2  the file without the entries after the cut     3  new bytes

After a crash in between, the file has entries that start at or after the end of the log: `cut` with the end of the
log removes them. In the other order, bytes of one epoch could be mistaken for bytes of the previous epoch.

Java: EpochFileCache, EpochEntry, CheckpointFile.
"""

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from kourou.store.disk import Disk
from kourou.store.errors import BadStoreError

EPOCHS_MAX: Final = 100_000
"""The most entries in a file, as many as in a log of a year with an election every five minutes."""

_NUMBER_MAX = 2**31 - 1
_OFFSET_MAX = 2**63 - 1
_POSITIVE = 0x7FFF_FFFF


class Epoch(NamedTuple):
    """One entry."""

    number: int
    start: int  # the offset of its first byte


class Epochs:
    """The entries of one log. Immutable: methods that change something return a new value."""

    __slots__ = ("_numbers", "_starts", "entries")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        """Raises ValueError if the entries do not increase, or are out of range."""
        self.entries = tuple(Epoch(number, start) for number, start in entries)
        self._numbers = [entry.number for entry in self.entries]
        self._starts = [entry.start for entry in self.entries]
        if len(self.entries) > EPOCHS_MAX:
            raise ValueError(f"{len(self.entries)} epochs are more than {EPOCHS_MAX}")
        before = Epoch(-1, -1)
        for entry in self.entries:
            if entry.number <= before.number or entry.start <= before.start:
                raise ValueError(
                    f"epoch {entry.number} at {entry.start} follows epoch {before.number} at {before.start}"
                )
            before = entry
        if before.number > _NUMBER_MAX or before.start > _OFFSET_MAX:
            raise ValueError(f"epoch {before.number} at {before.start} is out of range")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Epochs) and self.entries == other.entries

    def __bool__(self) -> bool:
        return bool(self.entries)

    def __hash__(self) -> int:
        return hash(self.entries)

    def __repr__(self) -> str:
        return "Epochs(" + ", ".join(f"{number}-{start}" for number, start in self.entries) + ")"

    @property
    def last(self) -> Epoch | None:
        """The entry of the newest epoch."""
        return self.entries[-1] if self.entries else None

    # ── Look-up ───────────────────────────────────────────────────────────────────────────────────────────────────

    def before(self, offset: int) -> int:
        """The epoch of the byte before this offset; 0 if there is no byte, or its epoch is not known."""
        at = bisect_left(self._starts, offset)
        return self._numbers[at - 1] if at else 0

    def at(self, offset: int) -> int:
        """The epoch of the byte at this offset, which must exist; 0 if it is not known."""
        at = bisect_right(self._starts, offset)
        return self._numbers[at - 1] if at else 0

    def start_of(self, number: int) -> int | None:
        """Where an epoch starts; None if it has no entry."""
        at = bisect_left(self._numbers, number)
        return self._starts[at] if at < len(self._numbers) and self._numbers[at] == number else None

    def end_of(self, number: int, log_end: int) -> int:
        """Where the bytes of this epoch and of all earlier ones end, in a log that ends at `log_end`."""
        at = bisect_right(self._numbers, number)
        return min(self._starts[at], log_end) if at < len(self._starts) else log_end

    def not_after(self, number: int) -> int:
        """The newest epoch up to this number; 0 if there is none."""
        at = bisect_right(self._numbers, number)
        return self._numbers[at - 1] if at else 0

    # ── Changes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def begun(self, number: int, start: int) -> "Epochs":
        """With one more epoch. Raises ValueError if it is not newer than the last one, or starts before it does."""
        return Epochs((*self.entries, Epoch(number, start)))

    def cut(self, log_end: int) -> "Epochs":
        """Without the epochs that have no byte in a log that ends here."""
        at = bisect_left(self._starts, log_end)
        return self if at == len(self.entries) else Epochs(self.entries[:at])

    def trimmed(self, log_start: int) -> "Epochs":
        """Without the epochs that ended before the last byte before `log_start`, where the log begins."""
        at = bisect_left(self._starts, log_start)
        return self if at <= 1 else Epochs(self.entries[at - 1 :])

    # ── Two logs ──────────────────────────────────────────────────────────────────────────────────────────────────

    def diverges_at(self, log_end: int, other: "Epochs", other_end: int) -> int | None:
        """The offset up to which this log equals another one; None if they have no epoch in common.

        The newest common entry decides: from its start on both logs have bytes of one writer, until one of them
        continues with another epoch or ends.
        """
        entries = set(other.entries)
        common = next((entry for entry in reversed(self.entries) if entry in entries), None)
        if common is None:
            return None
        return min(self.end_of(common.number, log_end), other.end_of(common.number, other_end))

    # ── The file ──────────────────────────────────────────────────────────────────────────────────────────────────

    def encode(self) -> bytes:
        """The content of the file."""
        lines = "".join(f"{number}-{start}\n" for number, start in self.entries).encode()
        return b"%d\n%d\n%b" % (len(self.entries), zlib.crc32(lines) & _POSITIVE, lines)

    @classmethod
    def decode(cls, content: bytes) -> "Epochs":
        """The entries in a file. Raises ValueError."""
        head = content.split(b"\n", 2)
        if len(head) != 3:
            raise ValueError("it has less than two lines")
        count, checksum, lines = _number(head[0]), _number(head[1]), head[2]
        if checksum and checksum != zlib.crc32(lines) & _POSITIVE:
            raise ValueError(f"its checksum is not {checksum}")
        entries = lines.splitlines()
        if count != len(entries):
            raise ValueError(f"it has {len(entries)} epochs instead of {count}")
        return cls(_entry(line) for line in entries)


def _number(digits: bytes) -> int:
    """A decimal number without sign. Raises ValueError."""
    if not digits.isdigit() or len(digits) > 19:
        raise ValueError(f"{digits[:40]!r} is not a number")
    return int(digits)


def _entry(line: bytes) -> tuple[int, int]:
    number, _, start = line.partition(b"-")
    return _number(number), _number(start)


class EpochFile:
    """The entries of a log on the disk. `write` may run in another thread than the rest."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path

    def read(self) -> Epochs:
        """The entries; none if the file was never written. Raises BadStoreError, OSError.

        The backup is not used: it lacks the newest epoch, so its bytes would be mistaken for those of the previous one.
        """
        content = self._disk.read(self.path)
        if content is None:
            return Epochs()
        try:
            return Epochs.decode(content)
        except ValueError as error:
            raise BadStoreError(
                f"{self.path} is damaged: {error}. Restore it from a copy, or move the whole store away; this broker "
                "then copies the log from its master or group"
            ) from None

    def write(self, epochs: Epochs) -> None:
        """Replace the entries durably; the old file is kept as `<name>.bak`, as Java does.

        A crash leaves the old or the new entries. Raises OSError.
        """
        self._disk.replace(self.path, epochs.encode(), backup=True)
