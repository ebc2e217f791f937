"""Where the files of a store are, and which sizes those have that are there: they win over the settings."""

from dataclasses import replace
from pathlib import Path

from kourou.store.disk import Disk
from kourou.store.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE
from kourou.store.settings import StoreSettings


class Paths:
    """Where the parts of a store are, under its root."""

    def __init__(self, root: Path, commit_log: Path | None = None) -> None:
        self.root = root
        self.commit_log = commit_log or root / "commitlog"
        self.queues = root / "consumequeue"
        self.queues_ext = root / "consumequeue_ext"
        self.index = root / "index"
        self.config = root / "config"
        self.checkpoint = root / "checkpoint"
        self.abort = root / "abort"
        self.lock = root / "lock"
        self.clean_stop = root / "kourou-clean.json"
        self.aside = root / "kourou-aside"


def with_present_sizes(settings: StoreSettings, disk: Disk, paths: Paths) -> StoreSettings:
    """Sizes of files that are there win."""
    sizes = [size for size in disk.files(paths.commit_log).values() if size]
    if sizes:
        settings = replace(settings, commit_log_file_size=max(sizes))
    settings = _with_present_index(settings, disk, paths)
    for topic in disk.folders(paths.queues):
        for queue_id in disk.folders(paths.queues / topic):
            present = [size for size in disk.files(paths.queues / topic / queue_id).values() if size]
            if present:
                return replace(settings, queue_file_entries=max(present) // 20)
    return settings


def _with_present_index(settings: StoreSettings, disk: Disk, paths: Paths) -> StoreSettings:
    """New index files like those that are there: Java's broker reads all alike, and misreads one of another size.

    A size does not tell slots from entries; four entries to a slot is what Apache and we have by default.
    """
    given = HEADER_SIZE + settings.index_slots * SLOT_SIZE + settings.index_entries * ENTRY_SIZE
    sizes = {size for name, size in disk.files(paths.index).items() if size and name.isdigit()}
    if len(sizes) != 1 or given in sizes:
        return settings
    slots, rest = divmod(sizes.pop() - HEADER_SIZE, SLOT_SIZE + 4 * ENTRY_SIZE)
    return settings if rest or slots < 1 else replace(settings, index_slots=slots, index_entries=4 * slots)
