"""The simulated disk: files in memory, and all kinds of failures.

    code under test                 the page cache                       the platter
    file.buffer[…] = …     ──▶      what buffers and reads show   ──▶    what a power cut leaves
                                                         sync, or luck

Each file has its bytes twice. Writing is assigning to memory, which can't be observed; so dirty sectors are found by
comparing the two copies at a sync and at a crash. Names have the same two states, visible and durable:
`create` and `replace` are durable on return, a removal after `sync_folder`, and a lazily created file after its
sync and `sync_created`; until then it may be found empty.

Failures, on demand or by chance (`random` decides; the same seed and the same calls give the same disk):

    crash()         power failure: of each dirty sector the old or new content, or both in part; either of two names
    kill()          the process ends: the page cache is unchanged
    write_back()    the system writes some dirty sectors of its own accord
    crash_at = k    SimulatedCrash is raised at the k-th call that changes something, before or after its effect
    fail(…)         the n-th sync, create, … raises an OSError; fail_randomly(…) by chance
    capacity        no more room: reserve, create and replace raise ENOSPC
    read_only       EROFS
    flip(), cut(), lose()   rot: a bit is wrong, a file is short, a file is missing

A failed sync behaves as Linux does: some of the dirty sectors arrived, and all of them count as clean from then on, so
that the next sync succeeds without writing them. Only writing everything again helps.

A write to room that was not reserved ends a real process by SIGBUS when the disk is full. Here it is an
UnreservedWriteError at the next sync or crash, full or not, unless the disk is `forgiving`.

After a SimulatedCrash the disk is frozen: later writes through old buffers change nothing, and every call raises the
crash again, so that no `finally` can clean up files that a power failure would have left.
"""

import errno
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from random import Random

from kourou.store.disk import File, Lock
from kourou.store.errors import StoreInUseError
from kourou.testing.disk_files import SimulatedFile, SimulatedLock
from kourou.testing.disk_parts import (
    BLOCK,
    SECTOR,
    Call,
    Change,
    Fault,
    Folder,
    Inode,
    PowerCut,
    blocks_of,
    differences,
    disk_error,
    split_path,
    used_room,
)

_HISTORY = 40


class SimulatedCrash(BaseException):
    """A power failure. Not an Exception, so that no handler of the code under test catches it."""


class UnreservedWriteError(AssertionError):
    """The code under test wrote to a position without reserved space."""


