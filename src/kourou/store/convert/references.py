"""The files beside the log: those that refer to log offsets, and those that are copied.

    config/*                     copied; in delayOffset.json the log offset up to which deliveries are known is replaced
    config/timercheck            the same for the log offset at which copies begin
    timerwheel                   copied: it refers to the timer log only
    timerlog/                    in each unit, the log offset of its message is replaced
    consumequeue/                of queues whose messages have all expired: the last file, so that numbering continues
    config/kourouRemovedTopics   not copied: the records of these topics are omitted

Queue offsets do not change, so the offsets of consumers, half messages and delay levels remain valid.
"""

import re
from pathlib import Path
from typing import Final

from kourou.store.convert.offset_map import OffsetMap
from kourou.store.convert.source import Source, queues_of
from kourou.store.disk import Disk
from kourou.store.paths import Paths
from kourou.store.queue_entries import ENTRY_SIZE
from kourou.store.removed import REMOVED_TOPICS
from kourou.store.timers.layout import UNIT, UNIT_SIZE, TimerCheckpoint, Unit

FILE_SIZE_MAX: Final = 512 * 1024 * 1024
"""The largest file that is copied; files beside the log are copied as a whole. No file of a store is larger."""

NOT_CONVERTED: Final = {
    "batchconsumequeue": "the queues of batch topics",
    "compaction": "the logs of compacted topics",
}
"""Folders that are not converted if they have subfolders. Apache's broker always creates some of them."""

_DELIVERED_TO: Final = re.compile(rb'("deliveredTo"\s*:\s*)(\d+)')
_GONE: Final = -1  # a log offset that no record has


class References:
    """Writes all these files; repeated from the start after an interruption. Raises OSError."""

    def __init__(self, disk: Disk, source: Source, target: Path, offsets: OffsetMap, log_end: int) -> None:
        self._disk = disk
        self._source = source
        self._target = Paths(target)
        self._offsets = offsets
        self._log_end = log_end  # of the target

    def write(self) -> None:
        paths = self._source.paths
        self._copy_folder(paths.config, self._target.config)
        self._copy(paths.root / "timerwheel", self._target.root / "timerwheel", sparse=True)
        for name in self._disk.files(paths.root / "timerlog"):
            if name.isdigit():
                self._copy_units(paths.root / "timerlog" / name, self._target.root / "timerlog" / name)
        for topic in self._disk.folders(paths.queues):
            self._copy_queues(topic)

    def _copy_folder(self, source: Path, target: Path) -> None:
        for name in self._disk.files(source):
            if not name.startswith(REMOVED_TOPICS.name):
                self._copy(source / name, target / name)
        for name in self._disk.folders(source):
            self._copy_folder(source / name, target / name)

    def _copy(self, source: Path, target: Path, *, sparse: bool = False) -> None:
        content = self._read(source)
        if content is None:
            return
        if source.name.startswith("delayOffset.json"):
            content = _DELIVERED_TO.sub(self._new_position, content)
        elif source.name == "timercheck":
            content = self._new_timercheck(content)
        if sparse and content:
            self._disk.create(target, len(content), reserve=False, content=memoryview(content)).close()
        else:
            self._disk.replace(target, content)

    def _read(self, path: Path) -> bytes | None:
        size = self._disk.files(path.parent).get(path.name, 0)
        if size > FILE_SIZE_MAX:
            self._source.notes.add(f"{path} is not copied: {size} bytes are more than such a file can have")
            return None
        return self._disk.read(path)

    def _new_position(self, found: re.Match[bytes]) -> bytes:
        return found[1] + b"%d" % self._offsets.position(int(found[2]), self._log_end)

    def _new_timercheck(self, content: bytes) -> bytes:
        found = TimerCheckpoint.decode(content)
        if found is None or found.delivered_from is None:
            return content
        position = self._offsets.position(found.delivered_from, self._log_end)
        return found._replace(delivered_from=position).encode()

    def _copy_units(self, source: Path, target: Path) -> None:
        content = self._read(source)
        if not content:
            return
        data = bytearray(content)
        for at in range(0, len(data) - UNIT_SIZE + 1, UNIT_SIZE):
            unit = Unit(*UNIT.unpack_from(data, at))
            if unit.size != UNIT_SIZE:
                break
            UNIT.pack_into(data, at, *unit._replace(physical_offset=self._new_offset(unit.physical_offset)))
        self._disk.create(target, len(data), reserve=False, content=memoryview(data)).close()

    def _new_offset(self, offset: int) -> int:
        if offset < self._source.start:
            return offset  # its message has expired, and the new log begins at the same offset
        found = self._offsets.find(offset)
        return _GONE if found is None else found

    def _copy_queues(self, topic: str) -> None:
        for queue in queues_of(self._disk, self._source.paths, topic):
            end = queue.length
            if end <= queue.first or queue.live_from(self._source.start) < end:
                continue
            base = (end - 1) * ENTRY_SIZE // queue.file_size * queue.file_size
            content = self._disk.read_at(queue.path(base), 0, end * ENTRY_SIZE - base)
            path = self._target.queues / topic / str(queue.queue_id) / queue.path(base).name
            self._disk.create(path, queue.file_size, reserve=False, content=memoryview(content)).close()
