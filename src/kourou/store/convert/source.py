"""The log that is converted. It is only read, and every record is checked.

    plain        commitlog/                          DLedger      dledger-n0/data
                                                     both         commitlog/ up to the first segment of DLedger, the
                                                                  divided position, and dledger-n0/data from there on

A plain log ends at its first invalid record; if a valid record follows, the log is damaged, and the conversion is
refused. A log of DLedger ends at its first invalid entry, after which there may be valid entries that a new leader has
removed. If the checkpoint says that later entries are committed, the log is damaged.

Records of removed topics, which no consumer can see, are omitted. If the broker was stopped cleanly, they are
recognised by the queues: a record before the first entry of its topic, or of a topic without entries though later
records have some.
"""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from kourou.protocol.codes import TRANSACTION_MASK, SysFlag
from kourou.protocol.record import RECORD_SIZE_MIN, Found, Scanner
from kourou.store.crash_damage import is_torn
from kourou.store.disk import Disk
from kourou.store.dledger import ENTRY_HEAD, UNIT, member_folder, members
from kourou.store.errors import BadStoreError
from kourou.store.metadata import MetadataFile
from kourou.store.offline import Folder, LogFiles, QueueFiles
from kourou.store.paths import Paths
from kourou.store.reading import LIGHT_TOPIC_PREFIX
from kourou.store.records import Entries, find_record, goes_on_at, scan
from kourou.store.removed import REMOVED_TOPICS, RemovedTopics

NOTES_MAX: Final = 20
"""The most notes in a report; further ones are only counted."""

QUEUE_OFFSET_MAX: Final = 2**58
"""The largest plausible queue offset. A record with a larger one is damaged and can't get a queue entry."""

_NOT_DISPATCHED: Final = (int(SysFlag.TRANSACTION_PREPARED), int(SysFlag.TRANSACTION_ROLLBACK))
_TEXT_MAX: Final = 4096
_TORN: Final = "its queue offset is absurd, or part of its topic or properties is missing"


class Place(NamedTuple):
    """Where a walk continues: an offset of the log, and the entry before it in DLedger's part."""

    offset: int
    entry: int = -1
    term: int = -1


@dataclass(slots=True)
class Notes:
    """Notes for the operator."""

    texts: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, text: str) -> None:
        if text not in self.texts:
            self.count += 1
            if len(self.texts) < NOTES_MAX:
                self.texts.append(text)


class Walk:
    """A walk over the records that count, from a place on. All of them are checked, unless it is `quick`.

    Raises BadStoreError for damage, OSError.
    """

    def __init__(self, source: "Source", place: Place, *, quick: bool = False) -> None:
        self._source = source
        self._quick = quick
        self._next_part: int | None = None  # where the log continues after the current segment
        self.place = place  # the place after the current record
        self.view = memoryview(b"")  # the segment of the current record
        self.uncommitted = 0  # records after the last committed one
        self.left_out = 0  # omitted records

    def __iter__(self) -> Iterator[Scanner]:
        source, leaves_out = self._source, self._source.visible.leaves_out
        while self.place.offset < source.end:
            found = self._plain() if self.place.offset < source.divided else self._wrapped()
            for scanner in found:
                if leaves_out(scanner):
                    self.left_out += 1
                else:
                    yield scanner
            if self._next_part is None:
                return
            self.place = self.place._replace(offset=self._next_part)

    def _plain(self) -> Iterator[Scanner]:
        source = self._source
        base, view = source.view(source.plain, self.place.offset)
        self.view = view
        scanner = scan(view, base, self.place.offset - base, crc=not self._quick)
        found, reason = scanner.step(), ""
        while found == Found.RECORD:
            if not self._quick and is_damaged(view, scanner):
                found, reason = Found.BAD, _TORN
                break
            self.place = Place(base + scanner.next_at)
            yield scanner
            found = scanner.step()
        self._next_part = goes_on_at(scanner, found, base, source.file_size)
        if self._next_part is None:
            self._next_part = source.after_plain(scanner.at, found, reason or scanner.reason, base)

    def _wrapped(self) -> Iterator[Scanner]:
        source = self._source
        assert source.entries is not None
        base, view = source.view(source.entries, self.place.offset)
        self.view = view
        entries = Entries(view, base, self.place.offset - base, self.place.entry, self.place.term, crc=not self._quick)
        self._next_part, index = None, self.place.entry
        committed = -1 if source.committed is None else source.committed
        found = entries.step()
        while found == Found.RECORD:
            if not self._quick and is_damaged(view, entries.scanner):
                found, entries.reason = Found.BAD, _TORN
                break
            index = entries.index
            self.place = Place(base + entries.next_at, index, entries.term)
            self.uncommitted += index > committed
            if index <= committed or not source.drop_uncommitted:
                yield entries.scanner
            found = entries.step()
        if found == Found.FILLER:
            self._next_part = base + source.file_size
        if found != Found.FILLER or self._next_part == source.end:
            source.after_entries(entries, found, index, base)


