"""The simulated disk: files in memory, and everything that can happen to files.

    code under test                 the page cache                       the platter
    file.buffer[…] = …     ──▶      what buffers and reads show   ──▶    what a power cut leaves
                                                         sync, or luck

Each file has its bytes twice. Writing is assigning to memory, of which nobody tells us; so the sectors that are dirty
are found by comparing the two copies when it matters: at a sync and at a crash. Names have the same two states, seen
and safe: `create` and `replace` are safe on return, a removal after `sync_folder`, and a file that was made lazily
after its sync and `sync_created`; until then it may be found empty.

What can happen, by the test's will or by chance (`random` decides; the same seed and the same calls give the same
disk):

    crash()         power cut: of each dirty sector the old content, the new, or part of it; either of unsafe names
    kill()          the process ends: the page cache stays as it is
    write_back()    the system writes some dirty sectors of its own accord
    crash_at = k    SimulatedCrash is raised at the k-th call that changes something, before or after its effect
    fail(…)         the n-th sync, create, … raises an OSError; fail_randomly(…) by chance
    capacity        no more room: reserve, create and replace raise ENOSPC
    read_only       EROFS
    flip(), cut(), lose()   rot: a bit is wrong, a file is short, a file is gone

A failed sync behaves as Linux does: some of the dirty sectors arrived, and all of them count as clean from then on, so
that the next sync succeeds without writing them. Only writing everything again helps.

A write to room that was not reserved ends a real process by SIGBUS when the disk is full. Here it is an
UnreservedWriteError at the next sync or crash, full or not, unless the disk is `forgiving`.

After a SimulatedCrash the disk is frozen: later writes through old buffers change nothing, and every call raises the
crash again, so that no `finally` can tidy up what a power cut would have left.
"""

import errno
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from random import Random
from typing import Literal

from kourou.store.disk import File, Lock
from kourou.store.errors import StoreInUseError

SECTOR = 512
"""What a disk writes at once, and a power cut may tear all the same."""

BLOCK = 4096
"""What room is counted in."""

_COMPARED_AT_ONCE = 128 * SECTOR
_HISTORY = 40

Change = Literal["create", "reserve", "sync", "truncate", "backup", "replace", "remove", "remove_folder", "sync_folder"]
"""The calls that are boundaries: they are counted, and a crash may come right before or after each.

Not all are methods of the port: `replace` with a backup is two, and `remove_folder` is one more for each file in it.
"""

Call = Literal[Change, "open", "read", "list"]
"""The calls that can fail. Between reads nothing changes, so that a crash there is like one at the last boundary."""


class SimulatedCrash(BaseException):
    """The power is gone. Not an Exception: no handler of the code under test may live on."""


class UnreservedWriteError(AssertionError):
    """The code under test wrote where it had not reserved room."""


class _Inode:
    """The content of a file, whatever its name is, or was."""

    __slots__ = ("believed", "cache", "handles", "is_whole", "modified_ms", "platter", "room", "safe_room")

    def __init__(self, content: bytearray, room: bytearray, modified_ms: int) -> None:
        self.cache = content
        self.platter = bytearray(content)
        self.believed = self.platter  # what the system takes for written; another object only after a failed sync
        self.room = room  # 1 for each block that has its room on the disk
        self.safe_room = bytearray(room)
        self.handles = 0
        self.is_whole = True  # its size is safe
        self.modified_ms = modified_ms

    def dirty(self) -> list[int]:
        """Where the sectors begin that the next sync has to write."""
        return _differences(self.cache, self.believed)

    def write(self, sectors: Sequence[int]) -> None:
        for at in sectors:
            piece = self.cache[at : at + SECTOR]
            self.platter[at : at + SECTOR] = piece
            if self.believed is not self.platter:
                self.believed[at : at + SECTOR] = piece

    def rewrite(self, start: int, size: int) -> None:
        """Take these bytes for dirty, whether they changed or not."""
        if self.believed is self.platter:
            return  # no sync has failed: what is clean has been written
        for at in range(start - start % SECTOR, start + size, SECTOR):
            if self.believed[at : at + SECTOR] == self.cache[at : at + SECTOR]:
                self.believed[at] ^= 0xFF

    def copy(self) -> "_Inode":
        twin = _Inode(bytearray(self.cache), bytearray(self.room), self.modified_ms)
        twin.platter = twin.believed = bytearray(self.platter)
        if self.believed is not self.platter:
            twin.believed = bytearray(self.believed)
        twin.safe_room = bytearray(self.safe_room)
        twin.is_whole = self.is_whole
        return twin


