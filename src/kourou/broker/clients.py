"""The clients of a broker: the producer and consumer groups of each connection, and their subscriptions.

A connection is a member of a group from its heartbeat until it unregisters, closes or is silent for two minutes. When
the members of a consumer group or its topics change, all members are notified (`NOTIFY_CONSUMER_IDS_CHANGED`) and
rebalance.

Java: ConsumerManager, ConsumerGroupInfo, ProducerManager, DefaultConsumerIdsChangeListener.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from kourou.broker.events import Outbox, Peer, Tell
from kourou.broker.settings import BrokerSettings
from kourou.protocol import headers
from kourou.protocol.bodies import ConsumerData, SubscriptionData
from kourou.protocol.codes import CommandFlag, RequestCode
from kourou.protocol.command import Command
from kourou.protocol.names import shown
from kourou.turns import Slices, Turns

log = logging.getLogger(__name__)

BROADCASTING = "BROADCASTING"
LATE_NOTICE_MS = 15_000
MEMBERS_IN_SLICE = 5_000
"""Members that are examined before other requests have their turn."""

MEMBERS_AT_ONCE = 50
"""Members of a group that are notified of a change before other requests have their turn."""

_ONE_WAY = int(CommandFlag.ONE_WAY)


@dataclass(slots=True)
class Client:
    """One connection's part in one group."""

    peer: Peer
    client_id: str
    language: str
    version: int
    seen_ms: int
    user: str | None = None
    """The user who sent the heartbeat, with access control."""


@dataclass(slots=True)
class ConsumerGroup:
    """The consumers of a group that are connected."""

    name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    clients: dict[Peer, Client] = field(default_factory=dict)
    seen_ms: int = 0
    is_outdated: bool = False
    """Has a member pulled with a subscription that no heartbeat has reported?"""

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model == BROADCASTING

    def client_ids(self) -> list[str]:
        return [client.client_id for client in self.clients.values()]

    def client(self, client_id: str) -> Client | None:
        return next((client for client in self.clients.values() if client.client_id == client_id), None)


