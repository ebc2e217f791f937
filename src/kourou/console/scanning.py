"""Searches the messages of a topic in pages, the newest or the oldest first, and filters them.

All queues are read in parallel, in windows that grow while the filter accepts few messages, and merged by store time. A
page ends when it is full, when everything is read, or when it has read enough messages or taken enough time; its cursor
has the offset at which each queue continues, or is missing if everything is read. The cursor has only offsets, and is
validated like any other input. The bytes of a page are limited as well.
"""

import asyncio
import base64
import binascii
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from kourou.client import Client, Delivery
from kourou.client.pulling import PullStatus
from kourou.console.errors import ConsoleError
from kourou.console.filters import Filter
from kourou.console.limits import (
    PAGE_BYTES_MAX,
    PAGE_SCAN_MAX,
    PAGE_SECONDS_MAX,
    SCAN_MAX,
    SCAN_SECONDS_MAX,
    TURN_SECONDS,
)
from kourou.protocol.message import MessageQueue
from kourou.protocol.system_names import TOOLS_GROUP

WINDOW_MIN: Final = 16
WINDOW_MAX: Final = 2048
SMALL_PULL: Final = 32
CURSOR_SIZE_MAX: Final = 64 * 1024
QUEUES_MAX: Final = 4096


class Span(msgspec.Struct, array_like=True, frozen=True):
    """The unread part of a queue: offsets from `low` to before `high`."""

    broker: str
    queue: int
    low: int
    high: int


