"""Messages that are ready to be taken, and the tasks that wait for one."""

import asyncio
from collections import deque

from kourou.client.delivery import Delivery


class ReadyMessages:
    """A queue in memory. Each message wakes one of the tasks that wait."""

    def __init__(self) -> None:
        self.messages: deque[Delivery] = deque()
        self._takers: deque[asyncio.Future[None]] = deque()

    def offer(self, deliveries: list[Delivery]) -> None:
        self.messages.extend(deliveries)
        self._wake(len(deliveries))

    async def wait(self) -> None:
        """Until there is a message, or `wake_all` is called. Another task may take the message first."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._takers.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future in self._takers:
                self._takers.remove(future)
            elif self.messages:
                self._wake(1)  # let the next waiter take the message
            raise

    def wake_all(self) -> None:
        self._wake(len(self._takers))

    def _wake(self, count: int) -> None:
        while count > 0 and self._takers:
            future = self._takers.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1
