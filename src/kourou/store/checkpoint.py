"""The checkpoint: the store times and offsets up to which a store's parts are durable; and `abort`, which marks a run
that did not stop cleanly.

    0          8         16        24                 32              40                48         56       64   4096
    │ log ms   │ queues  │ index   │ master's flushed │ confirm offset│ queues' log end │ log end  │ log ms │ zeros … │

Big-endian integers; the rest of the page is zero. The first three are store times: every record up to that time is
durable in the commit log, in the queues, in the index. Recovery starts where all three are durable, so a checkpoint may
be older than the files but must never be newer.

The last two are Kourou's: the offset up to which the log is durable, which is more exact than a time. Java preserves
them when it changes the others. So the first time is repeated there; if the two differ, the offset is outdated.

Java overwrites the file in place; here it is replaced, so that a crash leaves the old values or the new ones. A
missing, short or invalid file costs time but no message: it reads as all zeros, and recovery scans the whole log.

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
"""How far before the checkpoint recovery starts: two records of the same time may be on both sides of a sync."""

_VALUES = struct.Struct(">6q")
_OURS = struct.Struct(">2q")
_LATEST_MS = 2**42  # in the year 2109: a later time is invalid
_NOT_KNOWN = -1  # Java's value of an offset that was never set


class Checkpoint(msgspec.Struct, frozen=True, gc=False):
    """The values. `problem` says why they are zeros although a file exists."""

    physical_ms: int = 0
    """Store time of the last record that is durable in the commit log."""
    logical_ms: int = 0
    """Store time of the last record that is durable in the queues."""
    index_ms: int = 0
    """Store time of the last record that is durable in the index."""
    master_flushed: int = 0
    """On a slave: the log offset up to which its master's log is flushed."""
    confirm: int = 0
    """The log offset up to which enough replicas have the log."""
    logical_physical: int = 0
    """The log offset up to which the queues are durable. Releases before 5.4 leave it 0."""
    flushed_physical: int = 0
    """The log offset up to which the log is durable; 0 if another broker wrote this, and only times are known."""
    problem: str | None = None

    @classmethod
    def read(cls, disk: Disk, path: Path) -> Self:
        """The checkpoint in a file; zeros if it is missing or invalid. Raises OSError if it can't be read."""
        content = disk.read(path)
        if content is None:
            return cls()
        checkpoint = cls.decode(content)
        if checkpoint.problem:
            log.warning("%s: %s; recovery will scan the whole log", path, checkpoint.problem)
        return checkpoint

    @classmethod
    def decode(cls, content: bytes) -> Self:
        """The checkpoint in these bytes. Never raises: see `problem`."""
        if len(content) < _VALUES.size:
            return cls(problem=f"{len(content)} bytes are too short for a checkpoint")
        values = _VALUES.unpack_from(content)
        if not all(0 <= time_ms < _LATEST_MS for time_ms in values[:3]):
            return cls(problem=f"the times {values[:3]} are invalid")
        if min(values[3:]) < _NOT_KNOWN:
            return cls(problem=f"the offsets {values[3:]} are invalid")
        flushed_physical, physical_ms = _OURS.unpack_from(content.ljust(FILE_SIZE, b"\0"), _VALUES.size)
        is_ours = flushed_physical > 0 and physical_ms == values[0]
        return msgspec.structs.replace(cls(*values), flushed_physical=flushed_physical if is_ours else 0)

    def encode(self) -> bytes:
        """The content of the file."""
        ours = _OURS.pack(self.flushed_physical, self.physical_ms) if self.flushed_physical else b""
        return (self._packed() + ours).ljust(FILE_SIZE, b"\0")

    def write(self, disk: Disk, path: Path) -> None:
        """Replace the file. Raises OSError; the old file is then still there."""
        disk.replace(path, self.encode())

    @property
    def fingerprint(self) -> str:
        """The values in hex: they differ if another broker has run on the store."""
        return self._packed().hex()

    @property
    def recovery_ms(self) -> int:
        """Records stored at or before this time are durable in the log and in the queues."""
        return max(0, min(self.physical_ms, self.logical_ms) - RECOVERY_MARGIN_MS)

    @property
    def recovery_with_index_ms(self) -> int:
        """The same, including the index."""
        return max(0, min(self.recovery_ms, self.index_ms - RECOVERY_MARGIN_MS))

    @property
    def covered(self) -> int:
        """Records before this offset are durable in log, queues and index. 0 in a checkpoint of Apache."""
        return min(self.logical_physical, self.flushed_physical)

    def lowered(self, stored_ms: int, offset: int) -> "Checkpoint":
        """A checkpoint that starts recovery at the segment whose first record has this store time; queues end here.

        Written before queues and index are truncated to that point, so that a crash in between leads to the same state.
        """
        safe_ms = stored_ms + RECOVERY_MARGIN_MS if stored_ms else 0
        return msgspec.structs.replace(
            self,
            logical_ms=min(self.logical_ms, safe_ms),
            index_ms=min(self.index_ms, safe_ms),
            logical_physical=min(self.logical_physical, offset),
        )

    def cut(self, end: int, stored_ms: int) -> "Checkpoint":
        """A checkpoint for a log that will end here, with a record of this store time. It covers nothing after it."""
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
