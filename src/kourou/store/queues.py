"""All consume queues of a store, by topic and queue id. Queues are opened on demand.

A process may have only some 65,000 mappings. Beyond `mapped_queues_max` mapped queues, those that were not used for
longest and that need no sync are unmapped. Beyond twice as many, queues that need a sync are unmapped as well, and
mapped again for it. This is a last resort: if the system fails to write the pages in between, the store gets no error.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from kourou.store.consume_queue import ConsumeQueue
from kourou.store.consume_queue_ext import ConsumeQueueExt
from kourou.store.disk import Disk, File
from kourou.store.errors import DiskFailedError
from kourou.store.extensions import Extensions
from kourou.store.removed import RemovedTopics
from kourou.store.segments import folder_name
from kourou.store.settings import StoreSettings

CLOSED_IN_SLICE = 500
"""How many queues of removed topics are closed in one turn."""

_LOOKED_AT = 16  # for each queue that is mapped beyond that


class Queues:
    """The folder consumequeue/, and the queues in it."""

    def __init__(self, disk: Disk, folder: Path, settings: StoreSettings) -> None:
        self._disk = disk
        self._folder = folder
        self._settings = settings
        self.extensions = Extensions(disk, folder.with_name(folder.name + "_ext"), settings.queue_ext_file_size)
        self._on_disk: dict[str, set[int]] = {}
        self._open: dict[str, dict[int, ConsumeQueue]] = {}
        self._mapped_max = settings.mapped_queues_max
        self._mapped: dict[ConsumeQueue, None] = {}  # queues with files in memory, those mapped last at the end
        self._put_aside: list[Path] = []  # folders of removed topics, to be removed
        self._forgotten: list[ConsumeQueue | ConsumeQueueExt] = []  # of removed topics, to be closed
        self._unsynced: list[File] = []  # the files that a failed call of `dirty_files` had found
        self._expected: dict[str, dict[int, int]] = {}  # the ends of unopened queues, if they are known
        self.on_damage: Callable[[ConsumeQueue, int], bool] = lambda _queue, _number: False
        self._created: list[Path] = []  # files whose names are not durable, see `lazy`
        self.log_start = 0  # entries before it point to removed records
        self.lazy = False
        """Whether a crash may remove queues that were created since the last sync. The checkpoint covers none of their
        records then, so they are rebuilt from the log. A new queue takes four syncs; no sender waits for them.
        """

    def load(self) -> None:
        """Find the existing queues, without opening them."""
        for topic in self._disk.folders(self._folder):
            ids = {int(name) for name in self._disk.folders(self._folder / topic) if name.isdigit()}
            if ids:
                self._on_disk[topic] = ids

    def count(self) -> int:
        """Queues on disk when the store was opened."""
        return sum(map(len, self._on_disk.values()))

    def count_on_disk(self) -> int:
        """Queues on disk now: those with a folder."""
        topics = [self._folder / topic for topic in self._disk.folders(self._folder)]
        return sum(name.isdigit() for topic in topics for name in self._disk.folders(topic))

    def names(self) -> Iterator[tuple[str, int]]:
        """All queues, open or not."""
        for topic in self._on_disk.keys() | self._open.keys():
            for queue_id in sorted(self._on_disk.get(topic, set()) | self._open.get(topic, {}).keys()):
                yield topic, queue_id

    def names_by_use(self) -> list[tuple[str, int]]:
        """All queues, those that are open first."""
        opened = [(queue.topic, queue.queue_id) for queue in self.opened()]
        return [*opened, *(set(self.names()) - set(opened))]

    def opened(self) -> Iterator[ConsumeQueue]:
        """Queues that were opened since the start."""
        for queues in list(self._open.values()):
            yield from list(queues.values())

    def all(self) -> Iterator[ConsumeQueue]:
        """All queues, opened for it."""
        for topic, queue_id in list(self.names()):
            yield self.ensure(topic, queue_id)

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue, or None if nothing was ever put into it."""
        queue = self._open.get(topic, {}).get(queue_id)
        if queue is None and queue_id in self._on_disk.get(topic, ()):
            return self.ensure(topic, queue_id)
        return queue

    def ensure(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A queue, which is created if necessary. Raises BadStoreError, DiskFailedError."""
        queues = self._open.get(topic)
        queue = queues.get(queue_id) if queues is not None else None
        return queue if queue is not None else self._open_queue(topic, queue_id)

    def _open_queue(self, topic: str, queue_id: int, log_end: int | None = None) -> ConsumeQueue:
        path, entries = self._path(topic, queue_id), self._settings.queue_file_entries
        on_created = self._was_created if self.lazy else None
        queue = ConsumeQueue(self._disk, path, topic, queue_id, entries, self._was_mapped, on_created)
        try:
            queue.open(self.log_start, log_end)
            end = self._expected.get(topic, {}).pop(queue_id, None)
            missing = queue.go_to(end) if end is not None else None
        except OSError as error:
            raise DiskFailedError(f"{path} can't be read: {error}") from None
        if missing is not None:
            self.on_damage(queue, missing)
        self._open.setdefault(topic, {})[queue_id] = queue
        return queue

    def expect(self, ends: dict[str, dict[int, int]]) -> None:
        """The ends of the queues when the store was closed: a queue that ends elsewhere is damaged."""
        self._expected = ends

    def ends(self) -> dict[str, dict[int, int]]:
        """Where the queues end, by topic and id, as far as that is known and can be written as text.

        A damaged record may have a topic that is not UTF-8.
        """
        ends = {topic: dict(queues) for topic, queues in self._expected.items() if queues}
        for queue in self.opened():
            if _is_text(queue.topic):
                ends.setdefault(queue.topic, {})[queue.queue_id] = queue.end
        return ends

    def recover(self, log_end: int) -> None:
        """After a crash: all queues keep the entries of records before this offset. Raises as `ensure`, and OSError."""
        for topic, queue_id in list(self.names()):
            queue = self._open.get(topic, {}).get(queue_id)
            if queue is not None:
                queue.recover(log_end)
            else:
                queue = self._open_queue(topic, queue_id, log_end)
            doubtful = queue.file_without_entries()
            if doubtful is not None:
                self._was_created(doubtful)

    # ── Files in memory ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def mapped_count(self) -> int:
        return len(self._mapped)

    @property
    def crowded(self) -> bool:
        """Are more queues mapped than allowed? They all have unsynced entries then, and a sync allows to unmap them."""
        return len(self._mapped) > self._mapped_max

    def dirty_files(self) -> list[File]:
        """Files with new entries since the last call, to be synced. Raises OSError; then the next call returns all.

        A queue that was unmapped is mapped again for this, which may fail.
        """
        files = self._unsynced
        for file in self.extensions.dirty_files():
            files.append(file)
        dirty = [queue for topic in self._open.values() for queue in topic.values() if queue.dirty_bytes]
        for queue in dirty:
            files += queue.dirty_files()
        self._unsynced = []
        return files

    def _was_created(self, path: Path) -> None:
        self._created.append(path)

    def take_created(self) -> list[Path]:
        """Files whose names must be made durable with the next sync."""
        created, self._created = self._created, []
        return created

    def let_go(self) -> None:
        """After a sync: unmap the queues above the limit."""
        self._unmap_idle(2 * len(self._mapped))

    def _was_mapped(self, queue: ConsumeQueue) -> None:
        """A queue is about to be used: unmap others if necessary."""
        self._mapped.pop(queue, None)  # it may have unmapped its files itself
        self._unmap_idle(min(_LOOKED_AT, len(self._mapped)), 1)
        self._mapped[queue] = None

    def _unmap_idle(self, looks: int, more: int = 0) -> None:
        """Unmap the oldest; a queue that was used since is skipped once. `more` queues will be mapped."""
        while looks > 0 and len(self._mapped) + more > self._mapped_max:
            looks -= 1
            queue = next(iter(self._mapped))
            must_go = len(self._mapped) + more > 2 * self._mapped_max
            del self._mapped[queue]
            if must_go or not queue.touched:
                queue.release(unsynced=must_go)
            if queue.is_mapped:
                queue.touched = False
                self._mapped[queue] = None

    def put_back(self, created: list[Path], aside: list[Path]) -> None:
        """The sync for `take_created` and `take_removed` failed: the next one gets their results again."""
        self._created = created + self._created
        self._put_aside = aside + self._put_aside

    @property
    def file_entries(self) -> int:
        """How many entries a file has."""
        return self._settings.queue_file_entries

    def folders_of(self, topic: str, queue_id: int) -> tuple[Path, Path]:
        """The folder of a queue, and the one of its extension. For any thread."""
        return self._path(topic, queue_id), self.extensions.folder_of(topic) / str(queue_id)

    def place(self, topic: str, queue_id: int) -> tuple[Path, int]:
        """The folder of a queue, and how many entries a file of it has."""
        return self._path(topic, queue_id), self._settings.queue_file_entries

    # ── Places ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _path(self, topic: str, queue_id: int) -> Path:
        return self._topic_path(topic) / str(queue_id)

    def _topic_path(self, topic: str) -> Path:
        return self._folder / folder_name(topic)

    def by_bytes(self, topic: bytes, queue_id: int) -> ConsumeQueue:
        """As `ensure`, for a topic as in a record."""
        return self.ensure(topic.decode("utf-8", "surrogateescape"), queue_id)

    def of_topic(self, topic: str) -> list[int]:
        """The ids of a topic's queues."""
        return sorted(self._on_disk.get(topic, set()) | self._open.get(topic, {}).keys())

    def next_file(self, offset: int) -> int:
        """The first offset of the queue file after the one with this offset."""
        entries = self._settings.queue_file_entries
        return offset - offset % entries + entries

    def expire(self, topic: str, queue_id: int) -> int:
        """The log now begins at `log_start`: remove older files of a queue. Returns how many. Raises OSError.

        An unopened queue with a single file finds its start when it is opened.
        """
        queue = self._open.get(topic, {}).get(queue_id)
        if queue is None:
            if queue_id not in self._on_disk.get(topic, ()) or len(self._disk.files(self._path(topic, queue_id))) < 2:
                return 0
            queue = self.ensure(topic, queue_id)
        count = queue.expire(self.log_start)
        if count:
            self.extensions.expire(queue)
        return count

    def truncate(self, log_end: int, *, closed: bool = False) -> None:
        """The log ends here: remove later entries from all queues, durably. Raises OSError.

        `closed`: also from unopened queues, which have no new entries since the start.
        """
        for queue in self.all() if closed else self.opened():
            if queue.truncate(log_end):
                self.extensions.truncate(queue)

    def remove(self, topic: str, queue_id: int) -> None:
        """Remove a queue with its files. Raises OSError."""
        self._forget(topic, queue_id)
        self.extensions.remove(topic, queue_id)
        self._expected.get(topic, {}).pop(queue_id, None)
        queues, on_disk = self._open.get(topic, {}), self._on_disk.get(topic, set())
        if queues or on_disk - {queue_id}:
            self._disk.remove_folder(self._path(topic, queue_id))
            on_disk.discard(queue_id)
        else:
            self._disk.remove_folder(self._topic_path(topic))
            self._open.pop(topic, None)
            self._on_disk.pop(topic, None)

    def remove_topic(self, topic: str) -> int:
        """Remove all queues of a topic. Returns how many. Raises OSError; nothing is removed then.

        Their folders are put aside at once; a job removes them (`take_removed`). The files of many queues are closed in
        slices (`close_forgotten`).
        """
        for folder in (self.extensions.folder_of(topic), self._topic_path(topic)):
            aside = self._disk.put_aside(folder)
            if aside is not None:
                self._put_aside.append(aside)
        opened, on_disk = self._open.pop(topic, {}), self._on_disk.pop(topic, set())
        self._forgotten += opened.values()
        self._forgotten += self.extensions.take(topic, opened)
        self._expected.pop(topic, None)
        self.close_forgotten()
        return len(on_disk) + len(opened.keys() - on_disk)

    @property
    def has_forgotten(self) -> bool:
        """Has `close_forgotten` work to do?"""
        return bool(self._forgotten)

    def close_forgotten(self) -> None:
        """Close some queues of removed topics: closing all queues of a topic would take too long for one turn."""
        for queue in self._forgotten[-CLOSED_IN_SLICE:]:
            if isinstance(queue, ConsumeQueue):
                self._mapped.pop(queue, None)
            queue.close()
        del self._forgotten[-CLOSED_IN_SLICE:]

    def take_removed(self) -> tuple[list[Path], list[Path]]:
        """Folders that were put aside, to be removed; and folders to be synced to make that durable."""
        aside, self._put_aside = self._put_aside, []
        return aside, [self._folder, self.extensions.folder] if aside else []

    def sync_names(self) -> None:
        """After a kill: make removals of topics durable that are only in the system's memory. Raises OSError."""
        for folder in (self._folder, self.extensions.folder):
            with suppress(FileNotFoundError):
                self._disk.sync_folder(folder)

    def drop_removed(self, removed: RemovedTopics) -> None:
        """After a crash: remove queues of removed topics that reappeared. Raises as `ensure`."""
        for topic in [topic for topic in self._on_disk if topic.encode("utf-8", "surrogateescape") in removed.until]:
            until = removed.until[topic.encode("utf-8", "surrogateescape")]
            if any(self._first_physical(topic, queue_id) < until for queue_id in self.of_topic(topic)):
                self.remove_topic(topic)

    def _first_physical(self, topic: str, queue_id: int) -> int:
        """The log offset of the oldest record of a queue; 2**63 if it has none."""
        queue = self.ensure(topic, queue_id)
        return queue.entry(queue.start)[0] if queue.start < queue.end else 2**63

    def _forget(self, topic: str, queue_id: int) -> None:
        queue = self._open.get(topic, {}).pop(queue_id, None)
        if queue is not None:
            self._mapped.pop(queue, None)
            queue.close()

    def remove_all(self) -> None:
        self.close()
        self._disk.remove_folder(self._folder)
        self.extensions.remove_all()
        self._on_disk.clear()
        self._expected = {}

    def close(self) -> None:
        for queue in [*self.opened(), *self._forgotten]:
            queue.close()
        self._open.clear()
        self._forgotten.clear()
        self._mapped.clear()
        self.extensions.close()


def _is_text(topic: str) -> bool:
    try:
        topic.encode()
    except UnicodeEncodeError:
        return False
    return True
