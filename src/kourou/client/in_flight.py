"""Back-pressure: a limit of the messages and bytes in flight."""

import asyncio
from collections import deque


class InFlightLimit:
    """Counts the messages in flight. A caller that would exceed the limit waits; waiting callers take turns in order.

    A message larger than the whole byte limit is let through alone: otherwise it could never be sent.
    """

    def __init__(self, count_max: int, size_max: int) -> None:
        self._count_max = count_max
        self._size_max = size_max
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.count = 0
        self.size = 0

    def has_room(self, size: int) -> bool:
        """Whether a message of this size may be sent now, without overtaking a waiting caller."""
        return not self._waiters and self._fits(size)

    def _fits(self, size: int) -> bool:
        return self.count == 0 or (self.count < self._count_max and self.size + size <= self._size_max)

    def enter(self, size: int) -> None:
        """Counts one more message; `leave` must follow."""
        self.count += 1
        self.size += size

    def leave(self, size: int) -> None:
        self.count -= 1
        self.size -= size
        if self._waiters:
            self._wake()

    async def wait(self, size: int) -> None:
        """Wait for room, then enter. If cancelled, nothing is entered."""
        if self.has_room(size):
            self.enter(size)
            return
        is_next = False
        while True:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if is_next:  # there was not enough room for it: it is still the next one
                self._waiters.appendleft(future)
            else:
                self._waiters.append(future)
            try:
                await future
            except asyncio.CancelledError:
                if future in self._waiters:
                    self._waiters.remove(future)
                else:
                    self._wake()  # let the next waiter enter
                raise
            if self._fits(size):
                self.enter(size)
                if self._waiters and self._fits(0):
                    self._wake()
                return
            is_next = True

    def _wake(self) -> None:
        while self._waiters:
            future = self._waiters.popleft()
            if not future.done():
                future.set_result(None)
                return

    async def drained(self, timeout: float) -> bool:
        """Wait until nothing is in flight; False if that takes longer than `timeout` seconds."""
        deadline = asyncio.get_running_loop().time() + timeout
        while self.count:
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(0.005)
        return True
