"""The messages that a job has completed: a list of commits, each a file that exists completely or not at all.

    ledger = Ledger(open_folder("lake"), "_kourou")
    ledger.load()
    ledger.commit(Commit(job="archive", done=…, positions=…))

A commit has the offsets that it adds for each queue, so that another job skips these messages, whether it reads them
from the live topic or from store files. `positions` are where jobs continue to read; they only save work.

    commits/000000000017.json             the 17th commit
    commits/snapshot-000000000016.json    the sum of the first 16

Commits are written one at a time, under a lock. An offset can't be committed twice: such a commit is refused,
because another run was faster, and its files must not become visible. Commits that a snapshot covers are removed,
except the newest.

Every commit becomes visible. `show` makes visible what a commit adds, and a process may die between the two. So the
process with the lock calls `show` for the newest commit first, whichever process wrote it, and only then writes the
next: all commits but the newest are visible at any time, and the newest becomes visible when the ledger is next opened.
`show` accepts a commit that is already visible, completely or in part.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar

import msgspec

from kourou.protocol.message import MessageQueue
from kourou.spark.errors import SparkError
from kourou.spark.pipelines.folders import Folder
from kourou.spark.pipelines.intervals import Interval, merged, missing

SNAPSHOT_EVERY: Final = 64
KEPT: Final = 256
"""Commits that are kept beside a snapshot, so that users can examine them."""

_T = TypeVar("_T")

Done = dict[MessageQueue, list[Interval]]
NestedDone = dict[str, dict[str, dict[str, list[Interval]]]]


class ConflictError(SparkError):
    """Another run has committed the same offsets in the meantime."""


class CommittedFile(msgspec.Struct):
    """A file that a commit adds to a lake."""

    staged: str
    """Its name before it becomes visible."""
    path: str
    rows: int
    bytes: int
    replaces: list[str] = []
    """Paths of the files whose rows it has, and which are removed when it becomes visible."""
    bounds: dict[str, tuple[int, int]] = {}
    """The smallest and the largest value of columns, for formats whose readers use them."""


class Commit(msgspec.Struct, kw_only=True):
    """The result of one batch."""

    number: int = 0
    """From 1 on; set by `Ledger.commit`."""
    job: str
    run: str = ""
    at: str = ""
    """When; UTC."""
    done: NestedDone = {}
    positions: dict[str, int] = {}
    """By the name that a job gives to its source."""
    files: list[CommittedFile] = []


class Snapshot(msgspec.Struct):
    """The sum of the first commits."""

    number: int
    done: NestedDone
    positions: dict[str, int]


class Ledger:
    """The commits of one folder. `done` and `positions` are as of the last `load` or `commit`."""

    def __init__(self, folder: Folder, below: str, *, show: Callable[[Commit], None] | None = None) -> None:
        self._folder = folder
        self._commits = f"{below}/commits"
        self._lock = f"{below}/lock"
        self._show = show or (lambda _: None)
        self.number = 0
        self._newest: Commit | None = None  # the commit of that number, if it was read or written here
        self._shown = 0  # the newest commit that is known to be visible
        self.done: Done = {}
        self.positions: dict[str, int] = {}

    def load(self) -> None:
        """Read all commits, and make sure that they are visible. Raises SparkError for a commit that can't be read."""
        self._folder.make(self._commits)
        with self.locked():
            pass

    @contextmanager
    def locked(self, prepare: Callable[[], None] | None = None) -> Iterator[None]:
        """Meanwhile no other process commits; all commits are read, and visible. Raises SparkError, OSError.

        `prepare` is called before any commit is made visible.
        """
        with self._folder.lock(self._lock, wait=True):
            self._catch_up()
            if prepare is not None:
                prepare()
            self._settle()
            yield

    def commit(self, commit: Commit) -> Commit:
        """When this returns, the commit is durable and visible; after errors but ConflictError, `load` finds out.

        Raises ConflictError, OSError.
        """
        with self.locked():
            return self.append(commit)

    def append(self, commit: Commit) -> Commit:
        """As `commit`, for a caller that has `locked` the ledger."""
        self.check(from_nested_done(commit.done))
        commit.number = self.number + 1
        try:
            self._folder.write_new(f"{self._commits}/{_file(commit.number)}", msgspec.json.encode(commit))
        except FileExistsError:
            raise ConflictError(f"{self._folder.url}: another run is writing to it") from None
        self._add(commit)
        self._settle()
        if commit.number % SNAPSHOT_EVERY == 0:
            self._make_snapshot()
        return commit

    def kept(self) -> list[Commit]:
        """The newest commits, in order: those that were not removed after a snapshot."""
        return [self._commit(name) for name in self._folder.names(self._commits) if name[:1].isdigit()]

    def check(self, done: Mapping[MessageQueue, list[Interval]]) -> None:
        """Raises ConflictError for offsets that are done already."""
        for queue, intervals in done.items():
            here = self.done.get(queue, [])
            for start, end in intervals:
                if missing(start, end, here) != [(start, end)]:
                    raise ConflictError(
                        f"{self._folder.url}: messages {start} to {end - 1} of topic {queue.topic}, broker "
                        f"{queue.broker_name}, queue {queue.queue_id} are already archived: another run may be "
                        "writing to this lake"
                    )

    def _catch_up(self) -> None:
        names = self._folder.names(self._commits)
        snapshots = [name for name in names if name.startswith("snapshot-")]
        if snapshots and _number(snapshots[-1]) > self.number:
            snapshot = self._read(snapshots[-1], Snapshot)
            self.number, self.positions, self._newest = snapshot.number, snapshot.positions, None
            self.done = from_nested_done(snapshot.done)
        for name in names:
            if name[:1].isdigit() and _number(name) > self.number:
                if _number(name) != self.number + 1:
                    raise SparkError(f"{self._folder.url}/{self._commits}/{_file(self.number + 1)} is missing")
                self._add(self._commit(name))

    def _settle(self) -> None:
        """Make the newest commit visible. Earlier ones are: see above."""
        if self._shown == self.number:
            return
        name = _file(self.number)
        if self._newest is None and self._folder.exists(f"{self._commits}/{name}"):
            self._newest = self._commit(name)
        if self._newest is not None:
            self._show(self._newest)
        self._shown = self.number

    def _commit(self, name: str) -> Commit:
        return self._read(name, Commit)

    def _read(self, name: str, kind: type[_T]) -> _T:
        try:
            return msgspec.json.decode(self._folder.read(f"{self._commits}/{name}"), type=kind)
        except msgspec.DecodeError as error:
            raise SparkError(f"{self._folder.url}/{self._commits}/{name} is damaged: {error}") from None

    def _add(self, commit: Commit) -> None:
        for queue, intervals in from_nested_done(commit.done).items():
            self.done[queue] = merged([*self.done.get(queue, ()), *intervals])
        self.positions.update(commit.positions)
        self.number, self._newest = commit.number, commit

    def _make_snapshot(self) -> None:
        snapshot = Snapshot(self.number, to_nested_done(self.done), self.positions)
        name = f"snapshot-{_file(self.number)}"
        if not self._folder.exists(f"{self._commits}/{name}"):
            self._folder.write_new(f"{self._commits}/{name}", msgspec.json.encode(snapshot))
        for old in self._folder.names(self._commits):
            is_snapshot = old.startswith("snapshot-")
            is_torn = old.startswith(".")  # a process died while it wrote a commit
            is_counted = is_snapshot or old[:1].isdigit()
            if is_torn or (is_counted and _number(old) <= self.number - (1 if is_snapshot else KEPT)):
                self._folder.remove(f"{self._commits}/{old}")


def _file(number: int) -> str:
    return f"{number:012d}.json"


def _number(name: str) -> int:
    return int(name.removeprefix("snapshot-").removesuffix(".json"))


def to_nested_done(done: Mapping[MessageQueue, list[Interval]]) -> NestedDone:
    nested: NestedDone = {}
    for queue in sorted(done):
        if done[queue]:
            nested.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = done[queue]
    return nested


def from_nested_done(nested: NestedDone) -> Done:
    return {
        MessageQueue(topic, broker, int(queue)): intervals
        for topic, brokers in nested.items()
        for broker, queues in brokers.items()
        for queue, intervals in queues.items()
    }
