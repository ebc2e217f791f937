"""How much one client may say of itself, and all clients together.

A heartbeat is remembered until its connection ends: the groups it speaks for and what they subscribe to. A peer that
invents both is refused before it is remembered. The limits are far beyond what clients need (one connection of a busy
application speaks for a few dozen groups), and low enough that a thousand such peers do not fill the memory.
"""

from kourou.broker.clients import Clients
from kourou.broker.events import Peer, Refused
from kourou.protocol.bodies import HeartbeatData
from kourou.protocol.codes import ResponseCode

GROUPS_MAX = 1_000  # of one connection
SUBSCRIPTIONS_MAX = 10_000  # of one heartbeat
MEMBERSHIPS_MAX = 200_000  # groups of all connections
NAME_LENGTH_MAX = 255
CLIENT_ID_LENGTH_MAX = 1_000

COUNTED_FOR_MS = 1_000
"""How long a count of all memberships is good for."""


class HeartbeatLimits:
    """Refuses what would be too much."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._counted = 0
        self._counted_ms = 0

    def check(self, beat: HeartbeatData, peer: Peer, now_ms: int) -> None:
        """Raises Refused: nothing of this heartbeat is remembered."""
        if len(beat.client_id or "") > CLIENT_ID_LENGTH_MAX:
            raise _too_much(f"the client's id has {len(beat.client_id or '')} characters", CLIENT_ID_LENGTH_MAX)
        groups = {(True, data.group_name or "") for data in beat.consumer_data_set}
        groups.update((False, data.group_name or "") for data in beat.producer_data_set)
        longest = max((len(name) for _, name in groups), default=0)
        if longest > NAME_LENGTH_MAX:
            raise _too_much(f"the name of a group has {longest} characters", NAME_LENGTH_MAX)
        subscriptions = sum(len(data.subscription_data_set) for data in beat.consumer_data_set)
        if subscriptions > SUBSCRIPTIONS_MAX:
            raise _too_much(f"the client has {subscriptions} subscriptions", SUBSCRIPTIONS_MAX)
        new = groups - peer.groups
        if not new:
            return
        if len(new) + len(peer.groups) > GROUPS_MAX:
            raise _too_much(f"the client speaks for {len(new) + len(peer.groups)} groups", GROUPS_MAX)
        if self._counted + len(new) > MEMBERSHIPS_MAX:
            self._count(now_ms)
        if self._counted + len(new) > MEMBERSHIPS_MAX:
            raise _too_much(f"all clients speak for {self._counted} groups", MEMBERSHIPS_MAX)
        self._counted += len(new)  # whoever leaves is found by the next count

    def _count(self, now_ms: int) -> None:
        if 0 <= now_ms - self._counted_ms < COUNTED_FOR_MS:
            return
        self._counted_ms = now_ms
        self._counted = sum(len(group.clients) for group in self._clients.consumers.values())
        self._counted += sum(map(len, self._clients.producers.values()))


def _too_much(what: str, limit: int) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, f"heartbeat refused: {what}, the limit is {limit}")
