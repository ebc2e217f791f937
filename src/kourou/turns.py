"""Work that is too long for one turn of the event loop: it runs in slices, and other requests are served in between.

    start ─▶ first slice ─▶ finished                        nearly all work is this short
                 └▶ waits ─▶ Turn ─▶ next slice ─▶ …      while `is_busy`, the driver sends a Turn per round of its loop

Work is a generator. It yields about every millisecond, or more often, the number of bytes that it holds. Other requests
see either all or none of its changes between two yields. A slice ends after `SLICE_NS`.

- Owners (a connection, a table) take turns, and the work of one owner is done in its order.
- After a slice, new work does not start at once until other requests have had as much time; it waits for a Turn. So a
  round of the loop has about one slice of long work, whatever the number of connections.
- When all work together holds more than `held_max` bytes, only the work that holds most continues until it is done.

The machine has no clock: `clock_ns` is a monotonic clock. Without it, all work is done at once.
"""

from collections import deque
from collections.abc import Callable, Generator, Hashable
from typing import Final, TypeAlias, TypeVar

R = TypeVar("R")

Slices: TypeAlias = Generator[int, None, R]
"""Work that yields the bytes it holds and returns an R."""

SLICE_NS: Final = 5_000_000


class _Task:
    __slots__ = ("held", "must_finish", "size", "spent_ns", "work")

    def __init__(self, work: Slices[None], size: int, must_finish: bool) -> None:
        self.work = work
        self.must_finish = must_finish
        self.size = size  # bytes of the request's body
        self.held = 0  # the bytes that it last yielded
        self.spent_ns = 0


class Turns:
    """All long work of one machine."""

    def __init__(
        self,
        clock_ns: Callable[[], int] = lambda: 0,
        held_max: Callable[[], int] = lambda: 64 * 1024 * 1024,
        on_fault: Callable[[Exception], None] | None = None,
    ) -> None:
        """`on_fault` is called with an exception of work, which is then ended; without it, the exception is raised."""
        self._on_fault = on_fault
        self._clock_ns = clock_ns
        self._held_max = held_max
        self._tasks: dict[Hashable, deque[_Task]] = {}  # by owner; the first is next
        self._rest_until_ns = 0  # no new work starts before this time
        self._running: _Task | None = None
        self.count = 0  # tasks that wait
        self.size = 0  # bytes of their requests' bodies
        self.held = 0  # bytes that they hold

    @property
    def is_busy(self) -> bool:
        """Unfinished work waits for a Turn."""
        return bool(self._tasks)

    def has(self, owner: Hashable) -> bool:
        """Does work of this owner wait for a Turn?"""
        return owner in self._tasks

    @property
    def spent_ns(self) -> int:
        """The time that the running work used in its earlier slices."""
        return 0 if self._running is None else self._running.spent_ns

    def start(self, owner: Hashable, work: Slices[None], size: int = 0, *, must_finish: bool = False) -> None:
        """Run work now, or let it wait if it can't be finished now. It should not raise.

        `must_finish`: it continues even if its owner is removed.
        """
        task = _Task(work, size, must_finish)
        now_ns = self._clock_ns()
        may_run = not self._tasks and self._running is None and now_ns >= self._rest_until_ns
        if may_run and self._run(task, now_ns + SLICE_NS):
            return
        self._tasks.setdefault(owner, deque()).append(task)
        self.count += 1
        self.size += size
        self.held += task.held

    def take_turn(self) -> None:
        """One slice: of one owner's work, or of several owners' if they are short."""
        until_ns = self._clock_ns() + SLICE_NS
        while self._tasks:
            self._run_next(until_ns)
            if self._clock_ns() >= until_ns:
                return

    def drop(self, owner: Hashable) -> None:
        """This owner's work is no longer needed."""
        tasks = self._tasks.pop(owner, None)
        if tasks is None:
            return
        for task in tasks:
            if not task.must_finish:
                self._forget(task)
                task.work.close()
        kept = deque(task for task in tasks if task.must_finish)
        if kept:
            self._tasks[owner] = kept

    def _run_next(self, until_ns: int) -> None:
        owner = self._next_owner()
        tasks = self._tasks.pop(owner)
        task = tasks[0]
        held = task.held
        finished = self._run(task, until_ns)
        self.held += task.held - held
        if finished:
            tasks.popleft()
            self._forget(task)
        if tasks:
            waiting = self._tasks.setdefault(owner, tasks)  # after all others
            if waiting is not tasks:  # the work itself started more for its owner
                tasks.extend(waiting)
                self._tasks[owner] = tasks

    def _next_owner(self) -> Hashable:
        if self.held > self._held_max():
            return max(self._tasks, key=lambda owner: self._tasks[owner][0].held)
        return next(iter(self._tasks))

    def _forget(self, task: _Task) -> None:
        self.count -= 1
        self.size -= task.size
        self.held -= task.held

    def _run(self, task: _Task, until_ns: int) -> bool:
        """Run a slice. True: that was the last one."""
        began_ns = now_ns = self._clock_ns()
        self._running = task
        try:
            while True:
                task.held = next(task.work)
                now_ns = self._clock_ns()
                if now_ns >= until_ns:
                    return False
        except StopIteration:
            now_ns = self._clock_ns()
            return True
        except Exception as error:
            if self._on_fault is None:
                raise
            self._on_fault(error)
            return True
        finally:
            self._running = None
            task.spent_ns += now_ns - began_ns
            self._rest_until_ns = now_ns + (now_ns - began_ns)


def at_once(work: Slices[R]) -> R:
    """Run all work now: for callers that have no requests to serve meanwhile."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: R = end.value
            return result