class Source:
    """See the module's docstring. Raises BadStoreError for files that can't be a log, OSError."""

    def __init__(
        self,
        disk: Disk,
        root: Path,
        commit_log: Path | None = None,
        member: Path | None = None,
        data: Path | None = None,
        ignored: str = "",
    ) -> None:
        """`member`: the folder of a member, if there are several; `data`: its entries, if they are elsewhere.

        `ignored`: a file in commitlog/ that is not a segment.
        """
        self.disk = disk
        self.paths = Paths(root, commit_log)
        self.member = member or _only_member(root, disk)
        self.notes = Notes()
        self.plain = _folder(disk, self.paths.commit_log, ignored)
        self.entries: LogFiles | None = None
        self.committed: int | None = None  # the index of the last committed entry, from the checkpoint
        self.term = 0
        if self.member is not None:
            self.entries = _folder(disk, data or self.member / "data")
            if not self.entries.segments and disk.files(self.member / "index"):
                raise BadStoreError(
                    f"{self.entries.folder} is empty, but {self.member / 'index'} has entries. Say where they are "
                    "(storePathDLedgerCommitLog) with --dledger-data, or restore them"
                )
            self._read_texts(self.member)
            self._check_parts(self.plain, self.entries)
        parts = [part for part in (self.plain, self.entries) if part is not None and part.segments]
        if not parts:
            raise BadStoreError(f"{root} has no log: neither commitlog/ nor dledger-*/data has files. Check the path")
        self.file_size = parts[0].file_size
        self.start = parts[0].start
        self.end = parts[-1].end
        self.divided = parts[-1].start if self.entries is not None and self.entries.segments else self.end
        self.drop_uncommitted = False
        self.is_clean = disk.read(self.paths.abort) is None
        self.visible = Visible(self)

    def _read_texts(self, member: Path) -> None:
        """Read DLedger's text files about its entries."""
        checkpoint = _properties(self.disk, member / "checkpoint")
        self.committed = checkpoint.get("committedIndex")
        self.term = _properties(self.disk, member / "currterm").get("currTerm", 0)

    def _check_parts(self, plain: LogFiles, entries: LogFiles) -> None:
        if not entries.segments or not plain.segments:
            return
        if plain.file_size != entries.file_size:
            raise BadStoreError(
                f"{plain.folder} has files of {plain.file_size} bytes, {entries.folder} of {entries.file_size}: no "
                "broker could read both. Move away the one that does not belong to this store"
            )
        if plain.end != entries.start:
            raise BadStoreError(
                f"{plain.folder} ends at {plain.end}, and {entries.folder} starts at {entries.start}: the old log must "
                "end where DLedger's begins. Restore the missing files, or move away the ones that do not belong here"
            )

    @property
    def is_dledger(self) -> bool:
        return self.entries is not None

    @property
    def fingerprint(self) -> str:
        """A value that changes if a broker runs on the source."""
        paths = [self.paths.checkpoint]
        paths += [self.member / name for name in ("checkpoint", "currterm")] if self.member is not None else []
        parts: list[object] = [self.start, self.end, self.divided, self.file_size, self.drop_uncommitted]
        parts += [self.is_clean, self.visible.dispatched, len(self.visible.first)]
        parts += [hashlib.sha256(self.disk.read(path) or b"").hexdigest() for path in paths]
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    # ── Its ends ──────────────────────────────────────────────────────────────────────────────────────────────────

    def after_plain(self, at: int, found: int, reason: str, base: int) -> int | None:
        """Where the log continues after a place without a record or filler; None if it ends there."""
        path = self.plain.path(base)
        if found != Found.END:
            beyond = self._valid_record_after(base + at)
            if beyond is not None:
                raise BadStoreError(
                    f"{path} at {at}: {reason}; but at offset {beyond} a valid record follows. Let a broker "
                    "open and close the source, which decides where the log ends, or restore the file"
                )
            self.notes.add(f"{path} at {at}: {reason}: the log ends there, as in a broker's recovery")
        if self.divided < self.end:
            if base + self.file_size != self.divided:
                raise BadStoreError(
                    f"{path} at {at}: {reason}; but DLedger's log starts at {self.divided}. Restore this file "
                    "and those after it"
                )
            return self.divided
        if any(bytes(self.view(self.plain, start)[1][:8]).strip(b"\0") for start in self._starts_after(base)):
            raise BadStoreError(
                f"{path} at {at}: {reason}, but later files have data. Let a broker open and close the source, "
                "which decides where the log ends, or restore the file"
            )
        return None

    def _starts_after(self, base: int) -> list[int]:
        return [segment.start for segment in self.plain.segments if segment.start > base]

    def _valid_record_after(self, offset: int) -> int | None:
        start = offset + 1
        while start < self.plain.end:
            base, view = self.view(self.plain, start)
            at = find_record(view, start - base, base)
            if at is None:
                start = base + self.file_size
                continue
            if scan(view, base, at, crc=True).step() == Found.RECORD:
                return base + at
            start = base + at + 1
        return None

    def after_entries(self, entries: Entries, found: int, index: int, base: int) -> None:
        """DLedger's log ends after entry `index`. Raises BadStoreError if it should not."""
        assert self.entries is not None
        path = self.entries.path(base)
        if self.committed is not None and index < self.committed:
            raise BadStoreError(
                f"{path} at {entries.at}: {entries.reason}; entries up to {self.committed} are committed, and the last "
                f"one here is {index}. Convert the directory of another member of the group, or restore the file"
            )
        if found not in (Found.END, Found.FILLER):
            self.notes.add(f"{path} at {entries.at}: {entries.reason}: DLedger's log ends there")

    def view(self, part: LogFiles, offset: int) -> tuple[int, memoryview]:
        """The start and the bytes of a segment. Raises BadStoreError."""
        base = offset - offset % self.file_size
        view = part.view(base)
        if len(view) != self.file_size:
            raise BadStoreError(f"{part.path(base)} can't be read as a file of {self.file_size} bytes. Restore it")
        return base, view

    def record_at(self, offset: int) -> Scanner | None:
        """A scanner at the record at this offset; None if there is none. Raises BadStoreError."""
        part = self.plain if offset < self.divided or self.entries is None else self.entries
        if not self.start <= offset < self.end:
            return None
        base, view = self.view(part, offset)
        scanner = scan(view, base, offset - base)
        return scanner if scanner.step() == Found.RECORD else None

    def entry_offset(self, scanner: Scanner) -> int:
        """The offset at which a walk has to start to find this record."""
        return scanner.physical_offset - (ENTRY_HEAD if scanner.physical_offset >= self.divided else 0)

    # ── DLedger's index ───────────────────────────────────────────────────────────────────────────────────────────

    def check_index(self, place: Place) -> None:
        """Note if DLedger's index does not have the last entry, after which the walk is at `place`. Raises OSError."""
        if self.member is None or place.entry < 0:
            return
        index, folder = place.entry, Folder(self.disk, self.member / "index")
        file_size = folder.file_size
        at = index * UNIT.size
        view = folder.view(at - at % file_size) if file_size else memoryview(b"")
        start = at % file_size if file_size else 0
        unit = UNIT.unpack_from(view, start) if start + UNIT.size <= len(view) else None
        if unit is None or unit[3:] != (index, place.term) or unit[1] + unit[2] != place.offset:
            self.notes.add(
                f"{folder.folder}: the index does not have entry {index}, which is in the data: the data is converted, "
                "and the index is not needed"
            )


