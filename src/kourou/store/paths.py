"""The paths of a store's files, and the sizes of existing files, which override the settings."""

from dataclasses import replace
from pathlib import Path

from kourou.store.disk import Disk
from kourou.store.dledger import refuse_dledger
from kourou.store.errors import BadStoreError
from kourou.store.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE
from kourou.store.settings import StoreSettings


class Paths:
    """The paths of the parts of a store."""

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
        self.converting = root / "kourou-converting.json"


def with_present_sizes(settings: StoreSettings, disk: Disk, paths: Paths) -> StoreSettings:
    """Settings with the sizes of existing files. Raises BadStoreError unless this is a complete, plain store."""
    refuse_dledger(paths.root, disk)
    if disk.read(paths.converting) is not None:
        raise BadStoreError(
            f"{paths.root} is incomplete: {paths.converting.name} says that kourou store convert has not finished it. "
            "Run that command again, with the same arguments: it continues; or remove the directory"
        )
    return present_sizes(settings, disk, paths)


def present_sizes(settings: StoreSettings, disk: Disk, paths: Paths) -> StoreSettings:
    """Settings with the sizes of existing files."""
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
    """New index files get the size of existing ones: Java's broker misreads files of different sizes.

    The size does not tell slots from entries; four entries per slot is the default of Apache and Kourou.
    """
    given = HEADER_SIZE + settings.index_slots * SLOT_SIZE + settings.index_entries * ENTRY_SIZE
    sizes = {size for name, size in disk.files(paths.index).items() if size and name.isdigit()}
    if len(sizes) != 1 or given in sizes:
        return settings
    slots, rest = divmod(sizes.pop() - HEADER_SIZE, SLOT_SIZE + 4 * ENTRY_SIZE)
    return settings if rest or slots < 1 else replace(settings, index_slots=slots, index_entries=4 * slots)
