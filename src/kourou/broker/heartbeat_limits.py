"""How many groups and subscriptions one client may register, and all clients together.

A heartbeat is stored until its connection is closed: its groups and their subscriptions. A peer that sends invented
ones is refused before they are stored. The limits are far above the needs of clients (one connection of a busy
application has a few dozen groups), and low enough that a thousand such peers do not fill the memory.
"""

from kourou.broker.clients import Clients
from kourou.broker.events import Peer, Refused
from kourou.broker.settings import BrokerSettings
from kourou.protocol.bodies import HeartbeatData
from kourou.protocol.codes import ResponseCode

MEMBERSHIPS_MAX = 200_000  # groups of all connections
NAME_LENGTH_MAX = 255
CLIENT_ID_LENGTH_MAX = 1_000

COUNTED_FOR_MS = 1_000
"""How long a count of all memberships is used."""


class HeartbeatLimits:
    """Refuses heartbeats that exceed a limit."""

    def __init__(self, clients: Clients, settings: BrokerSettings) -> None:
        self._clients = clients
        self._settings = settings
        self._counted = 0
        self._counted_ms = 0

    def check(self, beat: HeartbeatData, peer: Peer, now_ms: int) -> None:
        """Raises Refused if a limit is exceeded: then nothing of this heartbeat is stored."""
        if len(beat.client_id or "") > CLIENT_ID_LENGTH_MAX:
            raise _too_much(f"the client's id has {len(beat.client_id or '')} characters", CLIENT_ID_LENGTH_MAX)
        groups = {(True, data.group_name or "") for data in beat.consumer_data_set}
        groups.update((False, data.group_name or "") for data in beat.producer_data_set)
        longest = max((len(name) for _, name in groups), default=0)
        if longest > NAME_LENGTH_MAX:
            raise _too_much(f"the name of a group has {longest} characters", NAME_LENGTH_MAX)
        subscriptions = sum(len(data.subscription_data_set) for data in beat.consumer_data_set)
        limit = self._settings.subscriptions_per_client
        if subscriptions > limit:
            raise _too_much(f"the client has {subscriptions} subscriptions", limit, "maxSubscriptionsPerClient")
        new = groups - peer.groups
        if not new:
            return
        limit = self._settings.groups_per_client
        if len(new) + len(peer.groups) > limit:
            raise _too_much(f"the client has {len(new) + len(peer.groups)} groups", limit, "maxGroupsPerClient")
        if self._counted + len(new) > MEMBERSHIPS_MAX:
            self._count(now_ms)
        if self._counted + len(new) > MEMBERSHIPS_MAX:
            raise _too_much(f"all clients have {self._counted} groups", MEMBERSHIPS_MAX)
        self._counted += len(new)  # members that leave are found by the next count

    def _count(self, now_ms: int) -> None:
        if 0 <= now_ms - self._counted_ms < COUNTED_FOR_MS:
            return
        self._counted_ms = now_ms
        self._counted = sum(len(group.clients) for group in self._clients.consumers.values())
        self._counted += sum(map(len, self._clients.producers.values()))


def _too_much(what: str, limit: int, name: str = "") -> Refused:
    where = f" ({name})" if name else ""
    return Refused(ResponseCode.SYSTEM_ERROR, f"heartbeat refused: {what}, the limit is {limit}{where}")
