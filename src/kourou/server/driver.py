"""Drives a machine: passes it events and the time, performs its effects, and wakes it when something is due.

    events ─▶ step ─▶ effects, performed in order ─▶ events that these cause ─▶ step ─▶ …
    wake_ms ─▶ timer ─▶ Tick          is_busy ─▶ Turn, after all connections with received bytes were served

Name server and broker are driven the same way: their machines have no clock, sockets or threads. The process that uses
the driver defines how effects are performed.

The driver continues after any failure: if an effect raises, the next ones are still performed, and the timer is set
again. Each failure is reported to `on_fault`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

E = TypeVar("E")  # an event
F = TypeVar("F")  # an effect

NEVER = 1 << 62
CANCEL_S = 1.0
"""How long cancelled tasks may take to end."""

AFTER_FAULT_MS = 100
"""How long the timer pauses after a failed step, since the machine's due time may be wrong then."""


class Machine(Protocol[E, F]):
    """The interface of a machine for its driver."""

    def step(self, events: list[E], now_ms: int) -> list[F]:
        """Process events, and return the effects to perform."""

    @property
    def is_busy(self) -> bool:
        """Whether unfinished work waits for a Turn."""

    @property
    def wake_ms(self) -> int:
        """The latest time at which a Tick is due."""


class Driver(Generic[E, F]):
    """Drives one machine in one event loop."""

    def __init__(
        self,
        machine: Machine[E, F],
        perform: Callable[[F], None],
        *,
        now_ms: Callable[[], int],
        tick: E,
        turn: E,
        on_fault: Callable[[str, Exception], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._machine = machine
        self._perform = perform
        self._now_ms = now_ms
        self._tick = tick
        self._turn = turn
        self._on_fault = on_fault
        self._events: list[E] = []  # that arrived while effects were performed
        self._is_performing = False
        self._turn_due = False  # long work continues in the next turn of the event loop
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NEVER  # when it fires
        self._not_before_ms = 0  # when it may fire again after a failure
        self._is_resting = False  # no more ticks
        self._is_closed = False  # no more steps

    def step(self, events: list[E]) -> None:
        """Pass events to the machine. Events that arrive while effects are performed wait for the next step."""
        if self._is_closed:
            return
        self._events += events
        if not self._is_performing:
            self._go_on()

    def perform(self, effects: list[F]) -> None:
        """Perform effects that did not come from a step, and process the events that they cause."""
        self._perform_all(effects)
        machine = self._machine
        if self._events or machine.is_busy or machine.wake_ms < self._timer_ms:
            self._go_on()

    def rest(self) -> None:
        """Stop ticks, because the process is about to stop. Events are still accepted, and long work is finished."""
        self._is_resting = True
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        """Stop steps, because the machine now belongs to another thread."""
        self.rest()
        self._is_closed = True

    def _go_on(self) -> None:
        machine = self._machine
        while self._events:
            events, self._events = self._events, []
            now_ms = self._now_ms()
            try:
                effects = machine.step(events, now_ms)
            except Exception as error:
                self._not_before_ms = now_ms + AFTER_FAULT_MS
                self._on_fault("a step", error)
            else:
                self._perform_all(effects)
        if machine.is_busy and not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._take_turn)
        if machine.wake_ms < self._timer_ms:
            self._set_timer()

    def _perform_all(self, effects: list[F]) -> None:
        self._is_performing = True
        for effect in effects:
            try:
                self._perform(effect)
            except Exception as error:  # the effects for other peers are still performed
                self._on_fault(f"the effect {type(effect).__name__}", error)
        self._is_performing = False

    def _take_turn(self) -> None:
        """Run a slice of long work, after all connections with received bytes were served."""
        self._turn_due = False
        self.step([self._turn])

    def _set_timer(self) -> None:
        if self._is_resting:
            return
        if self._timer is not None:
            self._timer.cancel()
        now_ms = self._now_ms()
        self._timer_ms = max(self._machine.wake_ms, self._not_before_ms, now_ms)
        self._timer = self._loop.call_later((self._timer_ms - now_ms) / 1000, self._fire)

    def _fire(self) -> None:
        """The timer has fired. The step sets it again, even after a failure."""
        self._timer, self._timer_ms = None, NEVER
        self.step([self._tick])


class Tasks:
    """The asynchronous tasks of a process."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self, grace: float) -> None:
        """Wait up to `grace` seconds for running tasks and those that they start; then cancel them."""
        clock = asyncio.get_running_loop().time
        until = clock() + grace
        while self._tasks and (left := until - clock()) > 0:
            await asyncio.wait(self._tasks, timeout=left)
        cancelled = list(self._tasks)
        for task in cancelled:
            task.cancel()
        if cancelled:
            await asyncio.wait(cancelled, timeout=CANCEL_S)  # they close their connections
