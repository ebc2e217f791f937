"""Brokers, topics and clusters, and the routes made of them.

Who is here: a broker group (`broker_name`) has members by broker id, 0 being the master. Each member registers its
address and, if it is the master (or, since 5.0, the member with the smallest id), the topics of the group. A member is
alive while it registers or sends heartbeats, on the connection it did so last.

Invariants (`check` asserts them; the property tests call it after every step):
- a broker group in `brokers` has at least one address, and is listed under its cluster;
- each address in a group is that of a live member, which will take it away when it leaves;
- no cluster and no topic is empty;
- a topic's queues belong to groups in `brokers`;
- an encoded route in the cache equals what would be encoded now.

A registration that is refused leaves no trace; one that is outdated (`_is_outdated`) makes its sender a stranger.

Java: RouteInfoManager.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kourou.nameserver.registration import Reading, Said, Topic
from kourou.nameserver.settings import Settings
from kourou.protocol import headers
from kourou.protocol.bodies import (
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicList,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from kourou.protocol.codes import MASTER_ID, Perm, TopicSysFlag

BROKER_TIMEOUT_MS = 120_000
"""Silence after which a broker is dropped, unless it asked for another figure when it registered."""

BROKERS_MAX = 10_000
TOPICS_MAX = 1_000_000
"""A name server for more than this is a mistake or an attack: registrations beyond it are refused."""

ENCODED_SIZE_MAX = 64 * 1024 * 1024
"""Bytes of encoded routes that are kept. Beyond it all are forgotten, and made again as they are asked for."""

SAID_SIZE_MAX = 64 * 1024 * 1024
"""Bytes of registrations that are kept to compare the next ones with. Who comes beyond it is read in full each time."""

SYNC_MEMBER_TOPIC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"

_WRITE = int(Perm.WRITE)
_READ_WRITE = int(Perm.READ | Perm.WRITE)


PermChange = Callable[[int], int]


class Member(NamedTuple):
    """The key of one broker process: Java's BrokerAddrInfo."""

    cluster: str
    address: str


@dataclass(slots=True)
class Live:
    """What is known of a broker process besides its address."""

    group_names: tuple[str, ...]  # where its address may be listed; several only if it has changed its name
    seen_ms: int  # last registration, heartbeat or version query
    timeout_ms: int
    version: DataVersion  # of the topics it registered last
    connection: Hashable  # on which it did
    ha_address: str
    said: Said | None  # that registration, to compare the next one with
    acting: bool  # it allowed a slave to stand in for a missing master
    led: bool  # it spoke for its group then, so that its topics were applied
    in_step: bool  # the tables then held its topics just as it said them
    removed: int  # Group.removed then
    touched: int  # Group.touched then


@dataclass(slots=True)
class Group:
    """A broker group: Java's BrokerData, changeable."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    zone: str | None = None
    acting_master: bool = False  # a slave may stand in for a missing master
    author: Member | None = None  # whose topics were applied last
    removed: int = 0  # when a topic was last taken from it; a number that only grows, see Routes._moment
    touched: int = 0  # when its topics were last changed by anything but a registration

    def to_body(self, addresses: dict[int, str] | None = None) -> BrokerData:
        return BrokerData(
            cluster=self.cluster,
            broker_name=self.name,
            broker_addrs=dict(sorted((addresses or self.addresses).items())),
            zone_name=self.zone,
            enable_acting_master=self.acting_master,
        )

    @property
    def smallest_id(self) -> int:
        return min(self.addresses)


@dataclass(frozen=True, slots=True)
class Notice:
    """A group's member with the smallest id is another one: tell these addresses. Java: notifyMinBrokerIdChanged."""

    addresses: list[str]
    header: headers.NotifyMinBrokerIdChange


class Memory(msgspec.Struct, frozen=True, gc=False):
    """What is remembered of a member that registers again, and what that is good for."""

    said: Said | None = None
    may_renew: bool = False  # saying the same again changes nothing
    may_merge: bool = False  # what is new in it is all that must be applied


