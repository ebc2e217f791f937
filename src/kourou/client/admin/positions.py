"""Where a group is in queues in which it has not committed an offset yet. Pure.

Brokers report only topics in which a group has committed an offset. A group whose first messages are never finished has
none, and neither has one whose failed messages came back after its last member had left: without these queues, such a
group would have no lag.
"""

from collections.abc import Mapping
from typing import Final

from kourou.client.admin.groups import Progress
from kourou.protocol.bodies import ConsumerConnection, OffsetWrapper, ProcessQueueInfo, TopicOffset
from kourou.protocol.message import MessageQueue
from kourou.protocol.system_names import RETRY_PREFIX

BROADCASTING: Final = "BROADCASTING"
FROM_FIRST: Final = "CONSUME_FROM_FIRST_OFFSET"

Ends = Mapping[MessageQueue, TopicOffset]
Held = Mapping[MessageQueue, ProcessQueueInfo]
"""What members say of their queues."""


def with_uncommitted(
    progress: Progress, missing: Ends, held: Held, connections: ConsumerConnection | None
) -> tuple[Progress, dict[MessageQueue, int]]:
    """The progress with the queues of `missing` in which the position is known, and these with their first offset."""
    found = dict(progress.queues)
    uncommitted: dict[MessageQueue, int] = {}
    starts_first = connections is not None and connections.consume_from_where == FROM_FIRST
    for queue, end in missing.items():
        at = position(queue, end, held.get(queue), starts_first=starts_first)
        if at is not None:
            cached = held[queue].cached_msg_count if queue in held else 0
            found[queue] = OffsetWrapper(broker_offset=end.max_offset, consumer_offset=at, pull_offset=at + cached)
            uncommitted[queue] = end.min_offset
    return Progress({queue: found[queue] for queue in sorted(found)}, progress.tps), uncommitted


def position(queue: MessageQueue, end: TopicOffset, held: ProcessQueueInfo | None, *, starts_first: bool) -> int | None:
    """The next offset to consume in a queue without a committed offset; None if it is not known."""
    if held is not None and held.cached_msg_count > 0:
        at = held.cached_msg_min_offset
    elif held is not None and held.commit_offset > 0:  # it will be committed soon
        at = held.commit_offset
    elif starts_first or queue.topic.startswith(RETRY_PREFIX):  # retry topics are read from their first message
        at = end.min_offset
    elif held is None and end.min_offset == 0:  # brokers let new readers begin with the very first message
        at = 0
    else:
        return None
    return min(max(at, end.min_offset), end.max_offset)
