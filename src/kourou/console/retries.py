"""Failed messages that wait for their next attempt, by group.

A message that a consumer fails to process waits in SCHEDULE_TOPIC_XXXX until it is due, up to two hours. Only then is
it in the retry topic of its group, and part of the group's lag. Here the waiting records are counted by their target
topic. One count serves all groups and viewers; its records and time are limited.
"""

import time
from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from kourou.console.errors import ConsoleError
from kourou.console.facts import Look
from kourou.console.views.groups import Waiting
from kourou.console.views.values import long_in
from kourou.protocol.bodies import TopicOffset
from kourou.protocol.errors import KourouError
from kourou.protocol.message import MessageQueue
from kourou.protocol.properties import Property
from kourou.protocol.system_names import RETRY_PREFIX, SCHEDULE_TOPIC, TOOLS_GROUP

KEPT_SECONDS: Final = 15.0
RECORDS_MAX: Final = 5000
SECONDS_MAX: Final = 2.0
BATCH: Final = 512


class Counts(msgspec.Struct, frozen=True):
    """`counts`: records by their target topic. `unread`: records that were not examined."""

    counts: dict[str, int]
    unread: int = 0


async def waiting_retries(look: Look, group: str) -> Waiting:
    """Failed messages of a group that are not due yet, as they were some seconds ago."""
    found = await look.fact(("waiting retries",), KEPT_SECONDS, lambda: _count(look))
    return Waiting(found.counts.get(look.mq.session.wrap(RETRY_PREFIX + group), 0), found.unread)


async def _count(look: Look) -> Counts:
    try:
        ends = await look.topic_ends(SCHEDULE_TOPIC)
    except (KourouError, ConsoleError):
        return Counts({})  # no broker has delayed a message yet
    counts: Counter[str] = Counter()
    left = RECORDS_MAX
    unread = 0
    until = time.monotonic() + SECONDS_MAX
    for master in await look.masters():
        try:
            runtime = await look.runtime(master.address)
        except (KourouError, ConsoleError):
            continue
        for queue, begin, end in waiting_spans(master.name, runtime, ends):
            read = await _read(look, queue, begin, min(end, begin + left), until, counts)
            left -= read
            unread += end - begin - read
    return Counts(dict(counts), unread)


async def _read(look: Look, queue: MessageQueue, begin: int, end: int, until: float, counts: Counter[str]) -> int:
    """Counts records of a queue; returns how many were read. An error of the broker ends the count."""
    consumer = look.mq.pull(group=TOOLS_GROUP)
    at = begin
    while at < end and time.monotonic() < until:
        try:
            batch = await consumer.pull(queue, at, count=min(end - at, BATCH), bulk=True)
        except KourouError:
            break
        for message in batch.messages:
            if message.queue_offset < end:
                counts[message.properties.get(Property.REAL_TOPIC, "")] += 1
        if batch.next_offset <= at:
            break
        at = batch.next_offset
    return min(at, end) - begin


def waiting_spans(
    broker: str, runtime: Mapping[str, str], ends: Mapping[MessageQueue, TopicOffset]
) -> list[tuple[MessageQueue, int, int]]:
    """The queues of a broker's delay levels with the offsets that are not delivered yet, the short delays first."""
    found = []
    for queue, end in sorted(ends.items()):
        if queue.broker_name == broker:
            level = queue.queue_id + 1
            delivered = long_in(runtime.get(f"scheduleMessageOffset_{level}", "").partition(",")[0]) or 0
            begin = max(delivered, end.min_offset)
            if begin < end.max_offset:
                found.append((queue, begin, end.max_offset))
    return found
