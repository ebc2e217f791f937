"""Tables that survive a restart: which have changed, which are being written, and which requests wait for that.

    touch ─▶ due ─▶ encoded in slices ─▶ Save effect ─▶ (worker) ─▶ Saved ─▶ waiting requests are answered

One write of a table runs at a time. Changes that arrive meanwhile share the next one, so a burst of new topics costs a
few writes and not one each. A failed write is retried at the next tick; requests that wait for it are answered after
`PATIENCE_MS`: the change was made, but is not durable.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kourou.broker.events import Outbox, Save
from kourou.store.metadata import MetadataFile
from kourou.turns import Slices, Turns

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_MS = 1_000
PATIENCE_MS = 3_000


@dataclass(slots=True)
class _Waiter:
    version: int
    deadline_ms: int
    done: Callable[[str | None], None]


@dataclass(slots=True, eq=False)
class _Table(Generic[T]):
    file: MetadataFile[T]
    value: Callable[[], T]
    interval_ms: int  # how long changes may gather before they are written; 0: not at all
    changed: int = 0  # counts changes
    written: int = 0  # the change up to which the file is up to date
    writing: bool = False
    not_before_ms: int = 0
    problem: str | None = None
    waiters: list[_Waiter] = field(default_factory=list)


class Persistence:
    """All tables of one broker."""

    def __init__(self, outbox: Outbox, turns: Turns | None = None) -> None:
        """`turns`: where tables are encoded in slices; without, each at once."""
        self._outbox = outbox
        self._turns = turns or Turns()
        self._tables: dict[str, _Table[Any]] = {}
        self._dirty: dict[str, None] = {}  # names, in the order of their changes
        self.total = 0  # grows with each change of a table that requests may wait for
        self.also_safe: Callable[[int, Callable[[str | None], None]], None] | None = None
        """In a group, changes must be committed, too: as `when_safe`."""

    def add(self, name: str, file: MetadataFile[T], value: Callable[[], T], interval_ms: int = 0) -> None:
        """Add a table with the content of `value`. `interval_ms`: collect changes that long; no request waits."""
        self._tables[name] = _Table(file, value, interval_ms)

    def touch(self, name: str) -> None:
        """A table has changed."""
        table = self._tables[name]
        table.changed += 1
        self.total += not table.interval_ms
        self._dirty[name] = None

    def changes(self, name: str) -> int:
        """How often a table has changed."""
        return self._tables[name].changed

    def when_safe(self, now_ms: int, done: Callable[[str | None], None]) -> None:
        """Call `done` once all changes so far are durable; with the reason, if they are not in time."""
        waiting = [table for table in self._tables.values() if not table.interval_ms and table.written < table.changed]
        if not waiting and self.also_safe is None:
            done(None)
            return
        left, problem = len(waiting) + (self.also_safe is not None), None

        def one(reason: str | None) -> None:
            nonlocal left, problem
            left -= 1
            problem = problem or reason
            if not left:
                done(problem)

        for table in waiting:
            table.waiters.append(_Waiter(table.changed, now_ms + PATIENCE_MS, one))
        if self.also_safe is not None:
            self.also_safe(now_ms, one)

    def due_ms(self, _now_ms: int) -> int | None:
        """When a table is due to be written, or a waiting request times out; None: neither."""
        times = [self._tables[name].not_before_ms for name in self._dirty if not self._tables[name].writing]
        times += [table.waiters[0].deadline_ms for table in self._tables.values() if table.waiters]
        return min(times, default=None)

    def step(self, now_ms: int, *, all_of_them: bool = False) -> None:
        """Write the tables that are due; with `all_of_them`, all changed tables."""
        for name in list(self._dirty):
            table = self._tables[name]
            if not table.writing and (all_of_them or now_ms >= table.not_before_ms):
                table.writing = True
                table.not_before_ms = now_ms + table.interval_ms
                self._dirty.pop(name, None)
                self._turns.start(table, self._encode(name, table))

    def _encode(self, name: str, table: _Table[Any]) -> Slices[None]:
        version = table.changed  # later changes may be in the content as well, and are written again
        content = yield from table.file.encode_slices(table.value())
        self._outbox.put(Save(name, version, table.file, content))

    def saved(self, name: str, version: int, error: str | None, now_ms: int) -> None:
        table = self._tables[name]
        table.writing = False
        before, table.problem = table.problem, error
        if error is not None:
            if error != before:  # each cause once, not for each attempt
                log.error("%s could not be written; this will be retried: %s", name, error)
            self._dirty[name] = None
            table.not_before_ms = now_ms + RETRY_MS
            return
        if before is not None:
            log.warning("%s has been written, after an earlier failure: %s", name, before)
        table.written = version
        ready = [waiter for waiter in table.waiters if waiter.version <= version]
        table.waiters = [waiter for waiter in table.waiters if waiter.version > version]
        for waiter in ready:
            waiter.done(None)

    def write_all(self) -> None:
        """Write all changed tables in this thread; failures are logged."""
        for table in self._tables.values():
            if table.written < table.changed:
                try:
                    table.file.write(table.file.encode(table.value()))
                    table.written = table.changed
                except OSError as error:
                    log.error("%s could not be written, so its last changes are lost: %s", table.file.path, error)
        self._dirty.clear()

    def give_up_waiting(self, now_ms: int) -> None:
        """Answer the requests that have waited for `PATIENCE_MS`."""
        for name, table in self._tables.items():
            if table.waiters and table.waiters[0].deadline_ms <= now_ms:
                late = [waiter for waiter in table.waiters if waiter.deadline_ms <= now_ms]
                table.waiters = [waiter for waiter in table.waiters if waiter.deadline_ms > now_ms]
                if table.problem is None:
                    told = f"{name} were not written within {PATIENCE_MS // 1000} s; the change may be lost in a crash"
                else:
                    told = f"{name} can't be written: {table.problem}"
                for waiter in late:
                    waiter.done(told)

    @property
    def is_settled(self) -> bool:
        return not self._dirty and not any(table.writing for table in self._tables.values())
