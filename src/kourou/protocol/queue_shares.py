"""How the queues of a topic are shared among the consumers of a group: the strategies that brokers know as well.

Both lists come sorted. A consumer that is not in the list gets nothing.

Java: AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle, to the queue.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from kourou.protocol.message import MessageQueue

Share: TypeAlias = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""Takes a client, the queues and all clients, and returns the queues of the client."""


def averagely(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
    """Neighbouring queues in blocks of nearly equal size; the first consumers get one more."""
    if client_id not in client_ids:
        return []
    at, clients = client_ids.index(client_id), len(client_ids)
    size, more = divmod(len(queues), clients)
    start = at * size + min(at, more)
    return list(queues[start : start + size + (at < more)])


def by_circle(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
    """One queue to each consumer in turn, until none is left."""
    if client_id not in client_ids:
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


AVERAGELY: Final = "AVG"
BY_CIRCLE: Final = "AVG_BY_CIRCLE"

SHARES: Final[Mapping[str, Share]] = {AVERAGELY: averagely, BY_CIRCLE: by_circle}
"""By the names that clients send."""