def _differences(one: bytearray, other: bytearray) -> list[int]:
    if one == other:
        return []
    found = []
    for step in range(0, len(one), _COMPARED_AT_ONCE):
        end = min(step + _COMPARED_AT_ONCE, len(one))
        if one[step:end] != other[step:end]:
            found += [at for at in range(step, end, SECTOR) if one[at : at + SECTOR] != other[at : at + SECTOR]]
    return found


class _Folder:
    """Names, as they are seen and as they are safe."""

    __slots__ = ("files", "folders", "safe_files")

    def __init__(self) -> None:
        self.files: dict[str, _Inode] = {}
        self.safe_files: dict[str, _Inode] = {}
        self.folders: set[str] = set()

    def copy(self, inodes: Mapping[int, _Inode] | None = None) -> "_Folder":
        """The same names, for the same files or for copies of them, by the ids of the originals."""
        twin = _Folder()
        twin.folders = set(self.folders)
        for mine, others in ((twin.files, self.files), (twin.safe_files, self.safe_files)):
            mine.update((name, inode if inodes is None else inodes[id(inode)]) for name, inode in others.items())
        return twin


class _Fault:
    """An error that waits for its call."""

    __slots__ = ("call", "code", "late", "left", "skip", "where")

    def __init__(self, call: Call, code: int, where: str, skip: int, left: float, late: bool) -> None:
        self.call = call
        self.code = code
        self.where = where
        self.skip = skip
        self.left = left
        self.late = late

    def strikes(self, call: Call, path: Path) -> bool:
        if call != self.call or not self.left or not fnmatch(str(path), self.where):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.left -= 1
        return True


