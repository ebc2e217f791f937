"""Messages of a topic as they arrive, without joining a group and without commits: no consumer is affected.

All queues are pulled, each by a task; new queues are noticed. For `kourou tail` and the console.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Final, Literal

from kourou.client.delivery import Delivery
from kourou.client.errors import ClientError
from kourou.client.pull_consumer import PullConsumer
from kourou.client.pulling import PullStatus
from kourou.protocol.errors import KourouError
from kourou.protocol.message import MessageQueue

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 15.0
ROUTE_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 1.0
HELD_MAX: Final = 1000
"""Messages that are read and not taken yet; reading pauses then."""

TailStart = Literal["first", "last"] | datetime | float
"""The first message that is stored, only new ones, or those stored at a time (seconds since 1970) or later."""


class NoSuchQueueError(ClientError):
    """The topic does not have the queue that was asked for."""


class Tail:
    """The messages of a topic. With `behind_max`, a queue that is further behind is skipped to its end."""

    def __init__(
        self,
        consumer: PullConsumer,
        topic: str,
        *,
        start: TailStart = "last",
        tags: str | None = None,
        sql: str | None = None,
        queue: int | None = None,
        follow: bool = True,
        behind_max: int | None = None,
        count: int = 32,
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._start = start
        self._tags = tags
        self._sql = sql
        self._queue = queue
        self._follow = follow
        self._behind_max = behind_max
        self._count = count
        self._found: asyncio.Queue[Delivery] = asyncio.Queue(maxsize=HELD_MAX)
        self._readers: dict[MessageQueue, asyncio.Task[None]] = {}
        self.skipped = 0
        """Messages that were not read because their queue was too far behind."""

    async def messages(self) -> AsyncGenerator[Delivery, None]:
        """In the order in which they arrive. Ends when all are read, unless it follows.

        Raises NoSuchQueueError, NoRouteError, and what pulling raises.
        """
        start = self._start
        try:
            while True:
                await self._begin_queues(start)
                start = "first"  # queues that come later are read from their beginning
                until = asyncio.get_running_loop().time() + ROUTE_SECONDS
                async for message in self._taken(until):
                    yield message
                self._raise_faults()
                if not self._follow and all(task.done() for task in self._readers.values()) and self._found.empty():
                    return
        finally:
            for task in self._readers.values():
                task.cancel()
            await asyncio.gather(*self._readers.values(), return_exceptions=True)

    async def _begin_queues(self, start: TailStart) -> None:
        try:
            found = await self._consumer.queues(self._topic)
        except KourouError as error:
            if not self._follow or not self._readers or not error.retriable:
                raise
            log.info("the queues of topic %s are those known before: %s", self._topic, error)
            return
        queues = [queue for queue in found if self._queue in (None, queue.queue_id)]
        if self._queue is not None and not queues and not self._readers:
            raise NoSuchQueueError(f"{self._topic} has no queue {self._queue}")
        is_later = bool(self._readers)
        for queue in queues:
            if queue not in self._readers:
                self._readers[queue] = asyncio.create_task(self._read(queue, start, is_later))

    async def _taken(self, until: float) -> AsyncGenerator[Delivery, None]:
        """The messages that the readers found, until a time, or until all readers have ended."""
        loop = asyncio.get_running_loop()
        while (left := until - loop.time()) > 0:
            looking = [task for task in self._readers.values() if not task.done()]
            failed = any(task.done() and task.exception() is not None for task in self._readers.values())
            if self._found.empty() and (failed or not looking):
                return
            if not self._found.empty():
                yield self._found.get_nowait()
                continue
            getting = asyncio.ensure_future(self._found.get())
            try:
                await asyncio.wait((getting, *looking), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not getting.done():
                    getting.cancel()
            if getting.done() and not getting.cancelled():
                yield getting.result()

    def _raise_faults(self) -> None:
        for task in self._readers.values():
            if task.done() and (error := task.exception()) is not None:
                raise error

    async def _first_offset(self, queue: MessageQueue, start: TailStart) -> int:
        if start == "first":
            return await self._consumer.min_offset(queue)
        if start == "last":
            return await self._consumer.max_offset(queue)
        return await self._consumer.search_offset(queue, start)

    async def _begin(self, queue: MessageQueue, start: TailStart, is_later: bool) -> int:
        """Where the queue is read from. If the broker of a queue that was found later fails, it is asked again."""
        while True:
            try:
                return await self._first_offset(queue, start)
            except KourouError as error:
                if not error.retriable or not is_later:
                    raise
                await asyncio.sleep(RETRY_SECONDS)

    async def _read(self, queue: MessageQueue, start: TailStart, is_later: bool) -> None:
        offset = await self._begin(queue, start, is_later)
        end = None if self._follow else await self._consumer.max_offset(queue)
        wait = POLL_SECONDS if self._follow else 0.0
        while end is None or offset < end:
            try:
                batch = await self._consumer.pull(
                    queue, offset, count=self._count, tags=self._tags, sql=self._sql, wait=wait
                )
            except KourouError as error:
                if not error.retriable or not self._follow:
                    raise
                await asyncio.sleep(RETRY_SECONDS)
                continue
            for message in batch.messages:
                await self._found.put(message)
            if not batch.messages and batch.next_offset == offset and not self._follow:
                return
            offset = batch.next_offset
            if self._behind_max is not None and batch.status is PullStatus.FOUND:
                behind = batch.max_offset - offset
                if behind > self._behind_max:
                    self.skipped += behind
                    offset = batch.max_offset


__all__ = ["NoSuchQueueError", "Tail", "TailStart"]
