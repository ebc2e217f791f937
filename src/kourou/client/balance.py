"""How the queues of a topic are shared among the consumers of a group.

Every consumer computes the shares of all consumers from the same input and takes its own. So a strategy is a pure
function, and all consumers of a group must use the same one. Both lists come sorted. A consumer that is not in the list
gets nothing.

    allocate(client_id, queues, client_ids) -> the queues of client_id

Java: the classes AllocateMessageQueue…, to the queue; `name` is what Java calls the strategy.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from kourou.protocol.message import MessageQueue
from kourou.protocol.queue_shares import AVERAGELY, BY_CIRCLE, averagely, by_circle

Queues = Sequence[MessageQueue]
T = TypeVar("T")


class Strategy(Protocol):
    """A strategy for sharing queues."""

    @property
    def name(self) -> str: ...

    def allocate(self, client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]: ...


@dataclass(frozen=True)
class Averagely:
    """Neighbouring queues in blocks of nearly equal size; the first consumers get one more."""

    name: str = field(default=AVERAGELY, init=False)

    def allocate(self, client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
        return averagely(client_id, queues, client_ids)


@dataclass(frozen=True)
class AveragelyByCircle:
    """One queue to each consumer in turn, until none is left."""

    name: str = field(default=BY_CIRCLE, init=False)

    def allocate(self, client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
        return by_circle(client_id, queues, client_ids)


@dataclass(frozen=True)
class Configured:
    """Always the given queues, whatever other consumers there are.

    Failed messages come back only if queues of the group's retry topic are among them.
    """

    queues: tuple[MessageQueue, ...]
    name: str = field(default="CONFIG", init=False)

    def allocate(
        self,
        client_id: str,  # noqa: ARG002
        queues: Queues,  # noqa: ARG002
        client_ids: Sequence[str],  # noqa: ARG002
    ) -> list[MessageQueue]:
        return list(self.queues)


@dataclass(frozen=True)
class ByMachineRoom:
    """Only queues of brokers in certain machine rooms, which broker names contain: `room@broker`."""

    rooms: Collection[str]
    name: str = field(default="MACHINE_ROOM", init=False)

    def allocate(self, client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        ours = [queue for queue in queues if self._is_ours(queue.broker_name)]
        at, clients = client_ids.index(client_id), len(client_ids)
        size, more = divmod(len(ours), clients)
        found = ours[at * size : (at + 1) * size]
        if at < more:
            found.append(ours[size * clients + at])
        return found

    def _is_ours(self, broker_name: str) -> bool:
        # Java's split drops empty parts at the end, so "room@" is one part and "@broker" two.
        parts = broker_name.split("@")
        while parts and not parts[-1]:
            parts.pop()
        return len(parts) == 2 and parts[0] in self.rooms


@dataclass(frozen=True)
class NearbyRoom:
    """Shares a room's queues among its consumers, by another strategy; queues of a room without consumers go to all."""

    room_of_queue: Callable[[MessageQueue], str]
    room_of_client: Callable[[str], str]
    inner: Strategy = field(default_factory=Averagely)

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(self, client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        queues_by_room = _grouped(queues, self.room_of_queue)
        clients_by_room = _grouped(client_ids, self.room_of_client)
        here = self.room_of_client(client_id)
        found = self.inner.allocate(client_id, queues_by_room.pop(here, []), clients_by_room[here])
        for room in sorted(queues_by_room):
            if room not in clients_by_room:
                found += self.inner.allocate(client_id, queues_by_room[room], client_ids)
        return found


def _grouped(items: Sequence[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = {}
    for item in items:
        room = room_of(item)
        if not room:
            raise ValueError(f"the machine room of {item} is not known")
        groups.setdefault(room, []).append(item)
    return groups


@dataclass(frozen=True)
class ConsistentHash:
    """By position on a ring of hashes: few queues move when a consumer joins or leaves."""

    virtual_nodes: int = 10
    name: str = field(default="CONSISTENT_HASH", init=False)

    def allocate(self, client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        ring = {
            _ring_hash(f"{client}-{number}"): client for client in client_ids for number in range(self.virtual_nodes)
        }
        places = sorted(ring)
        if not places:
            return []
        return [queue for queue in queues if _owner(queue, ring, places) == client_id]


def _owner(queue: MessageQueue, ring: Mapping[int, str], places: Sequence[int]) -> str:
    key = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
    at = bisect_left(places, _ring_hash(key))
    return ring[places[at % len(places)]]


def _ring_hash(text: str) -> int:
    """The first four bytes of the MD5."""
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4])
