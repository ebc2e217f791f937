# cython: annotation_typing=False
"""The commit log: all messages of all topics, one record after the other, in segments of equal size.

    start                                                    end
    │ … records … │ filler ║ … records …                       │ reserved, zero … ║ (spare segment)

A record never spans two segments: if it does not fit, a filler marks the rest as unused and the record goes into the
next segment, which a worker has prepared. Writing is assigning to mapped memory whose space was reserved when the
segment was created; it can't fail. `Durability` says how far the log survives a crash.

The owner thread appends and reads. Syncing and preparing are jobs for a worker: `sync_target` says what to sync, and
`sync_failed` reports a failure; `prepare_spare` and `spare_prepared` are for the next segment.

Java: CommitLog, MappedFileQueue.
"""

import errno
import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kourou.protocol.properties import PROPERTIES_SIZE_MAX
from kourou.protocol.record import (
    FILLER_SIZE_MIN,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_CRC_SIZE,
    RECORD_SIZE_MIN,
    Scanner,
    crc_property,
    encode_filler,
)
from kourou.store import writer
from kourou.store.backoff import Backoff
from kourou.store.disk import Disk, File
from kourou.store.errors import DiskFailedError, DiskFullError, IllegalMessageError
from kourou.store.jobs import PrepareSegment, RewriteLog
from kourou.store.records import walk
from kourou.store.segments import Segments

log = logging.getLogger(__name__)

TOPIC_SIZE_MAX: Final = 255
_HOST_BITS: Final = 0x30

# The same values under names that commit_log.pxd declares as C constants.
_V1 = MAGIC_V1
_V2 = MAGIC_V2
_FIXED_SIZE = RECORD_SIZE_MIN - 17
_FILLER_SIZE = FILLER_SIZE_MIN