class Clients:
    """The clients that have sent heartbeats."""

    def __init__(self, settings: BrokerSettings, outbox: Outbox, turns: Turns | None = None) -> None:
        """`turns`: notifies the members of large groups in slices; without it, all at once."""
        self._settings = settings
        self._outbox = outbox
        self._turns = turns or Turns()
        self._telling: dict[str, None] = {}  # large groups whose members are being notified
        self.consumers: dict[str, ConsumerGroup] = {}
        self.producers: dict[str, dict[Peer, Client]] = {}
        self.by_id: dict[str, Client] = {}  # the producers, for replies
        self._fingerprints: dict[str, int] = {}  # of a group's last heartbeat
        self._to_notify: set[str] = set()  # groups that have changed and are notified later
        self._notify_ms = 0
        self.on_group_left: Callable[[str], None] = lambda _group: None
        """Called with a consumer group whose last member has left."""

    # ── Consumers ─────────────────────────────────────────────────────────────────────────────────────────────────

    def group(self, name: str) -> ConsumerGroup | None:
        return self.consumers.get(name)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        found = self.consumers.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def groups_of(self, topic: str) -> list[str]:
        """Groups with members that subscribe to a topic."""
        return [name for name, group in self.consumers.items() if topic in group.subscriptions]

    def heartbeat_changes(self, group: str, fingerprint: int) -> bool:
        """Does a heartbeat differ from the group's last one? It becomes the last one."""
        before = self._fingerprints.get(group)
        self._fingerprints[group] = fingerprint
        return before is not None and before != fingerprint

    def lacks_subscriptions(self, name: str) -> bool:
        """Must the members of a group report their subscriptions, although these have not changed?

        Java's client with useHeartbeatV2 leaves them out of its heartbeats as long as they are the same. So the broker
        has none after a lost connection of the only member, and an old version if the client has skipped the heartbeat
        with a new one because another heartbeat was on its way.
        """
        group = self.consumers.get(name)
        return group is not None and (group.is_outdated or not group.subscriptions)

    def register_consumer(
        self, data: ConsumerData, client: Client, now_ms: int, *, notify: bool, with_subscriptions: bool = True
    ) -> None:
        """A heartbeat for a consumer group."""
        assert data.group_name is not None
        name = data.group_name
        group = self.consumers.get(name)
        if group is None:
            group = self.consumers[name] = ConsumerGroup(name)
        group.consume_type = data.consume_type or group.consume_type
        group.message_model = data.message_model or group.message_model
        group.consume_from_where = data.consume_from_where or group.consume_from_where
        group.seen_ms = now_ms
        known = group.clients.get(client.peer)
        changed = known is None
        if known is None or known.client_id != client.client_id:
            group.clients[client.peer] = client
            client.peer.groups.add((True, name))
            log.info(
                "consumer joined group=%s client=%s peer=%s model=%s",
                shown(name),
                shown(client.client_id),
                client.peer.address,
                shown(group.message_model),
            )
        else:
            known.seen_ms = now_ms
        if with_subscriptions:
            changed |= self._update_subscriptions(group, data.subscription_data_set, client)
        if changed and notify:
            self._notify(group)

    def _update_subscriptions(
        self, group: ConsumerGroup, subscriptions: list[SubscriptionData], client: Client
    ) -> bool:
        changed = False
        group.is_outdated = False
        wanted: set[str] = set()
        for subscription in subscriptions:
            topic = subscription.topic
            if topic is None:
                continue
            wanted.add(topic)
            old = group.subscriptions.get(topic)
            if old is None:
                group.subscriptions[topic] = subscription
                changed = True
            elif subscription.sub_version > old.sub_version:
                if old.sub_string != subscription.sub_string and len(group.clients) > 1:
                    log.warning(
                        "subscriptions differ group=%s topic=%s: %s subscribes to %.200r, others to %.200r; "
                        "all members of a group must have the same subscriptions",
                        shown(group.name),
                        shown(topic),
                        shown(client.client_id),
                        subscription.sub_string,
                        old.sub_string,
                    )
                group.subscriptions[topic] = subscription
        for topic in group.subscriptions.keys() - wanted:
            if len(group.clients) > 1:
                log.warning(
                    "subscriptions differ group=%s: %s does not subscribe to %s, unlike others; "
                    "all members of a group must have the same subscriptions",
                    shown(group.name),
                    shown(client.client_id),
                    shown(topic),
                )
            del group.subscriptions[topic]
            changed = True
        return changed

    def unregister_consumer(self, name: str, peer: Peer, *, notify: bool) -> None:
        group = self.consumers.get(name)
        if group is None:
            return
        peer.groups.discard((True, name))
        left = group.clients.pop(peer, None)
        if left is not None:
            log.info("consumer left group=%s client=%s peer=%s", shown(name), shown(left.client_id), peer.address)
        if not group.clients:
            del self.consumers[name]
            self._fingerprints.pop(name, None)
            self.on_group_left(name)
        elif notify:
            self._notify(group)

    def _notify(self, group: ConsumerGroup) -> None:
        if group.is_broadcasting or not self._settings.notify_members:
            return
        if not self._settings.notify_at_once:
            self._to_notify.add(group.name)
            return
        self._tell(group)

    def due_ms(self, _now_ms: int) -> int | None:
        """When `step` has groups to notify; None: there are none."""
        return self._notify_ms if self._to_notify else None

    def step(self, now_ms: int) -> None:
        """Notify the groups that were not notified at once; several changes need one notification."""
        if self._to_notify and now_ms >= self._notify_ms:
            self._notify_ms = now_ms + LATE_NOTICE_MS
            names, self._to_notify = self._to_notify, set()
            for name in names:
                if (group := self.consumers.get(name)) is not None:
                    self._tell(group)

    def _tell(self, group: ConsumerGroup) -> None:
        """Notify the members of a large group in slices; changes that come before that need no further notification."""
        if len(group.clients) <= MEMBERS_AT_ONCE and not self._telling:
            self._tell_members(group.name, list(group.clients))
            return
        is_first = not self._telling
        self._telling[group.name] = None
        if is_first:
            self._turns.start(self, self._tell_on())

    def _tell_on(self) -> Slices[None]:
        while self._telling:
            yield 0
            name = next(iter(self._telling))
            del self._telling[name]
            group = self.consumers.get(name)
            members = [] if group is None else list(group.clients)
            for at in range(0, len(members), MEMBERS_AT_ONCE):
                self._tell_members(name, members[at : at + MEMBERS_AT_ONCE])
                yield 0

    def _tell_members(self, name: str, members: list[Peer]) -> None:
        ext = headers.NotifyConsumerIdsChanged(consumer_group=name).encode()
        for peer in members:
            command = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, flag=_ONE_WAY, ext=ext)
            self._outbox.put(Tell(peer, command))

    # ── Producers ─────────────────────────────────────────────────────────────────────────────────────────────────

    def register_producer(self, group: str, client: Client, now_ms: int) -> None:
        members = self.producers.setdefault(group, {})
        known = members.get(client.peer)
        if known is None or known.client_id != client.client_id:
            members[client.peer] = client
            client.peer.groups.add((False, group))
            log.info(
                "producer joined group=%s client=%s peer=%s",
                shown(group),
                shown(client.client_id),
                client.peer.address,
            )
        else:
            known.seen_ms, known.user = now_ms, client.user
        before = self.by_id.get(client.client_id)
        if before is None or before.peer is client.peer or before.user == client.user:
            self.by_id[client.client_id] = members[client.peer]
        # else: another user has taken that id, and replies to it are not for this one

    def unregister_producer(self, group: str, peer: Peer) -> None:
        members = self.producers.get(group)
        if members is None:
            return
        peer.groups.discard((False, group))
        left = members.pop(peer, None)
        if left is not None:
            log.info("producer left group=%s client=%s peer=%s", shown(group), shown(left.client_id), peer.address)
            if self.by_id.get(left.client_id) is left:
                self._find_another(left)
        if not members:
            del self.producers[group]

    def _find_another(self, left: Client) -> None:
        """A client is found by another of its groups, or no longer found."""
        del self.by_id[left.client_id]
        for is_consumer, group in left.peer.groups:
            if not is_consumer and self.producers[group][left.peer].client_id == left.client_id:
                self.by_id[left.client_id] = self.producers[group][left.peer]

    # ── Both ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def gone(self, peer: Peer) -> None:
        """A connection is lost."""
        for is_consumer, group in list(peer.groups):
            if is_consumer:
                self.unregister_consumer(group, peer, notify=True)
            else:
                self.unregister_producer(group, peer)

    def silent(self, before_ms: int) -> Slices[set[Peer]]:
        """Connections whose last heartbeat is older."""
        found: set[Peer] = set()
        looked = 0
        for names, table in ((list(self.consumers), self._members_of), (list(self.producers), self.producers.get)):
            for name in names:
                members = table(name) or {}
                found.update(peer for peer, client in members.items() if client.seen_ms < before_ms)
                looked += len(members) + 1
                if looked > MEMBERS_IN_SLICE:
                    looked = 0
                    yield 0
        return found

    def _members_of(self, name: str) -> dict[Peer, Client] | None:
        group = self.consumers.get(name)
        return None if group is None else group.clients
