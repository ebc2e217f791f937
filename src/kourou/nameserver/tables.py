"""The tables of a name server: brokers, topics and clusters.

A member of a broker group is alive while it registers or sends heartbeats. It is removed when it unregisters, when it
was silent for too long, or when the connection of its last registration is closed (`kourou.nameserver.registrar`).

Changes that may take long are generators (`kourou.turns`): they yield about every 100 topics, and queries are answered
in between. The machine runs only one of them at a time. Queries in between see the following:

- A removed member disappears from all routes at once. If it was the last of its group, the group's name is removed
  from `topics` later, in slices; until then a name in `topics` without a group in `brokers` is ignored.
- A change of permissions of all topics of a group applies at once, through `Group.perm_change`, until all queues have
  it.
- A registration adds or changes one topic after the other.

Invariants (`check` asserts them; the property tests call it after every step):
- a broker group in `brokers` has at least one address, and is listed under its cluster;
- each address in a group belongs to a live member, and is removed with it;
- no cluster is empty, and every topic has groups;
- a topic lists exactly the groups that have queues of it, and groups that are being removed.

Java: the tables of RouteInfoManager.
"""

from collections.abc import Hashable, Iterable
from typing import TypeVar

from msgspec.structs import replace

from kourou.nameserver import limits
from kourou.nameserver.groups import Group, Live, Member, PermChange, read_and_write, read_only
from kourou.nameserver.route_cache import RouteCache
from kourou.protocol.bodies import QueueData, TopicQueueMappingInfo
from kourou.turns import Slices

K = TypeVar("K", bound=Hashable)

IN_SLICE = 100
"""The number of topics that are changed between two yields: about 0.1 ms."""


