"""How long the oldest message that a group has not consumed has been waiting."""

from collections import defaultdict
from typing import Final

from kourou.console.facts import Look, now_ms
from kourou.console.positions import Positions
from kourou.protocol.bodies import QueueTimeSpan
from kourou.protocol.message import MessageQueue

TOPICS_MAX: Final = 8
"""How many topics of a group are requested, those with the largest lag first."""


async def queue_lags_ms(look: Look, group: str, positions: Positions) -> dict[MessageQueue, int]:
    """By queue, for queues with lag, as far as brokers know it."""
    progress = positions.progress
    lags: dict[str, int] = defaultdict(int)
    for queue, state in progress.queues.items():
        lags[queue.topic] += max(state.broker_offset - state.consumer_offset, 0)
    found: dict[MessageQueue, int] = {}
    behind = sorted((topic for topic, lag in lags.items() if lag > 0), key=lambda topic: -lags[topic])
    for topic in behind[:TOPICS_MAX]:
        for one in await look.time_spans(group, look.mq.session.unwrap(topic)):
            place = one.message_queue
            known = None if place is None else progress.queues.get(place)
            waited = _waited_ms(one)
            if place is None or known is None or waited is None or known.broker_offset <= known.consumer_offset:
                continue
            if known.consumer_offset > positions.uncommitted.get(place, known.consumer_offset):
                continue  # the broker takes it for a reader of the first message
            found[place] = waited
    return found


def _waited_ms(span: QueueTimeSpan) -> int | None:
    """No message waits longer than the oldest one of its queue is old.

    Without a committed offset, or if the message at it has expired, brokers count the delay from 1970.
    """
    if span.min_time_stamp <= 0:
        return None
    return max(min(span.delay_time, now_ms() - span.min_time_stamp), 0)


async def group_lag_ms(look: Look, group: str, positions: Positions) -> int | None:
    """The longest of all queues; 0 without lag, None if no broker knows."""
    if positions.progress.lag <= 0:
        return 0
    return max((await queue_lags_ms(look, group, positions)).values(), default=None)
