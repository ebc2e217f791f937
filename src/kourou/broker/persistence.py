"""Tables that survive a restart: which have changed, which are being written, and who waits until they are safe.

    touch ─▶ due ─▶ encoded in slices ─▶ Save effect ─▶ (worker) ─▶ Saved ─▶ who waited is answered

One write of a table is under way at a time. Changes that come meanwhile share the next one, so a storm of new topics
costs a few writes and not one each. A write that fails is tried again at the next tick; whoever waits for it is told
after `PATIENCE_MS` that the change stands and is not safe.
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
        self.total = 0  # grows with each change of a table that somebody may wait for

    def add(self, name: str, file: MetadataFile[T], value: Callable[[], T], interval_ms: int = 0) -> None:
        """A table whose content `value` gives. `interval_ms`: changes gather for as long, and nobody waits for them."""
        self._tables[name] = _Table(file, value, interval_ms)

    def touch(self, name: str) -> None:
        """A table has changed."""
        table = self._tables[name]
        table.changed += 1
        self.total += not table.interval_ms
        self._dirty[name] = None

    def when_safe(self, now_ms: int, done: Callable[[str | None], None]) -> None:
        """Call `done` once all changes so far are safe; with the reason, if they are not in time."""
        waiting = [table for table in self._tables.values() if not table.interval_ms and table.written < table.changed]
        if not waiting:
            done(None)
            return
        left, problem = len(waiting), None

        def one(reason: str | None) -> None:
            nonlocal left, problem
            left -= 1
            problem = problem or reason
            if not left:
                done(problem)

        for table in waiting:
            table.waiters.append(_Waiter(table.changed, now_ms + PATIENCE_MS, one))

    def step(self, now_ms: int, *, all_of_them: bool = False) -> None:
        """Write what is due; with `all_of_them`, whatever has changed."""
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
            if error != before:  # each cause once, and not once per try
                log.error("%s not written, which is retried: %s", name, error)
            self._dirty[name] = None
            table.not_before_ms = now_ms + RETRY_MS
            return
        if before is not None:
            log.warning("%s written again, after it failed: %s", name, before)
        table.written = version
        ready = [waiter for waiter in table.waiters if waiter.version <= version]
        table.waiters = [waiter for waiter in table.waiters if waiter.version > version]
        for waiter in ready:
            waiter.done(None)

    def write_all(self) -> None:
        """Write here and now whatever the files do not have; what can't be written is logged."""
        for table in self._tables.values():
            if table.written < table.changed:
                try:
                    table.file.write(table.file.encode(table.value()))
                    table.written = table.changed
                except OSError as error:
                    log.error("%s not written, its last changes are lost: %s", table.file.path, error)
        self._dirty.clear()

    def give_up_waiting(self, now_ms: int) -> None:
        """Tell those whose patience is over."""
        for name, table in self._tables.items():
            if table.waiters and table.waiters[0].deadline_ms <= now_ms:
                late = [waiter for waiter in table.waiters if waiter.deadline_ms <= now_ms]
                table.waiters = [waiter for waiter in table.waiters if waiter.deadline_ms > now_ms]
                reason = table.problem or "it takes too long"
                for waiter in late:
                    waiter.done(f"{name} can't be written: {reason}")

    @property
    def is_settled(self) -> bool:
        return not self._dirty and not any(table.writing for table in self._tables.values())
