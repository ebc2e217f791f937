"""Selects the dead letters of a group for a redrive: those of a search, or those at given positions.

Only positions are kept. The letters are read when they are counted, and again when they are sent, a page at a time, so
that memory does not grow with their number.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Final

import msgspec

from kourou.client import Client, Delivery
from kourou.client.admin.dead_letters import ORIGIN, TO_RETRY, origin_topic
from kourou.console.errors import ConsoleError
from kourou.console.filters import Filter
from kourou.console.limits import PAGE_MESSAGES_MAX
from kourou.console.scanning import Cursor, Scan
from kourou.protocol.message import MessageQueue
from kourou.protocol.system_names import DEAD_LETTER_PREFIX, RETRY_PREFIX, TOOLS_GROUP

RUN_MAX: Final = 32
"""The range of offsets of one pull, since brokers limit an answer to this many messages."""


class LetterPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a dead letter is stored."""

    broker: str
    queue: int
    offset: str


class Choice(msgspec.Struct, frozen=True):
    """A search from a cursor on, or places."""

    topic: str
    wanted: Filter
    cursor: Cursor
    places: Sequence[tuple[MessageQueue, int]] | None = None
    """Sorted, each once."""


class Tally(msgspec.Struct, frozen=True):
    """The counts of a choice. `by_origin`: the number of letters, and how many of them were redriven before."""

    by_origin: dict[str | None, tuple[int, int]]
    read: int
    of: int
    missing: int = 0
    """Places without a letter."""

    @property
    def is_complete(self) -> bool:
        return self.read >= self.of

    @property
    def before(self) -> int:
        return sum(before for _, before in self.by_origin.values())

    def count(self, *, again: bool) -> int:
        """How many are sent."""
        return sum(count if again else count - before for count, before in self.by_origin.values())

    def targets(self, group_topic: str, target: str, *, again: bool) -> tuple[dict[str, int], int]:
        """How many are sent to each topic, and how many have no target."""
        counts: dict[str, int] = {}
        without = 0
        for origin, (count, before) in self.by_origin.items():
            left = count if again else count - before
            to: str | None = target
            if target == ORIGIN:
                to = origin
            elif target == TO_RETRY:
                to = None if origin is None else RETRY_PREFIX + group_topic.removeprefix(DEAD_LETTER_PREFIX)
            if to is None:
                without += left
            elif left:
                counts[to] = counts.get(to, 0) + left
        return counts, without


async def places_of(mq: Client, topic: str, given: Sequence[LetterPlace]) -> list[tuple[MessageQueue, int]]:
    """Raises ConsoleError for a queue that the topic does not have."""
    queues = {(one.broker_name, one.queue_id): one for one in await mq.pull(group=TOOLS_GROUP).queues(topic)}
    found: set[tuple[MessageQueue, int]] = set()
    for one in given:
        queue = queues.get((one.broker, one.queue))
        if queue is None or not (one.offset.isascii() and one.offset.isdigit() and len(one.offset) <= 18):
            place = f"{one.broker[:100]}:{one.queue}@{one.offset[:30]}"
            raise ConsoleError("bad_request", f"{place} is not a place of {topic}")
        found.add((queue, int(one.offset)))
    return sorted(found)


def runs(places: Sequence[tuple[MessageQueue, int]]) -> Iterator[tuple[MessageQueue, list[int]]]:
    """Offsets of one queue that one pull covers."""
    run: list[int] = []
    last: MessageQueue | None = None
    for queue, offset in places:
        if run and last is not None and (queue != last or offset - run[0] >= RUN_MAX):
            yield last, run
            run = []
        run.append(offset)
        last = queue
    if run and last is not None:
        yield last, run


async def pages(
    mq: Client, gate: asyncio.Semaphore, choice: Choice, stops: Callable[[str], bool]
) -> AsyncGenerator[tuple[list[Delivery], int], None]:
    """The letters, the oldest first, and how many positions were read so far.

    `stops(reason)`: whether a search ends there. The gate is acquired for each page only, so that it is free while the
    letters are processed.
    """
    if choice.places is not None:
        read = 0
        for queue, offsets in runs(choice.places):
            async with gate:
                found = await at_places(mq, queue, offsets)
            read += len(offsets)
            yield found, read
        return
    scan = Scan(mq, choice.topic, choice.wanted, choice.cursor, newest=False, limit=PAGE_MESSAGES_MAX)
    while True:
        async with gate:
            page = await scan.page()
        yield page.messages, page.scanned
        if page.cursor is None or stops(page.stopped):
            return


async def at_places(mq: Client, queue: MessageQueue, offsets: Sequence[int]) -> list[Delivery]:
    """The messages at these increasing offsets. Messages that are no longer stored are omitted."""
    consumer = mq.pull(group=TOOLS_GROUP)
    wanted = set(offsets)
    found: list[Delivery] = []
    at, end = offsets[0], offsets[-1] + 1
    while at < end:
        batch = await consumer.pull(queue, at, count=end - at)
        found += [message for message in batch.messages if message.queue_offset in wanted]
        if batch.next_offset <= at:
            break
        at = batch.next_offset
    return found


async def tally(mq: Client, gate: asyncio.Semaphore, choice: Choice, is_known: Callable[[Delivery], bool]) -> Tally:
    """Counts the letters, up to the bound of a search. `is_known`: whether a letter was redriven before."""
    counts: dict[str | None, tuple[int, int]] = {}
    read = found = 0
    async for letters, so_far in pages(mq, gate, choice, lambda reason: reason == "bound"):
        read = so_far
        for letter in letters:
            origin = origin_topic(letter.properties)
            count, before = counts.get(origin, (0, 0))
            counts[origin] = (count + 1, before + is_known(letter))
            found += 1
    of = choice.cursor.of if choice.places is None else len(choice.places)
    return Tally(counts, read, of, 0 if choice.places is None else of - found)