class Tables:
    """All tables. Methods that change them keep the invariants above, and drop outdated encoded routes."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[str, ...]] = {}  # topic -> names of the groups that have queues of it
        self.brokers: dict[str, Group] = {}
        self.clusters: dict[str, set[str]] = {}  # cluster -> group names
        self.live: dict[Member, Live] = {}
        self.filter_servers: dict[Member, list[str]] = {}
        self.mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}  # static topic -> broker -> its queues there
        self.encoded = RouteCache()
        self.places = 0  # topics, counted once for every group that has them
        self.mapped_queues = 0  # in all of `mappings`
        self.said_size = 0  # bytes of all Live.said
        self._removing: set[str] = set()  # names of removed groups that topics may still list
        self._on_connection: dict[Hashable, dict[Member, None]] = {}
        self._at_address: dict[str, dict[Member, None]] = {}
        self._moment = 0  # a counter for Group.removed and Group.touched, unique per change

    # ── Members ───────────────────────────────────────────────────────────────────────────────────────────────────

    def members_on(self, connection: Hashable) -> list[Member]:
        """Members whose last registration came on this connection."""
        return sorted(self._on_connection.get(connection, ()))

    def live_at(self, address: str) -> Live | None:
        """The state of the process at an address; if there are several, in different clusters, any of them."""
        member = next(iter(self._at_address.get(address, ())), None)
        return None if member is None else self.live[member]

    def silent(self, now_ms: int) -> list[Member]:
        """Members that were silent for too long."""
        return [member for member, live in self.live.items() if live.seen_ms + live.timeout_ms < now_ms]

    def put_live(self, member: Member, live: Live) -> None:
        """Set the state of a member."""
        self._forget_live(member)
        self.live[member] = live
        self.said_size += live.said_size
        self._on_connection.setdefault(live.connection, {})[member] = None
        self._at_address.setdefault(member.address, {})[member] = None

    def drop_live(self, member: Member) -> None:
        self._forget_live(member)
        self.live.pop(member, None)

    def _forget_live(self, member: Member) -> None:
        live = self.live.get(member)
        if live is not None:
            self.said_size -= live.said_size
            _discard(self._on_connection, live.connection, member)
            _discard(self._at_address, member.address, member)

    def set_connection(self, member: Member, connection: Hashable) -> None:
        """A member registered on another connection."""
        live = self.live[member]
        if live.connection != connection:
            _discard(self._on_connection, live.connection, member)
            live.connection = connection
            self._on_connection.setdefault(connection, {})[member] = None

    def set_filter_servers(self, member: Member, servers: list[str]) -> None:
        if not (servers or self.filter_servers) or self.filter_servers.get(member, []) == servers:
            return
        self.filter_servers[member] = servers
        if not servers:
            del self.filter_servers[member]
        self.encoded.clear()

    # ── Groups ────────────────────────────────────────────────────────────────────────────────────────────────────

    def add_group(self, cluster: str, name: str) -> Group:
        """Add a group, which must get an address at once."""
        self._moment += 1
        group = self.brokers[name] = Group(cluster, name, removed=self._moment, touched=self._moment)
        return group

    def remove_group(self, group: Group) -> None:
        """Remove a group without members from all routes. `clear_topics` must follow."""
        del self.brokers[group.name]
        self._removing.add(group.name)
        for cluster in [name for name, groups in self.clusters.items() if group.name in groups]:
            self.clusters[cluster].discard(group.name)
            if not self.clusters[cluster]:
                del self.clusters[cluster]

    def clear_topics(self, group: Group) -> Slices[None]:
        """Remove a removed group from all topics."""
        for topics in _slices(list(group.queues)):
            for topic in topics:
                self._unlink(topic, group)
            yield 0
        self._removing.discard(group.name)

    def touch(self, group: Group, *, removed: bool = False) -> None:
        """The topics of a group were changed by something other than its registration."""
        self._moment += 1
        group.touched = self._moment
        group.removed = self._moment if removed else group.removed

    def cluster_of(self, name: str) -> str | None:
        """The cluster of a broker group; None if it is not registered."""
        group = self.brokers.get(name)
        return None if group is None else group.cluster

    # ── Topics ────────────────────────────────────────────────────────────────────────────────────────────────────

    def groups_of(self, topic: str) -> list[Group]:
        """The groups that serve a topic."""
        names, brokers = self.topics.get(topic, ()), self.brokers
        if not self._removing:
            return [brokers[name] for name in names]
        return [brokers[name] for name in names if name in brokers]

    def put_queues(self, topic: str, group: Group, queues: QueueData) -> None:
        if topic not in group.queues:
            self.topics[topic] = (*self.topics.get(topic, ()), group.name)
            self.places += 1
        group.queues[topic] = queues
        self.encoded.drop(topic)

    def drop_queues(self, topic: str, group: Group) -> None:
        """The group no longer serves the topic, until it registers it again."""
        self._unlink(topic, group)
        self.touch(group, removed=True)
        self.encoded.drop(topic)

    def _unlink(self, topic: str, group: Group) -> None:
        del group.queues[topic]
        self.places -= 1
        names = self.topics[topic]
        if len(names) == 1:
            del self.topics[topic]
        else:
            at = names.index(group.name)
            self.topics[topic] = names[:at] + names[at + 1 :]

    def drop_topics(self, group: Group, topics: Iterable[str]) -> Slices[None]:
        for some in _slices(list(topics)):
            for topic in some:
                self.drop_queues(topic, group)
            yield 0

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Remove a topic, in one cluster or in all. It returns when a broker that has it registers."""
        groups = self.groups_of(topic)
        wanted = None if not cluster else self.clusters.get(cluster, set())
        leaving = {group.name for group in groups if wanted is None or group.name in wanted}
        for group in groups:
            if group.name in leaving:
                del group.queues[topic]
                self.touch(group, removed=True)
        self.places -= len(leaving)
        kept = tuple(name for name in self.topics.get(topic, ()) if name not in leaving)
        if kept:
            self.topics[topic] = kept
        elif leaving:
            del self.topics[topic]
        self.encoded.drop(topic)

    def add_topic(self, topic: str, queues: list[QueueData]) -> bool:
        """Add a topic that no broker registered. Returns False, without a change, if a group is unknown."""
        if not queues or any(one.broker_name not in self.brokers for one in queues):
            return False
        for one in queues:
            group = self.brokers[one.broker_name or ""]
            self.put_queues(topic, group, one)
            self.touch(group)
        return True

    def put_mapping(self, topic: str, mapping: TopicQueueMappingInfo) -> None:
        of_topic = self.mappings.setdefault(topic, {})
        before = of_topic.get(mapping.bname or "")
        self.mapped_queues += mapped_queues(mapping) - (0 if before is None else mapped_queues(before))
        of_topic[mapping.bname or ""] = mapping
        self.encoded.drop(topic)

    @property
    def is_full(self) -> bool:
        """True if there is no room for another topic."""
        return len(self.topics) >= limits.TOPICS_MAX or self.places >= limits.PLACES_MAX

    # ── Permissions ───────────────────────────────────────────────────────────────────────────────────────────────

    def wipe_write_perm(self, group_name: str) -> Slices[int]:
        """Disallow sends to this group, until it registers changed topics. Returns the number of its topics."""
        return (yield from self.change_perms(self.brokers.get(group_name), read_only))

    def add_write_perm(self, group_name: str) -> Slices[int]:
        """Allow sends again. Returns the number of the group's topics."""
        return (yield from self.change_perms(self.brokers.get(group_name), read_and_write))

    def change_perms(self, group: Group | None, change: PermChange) -> Slices[int]:
        """Change the permissions of all topics of a group. Queries see the change at once."""
        if group is None:
            return 0
        self.start_changing_perms(group, change)
        for topics in _slices(list(group.queues)):
            for topic in topics:
                queues = group.queues[topic]
                group.queues[topic] = replace(queues, perm=change(queues.perm))
            yield 0
        group.perm_change = None
        return len(group.queues)

    def start_changing_perms(self, group: Group, change: PermChange) -> None:
        """Queries see the new permissions from now on. `change_perms` must follow."""
        group.perm_change = change
        self.touch(group)
        self.encoded.clear()

    # ── Invariants ────────────────────────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """Assert the invariants in the module's docstring."""
        for name, group in self.brokers.items():
            assert group.name == name and group.addresses, f"group {name} has no address"
            assert name in self.clusters.get(group.cluster, ()), f"group {name} is missing in {group.cluster}"
            members = {member.address for member, live in self.live.items() if name in live.group_names}
            assert members.issuperset(group.addresses.values()), f"group {name} has dead members {group.addresses}"
            assert all(name in self.topics[topic] for topic in group.queues), f"a topic does not name group {name}"
        for cluster, groups in self.clusters.items():
            assert groups and groups <= self.brokers.keys(), f"cluster {cluster} has wrong groups {groups}"
        for topic, names in self.topics.items():
            assert len(set(names)) == len(names) > 0, f"topic {topic} is on {names}"
            for name in names:
                assert name in self._removing or topic in self.brokers[name].queues, f"topic {topic} is not on {name}"
        assert self._removing.isdisjoint(self.brokers)
        assert self._removing or self.places == sum(len(group.queues) for group in self.brokers.values())
        assert self.said_size == sum(live.said_size for live in self.live.values())
        mappings = [mapping for of_topic in self.mappings.values() for mapping in of_topic.values()]
        assert self.mapped_queues == sum(map(mapped_queues, mappings))
        for connection, of_connection in self._on_connection.items():
            assert of_connection and all(self.live[member].connection == connection for member in of_connection)
        assert sum(map(len, self._on_connection.values())) == len(self.live)
        assert sum(map(len, self._at_address.values())) == len(self.live)


def mapped_queues(mapping: TopicQueueMappingInfo) -> int:
    """The count of a mapping: one more than its queues."""
    return 1 + len(mapping.curr_id_map)


def _discard(index: dict[K, dict[Member, None]], key: K, member: Member) -> None:
    members = index[key]
    del members[member]
    if not members:
        del index[key]


def _slices(topics: list[str]) -> Iterable[list[str]]:
    return (topics[at : at + IN_SLICE] for at in range(0, len(topics), IN_SLICE))