class Visible:
    """The records that the queues of the source have, or will have.

    The queues are conclusive only if their first and last entries belong to records in the log.
    """

    def __init__(self, source: Source) -> None:
        self.dispatched = 0  # the end of the newest record with a queue entry
        self.first: dict[bytes, float] = {}  # by topic: the offset of the first record with a queue entry
        self._source = source
        disk, paths = source.disk, source.paths
        self._other = {_raw(topic) for topic in disk.folders(paths.root / "batchconsumequeue")}  # of another kind
        removed = RemovedTopics()
        removed.load(MetadataFile(disk, paths.config, REMOVED_TOPICS).load())
        self._removed = removed.until
        if source.is_clean and not all(map(self._examine, disk.folders(paths.queues))):
            self.dispatched = 0
            source.notes.add(
                f"{paths.queues} does not match the log: queues of topics that were deleted may appear again"
            )

    def _examine(self, topic: str) -> bool:
        """False if an entry does not belong to a record."""
        first = math.inf
        for queue in queues_of(self._source.disk, self._source.paths, topic):
            number, end = queue.live_from(self._source.start), queue.length
            if number >= end:
                continue
            begin, last = self._record_of(queue, number), self._record_of(queue, end - 1)
            if begin is None or last is None:
                return False
            first = min(first, begin.physical_offset)
            self.dispatched = max(self.dispatched, last.physical_offset + last.size)
        self.first[_raw(topic)] = first
        return True

    def _record_of(self, queue: QueueFiles, number: int) -> Scanner | None:
        offset, size, _ = queue.entry(number) or (-1, 0, 0)
        scanner = self._source.record_at(offset)
        if scanner is None or scanner.size != size:
            return None
        found = scanner.topic, scanner.queue_id, scanner.queue_offset
        is_light = queue.topic.startswith(LIGHT_TOPIC_PREFIX)
        return scanner if is_light or found == (_raw(queue.topic), queue.queue_id, number) else None

    def leaves_out(self, scanner: Scanner) -> bool:
        """True if no consumer can see this record, and no broker would give it a queue entry."""
        offset, topic = scanner.physical_offset, scanner.topic
        if offset < self._removed.get(topic, 0):
            return True
        if offset >= self.dispatched or scanner.sys_flag & TRANSACTION_MASK in _NOT_DISPATCHED or topic in self._other:
            return False
        return offset < self.first.get(topic, math.inf)


