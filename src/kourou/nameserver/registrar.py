"""Broker registrations, renewals, heartbeats and removal.

A refused registration changes nothing; the sender of an outdated one (`_is_outdated`) is removed.

Brokers repeat their registration every 30 seconds. `memory` returns the last one, so that unchanged parts are neither
decoded nor applied again.

Java: RouteInfoManager, registerBroker and unRegisterBroker.
"""

from collections.abc import Hashable, Iterable, Mapping

from kourou.nameserver import limits
from kourou.nameserver.groups import Group, Live, Member, Memory, Notice, Registered, leads, notice_of, read_only
from kourou.nameserver.registration import Reading, Said, Topic
from kourou.nameserver.settings import Settings
from kourou.nameserver.tables import IN_SLICE, Tables, mapped_queues
from kourou.protocol import headers
from kourou.protocol.bodies import DataVersion, QueueData, TopicQueueMappingInfo
from kourou.protocol.codes import MASTER_ID
from kourou.turns import Slices

BROKER_TIMEOUT_MS = 120_000
"""The time without a heartbeat after which a broker is removed, unless its registration asked for another."""

_ACCEPTED = Registered()


class Registrar:
    """Adds brokers to the tables, and removes them."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    # ── Registering ───────────────────────────────────────────────────────────────────────────────────────────────

    def memory(self, header: headers.RegisterBroker, zone: str | None, settings: Settings) -> Memory:
        """The last registration of this member, if its address, id, zone and group are unchanged.

        `may_renew`: an equal registration changes nothing. `may_merge`: the tables still have its last registration, so
        that only differences must be applied. This is not so if permissions were wiped or a topic was removed since, or
        if another member registered the group's topics.
        """
        member = Member(header.cluster_name, header.broker_addr)
        live = self._tables.live.get(member)
        group = self._tables.brokers.get(header.broker_name)
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
            or settings.delete_topic_with_broker_registration  # other members may have added topics meanwhile
        ):
            return Memory()
        is_leader = leads(header, group)
        return Memory(
            live.said,
            may_renew=live.removed == group.removed and (live.led or not is_leader),
            may_merge=not is_leader or _is_in_step(member, live, group),
        )

    def renew(self, header: headers.RegisterBroker, connection: Hashable, now_ms: int) -> Registered:
        """Accept a registration that equals the last one, if `memory` says `may_renew`."""
        member = Member(header.cluster_name, header.broker_addr)
        self._tables.live[member].seen_ms = now_ms
        self._tables.set_connection(member, connection)
        return self._registered(header, self._tables.brokers[header.broker_name], None)

    def register(
        self,
        header: headers.RegisterBroker,
        reading: Reading,
        *,
        zone: str | None,
        connection: Hashable,
        settings: Settings,
        now_ms: int,
    ) -> Slices[Registered]:
        """Register a broker process and the topics of its group.

        A partial reading is accepted if the member's memory says `may_merge`.
        """
        tables = self._tables
        member = Member(header.cluster_name, header.broker_addr)
        refusal = yield from self._refusal(member, header, reading)
        if refusal is not None:
            return Registered(refusal=f"register broker failed{refusal}")
        group, known = tables.brokers.get(header.broker_name), tables.live.get(member)
        present = None if group is None else group.addresses.get(header.broker_id)
        if present and present != member.address and self._is_outdated(member, present, reading.version):
            yield from self._remove([(member, None)])
            return Registered()

        has_new_smallest = group is not None and header.broker_id < group.smallest_id
        group = self._join(header, zone)
        is_leader = leads(header, group)
        is_news = not present or known is None or known.version != reading.version
        nothing_new = not reading.topics and known is not None and _is_in_step(member, known, group)
        live = self._live(header, reading.version, connection, reading.said, now_ms)
        live.led, live.in_step = is_leader, is_leader and (is_news or nothing_new)
        tables.put_live(member, live)
        tables.set_filter_servers(member, reading.shell.filter_server_list)
        if is_leader:
            group.author = member
            yield from self._apply(group, header.broker_id, reading, is_news, settings)
        live.removed, live.touched = group.removed, group.touched
        notice = None
        if has_new_smallest and settings.notify_min_broker_id_changed:
            notice = notice_of(group, None, header.ha_server_addr)
        return self._registered(header, group, notice)

    def heartbeat(self, member: Member, now_ms: int) -> None:
        """A heartbeat. It has no effect for an unknown broker."""
        live = self._tables.live.get(member)
        if live is not None:
            live.seen_ms = now_ms

    def _refusal(self, member: Member, header: headers.RegisterBroker, reading: Reading) -> Slices[str | None]:
        """The reason to refuse a registration; None if it can be accepted."""
        yield 0
        tables, topics = self._tables, reading.topics
        group, live = tables.brokers.get(header.broker_name), tables.live.get(member)
        if len(topics) == 1 and (group is None or header.broker_id not in group.addresses):
            return ""  # a single topic is added to an existing registration
        if (live is None and len(tables.live) >= limits.BROKERS_MAX) or (
            group is None and len(tables.brokers) >= limits.BROKERS_MAX
        ):
            return f": {limits.BROKERS_MAX} brokers are registered, the limit"
        if live is not None and len({*live.group_names, header.broker_name}) > limits.NAMES_OF_BROKER_MAX:
            return f": it is registered under {len(live.group_names)} other names, the limit"
        if header.broker_name not in tables.clusters.get(header.cluster_name, ()) and (
            sum(map(len, tables.clusters.values())) >= 2 * limits.BROKERS_MAX
        ):
            return f": brokers are listed in clusters {2 * limits.BROKERS_MAX} times, the limit"
        servers = reading.shell.filter_server_list
        if len(servers) > limits.FILTER_SERVERS_MAX or max(map(len, servers), default=0) > limits.NAME_LENGTH_MAX:
            return f": more than {limits.FILTER_SERVERS_MAX} filter servers, or longer than {limits.NAME_LENGTH_MAX}"
        fault = yield from self._crowding(topics, group)
        if fault is None:
            fault = yield from self._mapping_crowding(reading.mappings)
        return fault

    def _crowding(self, topics: Mapping[str, Topic], group: Group | None) -> Slices[str | None]:
        """The reason if the tables would have too many topics."""
        tables = self._tables
        if len(tables.topics) + len(topics) > limits.TOPICS_MAX:
            new: set[str | None] = set()
            for number, config in enumerate(topics.values()):
                if config.topic_name not in tables.topics:
                    new.add(config.topic_name)
                if number % IN_SLICE == 0:
                    yield 0
            if len(tables.topics) + len(new) > limits.TOPICS_MAX:
                return f": more than {limits.TOPICS_MAX} topics, the limit"
        if tables.places + len(topics) > limits.PLACES_MAX:
            known = {} if group is None else group.queues
            count = 0
            for number, config in enumerate(topics.values()):
                count += config.topic_name not in known
                if number % IN_SLICE == 0:
                    yield 0
            if tables.places + count > limits.PLACES_MAX:
                return f": all brokers together have more than {limits.PLACES_MAX} topics, the limit"
        return None

    def _mapping_crowding(self, mappings: Mapping[str, TopicQueueMappingInfo]) -> Slices[str | None]:
        """The reason if the mappings of static topics would have too many queues."""
        count = 0
        for topic, mapping in mappings.items():
            size = mapped_queues(mapping)
            of_topic = self._tables.mappings.get(topic, {})
            others = sum(mapped_queues(other) for name, other in of_topic.items() if name != (mapping.bname or ""))
            if others + size > limits.MAPPED_QUEUES_OF_TOPIC_MAX:
                return f": a static topic maps more than {limits.MAPPED_QUEUES_OF_TOPIC_MAX} queues, the limit"
            count += size
            yield 0
        if self._tables.mapped_queues + count > limits.MAPPED_QUEUES_MAX:
            return f": static topics map more than {limits.MAPPED_QUEUES_MAX} queues, the limit"
        return None

    def _is_outdated(self, member: Member, present: str, version: DataVersion) -> bool:
        """True if the process with this broker id has a newer state: the one that registers is a stale process."""
        live = self._tables.live.get(Member(member.cluster, present))
        return live is not None and live.version.state_version > version.state_version

    def _join(self, header: headers.RegisterBroker, zone: str | None) -> Group:
        """The group, with the address of this member."""
        tables = self._tables
        group = tables.brokers.get(header.broker_name)
        if group is None:
            group = tables.add_group(header.cluster_name, header.broker_name)
        before = (group.addresses.copy(), group.zone, group.acting_master)
        tables.clusters.setdefault(header.cluster_name, set()).add(group.name)
        group.acting_master, group.zone = bool(header.enable_acting_master), zone
        group.set_address(header.broker_id, header.broker_addr)
        if before != (group.addresses, group.zone, group.acting_master):
            tables.encoded.clear()
        return group

    def _live(
        self, header: headers.RegisterBroker, version: DataVersion, connection: Hashable, said: Said, now_ms: int
    ) -> Live:
        """The state of a member that has joined its group. The fields about its topics are set later."""
        tables = self._tables
        member = Member(header.cluster_name, header.broker_addr)
        before, group = tables.live.get(member), tables.brokers[header.broker_name]
        names: tuple[str, ...] = (header.broker_name,)
        said_size = tables.said_size + said.size_bytes
        if before is not None:
            said_size -= before.said_size
            if before.group_names != names:
                names += tuple(name for name in before.group_names if self._is_listed(member, name, header.broker_name))
        timeout_ms = header.heartbeat_timeout_millis
        return Live(
            group_names=names,
            seen_ms=now_ms,
            timeout_ms=BROKER_TIMEOUT_MS if timeout_ms is None else timeout_ms,
            version=version,
            connection=connection,
            ha_address=header.ha_server_addr,
            said=said if said_size <= limits.SAID_SIZE_MAX else None,
            acting=group.acting_master,
            led=False,
            in_step=False,
            removed=group.removed,
            touched=group.touched,
        )

    def _is_listed(self, member: Member, name: str, own_name: str) -> bool:
        """True if another group than its own lists the member's address."""
        group = self._tables.brokers.get(name)
        return name != own_name and group is not None and group.has_address(member.address)

    def _apply(self, group: Group, broker_id: int, reading: Reading, is_news: bool, settings: Settings) -> Slices[None]:
        """Apply the topics of a group as its master registers them or, read-only, the slave that acts as master.

        Known topics stay unchanged unless the broker says that something changed (`is_news`): a wiped write permission
        stays wiped.
        """
        if settings.delete_topic_with_broker_registration and not reading.mappings:
            said = {config.topic_name for config in reading.topics.values()}
            yield from self._tables.drop_topics(group, [topic for topic in group.queues if topic not in said])
        masked = group.acting_master and broker_id != MASTER_ID
        for number, config in enumerate(reading.topics.values()):
            if number % IN_SLICE == IN_SLICE - 1:
                yield 0
            name = config.topic_name
            if name is None or len(name) > limits.NAME_LENGTH_MAX or not name.isprintable():
                continue
            present = group.queues.get(name)
            if present is None or is_news:
                queues = _queues(group.name, config, masked)
                if queues != present:
                    self._tables.put_queues(name, group, queues)
        for topic, mapping in reading.mappings.items() if is_news else ():
            self._tables.put_mapping(topic, mapping)
            yield 0

    def _registered(self, header: headers.RegisterBroker, group: Group, notice: Notice | None) -> Registered:
        """The information about its master that a slave needs."""
        if header.broker_id == MASTER_ID:
            return _ACCEPTED if notice is None else Registered(notice=notice)
        master = group.addresses.get(MASTER_ID)
        live = self._tables.live.get(Member(header.cluster_name, master)) if master else None
        if live is None:
            return Registered(notice=notice)
        return Registered(master_address=master, master_ha_address=live.ha_address, notice=notice)

    # ── Removal ───────────────────────────────────────────────────────────────────────────────────────────────────

    def unregister(self, leaving: Iterable[tuple[Member, str | None]], settings: Settings) -> Slices[list[Notice]]:
        """Remove members from all their groups, and from the one they name.

        Returns notices for the groups that lost their smallest broker id.
        """
        reduced = yield from self._remove(leaving)
        return [
            notice_of(group, address, None)
            for group, address in reduced
            if settings.notify_min_broker_id_changed and group.acting_master
        ]

    def _remove(self, leaving: Iterable[tuple[Member, str | None]]) -> Slices[list[tuple[Group, str]]]:
        """Remove members from all tables.

        Returns the groups that remain without the member that had their smallest id, and the address of that member.
        """
        reduced: dict[str, tuple[Group, str | None]] = {}  # by name: a group, and the address if it had the smallest id
        for member, named in leaving:
            live = self._tables.live.get(member)
            names = () if live is None else live.group_names
            for name in names if named is None or named in names else (*names, named):
                group = self._tables.brokers.get(name)
                if group is None:
                    continue
                if member.address in group.contested:
                    group.contested = frozenset()
                if group.has_address(member.address):
                    reduced[name] = group, self._leave_group(member, group) or reduced.get(name, (group, None))[1]
                elif name == named:
                    reduced.setdefault(name, (group, None))  # its permissions are updated
            self._tables.drop_live(member)
            self._tables.set_filter_servers(member, [])
            yield 0
        for group, _ in reduced.values():
            if not group.addresses:
                yield from self._tables.clear_topics(group)
            elif group.lacks_master:
                yield from self._tables.change_perms(group, read_only)
        return [(group, address) for group, address in reduced.values() if group.addresses and address is not None]

    def _leave_group(self, member: Member, group: Group) -> str | None:
        """Remove a member's address from a group. Returns the address if its id was the smallest."""
        had_smallest = group.addresses[group.smallest_id] == member.address
        group.drop_address(member.address)
        if not group.addresses:
            self._tables.remove_group(group)
        elif group.lacks_master:
            self._tables.start_changing_perms(group, read_only)
        self._tables.encoded.clear()
        return member.address if had_smallest else None


def _is_in_step(member: Member, live: Live, group: Group) -> bool:
    """True if the tables have the group's topics exactly as this member registered them last."""
    return live.in_step and live.touched == group.touched and group.author == member


def _queues(group_name: str, config: Topic, masked: bool) -> QueueData:
    return QueueData(
        broker_name=group_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=read_only(config.perm) if masked else config.perm,
        topic_sys_flag=config.topic_sys_flag,
    )