class NewMessage:
    """A message to append: everything but its position and store time.

    Compiled, its numbers are C integers: reading them is the most expensive part of appending.
    """

    __slots__ = (
        "body",
        "born_host",
        "born_ms",
        "flag",
        "prepared_offset",
        "properties",
        "queue_id",
        "reconsume_times",
        "sys_flag",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        born_ms: int,
        born_host: bytes,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.body = body
        self.properties = properties
        self.born_ms = born_ms
        self.born_host = born_host
        self.flag = flag
        self.sys_flag = sys_flag
        self.reconsume_times = reconsume_times
        self.prepared_offset = prepared_offset


class CommitLog:
    """See the module's docstring. Call `open` after construction."""

    def __init__(self, disk: Disk, folder: Path, file_size: int, max_body_size: int, store_host: bytes) -> None:
        self.segments = Segments(disk, folder, file_size)
        self.max_body_size = max_body_size
        self.store_host = store_host
        self.end = 0  # where the next record goes
        self.copied_to = -1  # where the last `append_raw` ended, perhaps inside a record
        self.stored_ms = 0  # of the last record; store times never decrease
        self._buffer = memoryview(bytearray(0))  # the current segment, writable
        self._view = self._buffer  # the same for `append`, which uses it as a C array when compiled
        self._start = 0  # its first offset
        self._limit = 0  # how much of it may be used
        self._spare: File | None = None  # the segment after the current one, prepared
        self._spare_job: PrepareSegment | None = None  # for a worker, queued or running
        self._warm = False  # new segments are kept in memory until they are full
        self._failed: str | None = None  # a sync failed: nothing is written until `rewrite`
        self._no_segment: DiskFullError | DiskFailedError | None = None  # why the next segment could not be created
        self._new_segments = Backoff(log, "messages are refused")
        self.now_ms = 0  # of the current append

    # ── Opening ───────────────────────────────────────────────────────────────────────────────────────────────────

    def resume(self, end: int, stored_ms: int) -> None:
        """Continue writing at `end`, which recovery found and made durable. No segments may be left after it."""
        self.end = end
        self.stored_ms = stored_ms
        segments = self.segments
        if segments.holds(end):
            self._use(end - end % segments.file_size)
        else:
            # A log that ends at the end of its last segment, or has none: `append` creates the next.
            self._use_buffer(memoryview(bytearray(0)))
            self._start, self._limit = end, 0

    def _use(self, start: int) -> None:
        self._use_buffer(self.segments.file(start).buffer)
        self._start = start
        self._limit = self.segments.file_size

    def _use_buffer(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self._view = buffer

    @property
    def start(self) -> int:
        """The first offset of the log."""
        return self.segments.start if len(self.segments) else self.end

    # ── Appending ─────────────────────────────────────────────────────────────────────────────────────────────────

    def append(
        self,
        message: NewMessage,
        topic: bytes,
        properties: bytes,
        queue_offset: int,
        stored_ms: int,
        sealed: bool = False,
    ) -> int:
        """Append one record and return its log offset. `sealed`: `with_room_for_crc` reserved space for a CRC in it.

        The caller has checked the message (`check`). Raises DiskFullError, DiskFailedError; nothing is changed then.
        """
        born_host = message.born_host
        body = message.body
        store_host = self.store_host
        topic_size = len(topic)
        host_bits = (0x10 if len(born_host) == 20 else 0) | (0x20 if len(store_host) == 20 else 0)
        size = (
            _FIXED_SIZE
            + len(born_host)
            + len(store_host)
            + len(body)
            + (1 if topic_size <= 127 else 2)
            + topic_size
            + len(properties)
        )
        if self._failed is not None or self.end - self._start + size + _FILLER_SIZE > self._limit:
            self._next_segment(size)
        at = self.end - self._start
        offset = self.end
        magic = _V1 if topic_size <= 127 else _V2
        writer.write_record(
            self._view,
            at,
            size,
            writer.body_crc(body),
            message.queue_id,
            message.flag,
            queue_offset,
            offset,
            (message.sys_flag & ~_HOST_BITS) | host_bits,
            message.born_ms,
            born_host,
            stored_ms,
            store_host,
            message.reconsume_times,
            message.prepared_offset,
            body,
            topic,
            properties,
        )
        if sealed:
            self._seal(at, size, magic)
        writer.publish(self._view, at, size, magic)
        self.end = offset + size
        self.stored_ms = stored_ms
        return offset

    def _seal(self, at: int, size: int, magic: int) -> None:
        """Set the CRC over a whole record, whose first bytes are written later."""
        head, end = struct.pack(">ii", size, magic), at + size
        rest = bytes(self._buffer[at + len(head) : end - RECORD_CRC_SIZE])
        self._buffer[end - RECORD_CRC_SIZE : end] = crc_property(head + rest)

    def check(self, message: NewMessage, topic: bytes) -> None:
        """Raises IllegalMessageError for a message that does not fit a record, or that the settings forbid."""
        if len(message.body) > self.max_body_size:
            raise IllegalMessageError(
                f"a body of {len(message.body)} bytes; the limit is {self.max_body_size} (maxMessageSize)"
            )
        if not 0 < len(topic) <= TOPIC_SIZE_MAX:
            raise IllegalMessageError(f"a topic of {len(topic)} bytes; the limit is {TOPIC_SIZE_MAX}")
        if len(message.properties) > PROPERTIES_SIZE_MAX:
            raise IllegalMessageError(
                f"properties of {len(message.properties)} bytes; the limit is {PROPERTIES_SIZE_MAX}"
            )
        if len(message.born_host) not in (8, 20):
            raise IllegalMessageError(f"a born host of {len(message.born_host)} bytes; it must have 8 or 20")

    def size_of(self, message: NewMessage, topic: bytes, properties: bytes) -> int:
        """The size of the record."""
        hosts = len(message.born_host) + len(self.store_host)
        count = 1 if len(topic) <= 127 else 2
        return RECORD_SIZE_MIN - 17 + hosts + len(message.body) + count + len(topic) + len(properties)

    def make_room(self, size: int) -> None:
        """Make sure that records of `size` bytes in total go into one segment. Raises as `append`."""
        if size + FILLER_SIZE_MIN > self.segments.file_size:
            raise IllegalMessageError(f"{size} bytes do not fit into a segment of {self.segments.file_size}")
        if self._failed is not None or self.end - self._start + size + FILLER_SIZE_MIN > self._limit:
            self._next_segment(size)

    def begin_at(self, offset: int) -> None:
        """A log without records begins at `offset`, where a segment does. For replication. Raises OSError."""
        self.drop_spare()
        self.segments.remove_from(0)
        self.resume(offset, self.stored_ms)

    def append_raw(self, data: memoryview) -> None:
        """Append bytes of another log at `end`: complete or partial records, including fillers. For replication."""
        segments = self.segments
        while len(data):
            if self._failed is not None or self.end - self._start >= self._limit:
                self._next_segment(0)
            at = self.end - self._start
            piece = data[: segments.file_size - at]
            self._buffer[at : at + len(piece)] = piece
            self.end += len(piece)
            data = data[len(piece) :]
        self.copied_to = self.end

    def _next_segment(self, size: int) -> None:
        """Fill up the current segment and start the next one."""
        if self._failed is not None:
            raise DiskFailedError(self._failed)
        segments = self.segments
        if size + FILLER_SIZE_MIN > segments.file_size:
            raise IllegalMessageError(f"a record of {size} bytes does not fit into a segment of {segments.file_size}")
        start = segments.end if len(segments) else self.end - self.end % segments.file_size
        if self._no_segment is not None and not self._new_segments.is_ready(self.now_ms):
            raise type(self._no_segment)(str(self._no_segment))  # creating a file is not retried for each message
        try:
            segments.add(start, self._take_spare())
        except OSError as error:
            self._no_segment = no_room(segments.path(start), segments.file_size, error)
            self._new_segments.failed(self._no_segment, self.now_ms)
            raise self._no_segment from None
        self._no_segment = None
        self._new_segments.succeeded()
        left = self._limit - (self.end - self._start)
        if left >= FILLER_SIZE_MIN:
            at = self.end - self._start
            self._buffer[at : at + FILLER_SIZE_MIN] = encode_filler(left)
        if self._warm and self._limit:
            segments.file(self._start).cool()
        if self._limit or self.end % segments.file_size == 0:
            self.end = start
        self._use(start)

    # ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, offset: int, size: int) -> memoryview:
        """Bytes of the log within one segment, not copied. Raises KeyError outside the log, OSError."""
        if offset + size > self.end or size < 0:
            raise KeyError(f"{size} bytes at {offset} are not in the log, which ends at {self.end}")
        return self.segments.slice(offset, size)

    def records(self, start: int) -> Iterator[Scanner]:
        """A scanner at each record from `start`, where a record begins, to the end of the log. Raises OSError.

        Damage is skipped, with the rest of its segment.
        """
        return walk(self.segments, max(start, self.start), self.end)

    # ── Jobs of a worker ──────────────────────────────────────────────────────────────────────────────────────────

    def sync_target(self, flushed: int) -> tuple[list[File], int, int]:
        """What to sync in order to flush the log from `flushed` to its end.

        The files, the end, and the store time of the last record.
        """
        segments = self.segments
        if flushed >= self.end or not len(segments):
            return [], self.end, self.stored_ms
        first = max(flushed - flushed % segments.file_size, segments.start)
        starts = range(first, min(self.end, segments.end), segments.file_size)
        return [segments.file(start) for start in starts], self.end, self.stored_ms

    def sync_failed(self, error: OSError, flushed: int) -> None:
        """A sync failed: writes are refused until everything after `flushed` is written again (`rewrite`)."""
        self._failed = (
            f"{self.segments.folder} could not be synced at offset {flushed}: {error}. Writing resumes automatically "
            "when the disk accepts data again"
        )

    @property
    def failed(self) -> str | None:
        """Why writes are refused, or None."""
        return self._failed

    def rewrite(self, flushed: int, *, sealed: bool) -> RewriteLog:
        """A job that writes everything after `flushed` again. `sealed`: each record has a CRC over the whole record."""
        return RewriteLog(self.segments, flushed, self.end, sealed)

    def rewritten(self, job: RewriteLog) -> None:
        """Everything that was not flushed is in new files, which are flushed; invalid records are lost.

        Raises OSError: then it must be repeated.
        """
        segments = self.segments
        self.end = min(self.end, job.held)
        self._drop_behind(self.end)
        for start, file in job.files.items():
            if segments.holds(start):
                segments.swap(start, file)
            else:
                file.close()
        self._failed = None
        if segments.holds(self._start):
            self._use(self._start)

    def _drop_behind(self, end: int) -> None:
        """Remove the segments after the end, the newest first, so that a crash leaves no gap."""
        segments = self.segments
        self.drop_spare()
        segments.remove_from(end + 1)
        self._start = min(self._start, end - end % segments.file_size)

    def drop_spare(self) -> None:
        """Remove the prepared next segment, if any. Raises OSError."""
        spare = self._take_spare()
        if spare is not None:
            spare.close()
        self.segments.remove_unused()

    def prepare_spare(self, *, warm: bool) -> PrepareSegment | None:
        """A job that creates the segment after the current one; None if it exists, is under way or is not needed."""
        if self._spare is not None or self._spare_job is not None or self._failed is not None:
            return None
        self._warm = warm
        segments = self.segments
        start = segments.end if len(segments) else self.end - self.end % segments.file_size
        self._spare_job = PrepareSegment(segments, start, warm)
        return self._spare_job

    def spare_prepared(self, job: PrepareSegment) -> None:
        """The job has ended. If its segment was needed earlier, the job was cancelled or its file already taken."""
        if job is self._spare_job:
            self._spare_job = None
            self._spare = job.take()

    def _take_spare(self) -> File | None:
        """The next segment, if it exists. It must not be created again: that would replace the one in use."""
        if self._spare_job is not None:
            self._spare_job.call_off()
            self.spare_prepared(self._spare_job)
        spare, self._spare = self._spare, None
        return spare

    # ── Removing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        self._use_buffer(memoryview(bytearray(0)))
        spare = self._take_spare()
        if spare is not None:
            spare.close()
        self.segments.close()


def with_room_for_crc(properties: bytes) -> bytes:
    """Properties with space at their end for a CRC over the whole record, if they can have one."""
    separator = b"\x02" if properties and not properties.endswith(b"\x02") else b""
    longer = properties + separator + bytes(RECORD_CRC_SIZE)
    return longer if len(longer) <= PROPERTIES_SIZE_MAX else properties


def no_room(path: Path, size: int, error: OSError) -> DiskFullError | DiskFailedError:
    """The error when a file can't be created or extended."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(
            f"no room for {size} bytes at {path}: {error.strerror}. Free some space: writing resumes automatically"
        )
    return DiskFailedError(f"{path} can't be written: {error.strerror or error}. Writing resumes once it can")