def queues_of(disk: Disk, paths: Paths, topic: str) -> list[QueueFiles]:
    names = [name for name in disk.folders(paths.queues / topic) if name.isascii() and name.isdigit()]
    return [QueueFiles(disk, paths.queues / topic / name, topic, int(name)) for name in names]


def _raw(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _only_member(root: Path, disk: Disk) -> Path | None:
    found = members(root, disk)
    if len(found) > 1:
        names = ", ".join(folder.name.removeprefix("dledger-") for folder in found)
        raise BadStoreError(f"{root} has the logs of several members: choose one with --self-id: {names}")
    return found[0] if found else None


def member_of(root: Path, disk: Disk, self_id: str | None) -> Path | None:
    """The folder of a DLedger member. Raises BadStoreError."""
    if self_id is None:
        return _only_member(root, disk)
    folder = member_folder(root, self_id)
    if members(root, disk) and folder not in members(root, disk):
        raise BadStoreError(f"{folder} has no log of DLedger. Omit --self-id, or name an existing member")
    return folder if folder in members(root, disk) else None


def _folder(disk: Disk, path: Path, ignored: str = "") -> LogFiles:
    """The segments of a log, whole and without gaps. Raises BadStoreError."""
    folder = LogFiles(disk, path)
    folder.strays = [name for name in folder.strays if name != ignored]
    while folder.segments and folder.segments[-1].size == 0:
        folder.segments.pop()  # it was being created in a crash
    for problem, text in folder.problems():
        raise BadStoreError(f"{problem}: {text}. Restore it, or move away the files that do not belong there")
    if folder.segments and (folder.file_size < ENTRY_HEAD + RECORD_SIZE_MIN or folder.start % folder.file_size):
        raise BadStoreError(
            f"{folder.path(folder.start)} has {folder.file_size} bytes, which can't be the size of a segment that "
            f"starts at {folder.start}: it was cut off. Restore it"
        )
    return folder


def _properties(disk: Disk, path: Path) -> dict[str, int]:
    """The numbers in a text of `name=number` lines. Raises BadStoreError."""
    text = (disk.read(path) or b"")[:_TEXT_MAX].decode("utf-8", "replace")
    found = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if not equals or name.startswith("#") or name == "voteLeader":
            continue
        try:
            found[name] = int(value)
        except ValueError:
            raise BadStoreError(
                f"{path}: {name[:40]!r} should be a number, not {value[:40]!r}. Restore the file from its backup "
                f"{path.name}.bak, or convert another member's directory"
            ) from None
    return found


def is_damaged(view: memoryview, scanner: Scanner) -> bool:
    """True if a part of a record is invalid that the CRC of its body does not cover."""
    if not 0 <= scanner.queue_offset <= QUEUE_OFFSET_MAX:
        return True
    rest = bytes(view[scanner.topic_at : scanner.next_at])
    return b"\0" in rest and is_torn(view, scanner)
