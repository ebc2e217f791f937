"""The checkpoint: up to when a store's parts are safe; and `abort`, the sign of a run that never ended.

    0          8         16        24                 32              40                48         56       64   4096
    │ log ms   │ queues  │ index   │ master's flushed │ confirm offset│ queues' log end │ safe end │ log ms │ zeros … │

Big-endian integers, the rest of the page is zero. The first three are store times: every record up to that time is safe
in the commit log, in the queues, in the index. Recovery begins where all of it was safe, so a checkpoint may lag behind
the truth but must never run ahead of it.

The last two are ours alone: up to which offset the log is safe, which is more exact than a time. Java leaves them as
they are when it changes the others. So the first time stands there once more, and when the two differ they are old.

Java overwrites the file in place; here it is replaced, so that a crash leaves the old values or the new ones. One that
is missing, short or makes no sense costs time and no message: it reads as all zeros, and recovery walks the whole log.

Java: StoreCheckpoint.
"""

import logging
import struct
from pathlib import Path
from typing import Self

import msgspec

from kourou.store.disk import Disk

log = logging.getLogger(__name__)

FILE_SIZE = 4096

RECOVERY_MARGIN_MS = 3_000
"""How far before the checkpoint recovery begins: two records of the same time may lie on both sides of a sync."""

_VALUES = struct.Struct(">6q")
_OURS = struct.Struct(">2q")
_LATEST_MS = 2**42  # in the year 2109: a time beyond it is garbage
_NOT_KNOWN = -1  # what Java has for an offset that was never set


class Checkpoint(msgspec.Struct, frozen=True, gc=False):
    """The values. `problem` says why they are zeros although there was a file."""

    physical_ms: int = 0
    """Store time of the last record that is safe in the commit log."""
    logical_ms: int = 0
    """Store time of the last record that is safe in the queues."""
    index_ms: int = 0
    """Store time of the last record that is safe in the index."""
    master_flushed: int = 0
    """On a slave: the log offset up to which its master is safe."""
    confirm: int = 0
    """The log offset up to which enough replicas have the log."""
    logical_physical: int = 0
    """The log offset up to which the queues are safe. Releases before 5.4 leave it 0."""
    flushed_physical: int = 0
    """The log offset up to which the log is safe; 0 if another broker wrote this, and only times are known."""
    problem: str | None = None

    @classmethod
    def read(cls, disk: Disk, path: Path) -> Self:
        """The checkpoint in a file. Zeros if it is missing, or is none. Raises OSError if it can't be read."""
        content = disk.read(path)
        if content is None:
            return cls()
        checkpoint = cls.decode(content)
        if checkpoint.problem:
            log.warning("%s: %s; recovery will walk the whole log", path, checkpoint.problem)
        return checkpoint

    @classmethod
    def decode(cls, content: bytes) -> Self:
        """The checkpoint in these bytes. Never raises: see `problem`."""
        if len(content) < _VALUES.size:
            return cls(problem=f"{len(content)} bytes are too short for a checkpoint")
        values = _VALUES.unpack_from(content)
        if not all(0 <= time_ms < _LATEST_MS for time_ms in values[:3]):
            return cls(problem=f"the times {values[:3]} make no sense")
        if min(values[3:]) < _NOT_KNOWN:
            return cls(problem=f"the offsets {values[3:]} make no sense")
        flushed_physical, physical_ms = _OURS.unpack_from(content.ljust(FILE_SIZE, b"\0"), _VALUES.size)
        is_ours = flushed_physical > 0 and physical_ms == values[0]
        return msgspec.structs.replace(cls(*values), flushed_physical=flushed_physical if is_ours else 0)

    def encode(self) -> bytes:
        """The content of the file."""
        ours = _OURS.pack(self.flushed_physical, self.physical_ms) if self.flushed_physical else b""
        return (self._packed() + ours).ljust(FILE_SIZE, b"\0")

    def write(self, disk: Disk, path: Path) -> None:
        """Replace the file. Raises OSError; the old one is then still there."""
        disk.replace(path, self.encode())

    @property
    def fingerprint(self) -> str:
        """The values in hex: another broker that ran on the store since has changed them."""
        return self._packed().hex()

    @property
    def recovery_ms(self) -> int:
        """Records stored at or before this time are safe in the log and in the queues."""
        return max(0, min(self.physical_ms, self.logical_ms) - RECOVERY_MARGIN_MS)

    @property
    def recovery_with_index_ms(self) -> int:
        """The same for the index, too."""
        return max(0, min(self.recovery_ms, self.index_ms - RECOVERY_MARGIN_MS))

    @property
    def covered(self) -> int:
        """Records before this offset are safe in log, queues and index. Only a checkpoint of ours says that much."""
        return min(self.logical_physical, self.flushed_physical)

    def lowered(self, stored_ms: int, offset: int) -> "Checkpoint":
        """One by which recovery begins at the segment whose first record has this store time, and queues end here.

        Written before queues and index are cut back to there, so that a crash in between leads to the same place.
        """
        safe_ms = stored_ms + RECOVERY_MARGIN_MS if stored_ms else 0
        return msgspec.structs.replace(
            self,
            logical_ms=min(self.logical_ms, safe_ms),
            index_ms=min(self.index_ms, safe_ms),
            logical_physical=min(self.logical_physical, offset),
        )

    def cut(self, end: int, stored_ms: int) -> "Checkpoint":
        """One for a log that will end here, with a record of this store time: it speaks of nothing behind."""
        return msgspec.structs.replace(
            self,
            physical_ms=min(self.physical_ms, stored_ms),
            logical_ms=min(self.logical_ms, stored_ms),
            index_ms=min(self.index_ms, stored_ms),
            master_flushed=min(self.master_flushed, end),
            confirm=min(self.confirm, end),
            logical_physical=min(self.logical_physical, end),
            flushed_physical=min(self.flushed_physical, end),
        )

    def _packed(self) -> bytes:
        return _VALUES.pack(
            self.physical_ms, self.logical_ms, self.index_ms, self.master_flushed, self.confirm, self.logical_physical
        )
