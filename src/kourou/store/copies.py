"""The two ends of log replication: records are copied unchanged from the master's log, and keep their offsets.

With SYNC_FLUSH a master sends only flushed records, and a slave reports only flushed records. So after a power failure
no slave has records that its master has lost, which would make the logs diverge.

Records that a slave appends go through the same steps as messages that are sent: into the mapped log, from there into
queues and index when `Durability` allows it, and to the disk by the jobs of the store. A copied log always ends with a
record, so recovery and clean stops are the same as for any other log.
"""

from kourou.store.errors import StoreError
from kourou.store.settings import FlushMode
from kourou.store.store import Store


class LogSource:
    """The log of a master, up to the offset that slaves may have."""

    def __init__(self, store: Store, flush_mode: FlushMode) -> None:
        self._store = store
        self._waits_for_flush = flush_mode is FlushMode.SYNC

    @property
    def start(self) -> int:
        return self._store.log.start

    @property
    def end(self) -> int:
        """The offset up to which slaves may have the log."""
        return self._store.durability.flushed if self._waits_for_flush else self._store.log.end

    @property
    def segment_size(self) -> int:
        return self._store.log.segments.file_size

    def read(self, offset: int, size: int) -> memoryview:
        """Bytes of one segment, not copied. Raises KeyError, OSError."""
        return self._store.log.read(offset, size)


class LogCopy:
    """The log of a slave."""

    def __init__(self, store: Store, flush_mode: FlushMode) -> None:
        self._store = store
        self._waits_for_flush = flush_mode is FlushMode.SYNC

    @property
    def end(self) -> int:
        """The end of the log, which is the end of a record."""
        return self._store.log.end

    @property
    def is_empty(self) -> bool:
        """Whether the log has no records, and so may begin at any segment."""
        return self._store.log.start >= self._store.log.end

    @property
    def reported(self) -> int:
        """The offset up to which the master may rely on this copy: with SYNC_FLUSH the flushed one."""
        return self._store.durability.flushed if self._waits_for_flush else self._store.log.end

    @property
    def segment_size(self) -> int:
        return self._store.log.segments.file_size

    def begin_at(self, offset: int) -> None:
        """Let the empty log begin at this offset, where a segment begins. Raises StoreError."""
        try:
            self._store.log.begin_at(offset)
        except OSError as error:
            raise StoreError(f"the log can't begin at {offset}: {error}") from None
        self._store.durability.resume(offset, self._store.log.stored_ms)
        self._store.dispatch_from(offset)

    def append(self, data: memoryview, stored_ms: int) -> None:
        """Append whole records, the last of which was stored at `stored_ms`. Raises StoreError."""
        log = self._store.log
        log.append_raw(data)
        log.stored_ms = max(log.stored_ms, stored_ms)