class Registered(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a registration. `refusal` is None when it counts."""

    refusal: str | None = None
    master_address: str | None = None
    master_ha_address: str | None = None
    notice: Notice | None = None


_COUNTS = Registered()


class Routes:
    """All tables of one name server. Methods that change something keep the invariants above."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, QueueData]] = {}  # topic -> group name -> its queues there
        self.brokers: dict[str, Group] = {}
        self.clusters: dict[str, set[str]] = {}  # cluster -> group names
        self.live: dict[Member, Live] = {}
        self.filter_servers: dict[Member, list[str]] = {}
        self.mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}  # static topics
        self._encoded: dict[tuple[str, bool], bytes] = {}  # (topic, standard JSON?) -> route
        self._encoded_size = 0  # at least their bytes: what a topic's new route replaces stays counted
        self._moment = 0  # a clock for Group.removed and Group.touched: no two changes have the same
        self._said_size = 0  # bytes of all Live.said
        self._mapping_count = 0  # in all of `mappings`

    # ── Registration ──────────────────────────────────────────────────────────────────────────────────────────────

    def memory(self, header: headers.RegisterBroker, zone: str | None, settings: Settings) -> Memory:
        """What this member said last, if it stands where it stood.

        Brokers repeat themselves every 30 seconds. To read and apply thousands of topics again is needless when they
        are the same, and all but a few of them when they changed; but for the latter the tables must still hold what
        it said. They do not when somebody wiped permissions or removed a topic, or another member spoke for the group.
        """
        member = Member(header.cluster_name, header.broker_addr)
        live = self.live.get(member)
        group = self.brokers.get(header.broker_name)
        if (
            live is None
            or group is None
            or live.said is None
            or live.group_names[0] != group.name
            or group.cluster != header.cluster_name
            or group.addresses.get(header.broker_id) != header.broker_addr
            or group.zone != zone
            or group.acting_master != bool(header.enable_acting_master)
            or group.acting_master != live.acting
            or settings.delete_topic_with_broker_registration  # others may have added topics meanwhile
        ):
            return Memory()
        leads = _leads(header, group)
        return Memory(
            live.said,
            may_renew=live.removed == group.removed and (live.led or not leads),
            may_merge=not leads or self._is_in_step(member, live, group),
        )

    def _is_in_step(self, member: Member, live: Live, group: Group) -> bool:
        """Do the tables hold the group's topics just as this member said them last?"""
        return live.in_step and live.touched == group.touched and group.author == member

    def renew(self, header: headers.RegisterBroker, connection: Hashable, now_ms: int) -> Registered:
        """A registration that says what was said before, where that `may_renew`."""
        live = self.live[Member(header.cluster_name, header.broker_addr)]
        live.seen_ms, live.connection = now_ms, connection
        return self._registered(header, self.brokers[header.broker_name], None)

    def register(
        self,
        header: headers.RegisterBroker,
        reading: Reading,
        *,
        zone: str | None,
        connection: Hashable,
        settings: Settings,
        now_ms: int,
    ) -> Registered:
        """A broker process says that it is there, and which topics its group has.

        A partial reading is taken where the memory of the member says `may_merge`.
        """
        member = Member(header.cluster_name, header.broker_addr)
        broker_id, topics, wrapper = header.broker_id, reading.topics, reading.shell.topic_config_serialize_wrapper
        group = self.brokers.get(header.broker_name)
        addresses = {} if group is None else group.addresses
        mappings, version = wrapper.topic_queue_mapping_info_map, wrapper.data_version
        live, present = self.live.get(member), addresses.get(broker_id)
        refusal = self._refusal(broker_id, topics, mappings, addresses, is_new=live is None)
        if refusal is not None:
            return Registered(refusal=f"register broker failed{refusal}")
        if present and present != member.address and self._is_outdated(member, present, version):
            self._remove([(member, None)])
            return Registered()

        if group is None:
            self._moment += 1
            group = Group(header.cluster_name, header.broker_name, removed=self._moment, touched=self._moment)
            self.brokers[group.name] = group
        before = (group.addresses.copy(), group.zone, group.acting_master)
        self.clusters.setdefault(header.cluster_name, set()).add(group.name)
        group.acting_master, group.zone = bool(header.enable_acting_master), zone
        smallest_changed = bool(group.addresses) and broker_id < group.smallest_id
        if present != member.address or len(addresses) > 1:
            self._move_address(group, broker_id, header.broker_addr)
            group.addresses[broker_id] = header.broker_addr

        in_step = False
        if leads := _leads(header, group):
            changed = not present or live is None or live.version != version
            in_step = changed or (not topics and live is not None and self._is_in_step(member, live, group))
            if settings.delete_topic_with_broker_registration and not mappings:
                self._forget_missing_topics(group.name, topics)
            self._apply_topics(group, topics, changed, broker_id)
            group.author = member
            if changed and mappings:
                self._apply_mappings(mappings)

        self._remember(member, header, version, connection, reading.said, now_ms, leads, in_step)
        self._set_filter_servers(member, reading.shell.filter_server_list)
        if before != (group.addresses, group.zone, group.acting_master):
            self.forget_encoded_routes()
        notice = None
        if smallest_changed and settings.notify_min_broker_id_changed:
            notice = _notice(group, None, header.ha_server_addr)
        return self._registered(header, group, notice)

    def _refusal(
        self,
        broker_id: int,
        topics: Mapping[str, Topic],
        mappings: Mapping[str, TopicQueueMappingInfo],
        addresses: Mapping[int, str],
        *,
        is_new: bool,
    ) -> str | None:
        """What to add to the refusal of a registration; None for one that can be accepted."""
        if len(topics) == 1 and broker_id not in addresses:
            return ""  # one topic is an addition to a registration, which must come first
        if (is_new and len(self.live) >= BROKERS_MAX) or (not addresses and len(self.brokers) >= BROKERS_MAX):
            return f": {BROKERS_MAX} brokers are registered, the limit"
        if len(self.topics) + len(topics) > TOPICS_MAX:
            new = {config.topic_name for config in topics.values()}.difference(self.topics)
            if len(self.topics) + len(new) > TOPICS_MAX:
                return f": more than {TOPICS_MAX} topics, the limit"
        if self._mapping_count + len(mappings) > TOPICS_MAX:
            return f": more than {TOPICS_MAX} mappings of static topics, the limit"
        return None

    def _is_outdated(self, member: Member, present: str, version: DataVersion) -> bool:
        """Does the process that holds this broker id have a newer state? Then the one that registers is a leftover."""
        live = self.live.get(Member(member.cluster, present))
        return live is not None and live.version.state_version > version.state_version

    def _move_address(self, group: Group, broker_id: int, address: str) -> None:
        """An address has one broker id: a slave that became master gives up its old one."""
        for other in [i for i, known in group.addresses.items() if known == address and i != broker_id]:
            del group.addresses[other]

    def _apply_topics(self, group: Group, topics: Mapping[str, Topic], changed: bool, broker_id: int) -> None:
        """The topics of a group as its master or, read-only, the slave in its place tells them.

        Those that are known already stay as they are unless the broker says that something has `changed`: so a wiped
        write permission stays wiped.
        """
        group_name, table = group.name, self.topics
        mask = ~_WRITE if group.acting_master and broker_id != MASTER_ID else ~0
        for config in topics.values():
            name = config.topic_name
            if name is None or not name.isprintable():
                continue
            queues = table.get(name)
            if queues is None:
                table[name] = {group_name: _queues(group_name, config, mask)}
            elif changed or group_name not in queues:
                new = _queues(group_name, config, mask)
                if new != queues.get(group_name):
                    queues[group_name] = new
                    self._forget_encoded(name)

    def _forget_missing_topics(self, group_name: str, topics: Mapping[str, Topic]) -> None:
        said = {config.topic_name for config in topics.values()}
        self._forget_topics([topic for topic in self.topics if topic not in said], {group_name})

    def _apply_mappings(self, mappings: dict[str, TopicQueueMappingInfo]) -> None:
        for topic, mapping in mappings.items():
            by_broker = self.mappings.setdefault(topic, {})
            self._mapping_count -= len(by_broker)
            by_broker[mapping.bname or ""] = mapping
            self._mapping_count += len(by_broker)
            self._forget_encoded(topic)

    def _set_filter_servers(self, member: Member, servers: list[str]) -> None:
        if not (servers or self.filter_servers) or self.filter_servers.get(member, []) == servers:
            return
        self.filter_servers[member] = servers
        if not servers:
            del self.filter_servers[member]
        self.forget_encoded_routes()

    def _remember(
        self,
        member: Member,
        header: headers.RegisterBroker,
        version: DataVersion,
        connection: Hashable,
        said: Said,
        now_ms: int,
        led: bool,
        in_step: bool,
    ) -> None:
        timeout_ms = header.heartbeat_timeout_millis
        before, group = self.live.get(member), self.brokers[header.broker_name]
        self._said_size -= _said_size(before)
        names: tuple[str, ...] = (header.broker_name,)
        if before is not None and before.group_names != names:
            names += tuple(name for name in before.group_names if self._lists(name, member, header))
        said_size = said.size_bytes
        is_kept = self._said_size + said_size <= SAID_SIZE_MAX
        self.live[member] = Live(
            group_names=names,
            seen_ms=now_ms,
            timeout_ms=BROKER_TIMEOUT_MS if timeout_ms is None else timeout_ms,
            version=version,
            connection=connection,
            ha_address=header.ha_server_addr,
            said=said if is_kept else None,
            acting=group.acting_master,
            led=led,
            in_step=in_step,
            removed=group.removed,
            touched=group.touched,
        )
        self._said_size += said_size if is_kept else 0

    def _lists(self, name: str, member: Member, header: headers.RegisterBroker) -> bool:
        """Is the member's address in another group than the one that it registers in?"""
        group = self.brokers.get(name)
        return name != header.broker_name and group is not None and member.address in group.addresses.values()

    def _registered(self, header: headers.RegisterBroker, group: Group, notice: Notice | None) -> Registered:
        """What a slave must know of its master."""
        if header.broker_id == MASTER_ID:
            return _COUNTS if notice is None else Registered(notice=notice)
        master = group.addresses.get(MASTER_ID)
        live = self.live.get(Member(header.cluster_name, master)) if master else None
        if live is None:
            return Registered(notice=notice)
        return Registered(master_address=master, master_ha_address=live.ha_address, notice=notice)

    def heartbeat(self, member: Member, now_ms: int) -> None:
        """A sign of life; of a stranger it means nothing."""
        live = self.live.get(member)
        if live is not None:
            live.seen_ms = now_ms

    def version_of(self, member: Member) -> DataVersion | None:
        """Of the topics that the member registered last."""
        live = self.live.get(member)
        return None if live is None else live.version

    # ── Leaving ───────────────────────────────────────────────────────────────────────────────────────────────────

    def silent(self, now_ms: int) -> list[tuple[Member, Hashable]]:
        """Members that have said nothing for too long, and the connections they said it on."""
        return [
            (member, live.connection) for member, live in self.live.items() if live.seen_ms + live.timeout_ms < now_ms
        ]

    def live_at(self, address: str) -> Live | None:
        """What is known of the process at an address; of several, in different clusters, any."""
        return next((live for member, live in self.live.items() if member.address == address), None)

    def members_on(self, connection: Hashable) -> list[Member]:
        return [member for member, live in self.live.items() if live.connection == connection]

    def unregister(self, leaving: Iterable[tuple[Member, str | None]], settings: Settings) -> list[Notice]:
        """Members leave all their groups, and the one they name. Whom to tell of groups that lost their smallest id."""
        return [
            _notice(group, address, None)
            for group, address in self._remove(leaving)
            if settings.notify_min_broker_id_changed and group.acting_master
        ]

    def _remove(self, leaving: Iterable[tuple[Member, str | None]]) -> list[tuple[Group, str]]:
        """Take members out of all tables. The groups that go on without the address of their smallest id, and that."""
        reduced: dict[str, str | None] = {}  # group name -> address of its smallest id, if that has left
        for member, said in leaving:
            live = self.live.pop(member, None)
            self._said_size -= _said_size(live)
            self._set_filter_servers(member, [])
            names = () if live is None else live.group_names
            for name in names if said is None or said in names else (*names, said):
                group = self.brokers.get(name)
                if group is not None and member.address in group.addresses.values():
                    was_smallest = group.addresses[group.smallest_id] == member.address
                    reduced[name] = member.address if was_smallest else reduced.get(name)
                    self._remove_address(group, member.address)
                elif group is not None and name == said:
                    reduced.setdefault(name, None)  # the permissions of a group that is said goodbye to are reviewed
        if not reduced:
            return []
        self._forget_topics(self.topics, {name for name in reduced if name not in self.brokers})
        left = [(self.brokers[name], address) for name, address in reduced.items() if name in self.brokers]
        for group, _ in left:
            self._wipe_if_masterless(group)
        self.forget_encoded_routes()
        return [(group, address) for group, address in left if address is not None]

    def _remove_address(self, group: Group, address: str) -> None:
        for broker_id in [i for i, known in group.addresses.items() if known == address]:
            del group.addresses[broker_id]
        if group.addresses:
            return
        del self.brokers[group.name]
        for cluster in [name for name, groups in self.clusters.items() if group.name in groups]:
            self.clusters[cluster].discard(group.name)
            if not self.clusters[cluster]:
                del self.clusters[cluster]

    def _forget_topics(self, topics: Iterable[str], group_names: Set[str]) -> None:
        """These groups serve these topics no more."""
        if not group_names:
            return
        for topic in [topic for topic in topics if not group_names.isdisjoint(self.topics.get(topic, ()))]:
            queues = self.topics[topic]
            for name in group_names & queues.keys():
                del queues[name]
                self._touch(name, removed=True)
            if not queues:
                del self.topics[topic]
            self._forget_encoded(topic)

    def _touch(self, group_name: str, *, removed: bool = False) -> None:
        """The topics of a group changed without its word."""
        self._moment += 1
        group = self.brokers.get(group_name)
        if group is not None:
            group.touched = self._moment
            group.removed = self._moment if removed else group.removed

    def _wipe_if_masterless(self, group: Group) -> None:
        """With its master gone, a group whose slave stands in can be read and not written."""
        if group.acting_master and group.smallest_id > MASTER_ID:
            self._set_perms(group.name, lambda perm: perm & ~_WRITE)

    # ── Administration ────────────────────────────────────────────────────────────────────────────────────────────

    def wipe_write_perm(self, group_name: str) -> int:
        """No more sends to this group's queues, until it registers changed topics. How many topics it has."""
        return self._set_perms(group_name, lambda perm: perm & ~_WRITE)

    def add_write_perm(self, group_name: str) -> int:
        """Sends are allowed again. How many topics it has."""
        return self._set_perms(group_name, lambda _: _READ_WRITE)

    def _set_perms(self, group_name: str, change: PermChange) -> int:
        count = 0
        for queues in self.topics.values():
            present = queues.get(group_name)
            if present is not None:
                queues[group_name] = replace(present, perm=change(present.perm))
                count += 1
        self._touch(group_name)
        self.forget_encoded_routes()
        return count

    @property
    def is_full(self) -> bool:
        """No room for another topic."""
        return len(self.topics) >= TOPICS_MAX

    def add_topic(self, topic: str, queues: list[QueueData]) -> bool:
        """A topic without its broker's word. False if it names a group that is not here, and nothing changes."""
        if not queues or any(queue.broker_name not in self.brokers for queue in queues):
            return False
        self.topics.setdefault(topic, {}).update({queue.broker_name or "": queue for queue in queues})
        for queue in queues:
            self._touch(queue.broker_name or "")
        self._forget_encoded(topic)
        return True

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Forget a topic, in one cluster or everywhere. It comes back when a broker that has it registers."""
        groups = self.clusters.get(cluster, set()) if cluster else self.brokers.keys()
        self._forget_topics([topic], groups)

    def _forget_encoded(self, topic: str) -> None:
        self._encoded.pop((topic, True), None)
        self._encoded.pop((topic, False), None)

    def forget_encoded_routes(self) -> None:
        """Something that many routes contain has changed."""
        self._encoded.clear()
        self._encoded_size = 0

    # ── Answers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def kept_route(self, topic: str, *, standard: bool) -> bytes | None:
        """The route as JSON, if it was made since it last changed."""
        return self._encoded.get((topic, standard))

    def encoded_route(self, topic: str, settings: Settings, order_conf: str | None, *, standard: bool) -> bytes | None:
        """The route as JSON; None for a topic that nobody serves. Made once, then kept until something changes."""
        encoded = self._encoded.get((topic, standard))
        if encoded is None:
            route = self.route(topic, settings, order_conf)
            if route is None:
                return None
            encoded = route.encode(standard=standard)
            if self._encoded_size + len(encoded) > ENCODED_SIZE_MAX:
                self.forget_encoded_routes()
            self._encoded[topic, standard] = encoded
            self._encoded_size += len(encoded)
        return encoded

    def route(self, topic: str, settings: Settings, order_conf: str | None) -> TopicRouteData | None:
        """Where a topic is."""
        queues = self.topics.get(topic)
        if not queues:
            return None
        acting = settings.support_acting_master and not topic.startswith(SYNC_MEMBER_TOPIC_PREFIX)
        groups = [self.brokers[name] for name in queues]
        return TopicRouteData(
            order_topic_conf=order_conf,
            queue_datas=list(queues.values()),
            broker_datas=[
                group.to_body(_with_acting_master(group, queues[group.name]) if acting else None) for group in groups
            ],
            filter_server_table=self._filter_servers_of(groups),
            topic_queue_mapping_by_broker=self.mappings.get(topic),
        )

    def _filter_servers_of(self, groups: list[Group]) -> dict[str, list[str]]:
        if not self.filter_servers:
            return {}
        members = [Member(group.cluster, address) for group in groups for address in group.addresses.values()]
        return {member.address: self.filter_servers[member] for member in members if member in self.filter_servers}

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            broker_addr_table={name: group.to_body() for name, group in self.brokers.items()},
            cluster_addr_table={cluster: sorted(groups) for cluster, groups in self.clusters.items()},
        )

    def member_group(self, cluster: str, group_name: str) -> BrokerMemberGroup:
        group = self.brokers.get(group_name)
        addresses = {} if group is None else dict(sorted(group.addresses.items()))
        return BrokerMemberGroup(cluster=cluster, broker_name=group_name, broker_addrs=addresses)

    def system_topics(self) -> TopicList:
        """Topics that clusters and brokers have under their own names, and the address of some broker."""
        names = list(self.clusters) + [name for groups in self.clusters.values() for name in sorted(groups)]
        address = next((group.addresses[group.smallest_id] for group in self.brokers.values()), None)
        return TopicList(topic_list=list(dict.fromkeys(names)), broker_addr=address)

    # ── Invariants ────────────────────────────────────────────────────────────────────────────────────────────────

    def check(self, settings: Settings, order_conf_of: Callable[[str], str | None]) -> None:
        """Asserts what the module's text promises."""
        for name, group in self.brokers.items():
            assert group.name == name and group.addresses, f"group {name} has no address"
            assert name in self.clusters.get(group.cluster, ()), f"group {name} is missing in {group.cluster}"
            members = {member.address for member, live in self.live.items() if name in live.group_names}
            assert members.issuperset(group.addresses.values()), f"group {name} has dead members {group.addresses}"
        for cluster, groups in self.clusters.items():
            assert groups and groups <= self.brokers.keys(), f"cluster {cluster} has wrong groups {groups}"
        for topic, queues in self.topics.items():
            assert queues and queues.keys() <= self.brokers.keys(), f"topic {topic} is on {list(queues)}"
        for (topic, standard), encoded in self._encoded.items():
            route = self.route(topic, settings, order_conf_of(topic))
            assert route is not None and route.encode(standard=standard) == encoded, f"outdated route of {topic}"
        assert self._encoded_size >= sum(map(len, self._encoded.values()))
        assert self._said_size == sum(map(_said_size, self.live.values()))
        assert self._mapping_count == sum(map(len, self.mappings.values()))


