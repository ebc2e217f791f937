"""Where a group is in each of its queues, also in those in which it has not committed an offset yet."""

from collections.abc import Mapping
from typing import Final

import msgspec

from kourou.client.admin import Progress
from kourou.client.admin.positions import BROADCASTING, with_uncommitted
from kourou.console.errors import ConsoleError
from kourou.console.facts import SHORT, SOON, Look
from kourou.protocol.bodies import ConsumerConnection, ProcessQueueInfo, TopicOffset
from kourou.protocol.codes import Perm
from kourou.protocol.errors import KourouError
from kourou.protocol.message import MessageQueue
from kourou.protocol.system_names import RETRY_PREFIX

MEMBERS_MAX: Final = 10
"""How many members are asked where they are, if brokers do not know it."""
TOPICS_MAX: Final = 32


class Positions(msgspec.Struct, frozen=True):
    """The progress of a group with all its queues."""

    progress: Progress
    uncommitted: Mapping[MessageQueue, int]
    """Queues of the progress in which nothing is committed, with their first offset."""


async def positions_of(look: Look, group: str, seconds: float = SOON) -> Positions:
    """Raises what requests for the progress and the members of the group raise."""
    progress = await look.progress(group, seconds)
    connections = await look.connections(group, seconds)
    if connections is not None and connections.message_model == BROADCASTING:
        return Positions(progress, {})  # brokers do not know its offsets
    missing = await _missing(look, group, progress, connections, seconds)
    held: dict[MessageQueue, ProcessQueueInfo] = {}
    if any(end.max_offset > end.min_offset for end in missing.values()):
        held = await _held(look, group, connections)
    return Positions(*with_uncommitted(progress, missing, held, connections))


async def _missing(
    look: Look, group: str, progress: Progress, connections: ConsumerConnection | None, seconds: float
) -> dict[MessageQueue, TopicOffset]:
    """The queues that the group consumes, or will consume, and that are not in its progress."""
    session = look.mq.session
    settings = await look.topics()
    names = {session.wrap(RETRY_PREFIX + group), *(() if connections is None else connections.subscription_table)}
    names |= {queue.topic for queue in progress.queues}
    known = {(queue.topic, queue.broker_name, queue.queue_id) for queue in progress.queues}
    found: dict[MessageQueue, TopicOffset] = {}
    asked = 0
    for name in sorted(names & settings.keys()):
        queues = {
            (name, one.broker, number)
            for one in settings[name]
            if one.config.perm & Perm.READ
            for number in range(one.config.read_queue_nums)
        }
        if queues <= known or asked == TOPICS_MAX:
            continue
        asked += 1
        try:
            ends = await look.topic_ends(session.unwrap(name), max(seconds, SHORT))
        except (KourouError, ConsoleError):
            continue
        found |= {
            queue: end
            for queue, end in ends.items()
            if (key := (queue.topic, queue.broker_name, queue.queue_id)) in queues and key not in known
        }
    return found


async def _held(look: Look, group: str, connections: ConsumerConnection | None) -> dict[MessageQueue, ProcessQueueInfo]:
    """What members say of their queues."""
    found: dict[MessageQueue, ProcessQueueInfo] = {}
    members = {one.client_id or "" for one in (connections.connection_set if connections is not None else ())}
    for client_id in sorted(members)[:MEMBERS_MAX]:
        try:
            found |= (await look.running(group, client_id)).mq_table
        except (KourouError, ConsoleError):
            continue  # it has left, or does not answer
    return found
