"""The extensions of all consume queues.

With `enableConsumeQueueExt` each new entry gets a unit in the extension of its queue, with the tags code and the
bit map that `bit_map_of` returns for the record; the entry has the unit's address. Without that setting, existing
units are still read. A queue without units has no folder.

The queue is authoritative: its newest entry says where its extension ends, and its oldest where it begins.

Java: ConsumeQueueExt, CommitLogDispatcherCalcBitMap.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from kourou.protocol.record import Scanner
from kourou.store.consume_queue import ConsumeQueue
from kourou.store.consume_queue_ext import ConsumeQueueExt, Unit, is_address
from kourou.store.disk import Disk, File
from kourou.store.errors import DiskFailedError
from kourou.store.segments import folder_name


class Extensions:
    """The folder consumequeue_ext/. Extensions are opened on demand."""

    def __init__(self, disk: Disk, folder: Path, file_size: int) -> None:
        self._disk = disk
        self.folder = folder
        self._file_size = file_size
        self._open: dict[tuple[str, int], ConsumeQueueExt] = {}
        self.bit_map_of: Callable[[Scanner], bytes] | None = None
        """The filters that match a scanner's current record; set by the owner of the filters."""

    def extend(self, queue: ConsumeQueue, scanner: Scanner, tags_code: int) -> int:
        """The address that replaces the tags code in the queue's next entry, which is for this record.

        Raises DiskFullError, DiskFailedError, BadStoreError.
        """
        bit_map = self.bit_map_of(scanner) if self.bit_map_of is not None else b""
        address = self._ensure(queue).append(Unit(tags_code, scanner.stored_ms, bit_map))
        return tags_code if address is None else address

    def unit(self, queue: ConsumeQueue, address: int) -> Unit | None:
        """The unit at an address in a queue; None if the address is invalid. Raises OSError, StoreError."""
        return self._ensure(queue).read(address)

    def _ensure(self, queue: ConsumeQueue) -> ConsumeQueueExt:
        name = (queue.topic, queue.queue_id)
        ext = self._open.get(name)
        if ext is None:
            path = self._path(*name)
            try:
                size = max(self._disk.files(path).values(), default=0) or self._file_size  # existing files decide
                ext = ConsumeQueueExt(self._disk, path, size)
                ext.open(_newest(queue))
            except OSError as error:
                raise DiskFailedError(f"{path} can't be read: {error}") from None
            self._open[name] = ext
        return ext

    def _path(self, topic: str, queue_id: int) -> Path:
        return self.folder / folder_name(topic) / str(queue_id)

    # ── Following the queues ──────────────────────────────────────────────────────────────────────────────────────

    def truncate(self, queue: ConsumeQueue) -> None:
        """A queue was truncated: remove the units after its newest entry. Raises OSError."""
        ext = self._open.get((queue.topic, queue.queue_id))
        if ext is not None:
            ext.truncate(_newest(queue))

    def expire(self, queue: ConsumeQueue) -> None:
        """Old entries of a queue expired: remove files without units of other entries. Raises OSError."""
        if queue.start < queue.end and is_address(oldest := queue.entry(queue.start)[2]):
            self._ensure(queue).expire(oldest)

    def folder_of(self, topic: str) -> Path:
        return self.folder / folder_name(topic)

    def forget(self, topic: str, queue_id: int) -> None:
        """A queue is removed; the caller removes its files."""
        ext = self._open.pop((topic, queue_id), None)
        if ext is not None:
            ext.close()

    def take(self, topic: str, queue_ids: Iterable[int]) -> list[ConsumeQueueExt]:
        """Queues are removed: those of their extensions that are open, for the caller to close."""
        if not self._open:
            return []
        taken = (self._open.pop((topic, queue_id), None) for queue_id in queue_ids)
        return [ext for ext in taken if ext is not None]

    def remove(self, topic: str, queue_id: int) -> None:
        """A queue is removed. Raises OSError."""
        self.forget(topic, queue_id)
        self._disk.remove_folder(self._path(topic, queue_id))

    def remove_all(self) -> None:
        """All queues are removed. Raises OSError."""
        self.close()
        self._disk.remove_folder(self.folder)

    def dirty_files(self) -> Iterator[File]:
        """Files with new units since the last call, to be synced before those of the queues. Raises OSError."""
        for ext in self._open.values():
            yield from ext.dirty_files()

    def close(self) -> None:
        for ext in self._open.values():
            ext.close()
        self._open.clear()


def _newest(queue: ConsumeQueue) -> int:
    """The tags code or address of the newest entry; 0 if there is none."""
    return queue.entry(queue.end - 1)[2] if queue.start < queue.end else 0
