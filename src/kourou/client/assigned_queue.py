"""One queue that is assigned to a consumer: its unsettled messages, and whether it may be pulled and consumed."""

import asyncio
from collections import deque
from collections.abc import Iterable

from kourou.client import naming
from kourou.client.delivery import Delivery
from kourou.client.unsettled import Unsettled
from kourou.protocol.codes import MASTER_ID
from kourou.protocol.message import MessageQueue

LOCK_VALID_S = 30.0
"""How long a lock is valid here. Brokers keep it for 60 seconds, so it ends here before another client can get it."""


class AssignedQueue:
    """State of one queue. Changed by the consumer alone."""

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.unsettled = Unsettled()
        self.next_offset = -1  # where the next pull begins; -1 until known
        self.broker_id = MASTER_ID  # which member of the broker group to pull from
        self.dropped = False  # no longer assigned to us: its messages and offsets have no effect
        self.paused = False  # by the user
        self.puller: asyncio.Task[None] | None = None
        self.in_hand: dict[int, Delivery] = {}  # messages handed out and not settled, by offset

        # Orderly consumption: messages wait here until those before them are done.
        self.waiting: deque[Delivery] = deque()
        self.offered = 0  # offered to be taken, and not settled
        self.again: list[Delivery] = []  # failed, to be offered again
        self.resting: asyncio.TimerHandle | None = None  # the timer after which they are
        self.locked_at = -LOCK_VALID_S  # when the broker last gave us the lock
        self.before: AssignedQueue | None = None  # an earlier assignment, of which a message is being processed

        # For `running_info`.
        self.last_pull = 0.0
        self.last_consume = 0.0

        self._room: asyncio.Future[None] | None = None

    def is_locked(self, now: float) -> bool:
        return now - self.locked_at < LOCK_VALID_S

    def follows_busy(self) -> bool:
        """Whether a message of an earlier assignment of this queue is still being processed here."""
        while self.before is not None and not self.before.in_hand:
            self.before = self.before.before
        return self.before is not None

    async def wait_changed(self, timeout: float) -> None:
        """Wait until messages are settled, or another change; at most `timeout` seconds."""
        if self._room is None or self._room.done():
            self._room = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._room], timeout=timeout)

    def changed(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def drop(self) -> None:
        """Gives the queue up: work that is still under way for it has no effect."""
        self.dropped = True
        if self.resting is not None:
            self.resting.cancel()
            self.resting = None
        if self.puller is not None:
            self.puller.cancel()
        self.waiting.clear()
        self.again.clear()
        self.changed()


def visible(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """The queues that are shown to users, sorted: all but those of retry topics."""
    return sorted(queue for queue in queues if not queue.topic.startswith(naming.RETRY_PREFIX))
