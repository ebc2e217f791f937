"""One process at a time on a real folder: the seed decides which process continues, and which one dies and where.

A `Process` is a thread that runs only when it is its turn. It gives its turn away before and after every file operation
of the lake, and may never get it back: `Killed` is raised there, and at every operation after it. An operation that
consists of several may be cut off in the middle. Locks are the world's: a process that dies loses them.
"""

import contextlib
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kourou.spark.pipelines.delta import DeltaLog
from kourou.spark.pipelines.folders import DiskFolder
from kourou.spark.pipelines.lake_files import LakeFile
from kourou.spark.pipelines.ledger import CommittedFile

WAIT_S = 60.0

CRUCIAL = ("write", "move to", "link", "exchange with", "enter")
CRUCIAL_SHARE = 4
"""Processes die this much more often where the lake changes for its readers: such steps are few."""


class Killed(BaseException):
    """The process is gone; nothing that it does after this has an effect."""


class Process:
    """A life of a writer, a compaction or a reader."""

    def __init__(self, world: "World", name: str, work: Callable[["Process"], None]) -> None:
        self.world = world
        self.name = name
        self.is_doomed = False
        self.is_over = False
        self.waits_for: tuple[str, bool] | None = None
        self.error: BaseException | None = None
        self._turn = threading.Semaphore(0)
        self._parked = threading.Semaphore(0)
        self._work = work
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._thread.start()

    def _live(self) -> None:
        self._turn.acquire()
        try:
            self._work(self)
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.is_over = True
        self._parked.release()

    def go(self) -> None:
        """Until it gives its turn away."""
        self._turn.release()
        if not self._parked.acquire(timeout=WAIT_S):
            raise AssertionError(f"{self.name} does not give its turn away")
        if self.is_over:
            self._thread.join(WAIT_S)
        if self.error is not None:
            raise self.error

    def pause(self) -> None:
        """Let others go on. Raises Killed."""
        if self.is_doomed:
            raise Killed
        self._parked.release()
        self._turn.acquire()
        if self.is_doomed:
            raise Killed