class SimulatedDisk:
    """A disk in memory. Only one thread at a time is in a call; the disk does not control the order of threads."""

    def __init__(self, random: Random, *, capacity: int | None = None, forgiving: bool = False) -> None:
        self.random = random
        self.capacity = capacity
        """Its capacity in bytes; None: unlimited."""
        self.forgiving = forgiving
        """Whether writes to space that is not reserved are allowed, as long as there is space."""
        self.tears = True
        """Whether a power failure may leave a sector half written. Real disks hardly ever do."""
        self.read_only = False
        self.now_ms = 1_700_000_000_000
        """The modification time of changes. It stands still unless the test moves it."""
        self.calls = 0
        """The number of boundaries so far."""
        self.crash_at: int | None = None
        """The boundary to crash at: 1 is the first."""
        self.crash_after = False
        """Whether the call at which it crashes has its effect."""
        self.history: deque[tuple[Change, Path]] = deque(maxlen=_HISTORY)
        """The last boundaries, for debugging."""
        self._tree: dict[str, Folder] = {}  # by path, as text, for faster look-up
        self._moved: list[tuple[str, dict[str, Folder]]] = []  # folders that were put aside, not durably yet
        self._asides = 0
        self._opened: dict[int, Inode] = {}  # by id
        self._faults: list[Fault] = []
        self._chances: dict[Call, float] = {}
        self._held: set[Path] = set()
        self._crash: SimulatedCrash | None = None
        self._turn = threading.RLock()

    # ── Failures ────────────────────────────────────────────────────────────────────────────────────────

    def crash(self) -> "SimulatedDisk":
        """The disk after a power failure now, or at the SimulatedCrash that was raised."""
        return self._after_crash()

    def crash_images(self, count: int) -> Iterator["SimulatedDisk"]:
        """Several possible disks after a power failure now. This disk is unchanged."""
        for _ in range(count):
            yield self._after_crash()

    def kill(self) -> "SimulatedDisk":
        """The disk as the next process finds it after this one was killed. Dirty sectors remain dirty."""
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

    def evict(self, where: str = "*") -> None:
        """The system drops pages that it treats as clean: after a failed sync, their old contents reappear."""
        for inode in [inode for path, inode in self._inodes() if fnmatch(path, where)]:
            dirty = set(inode.dirty())
            for at in differences(inode.cache, inode.platter):
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
        """Let a call fail: the first after `after` successful ones, `times` times (math.inf: until `heal`).

        `where` is a pattern for the whole path. A `late` failure of create, replace or remove is one of the folder's
        sync at their end: the change is visible, but not durable.
        """
        self._faults.append(Fault(call, code, where, after, times, late))

    def fail_randomly(self, chances: Mapping[Call, float]) -> None:
        """From now on, each of these calls raises EIO with its probability. Replaces earlier probabilities."""
        self._chances = dict(chances)

    def heal(self) -> None:
        """End all failures, and make the disk writable. The capacity is unchanged."""
        self._faults.clear()
        self._chances.clear()
        self.read_only = False

    def flip(self, path: Path, at: int | None = None, bit: int | None = None) -> int:
        """Flip a bit, at a random place unless given. Returns the place."""
        inode = self._inode(path)
        at = self.random.randrange(len(inode.cache)) if at is None else at
        mask = 1 << (self.random.randrange(8) if bit is None else bit)
        for content in {id(c): c for c in (inode.cache, inode.believed, inode.platter)}.values():
            content[at] ^= mask
        return at

    def cut(self, path: Path, size: int) -> None:
        """Truncate the file."""
        self._check_closed(path)
        inode = self._inode(path)
        self._resize(inode, min(size, len(inode.cache)))

    def lose(self, path: Path) -> None:
        """Remove the file."""
        self._inode(path)
        folder = self._tree[split_path(path)[0]]
        folder.files.pop(path.name, None)
        folder.safe_files.pop(path.name, None)

    def install(self, path: Path, content: bytes, *, reserved: bool = True) -> None:
        """Create a durable file without a call. Unless `reserved`, it has space only where it has data."""
        data = bytearray(content if isinstance(content, bytes) else b"".join(content))
        room = bytearray(b"\1" * blocks_of(len(data))) if reserved else used_room(data)
        self._place(path, Inode(data, room, self.now_ms), safe=True)

    def peek(self, path: Path) -> bytes | None:
        """The content of a file, without a call; None if it does not exist."""
        folder = self._tree.get(split_path(path)[0])
        inode = None if folder is None else folder.files.get(path.name)
        return None if inode is None else bytes(inode.cache)

    @property
    def used_bytes(self) -> int:
        """The space that files take, including removed files that are open, or whose removal is not durable."""
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
            room = bytearray(b"\1" * blocks_of(size)) if reserve else used_room(data)
            self._take(path, room.count(1) * BLOCK)
            inode = Inode(data, room, self.now_ms)
            self._place(path, inode, safe=not late)
            if late:
                raise disk_error(late, path)
            return SimulatedFile(self, path, inode, writable=True)

    def create_lazily(self, path: Path, size: int) -> File:
        with self._change("create", path):
            inode = Inode(bytearray(size), bytearray(blocks_of(size)), self.now_ms)
            inode.is_whole = False
            self._place(path, inode, safe=False)
            return SimulatedFile(self, path, inode, writable=True)

    def sync_created(self, path: Path) -> None:
        with self._change("sync_folder", path.parent):
            if str(path.parent) in self._tree:
                self._make_names_safe(str(path.parent))
                self._moved = [move for move in self._moved if not path.is_relative_to(split_path(move[0])[0])]

    def open(self, path: Path, *, writable: bool = True) -> File:
        self._look("open", path)
        if writable and self.read_only:
            raise disk_error(errno.EROFS, path)
        inode = self._inode(path)
        if not inode.cache:
            raise disk_error(errno.EINVAL, path)
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
        """Blocks without space are holes, as on a real disk."""
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
        room = bytearray(b"\1" * blocks_of(len(data)))
        if backup and self._exists(path):
            kept = path.with_name(path.name + ".bak")
            with self._change("backup", kept) as late:
                self._take(path, len(room) * BLOCK)  # the new content is written before the old one is kept
                self._place(kept, self._inode(path), safe=False)
                if late:
                    raise disk_error(late, path)
        with self._change("replace", path) as late:
            self._take(path, len(room) * BLOCK)
            self._place(path, Inode(data, room, self.now_ms), safe=not late)
            if late:
                raise disk_error(late, path)

    def remove(self, path: Path) -> None:
        with self._change("remove", path) as late:
            folder, name = split_path(path)
            if folder in self._tree:
                self._tree[folder].files.pop(name, None)
            if late:
                raise disk_error(late, path)

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
            self._tree.setdefault(str(aside.parent), Folder()).folders.add(aside.name)
            return aside

    def sync_folder(self, folder: Path) -> None:
        with self._change("sync_folder", folder):
            if str(folder) not in self._tree:
                raise disk_error(errno.ENOENT, folder)
            self._make_names_safe(str(folder))
            self._moved = [move for move in self._moved if split_path(move[0])[0] != str(folder)]

    def used_ratio(self, folder: Path) -> float:
        self._look("list", folder)
        if str(folder) not in self._tree:
            raise disk_error(errno.ENOENT, folder)
        return self.used_bytes / self.capacity if self.capacity else 0.0

    def space(self, folder: Path) -> tuple[int, int]:
        self._look("list", folder)
        total = self.capacity or 2**40
        return total, max(total - self.used_bytes, 0)

    def lock(self, path: Path) -> Lock:
        self._look("open", path)
        if self.read_only:
            raise disk_error(errno.EROFS, path)
        if path in self._held:
            raise StoreInUseError(f"{path.parent} is already open ({path.name} is locked)")
        if not self._exists(path):
            self._place(path, Inode(bytearray(b"lock"), bytearray(b"\1"), self.now_ms), safe=True)
        return SimulatedLock(self._held, path)

    # ── Boundaries and faults ─────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _change(self, call: Change, path: Path, synced: Inode | None = None) -> Iterator[int]:
        """Used around the effect of a call. Yields the error number of a late failure, or 0."""
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
                    raise disk_error(code, path)
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
                raise disk_error(fault.code, path)

    def _strike(self, call: Call, path: Path) -> Fault | None:
        fault = next((fault for fault in self._faults if fault.strikes(call, path)), None)
        chance = self._chances.get(call, 0.0)
        if fault is None and chance and self.random.random() < chance:
            fault = Fault(call, errno.EIO, "*", 0, 0, late=self.random.random() < 0.5)
        if fault and fault.late and call not in ("create", "backup", "replace", "remove"):
            fault.late = False
        return fault

    def _check_alive(self) -> None:
        if self._crash is not None:
            raise self._crash

    def _die(self, when: str) -> None:
        for _, inode in self._inodes():
            inode.cache = bytearray(inode.cache)  # from now on no buffer of it exists
        self._crash = SimulatedCrash(f"call {self.calls}: {when}")
        raise self._crash

    def _fail_sync(self, inode: Inode) -> None:
        """As Linux does: some sectors were written, and all of them are treated as written from now on."""
        dirty = self._checked_dirty(inode)
        inode.write([at for at in dirty if self.random.random() < 0.5])
        if dirty:
            inode.believed = bytearray(inode.cache)

    # ── Content ───────────────────────────────────────────────────────────────────────────────────────────────────

    def was_opened(self, inode: Inode) -> None:
        """An open file takes space, even if it no longer has a name."""
        self._opened[id(inode)] = inode

    def was_closed(self, inode: Inode) -> None:
        self._opened.pop(id(inode), None)

    def sync_content(self, path: Path, inode: Inode) -> None:
        with self._change("sync", path, synced=inode):
            dirty = self._checked_dirty(inode)
            if dirty:
                inode.write(dirty)
                inode.modified_ms = self.now_ms
            inode.safe_room[:] = inode.room
            inode.is_whole = True

    def reserve_room(self, path: Path, inode: Inode, start: int, size: int) -> None:
        with self._change("reserve", path):
            assert start >= 0 and 0 < size <= len(inode.cache) - start, f"{path} has no {size} bytes at {start}"
            blocks = slice(start // BLOCK, blocks_of(start + size))
            missing = inode.room[blocks].count(0)
            self._take(path, missing * BLOCK)
            inode.room[blocks] = b"\1" * (blocks.stop - blocks.start)

    def _take(self, path: Path, size: int) -> None:
        if size and self.capacity is not None and self.used_bytes + size > self.capacity:
            raise disk_error(errno.ENOSPC, path)

    def _checked_dirty(self, inode: Inode) -> list[int]:
        """The dirty sectors. Raises UnreservedWriteError if one of them has no reserved space."""
        dirty = inode.dirty()
        for at in dirty:
            if not inode.room[at // BLOCK]:
                if not self.forgiving or (self.capacity is not None and self.used_bytes + BLOCK > self.capacity):
                    names = [path for path, other in self._inodes() if other is inode] or ["a removed file"]
                    raise UnreservedWriteError(f"{names[0]}: written at {at}, where no space is reserved")
                inode.room[at // BLOCK] = 1
        return dirty

    def _resize(self, inode: Inode, size: int) -> None:
        """Resize with a new content, because a mapped one can't change its size."""
        content = inode.cache[:size].ljust(size, b"\0")
        inode.cache = content
        inode.platter = inode.believed = bytearray(content)
        inode.room = inode.room[: blocks_of(size)].ljust(blocks_of(size), b"\0")
        inode.safe_room = bytearray(inode.room)

    def _check_closed(self, path: Path) -> None:
        assert not self._exists(path) or not self._inode(path).handles, f"{path} is open"

    # ── Names ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _exists(self, path: Path) -> bool:
        return self._found(path) is not None

    def _found(self, path: Path) -> Inode | None:
        folder, name = split_path(path)
        names = self._tree.get(folder)
        return names.files.get(name) if names is not None else None

    def _inode(self, path: Path) -> Inode:
        inode = self._found(path)
        if inode is None:
            raise disk_error(errno.ENOENT, path)
        return inode

    def _inodes(self) -> Iterator[tuple[str, Inode]]:
        """All files, each once, with a current or earlier name; in an order that depends only on the names."""
        seen: set[int] = set()
        folders = [(path, self._tree[path]) for path in sorted(self._tree)]
        for path, folder in folders + [place for _, inside in self._moved for place in sorted(inside.items())]:
            for names in (folder.files, folder.safe_files):
                for name in sorted(names):
                    if id(names[name]) not in seen:
                        seen.add(id(names[name]))
                        yield f"{path}/{name}", names[name]

    def _place(self, path: Path, inode: Inode, *, safe: bool) -> None:
        folder, name = split_path(path)
        self._make_folder(folder)
        self._tree[folder].files[name] = inode
        if safe:
            self._make_names_safe(folder)

    def _make_folder(self, folder: str) -> None:
        if folder not in self._tree:
            self._tree[folder] = Folder()
            above, name = split_path(folder)
            if above != folder:
                self._make_folder(above)
                self._tree[above].folders.add(name)

    def _make_names_safe(self, folder: str) -> None:
        names = self._tree[folder]
        names.safe_files = dict(names.files)

    # ── Afterwards ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _successor(self) -> "SimulatedDisk":
        """A disk with the same folders and settings, and no files."""
        after = SimulatedDisk(self.random, capacity=self.capacity, forgiving=self.forgiving)
        after.now_ms, after.tears = self.now_ms, self.tears
        for path, folder in self._tree.items():
            after._tree[path] = Folder()
            after._tree[path].folders = set(folder.folders)
        return after

    def _after_crash(self) -> "SimulatedDisk":
        after = self._successor()
        luck = PowerCut(self.random, tears=self.tears)
        survivors: dict[int, Inode] = {}
        for _, inode in self._inodes():
            dirty = self._checked_dirty(inode)
            platter = luck.platter(inode, dirty) if luck.has_size(inode) else bytearray()
            survivors[id(inode)] = Inode(platter, luck.room(inode, platter), inode.modified_ms)
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

    def _bring_back(self, top: str, inside: Mapping[str, Folder], survivors: Mapping[int, Inode]) -> None:
        """The power failed before the removal of a folder was durable, and so before another one got its name."""
        for path in [path for path in self._tree if path == top or path.startswith(f"{top}/")]:
            del self._tree[path]
        for path, names in inside.items():
            folder = self._tree[path] = Folder()
            folder.folders = set(names.folders)
            folder.files = {name: survivors[id(inode)].copy() for name, inode in names.safe_files.items()}
            folder.safe_files = dict(folder.files)
        parent, name = split_path(top)
        self._make_folder(parent)  # it may be lost already
        self._tree[parent].folders.add(name)


def crash_everywhere(
    run: Callable[[SimulatedDisk], None], seed: int, *, images: int = 1, capacity: int | None = None
) -> Iterator[SimulatedDisk]:
    """Crash a run before and after each of its boundaries, and yield possible disks, `images` for each.

    `run` gets a new disk each time and must make the same calls on each. It has to record elsewhere what it had done
    before the crash.
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