class Cursor(msgspec.Struct, frozen=True):
    """Where a search continues."""

    spans: list[Span]
    of: int
    ms: int = 0
    """Time that the search has taken since it began, or since it last reached its bound."""
    begun: int = 0
    """How many messages were read before that."""

    def encode(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> "Cursor":
        """Raises ConsoleError."""
        try:
            if len(text) > CURSOR_SIZE_MAX:
                raise ValueError("too long")
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            found = msgspec.json.decode(raw, type=cls)
            if len(found.spans) > QUEUES_MAX or any(not 0 <= one.low <= one.high < 2**63 for one in found.spans):
                raise ValueError("out of bounds")
            if found.ms < 0 or found.begun < 0:
                raise ValueError("out of bounds")
        except (ValueError, binascii.Error, msgspec.DecodeError) as error:
            raise ConsoleError("bad_request", f"the cursor is not valid: {error}", "begin the search again") from None
        return found

    @property
    def left(self) -> int:
        return sum(span.high - span.low for span in self.spans)


class Page(msgspec.Struct, frozen=True):
    """The messages found, and the rest of the search."""

    messages: list[Delivery]
    cursor: Cursor | None
    """None if everything is read."""
    scanned: int
    of: int
    stopped: str
    """limit: the page is full. end: everything is read. messages, time, size: the page has read enough, and the next
    one continues. bound: the search has reached its limit and continues only on request."""


class _Lane:
    """One queue of a search."""

    def __init__(self, topic: str, span: Span) -> None:
        self.queue = MessageQueue(topic, span.broker, span.queue)
        self.low = span.low
        self.high = span.high
        self.found: deque[Delivery] = deque()
        self.window = WINDOW_MIN
        self.window_max = WINDOW_MAX
        """Smaller if bodies are large."""

    @property
    def size(self) -> int:
        """Bytes of the bodies that wait here."""
        return sum(len(message.record.body) for message in self.found)

    @property
    def needs_more(self) -> bool:
        return not self.found and self.low < self.high

    def next_window(self, *, newest: bool) -> tuple[int, int]:
        size = self.window
        self.window = min(size * 2, self.window_max)
        return (max(self.low, self.high - size), self.high) if newest else (self.low, min(self.high, self.low + size))

    def put(self, begin: int, end: int, messages: list[Delivery], *, newest: bool) -> None:
        if newest:
            self.found.extend(reversed(messages))
            self.high = begin
        else:
            self.found.extend(messages)
            self.low = end

    def rest(self, *, newest: bool) -> Span:
        """The unread part, including messages that were found but not returned."""
        low, high = self.low, self.high
        if self.found:
            if newest:
                high = self.found[0].queue_offset + 1
            else:
                low = self.found[0].queue_offset
        return Span(self.queue.broker_name, self.queue.queue_id, low, high)


class Scan:
    """A search from a cursor on. Each `page` continues where the previous one ended."""

    def __init__(
        self,
        mq: Client,
        topic: str,
        wanted: Filter,
        cursor: Cursor,
        *,
        newest: bool,
        limit: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer = mq.pull(group=TOOLS_GROUP)
        self._wanted = wanted
        self._cursor = cursor
        self._newest = newest
        self._limit = limit
        self._clock = clock
        self._lanes = [_Lane(topic, span) for span in cursor.spans]
        self._read = 0

    async def page(self) -> Page:
        """The next page. Raises the errors of pulls."""
        began = self._clock()
        self._read = 0
        messages: list[Delivery] = []
        stopped = "end"
        while True:
            hungry = [lane for lane in self._lanes if lane.needs_more]
            if not hungry or len(messages) >= self._limit:
                messages += self._merged(self._limit - len(messages))
                stopped = "limit" if self._left() else "end"
                break
            if reason := self._enough(self._clock() - began, messages):
                messages += self._merged(self._limit - len(messages))
                stopped = reason
                break
            await asyncio.gather(*(self._feed(lane) for lane in hungry))
            if not any(lane.needs_more for lane in self._lanes):
                messages += self._merged_safely(self._limit - len(messages))
        was = self._cursor
        spent = was.ms + round((self._clock() - began) * 1000)
        spans = [lane.rest(newest=self._newest) for lane in self._lanes]
        cursor = Cursor([span for span in spans if span.low < span.high], was.of, spent, was.begun)
        scanned = max(cursor.of - cursor.left, 0)
        if stopped not in ("limit", "end") and (scanned - was.begun >= SCAN_MAX or spent >= SCAN_SECONDS_MAX * 1000):
            stopped = "bound"
            cursor = msgspec.structs.replace(cursor, ms=0, begun=scanned)
        self._cursor = cursor
        return Page(messages, cursor if cursor.spans else None, scanned, cursor.of, stopped if cursor.spans else "end")

    def _left(self) -> bool:
        return any(lane.found or lane.low < lane.high for lane in self._lanes)

    def _enough(self, seconds: float, messages: Sequence[Delivery]) -> str | None:
        done = self._cursor.of - self._cursor.left - self._cursor.begun
        if self._read >= PAGE_SCAN_MAX or done + self._read >= SCAN_MAX:
            return "messages"
        if seconds >= PAGE_SECONDS_MAX or self._cursor.ms / 1000 + seconds >= SCAN_SECONDS_MAX:
            return "time"
        kept = sum(len(message.record.body) for message in messages) + sum(lane.size for lane in self._lanes)
        return "size" if kept >= PAGE_BYTES_MAX else None

    def _merged_safely(self, most: int) -> list[Delivery]:
        """The messages that can be returned in order: as long as each queue has a message or is completely read."""
        taken: list[Delivery] = []
        while len(taken) < most and not any(lane.needs_more for lane in self._lanes):
            best = self._best()
            if best is None:
                break
            taken.append(best.found.popleft())
        return taken

    def _merged(self, most: int) -> list[Delivery]:
        taken: list[Delivery] = []
        while len(taken) < most and (best := self._best()) is not None:
            taken.append(best.found.popleft())
        return taken

    def _best(self) -> _Lane | None:
        with_messages = [lane for lane in self._lanes if lane.found]
        if not with_messages:
            return None
        choose = max if self._newest else min
        return choose(with_messages, key=lambda lane: lane.found[0].stored_ms)

    async def _feed(self, lane: _Lane) -> None:
        begin, end = lane.next_window(newest=self._newest)
        most = PAGE_BYTES_MAX // len(self._lanes)
        found: list[Delivery] = []
        size = 0
        at = begin
        since = self._clock()
        while at < end:
            count = end - at
            batch = await self._consumer.pull(lane.queue, at, count=count, bulk=count > SMALL_PULL)
            for message in batch.messages:
                if message.queue_offset < end and self._wanted.matches(message):
                    found.append(message)
                    size += len(message.record.body)
                if self._clock() - since > TURN_SECONDS:
                    await asyncio.sleep(0)
                    since = self._clock()
            self._read += min(batch.next_offset, end) - at if batch.next_offset > at else end - at
            if batch.status is PullStatus.NOTHING_NEW or batch.next_offset <= at:
                break
            at = batch.next_offset
            if size > most and at < end:
                lane.window = lane.window_max = max(most * (at - begin) // size, 1)
                if not self._newest:
                    end = at  # the rest of the window is read after these are returned
                else:  # the newest are at its end: it begins later
                    begin = at = max(at, end - lane.window)
                    found, size = [], 0
        lane.put(begin, end, found, newest=self._newest)


async def first_cursor(
    mq: Client, topic: str, ends: Mapping[MessageQueue, tuple[int, int]], since_ms: int | None, until_ms: int | None
) -> Cursor:
    """The cursor of a search in all stored messages, or in those of a period. `ends`: first and next offset."""
    consumer = mq.pull(group=TOOLS_GROUP)

    async def span(queue: MessageQueue, low: int, high: int) -> Span:
        if since_ms is not None and low < high:
            low = max(low, await consumer.search_offset(queue, since_ms / 1000))
        if until_ms is not None and low < high:
            high = min(high, await consumer.search_offset(queue, (until_ms + 1) / 1000))
        return Span(queue.broker_name, queue.queue_id, low, max(low, high))

    queues: Sequence[MessageQueue] = await consumer.queues(topic)
    known = [(queue, *ends[queue]) for queue in queues if queue in ends]
    spans = await asyncio.gather(*(span(*one) for one in known))
    return Cursor(list(spans), sum(one.high - one.low for one in spans))