class World:
    """A folder, its processes and their locks."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.random = random.Random(seed)
        self.processes: list[Process] = []
        self.trace: list[str] = []
        self.steps = 0
        self.kills: Counter[str] = Counter()  # by what was going on
        self.kill_ratio = 0.0
        self._locks: dict[str, list[tuple[Process, bool]]] = {}
        self.on_commit: Callable[[str, bytes], None] = lambda *_: None

    def start(self, name: str, work: Callable[[Process], None]) -> Process:
        process = Process(self, name, work)
        self.processes.append(process)
        return process

    def step(self) -> bool:
        """One process continues. False if none can."""
        self.processes = [one for one in self.processes if not one.is_over]
        able = [one for one in self.processes if one.waits_for is None or self._is_free(*one.waits_for)]
        if not able:
            assert not self.processes, "all wait for each other"
            return False
        self.steps += 1
        self.random.choice(able).go()
        return True

    def finish(self) -> None:
        """End all threads, whatever happened."""
        for process in self.processes:
            process.is_doomed = True
            while not process.is_over:
                with contextlib.suppress(BaseException):
                    process.go()

    def _is_free(self, name: str, shared: bool) -> bool:
        return all(shared and is_shared for _, is_shared in self._locks.get(name, ()))

    def acquire(self, process: Process, name: str, shared: bool, wait: bool) -> None:
        while not self._is_free(name, shared):
            if not wait:
                raise BlockingIOError(name)
            process.waits_for = name, shared
            process.pause()
        process.waits_for = None
        self._locks.setdefault(name, []).append((process, shared))

    def release(self, process: Process, name: str, shared: bool) -> None:
        self._locks[name].remove((process, shared))

    @contextlib.contextmanager
    def change(self, process: Process, what: str, name: str, torn: Callable[[], None] | None = None) -> Iterator[None]:
        """A change that a process makes. It may die before, after, or if there is a `torn` state, in the middle."""
        process.pause()
        self.trace.append(f"{process.name}: {what} {name}")
        moment = None
        if self.random.random() < self.kill_ratio * (CRUCIAL_SHARE if what in CRUCIAL else 1):
            moment = self.random.choice(["before", "after"] if torn is None else ["before", "amid", "after"])
            self.kills[f"{what} {kind_of(name)} {moment}"] += 1
            self.trace[-1] += f" †{moment}"
        if moment == "before":
            process.is_doomed = True
            raise Killed
        if moment == "amid" and torn is not None:
            process.is_doomed = True
            torn()
            raise Killed
        yield
        if moment == "after":
            process.is_doomed = True
        process.pause()


def kind_of(name: str) -> str:
    """A name without the parts that differ between two runs."""
    if name.startswith("topic="):
        return "visible"
    if name.endswith(".staged"):
        return "staged"
    if "/exchange-" in name:
        return "exchange"
    parts = name.split("/")
    return parts[1] if len(parts) > 1 else name


class SimulatedFolder:
    """What one process sees."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        self._inner = DiskFolder(self._world.root)
        self._root = self._world.root

    @property
    def url(self) -> str:
        return self._inner.url

    def names(self, below: str) -> list[str]:
        self._process.pause()
        return self._inner.names(below)

    def exists(self, name: str) -> bool:
        self._process.pause()
        return self._inner.exists(name)

    def size(self, name: str) -> int:
        return self._inner.size(name)

    def read(self, name: str) -> bytes:
        self._process.pause()
        return self._inner.read(name)

    def input(self, name: str) -> Any:
        self._process.pause()
        return self._inner.input(name)

    def write_new(self, name: str, data: bytes) -> None:
        def torn() -> None:
            path = self._root / name
            path.with_name(f".{path.name}.torn{self._world.steps}").write_bytes(data[: len(data) // 2])

        with self._world.change(self._process, "write", name, torn):
            self._inner.write_new(name, data)
            self._world.on_commit(name, data)

    def output(self, name: str) -> Any:
        with contextlib.ExitStack() as opened:
            with self._world.change(self._process, "output", name):
                out = opened.enter_context(contextlib.closing(self._inner.output(name)))
            opened.pop_all()
            return out

    def sync(self, name: str) -> None:
        with self._world.change(self._process, "sync", name):
            self._inner.sync(name)

    def make(self, name: str) -> None:
        with self._world.change(self._process, "make", name):
            self._inner.make(name)

    def move(self, name: str, to: str) -> None:
        def torn() -> None:  # as where moving is copying and deleting
            self._inner.make(os.path.dirname(to))
            with contextlib.suppress(FileExistsError):
                os.link(self._root / name, self._root / to)

        with self._world.change(self._process, "move to", to, torn):
            self._inner.move(name, to)

    def link(self, name: str, to: str) -> None:
        with self._world.change(self._process, "link", to):
            self._inner.link(name, to)

    def exchange(self, name: str, other: str) -> None:
        with self._world.change(self._process, "exchange with", other):
            self._inner.exchange(name, other)

    def remove(self, name: str) -> None:
        def torn() -> None:
            path = self._root / name
            for below in sorted(path.iterdir()) if path.is_dir() else []:
                if self._world.random.random() < 0.5:
                    self._inner.remove(str(below.relative_to(self._root)))

        with self._world.change(self._process, "remove", name, torn):
            self._inner.remove(name)

    @contextlib.contextmanager
    def lock(self, name: str, *, wait: bool, shared: bool = False) -> Iterator[None]:
        with self._world.change(self._process, "lock", name):
            path = self._root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        self._world.acquire(self._process, name, shared, wait)
        try:
            if not (self._root / name).exists():  # removed by the one who had it before
                (self._root / name).touch()
            self._process.pause()
            yield
        finally:
            self._world.release(self._process, name, shared)


class SimulatedLog(DeltaLog):
    """Delta's log for one process. What delta-rs does in one step is one here."""

    def __init__(self, process: Process) -> None:
        super().__init__(str(process.world.root))
        self._process = process

    def create(self) -> None:
        with self._process.world.change(self._process, "create", "_delta_log"):
            super().create()

    def number(self) -> int:
        self._process.pause()
        return super().number()

    def files(self) -> list[LakeFile]:
        self._process.pause()
        return super().files()

    def _enter(self, number: int, files: list[CommittedFile]) -> None:
        with self._process.world.change(self._process, "enter", "_delta_log"):
            super()._enter(number, files)