def _leads(header: headers.RegisterBroker, group: Group) -> bool:
    """Does this member speak for its group: as master or, since 5.0, as slave with the smallest id of all?"""
    if header.broker_id == MASTER_ID:
        return True
    return header.enable_acting_master is not None and header.broker_id == group.smallest_id


def _said_size(live: Live | None) -> int:
    return 0 if live is None or live.said is None else live.said.size_bytes


def _queues(group_name: str, config: Topic, perm_mask: int) -> QueueData:
    return QueueData(
        broker_name=group_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm & perm_mask,
        topic_sys_flag=config.topic_sys_flag,
    )


def _with_acting_master(group: Group, queues: QueueData) -> dict[int, str] | None:
    """The addresses with the smallest slave shown as master, where one may stand in and the queues are read-only."""
    if MASTER_ID in group.addresses or not group.acting_master or queues.perm & _WRITE:
        return None
    smallest = group.smallest_id
    return {MASTER_ID if i == smallest else i: address for i, address in group.addresses.items()}


def _notice(group: Group, offline: str | None, ha_address: str | None) -> Notice:
    """To those who stay when somebody left; to the others when a member came that has the smallest id now."""
    smallest = group.smallest_id
    everyone = offline is not None or len(group.addresses) == 1
    return Notice(
        [address for broker_id, address in group.addresses.items() if everyone or broker_id != smallest],
        headers.NotifyMinBrokerIdChange(
            min_broker_id=smallest,
            min_broker_addr=group.addresses[smallest],
            offline_broker_addr=offline,
            ha_broker_addr=ha_address,
        ),
    )


def unit_filter(*, unit: bool | None, subscribed: bool | None) -> Callable[[dict[str, QueueData]], bool]:
    """Topics by the unit flags of their first broker; None: does not matter."""

    def fits(queues: dict[str, QueueData]) -> bool:
        flag = next(iter(queues.values())).topic_sys_flag
        is_unit, is_subscribed = bool(flag & TopicSysFlag.UNIT), bool(flag & TopicSysFlag.UNIT_SUB)
        return unit in (None, is_unit) and subscribed in (None, is_subscribed)

    return fits
