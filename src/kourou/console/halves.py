"""Which half messages are open. Brokers store this in op records: the offsets of half messages that ended.

A half message whose producer was asked is stored again. The check of transactions has then passed the older copy: the
committed offset of its group is the progress of the check.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Final

from kourou.client import Delivery
from kourou.client.pull_consumer import PullConsumer
from kourou.console.errors import ConsoleError
from kourou.console.facts import Look
from kourou.protocol.errors import BodyError, KourouError
from kourou.protocol.message import MessageQueue
from kourou.protocol.system_names import HALF_OP_TOPIC, HALF_TOPIC, TOOLS_GROUP, TRANSACTION_GROUP

TAG: Final = "d"
BATCH: Final = 32
RECORDS_MAX: Final = 5000
"""Records that are read for one page of half messages."""
SECONDS_MAX: Final = 2.0

Place = tuple[str, int, int]
"""Broker, queue, offset."""


async def open_halves(look: Look, messages: Iterable[Delivery]) -> Mapping[Place, bool | None]:
    """Whether each is open, by its place; None if not all records were read."""
    pages: dict[MessageQueue, list[Delivery]] = {}
    for one in messages:
        pages.setdefault(MessageQueue(HALF_OP_TOPIC, one.queue.broker_name, one.queue_id), []).append(one)
    if not pages:
        return {}
    passed = await _passed(look)
    consumer = look.mq.pull(group=TOOLS_GROUP)
    until = time.monotonic() + SECONDS_MAX
    left = RECORDS_MAX
    found: dict[Place, bool | None] = {}
    for queue, halves in pages.items():
        try:
            ended, read, is_complete = await _ended(consumer, queue, halves, left, until)
        except KourouError:
            ended, read, is_complete = set(), 0, False
        left -= read
        for half in halves:
            is_passed = half.queue_offset < passed.get((half.queue.broker_name, half.queue_id), 0)
            is_open = True if is_complete else None
            found[place_of(half)] = False if is_passed or half.queue_offset in ended else is_open
    return found


async def _passed(look: Look) -> dict[tuple[str, int], int]:
    """The progress of the check of transactions, by broker and queue."""
    try:
        queues = (await look.progress(TRANSACTION_GROUP)).queues
    except (KourouError, ConsoleError):
        return {}
    return {
        (queue.broker_name, queue.queue_id): state.consumer_offset
        for queue, state in queues.items()
        if queue.topic == HALF_TOPIC
    }


def place_of(half: Delivery) -> Place:
    return half.queue.broker_name, half.queue_id, half.queue_offset


async def _ended(
    consumer: PullConsumer, queue: MessageQueue, halves: list[Delivery], left: int, until: float
) -> tuple[set[int], int, bool]:
    """Offsets of half messages that ended since the oldest of these, the number of records read, and whether all."""
    at = await consumer.search_offset(queue, min(half.stored_ms for half in halves) / 1000)
    end = await consumer.max_offset(queue)
    ended: set[int] = set()
    read = 0
    while at < end and read < left and time.monotonic() < until:
        batch = await consumer.pull(queue, at, count=BATCH, bulk=True)
        for record in batch.messages:
            ended.update(offsets_in(record))
        read += len(batch.messages)
        if batch.next_offset <= at:
            break
        at = batch.next_offset
    return ended, read, at >= end


def offsets_in(record: Delivery) -> list[int]:
    """Decimal numbers with commas. Apache's 4.9 writes one without a comma."""
    if record.tag != TAG:
        return []
    try:
        words = record.body.decode("ascii", "replace").split(",")
    except BodyError:
        return []
    return [int(word) for word in words if word.isascii() and word.isdigit() and len(word) <= 19]