class SimulatedFile:
    """A segment of the simulated disk."""

    __slots__ = ("_disk", "_inode", "_open", "_path", "buffer")

    def __init__(self, disk: "SimulatedDisk", path: Path, inode: _Inode, *, writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._open = True
        inode.handles += 1
        disk._opened[id(inode)] = inode
        view = memoryview(inode.cache)
        self.buffer = view if writable else view.toreadonly()

    @property
    def path(self) -> Path:
        return self._path

    def reserve(self, start: int, size: int) -> None:
        self._check_open()
        self._disk._reserve(self._path, self._inode, start, size)

    def sync(self) -> None:
        self._disk._sync(self._path, self._inode)

    def rewrite(self, start: int, size: int) -> None:
        self._check_open()
        self._inode.rewrite(start, size)

    def supply(self, start: int, size: int) -> None:
        """They are there."""

    def warm(self) -> None:
        """It is in memory already."""

    def cool(self) -> None:
        """And stays there."""

    def read_nothing_ahead(self) -> None:
        """It reads nothing ahead."""

    def close(self) -> None:
        if self._open:
            self._open = False
            self._inode.handles -= 1
            if not self._inode.handles:
                self._disk._opened.pop(id(self._inode), None)

    def _check_open(self) -> None:
        if not self._open:
            raise _error(errno.EBADF, self._path)


class SimulatedLock:
    """A lock that a crash of its holder releases."""

    def __init__(self, held: set[Path], path: Path) -> None:
        self._held = held
        self._path = path
        held.add(path)

    def release(self) -> None:
        self._held.discard(self._path)


class SimulatedDisk:
    """A disk in memory. One thread at a time gets into a call; the order of threads is not of our making."""

    def __init__(self, random: Random, *, capacity: int | None = None, forgiving: bool = False) -> None:
        self.random = random
        self.capacity = capacity
        """How many bytes fit on it; None for any number."""
        self.forgiving = forgiving
        """Whether writes to room that is not reserved are let pass, as long as there is room."""
        self.tears = True
        """Whether a power cut may leave a sector half written. Real disks hardly ever do."""
        self.read_only = False
        self.now_ms = 1_700_000_000_000
        """The time that changes get. It stands still unless the test moves it."""
        self.calls = 0
        """How many boundaries there were."""
        self.crash_at: int | None = None
        """The boundary to crash at: 1 is the first."""
        self.crash_after = False
        """Whether the call at which it crashes still has its effect."""
        self.history: deque[tuple[Change, Path]] = deque(maxlen=_HISTORY)
        """The last boundaries, to look at when something went wrong."""
        self._tree: dict[str, _Folder] = {}  # by path: as text, which is looked up much faster
        self._moved: list[tuple[str, dict[str, _Folder]]] = []  # folders that were put aside, which is not safe yet
        self._asides = 0
        self._opened: dict[int, _Inode] = {}  # by id; an open file takes room, also when it has no name any more
        self._faults: list[_Fault] = []
        self._chances: dict[Call, float] = {}
        self._held: set[Path] = set()
        self._crash: SimulatedCrash | None = None
        self._turn = threading.RLock()

    # ── What happens to it ────────────────────────────────────────────────────────────────────────────────────────

    def crash(self) -> "SimulatedDisk":
        """The disk as it is found after a power cut now, or at the SimulatedCrash that was raised."""
        return self._after_crash()

    def crash_images(self, count: int) -> Iterator["SimulatedDisk"]:
        """What a power cut at this moment may leave, several times. This disk goes on."""
        for _ in range(count):
            yield self._after_crash()

    def kill(self) -> "SimulatedDisk":
        """The disk as the next process finds it after this one was killed. What was dirty still is."""
        after = self._successor()
        copies = {id(inode): inode.copy() for _, inode in self._inodes()}
        for path, folder in self._tree.items():
            twin = after._tree[path]
            twin.files = {name: copies[id(inode)] for name, inode in folder.files.items()}
            twin.safe_files = {name: copies[id(inode)] for name, inode in folder.safe_files.items()}
        for top, inside in self._moved:
            after._moved.append((top, {path: names.copy(copies) for path, names in inside.items()}))
        return after

    def write_back(self, chance: float = 0.5) -> None:
        """Each dirty sector reaches the platter with this chance, as it may at any time."""
        for _, inode in self._inodes():
            dirty = self._checked_dirty(inode)
            inode.write([at for at in dirty if self.random.random() < chance])

    def evict(self) -> None:
        """The system drops the pages that it takes for clean: after a failed sync, that brings back what was before."""
        for _, inode in self._inodes():
            dirty = set(inode.dirty())
            for at in _differences(inode.cache, inode.platter):
                if at not in dirty:
                    inode.cache[at : at + SECTOR] = inode.platter[at : at + SECTOR]
                    inode.believed[at : at + SECTOR] = inode.platter[at : at + SECTOR]

    def fail(
        self,
        call: Call,
        code: int = errno.EIO,
        *,
        where: str = "*",
        after: int = 0,
        times: float = 1,
        late: bool = False,
    ) -> None:
        """Let a call fail: the first after `after` good ones, `times` times (math.inf: until `heal`).

        `where` is a pattern for the whole path. A `late` failure of create, replace or remove is one of the folder's
        sync at their end: the change is seen, but not safe.
        """
        self._faults.append(_Fault(call, code, where, after, times, late))

    def fail_randomly(self, chances: Mapping[Call, float]) -> None:
        """From now on, each of these calls raises EIO with its chance. Replaces the chances before."""
        self._chances = dict(chances)

    def heal(self) -> None:
        """No more failures, and it is writable. The capacity stays."""
        self._faults.clear()
        self._chances.clear()
        self.read_only = False

    def flip(self, path: Path, at: int | None = None, bit: int | None = None) -> int:
        """A bit rots, at a random place unless told; where is returned."""
        inode = self._inode(path)
        at = self.random.randrange(len(inode.cache)) if at is None else at
        mask = 1 << (self.random.randrange(8) if bit is None else bit)
        for content in {id(c): c for c in (inode.cache, inode.believed, inode.platter)}.values():
            content[at] ^= mask
        return at

    def cut(self, path: Path, size: int) -> None:
        """The file is found short."""
        self._check_closed(path)
        inode = self._inode(path)
        self._resize(inode, min(size, len(inode.cache)))

    def lose(self, path: Path) -> None:
        """The file is gone."""
        self._inode(path)
        folder = self._tree[_split(path)[0]]
        folder.files.pop(path.name, None)
        folder.safe_files.pop(path.name, None)

    def install(self, path: Path, content: bytes, *, reserved: bool = True) -> None:
        """Put a file there, safe, without a call. Not `reserved`, it is sparse: it has room only where it has data."""
        data = bytearray(content if isinstance(content, bytes) else b"".join(content))
        room = bytearray(b"\1" * _blocks(len(data))) if reserved else _used_room(data)
        self._place(path, _Inode(data, room, self.now_ms), safe=True)

    def peek(self, path: Path) -> bytes | None:
        """What a file has now, without a call; None if there is none."""
        folder = self._tree.get(_split(path)[0])
        inode = None if folder is None else folder.files.get(path.name)
        return None if inode is None else bytes(inode.cache)

    @property
    def used_bytes(self) -> int:
        """The room that files take, also those that are removed but open, or whose removal is not safe."""
        inodes = dict(self._opened)
        for folder in self._tree.values():
            inodes.update((id(inode), inode) for inode in folder.files.values())
            inodes.update((id(inode), inode) for inode in folder.safe_files.values())
        return sum(inode.room.count(1) for inode in inodes.values()) * BLOCK

    def full_after(self, more_bytes: int) -> None:
        """Leave room for this many more bytes."""
        self.capacity = self.used_bytes + more_bytes

    # ── The port ──────────────────────────────────────────────────────────────────────────────────────────────────

    def folders(self, folder: Path) -> list[str]:
        self._look("list", folder)
        found = self._tree.get(str(folder))
        return sorted(found.folders) if found is not None else []

    def files(self, folder: Path) -> dict[str, int]:
        self._look("list", folder)
        found = self._tree.get(str(folder))
        return {name: len(inode.cache) for name, inode in found.files.items()} if found is not None else {}

    def modified_ms(self, path: Path) -> int:
        self._look("list", path)
        return self._inode(path).modified_ms

    def create(self, path: Path, size: int, *, reserve: bool = True, content: memoryview | None = None) -> File:
        assert content is None or len(content) <= size, f"{len(content)} bytes do not fit into {size}"
        with self._change("create", path) as late:
            data = bytearray(size)
            if content is not None:
                data[: len(content)] = content
            room = bytearray(b"\1" * _blocks(size)) if reserve else _used_room(data)
            self._take(path, room.count(1) * BLOCK)
            inode = _Inode(data, room, self.now_ms)
            self._place(path, inode, safe=not late)
            if late:
                raise _error(late, path)
            return SimulatedFile(self, path, inode, writable=True)

    def create_lazily(self, path: Path, size: int) -> File:
        with self._change("create", path):
            inode = _Inode(bytearray(size), bytearray(_blocks(size)), self.now_ms)
            inode.is_whole = False
            self._place(path, inode, safe=False)
            return SimulatedFile(self, path, inode, writable=True)

    def sync_created(self, path: Path) -> None:
        with self._change("sync_folder", path.parent):
            if str(path.parent) in self._tree:
                self._make_names_safe(str(path.parent))
                self._moved = [move for move in self._moved if not path.is_relative_to(_split(move[0])[0])]

    def open(self, path: Path, *, writable: bool = True) -> File:
        self._look("open", path)
        if writable and self.read_only:
            raise _error(errno.EROFS, path)
        inode = self._inode(path)
        if not inode.cache:
            raise _error(errno.EINVAL, path)
        return SimulatedFile(self, path, inode, writable=writable)

    def truncate(self, path: Path, size: int) -> None:
        self._check_closed(path)
        with self._change("truncate", path):
            inode = self._inode(path)
            inode.write(self._checked_dirty(inode))
            self._resize(inode, size)
            inode.modified_ms = self.now_ms

    def read(self, path: Path) -> bytes | None:
        self._look("read", path)
        try:
            return bytes(self._inode(path).cache)
        except FileNotFoundError:
            return None

    def read_at(self, path: Path, start: int, size: int) -> bytes:
        self._look("read", path)
        return bytes(self._inode(path).cache[start : start + size])

    def data(self, path: Path, start: int, end: int) -> tuple[int, int]:
        """Blocks without room are holes, as on a real disk."""
        self._look("read", path)
        room = self._inode(path).room
        first = start // BLOCK
        while first * BLOCK < end and not room[first]:
            first += 1
        last = first
        while last * BLOCK < end and room[last]:
            last += 1
        return min(max(start, first * BLOCK), end), min(last * BLOCK, end)

    def replace(self, path: Path, content: bytes | list[bytes], *, backup: bool = False) -> None:
        data = bytearray(content if isinstance(content, bytes) else b"".join(content))
        room = bytearray(b"\1" * _blocks(len(data)))
        if backup and self._exists(path):
            kept = path.with_name(path.name + ".bak")
            with self._change("backup", kept) as late:
                self._take(path, len(room) * BLOCK)  # the new content is written before the old one is kept
                self._place(kept, self._inode(path), safe=False)
                if late:
                    raise _error(late, path)
        with self._change("replace", path) as late:
            self._take(path, len(room) * BLOCK)
            self._place(path, _Inode(data, room, self.now_ms), safe=not late)
            if late:
                raise _error(late, path)

    def remove(self, path: Path) -> None:
        with self._change("remove", path) as late:
            folder, name = _split(path)
            if folder in self._tree:
                self._tree[folder].files.pop(name, None)
            if late:
                raise _error(late, path)

    def remove_folder(self, folder: Path) -> None:
        for name in self.folders(folder):
            self.remove_folder(folder / name)
        for name in sorted(self.files(folder)):
            self.remove(folder / name)
        with self._change("remove_folder", folder):
            if self._tree.pop(str(folder), None) is not None:
                self._tree[str(folder.parent)].folders.discard(folder.name)

    def put_aside(self, folder: Path) -> Path | None:
        top = str(folder)
        with self._change("remove_folder", folder):
            if top not in self._tree:
                return None
            self._asides += 1
            aside = folder.parent.parent / "kourou-aside" / f"{folder.name}.{self._asides}"
            inside = {path: names for path, names in self._tree.items() if path == top or path.startswith(f"{top}/")}
            self._moved.append((top, {path: names.copy() for path, names in inside.items()}))
            for path in inside:
                self._tree[str(aside) + path.removeprefix(top)] = self._tree.pop(path)
            self._tree[str(folder.parent)].folders.discard(folder.name)
            self._tree.setdefault(str(aside.parent), _Folder()).folders.add(aside.name)
            return aside

    def sync_folder(self, folder: Path) -> None:
        with self._change("sync_folder", folder):
            if str(folder) not in self._tree:
                raise _error(errno.ENOENT, folder)
            self._make_names_safe(str(folder))
            self._moved = [move for move in self._moved if _split(move[0])[0] != str(folder)]

    def used_ratio(self, folder: Path) -> float:
        self._look("list", folder)
        if str(folder) not in self._tree:
            raise _error(errno.ENOENT, folder)
        return self.used_bytes / self.capacity if self.capacity else 0.0

    def space(self, folder: Path) -> tuple[int, int]:
        self._look("list", folder)
        total = self.capacity or 2**40
        return total, max(total - self.used_bytes, 0)

    def lock(self, path: Path) -> Lock:
        self._look("open", path)
        if self.read_only:
            raise _error(errno.EROFS, path)
        if path in self._held:
            raise StoreInUseError(f"{path.parent} is open already (the lock on {path.name} is held)")
        if not self._exists(path):
            self._place(path, _Inode(bytearray(b"lock"), bytearray(b"\1"), self.now_ms), safe=True)
        return SimulatedLock(self._held, path)

    # ── Boundaries and faults ─────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _change(self, call: Change, path: Path, synced: _Inode | None = None) -> Iterator[int]:
        """Around the effect of a call. Gives the error number of a late failure, or 0."""
        with self._turn:
            self._check_alive()
            self.calls += 1
            self.history.append((call, path))
            here = self.calls == self.crash_at
            if here and not self.crash_after:
                self._die(f"before {call} {path}")
            try:
                fault = self._strike(call, path)
                code = fault.code if fault and not fault.late else 0
                if self.read_only and call != "sync_folder" and (synced is None or synced.dirty()):
                    code = errno.EROFS
                if code:
                    if synced is not None:
                        self._fail_sync(synced)
                    raise _error(code, path)
                yield fault.code if fault else 0
            except OSError as error:
                if here:
                    self._die(f"after {call} {path} failed: {error}")
                raise
            if here:
                self._die(f"after {call} {path}")

    def _look(self, call: Call, path: Path) -> None:
        with self._turn:
            self._check_alive()
            fault = self._strike(call, path)
            if fault:
                raise _error(fault.code, path)

    def _strike(self, call: Call, path: Path) -> _Fault | None:
        fault = next((fault for fault in self._faults if fault.strikes(call, path)), None)
        chance = self._chances.get(call, 0.0)
        if fault is None and chance and self.random.random() < chance:
            fault = _Fault(call, errno.EIO, "*", 0, 0, late=self.random.random() < 0.5)
        if fault and fault.late and call not in ("create", "backup", "replace", "remove"):
            fault.late = False
        return fault

    def _check_alive(self) -> None:
        if self._crash is not None:
            raise self._crash

    def _die(self, when: str) -> None:
        for _, inode in self._inodes():
            inode.cache = bytearray(inode.cache)  # from now on nobody has a buffer of it
        self._crash = SimulatedCrash(f"call {self.calls}: {when}")
        raise self._crash

    def _fail_sync(self, inode: _Inode) -> None:
        """What Linux does: some sectors arrived, and all of them are taken for written from now on."""
        dirty = self._checked_dirty(inode)
        inode.write([at for at in dirty if self.random.random() < 0.5])
        if dirty:
            inode.believed = bytearray(inode.cache)

    # ── Content ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _sync(self, path: Path, inode: _Inode) -> None:
        with self._change("sync", path, synced=inode):
            dirty = self._checked_dirty(inode)
            if dirty:
                inode.write(dirty)
                inode.modified_ms = self.now_ms
            inode.safe_room[:] = inode.room
            inode.is_whole = True

    def _reserve(self, path: Path, inode: _Inode, start: int, size: int) -> None:
        with self._change("reserve", path):
            assert start >= 0 and 0 < size <= len(inode.cache) - start, f"{path} has no {size} bytes at {start}"
            blocks = slice(start // BLOCK, _blocks(start + size))
            missing = inode.room[blocks].count(0)
            self._take(path, missing * BLOCK)
            inode.room[blocks] = b"\1" * (blocks.stop - blocks.start)

    def _take(self, path: Path, size: int) -> None:
        if size and self.capacity is not None and self.used_bytes + size > self.capacity:
            raise _error(errno.ENOSPC, path)

    def _checked_dirty(self, inode: _Inode) -> list[int]:
        """The dirty sectors. Raises UnreservedWriteError if one of them is where no room was reserved."""
        dirty = inode.dirty()
        for at in dirty:
            if not inode.room[at // BLOCK]:
                if not self.forgiving or (self.capacity is not None and self.used_bytes + BLOCK > self.capacity):
                    names = [path for path, other in self._inodes() if other is inode] or ["a removed file"]
                    raise UnreservedWriteError(f"{names[0]}: written at {at}, where no room is reserved")
                inode.room[at // BLOCK] = 1
        return dirty

    def _resize(self, inode: _Inode, size: int) -> None:
        """With a new content: a mapped one can't change its size."""
        content = inode.cache[:size].ljust(size, b"\0")
        inode.cache = content
        inode.platter = inode.believed = bytearray(content)
        inode.room = inode.room[: _blocks(size)].ljust(_blocks(size), b"\0")
        inode.safe_room = bytearray(inode.room)

    def _check_closed(self, path: Path) -> None:
        assert not self._exists(path) or not self._inode(path).handles, f"{path} is open"

    # ── Names ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _exists(self, path: Path) -> bool:
        return self._found(path) is not None

    def _found(self, path: Path) -> _Inode | None:
        folder, name = _split(path)
        names = self._tree.get(folder)
        return names.files.get(name) if names is not None else None

    def _inode(self, path: Path) -> _Inode:
        inode = self._found(path)
        if inode is None:
            raise _error(errno.ENOENT, path)
        return inode

    def _inodes(self) -> Iterator[tuple[str, _Inode]]:
        """Each once, with a name that it has or had; in an order that depends on the names alone."""
        seen: set[int] = set()
        folders = [(path, self._tree[path]) for path in sorted(self._tree)]
        for path, folder in folders + [place for _, inside in self._moved for place in sorted(inside.items())]:
            for names in (folder.files, folder.safe_files):
                for name in sorted(names):
                    if id(names[name]) not in seen:
                        seen.add(id(names[name]))
                        yield f"{path}/{name}", names[name]

    def _place(self, path: Path, inode: _Inode, *, safe: bool) -> None:
        folder, name = _split(path)
        self._make_folder(folder)
        self._tree[folder].files[name] = inode
        if safe:
            self._make_names_safe(folder)

    def _make_folder(self, folder: str) -> None:
        if folder not in self._tree:
            self._tree[folder] = _Folder()
            above, name = _split(folder)
            if above != folder:
                self._make_folder(above)
                self._tree[above].folders.add(name)

    def _make_names_safe(self, folder: str) -> None:
        names = self._tree[folder]
        names.safe_files = dict(names.files)

    # ── After it ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _successor(self) -> "SimulatedDisk":
        """A disk with the same folders and settings, and no files."""
        after = SimulatedDisk(self.random, capacity=self.capacity, forgiving=self.forgiving)
        after.now_ms, after.tears = self.now_ms, self.tears
        for path, folder in self._tree.items():
            after._tree[path] = _Folder()
            after._tree[path].folders = set(folder.folders)
        return after

    def _after_crash(self) -> "SimulatedDisk":
        after = self._successor()
        luck = _Luck(self.random, tears=self.tears)
        survivors: dict[int, _Inode] = {}
        for _, inode in self._inodes():
            dirty = self._checked_dirty(inode)
            platter = luck.platter(inode, dirty) if luck.has_size(inode) else bytearray()
            survivors[id(inode)] = _Inode(platter, luck.room(inode, platter), inode.modified_ms)
        for path in sorted(self._tree):
            names = luck.names(self._tree[path])
            after._tree[path].files = {name: survivors[id(inode)] for name, inode in names.items()}
            after._tree[path].safe_files = dict(after._tree[path].files)
        back: set[str] = set()
        for top, inside in self._moved:
            if top not in back and self.random.random() < 0.5:
                back.add(top)
                after._bring_back(top, inside, survivors)
        return after

    def _bring_back(self, top: str, inside: Mapping[str, _Folder], survivors: Mapping[int, _Inode]) -> None:
        """The power was cut before the removal of a folder was safe, and so before another one took its name."""
        for path in [path for path in self._tree if path == top or path.startswith(f"{top}/")]:
            del self._tree[path]
        for path, names in inside.items():
            folder = self._tree[path] = _Folder()
            folder.folders = set(names.folders)
            folder.files = {name: survivors[id(inode)].copy() for name, inode in names.safe_files.items()}
            folder.safe_files = dict(folder.files)
        parent, name = _split(top)
        self._tree[parent].folders.add(name)


class _Luck:
    """What one power cut does. How much of what was dirty is kept and torn is drawn once for the whole disk, so that
    the extremes come up as well as all that is between them."""

    def __init__(self, random: Random, *, tears: bool) -> None:
        self._random = random
        self._keep = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        self._tear = random.choice((0.0, 0.05, 0.3)) if tears else 0.0

    def platter(self, inode: _Inode, dirty: Sequence[int]) -> bytearray:
        after = bytearray(inode.platter)
        for at in dirty:
            start, end = at, min(at + SECTOR, len(after))
            if self._random.random() < self._tear and end - start > 1:
                cut = self._random.randrange(start + 1, end)
                start, end = (start, cut) if self._random.random() < 0.5 else (cut, end)
            elif self._random.random() >= self._keep:
                continue
            after[start:end] = inode.cache[start:end]
        return after

    def has_size(self, inode: _Inode) -> bool:
        """A file that was made and never synced may be found empty."""
        return inode.is_whole or self._random.random() < 0.7

    def room(self, inode: _Inode, platter: bytearray) -> bytearray:
        """Room that was reserved since the last sync may be lost, but where data arrived."""
        if not platter:
            return bytearray()
        if inode.room == inode.safe_room or self._random.random() < 0.5:
            return bytearray(inode.room)
        return bytearray(map(max, inode.safe_room, _used_room(platter)))

    def names(self, folder: _Folder) -> dict[str, _Inode]:
        names: dict[str, _Inode] = {}
        for name in sorted(folder.files.keys() | folder.safe_files.keys()):
            seen, safe = folder.files.get(name), folder.safe_files.get(name)
            inode = seen if seen is safe or self._random.random() < 0.5 else safe
            if inode is not None:
                names[name] = inode
        return names


def crash_everywhere(
    run: Callable[[SimulatedDisk], None], seed: int, *, images: int = 1, capacity: int | None = None
) -> Iterator[SimulatedDisk]:
    """Crash a run before and after each of its boundaries, and give the disks that may be left, `images` for each.

    `run` gets a new disk each time and must make the same calls on each. What it had done when the crash came is for
    it to note outside.
    """
    whole = SimulatedDisk(Random(seed), capacity=capacity)
    run(whole)
    for boundary in range(1, whole.calls + 1):
        for after in (False, True):
            disk = SimulatedDisk(Random(f"{seed} {boundary} {after}"), capacity=capacity)
            disk.crash_at, disk.crash_after = boundary, after
            try:
                run(disk)
            except SimulatedCrash:
                yield from disk.crash_images(images)
            else:
                raise AssertionError(f"no boundary {boundary} this time: the run is not the same each time")


def _split(path: Path | str) -> tuple[str, str]:
    """Folder and name."""
    folder, _, name = str(path).rpartition("/")
    return folder or "/", name


def _blocks(size: int) -> int:
    return -(-size // BLOCK)


def _used_room(content: bytearray) -> bytearray:
    """Room for the blocks that are not all zeros."""
    return bytearray(bool(content[at : at + BLOCK].strip(b"\0")) for at in range(0, len(content), BLOCK))


def _error(code: int, path: Path) -> OSError:
    return OSError(code, os.strerror(code), str(path))
