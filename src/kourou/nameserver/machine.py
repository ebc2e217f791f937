"""The name server's machine: requests in, answers and other effects out.

    Asked ─▶ handler of its code ─▶ Reply                         routes, lists, registrations
                               └──▶ Save ─▶ (driver) ─▶ Saved ─▶ Reply     settings that must survive
    Asked (a long registration) ─▶ Turn … Turn ─▶ Reply           others are served between the turns
    Gone, Tick ─▶ brokers that are silent or cut off leave the tables ─▶ Close, Tell

`step` takes a batch of events and the time, and returns effects in the order they are to be performed. It never raises
for what a peer sent: a request that makes no sense is answered with the reason.

Java: NamesrvController, DefaultRequestProcessor, ClientRequestProcessor, KVConfigManager.
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias, assert_never

import msgspec

from kourou.nameserver import registration
from kourou.nameserver.backlog import Backlog
from kourou.nameserver.documents import Document
from kourou.nameserver.events import (
    Asked,
    Close,
    Effect,
    Event,
    Gone,
    Kept,
    NotSaved,
    Reply,
    Save,
    Saved,
    Tell,
    Tick,
    Turn,
)
from kourou.nameserver.routes import Member, Memory, Notice, Registered, Routes, unit_filter
from kourou.nameserver.settings import HIDDEN, SECRET, GuardedSettingError, SettingError, Settings
from kourou.protocol import bodies, conf_text, headers
from kourou.protocol.bodies import KVTable, QueueData, TopicList
from kourou.protocol.codes import CommandFlag, RequestCode, ResponseCode, Version
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError, ProtocolError
from kourou.protocol.frame import FRAME_SIZE_MAX
from kourou.protocol.names import shown
from kourou.turns import Slices, Turns

log = logging.getLogger(__name__)

NAMES_IN_SLICE = 1_000
"""Names of topics that are listed before others have their turn."""

ANSWER_MAX = FRAME_SIZE_MAX - 64 * 1024
"""Bytes of the largest body: nobody reads a larger frame."""

BODY_SIZE_MAX = 64 * 1024
"""Bytes of a body that is no registration."""

DIALECT_SIZE_MAX = 8 * 1024
"""Bytes of such a body in fastjson's dialect."""

LISTS_MAX = 256
"""Long answers that may wait for their turns."""

REMARK_MAX = 2_000
"""Characters of a refusal: it may repeat what the peer said."""

NAME_LENGTH_MAX = 255

is_address = re.compile(r"(?:\[[0-9A-Fa-f:.%\w]+\]|[\w.:%-]+):[0-9]{1,5}", re.ASCII).fullmatch
"""`host:port`, as brokers say where they are. Lines and terminal codes have no place in it."""

ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"
KV_SIZE_MAX = 16 * 1024 * 1024
"""Bytes of the whole KV configuration as it is written: each change writes it anew."""

ADVICE = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""What Apache adds; its tools print advice of their own after a remark that has none."""

_ONE_WAY = int(CommandFlag.ONE_WAY)
_V4_9_4 = int(Version.V4_9_4)

BUSY = "too many registrations are being read, try again"

ZONE_NAME, ZONE_MODE = "__ZONE_NAME", "__ZONE_MODE"

KvTable: TypeAlias = dict[str, dict[str, str]]


class Refused(Exception):
    """A request that is answered with a code other than success. Only inside this module."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class _Registering:
    """A registration that is being read."""

    __slots__ = ("header", "memory", "reader", "zone")

    def __init__(self, header: headers.RegisterBroker, zone: str | None) -> None:
        self.header = header
        self.zone = zone
        self.memory: Memory  # of what the member said before, when reading began
        self.reader: registration.Reader


# ── The machine ─────────────────────────────────────────────────────────────────────────────────────────────────────


class NameServer:
    """All state of one name server. Several name servers share nothing."""

    def __init__(
        self,
        settings: Settings,
        kv_config: KvTable,
        now_ms: int,
        other_properties: Mapping[str, str] | None = None,
        clock_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        """`other_properties` stood in the settings' file and are kept when it is written again.

        `clock_ns` measures slices of long answers.
        """
        self.routes = Routes()
        self._settings: Document[Settings, Asked] = Document(settings)
        self._other_properties = dict(other_properties or {})
        self._kv: Document[KvTable, Asked] = Document(kv_config)
        self._started_ms = now_ms
        self._now_ms = now_ms
        self._effects: list[Effect] = []
        self._backlog: Backlog[Asked, _Registering] = Backlog()
        self.turns = Turns(clock_ns)
        self._handlers: dict[int, Callable[[Asked], Command | Slices[Command] | None]] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._get_route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._get_cluster_info,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._get_member_group,
            RequestCode.REGISTER_BROKER: self._register_broker,
            RequestCode.UNREGISTER_BROKER: self._unregister_broker,
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._get_all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._get_topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._get_unit_topics,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._get_kv_list,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
        }

    @property
    def settings(self) -> Settings:
        return self._settings.value

    @property
    def is_busy(self) -> bool:
        """Something is unfinished, and waits for a Turn."""
        return bool(self._backlog) or self.turns.is_busy

    def bound(self, port: int) -> None:
        """The port that is listened on, for the setting 0 means any. Before the first step."""
        self._settings = Document(replace(self.settings, listen_port=port))

    def check(self) -> None:
        """Asserts the invariants of the tables; for tests, after any step."""
        self.routes.check(self.settings, self._order_conf_of)

    def step(self, events: list[Event], now_ms: int) -> list[Effect]:
        """What follows from these events, in order."""
        self._now_ms = now_ms
        effects: list[Effect] = []
        self._effects = effects
        for event in events:
            if type(event) is Asked:
                self._ask(event)
            else:
                self._happen(event)
        return effects

    def _happen(self, event: Event) -> None:
        match event:
            case Asked():
                self._ask(event)
            case Gone(connection):
                self._backlog.finish(connection)
                self.turns.drop(connection)
                self._drop(self.routes.members_on(connection), "its connection closed")
            case Tick():
                self._drop_silent()
            case Turn():
                self.turns.take_turn()
                self._take_turn()
            case Saved(document, version):
                self._saved(document, version)
            case NotSaved(document, version, reason):
                self._not_saved(document, version, reason)
            case _:
                assert_never(event)

    def _ask(self, asked: Asked) -> None:
        command = asked.command
        if self._backlog and self._backlog.holds(asked.connection):
            self._wait(asked)
            return
        handler = self._handlers.get(command.code)
        if handler is None:
            remark = f" request type {command.code} not supported"
            self._reply(asked, command.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
        else:
            self._answer(asked, handler)

    def _answer(self, asked: Asked, handler: Callable[[Asked], Command | Slices[Command] | None]) -> None:
        """What the handler says, or why it does not; nothing yet where it returns None, or works in slices."""
        answer: Command | Slices[Command] | None
        try:
            answer = handler(asked)
        except (Refused, ProtocolError) as error:
            answer = _refusal(asked, error)
        if isinstance(answer, Command):
            self._reply(asked, answer)
        elif answer is not None and self.turns.count >= LISTS_MAX:
            self._reply(asked, asked.command.answer(ResponseCode.SYSTEM_BUSY, f"{LISTS_MAX} requests wait, try again"))
        elif answer is not None:
            self.turns.start(asked.connection, self._answer_in_slices(asked, answer))

    def _answer_in_slices(self, asked: Asked, slices: Slices[Command]) -> Slices[None]:
        try:
            answer = yield from slices
        except (Refused, ProtocolError) as error:
            answer = _refusal(asked, error)
        self._reply(asked, answer)

    def _wait(self, asked: Asked) -> None:
        if self._backlog.has_room(asked):
            self._backlog.wait(asked)
        else:
            self._reply(asked, asked.command.answer(ResponseCode.SYSTEM_BUSY, BUSY))

    def _take_turn(self) -> None:
        """A slice of the next registration; when it is done, what waited behind it."""
        if not self._backlog:
            return
        asked, registering = self._backlog.next()
        finished = True

        def read_on(_: Asked) -> Command | None:
            nonlocal finished
            answer = self._read_on(asked, registering)
            finished = answer is not None
            return answer

        self._answer(asked, read_on)
        if finished:
            for waiting in self._backlog.finish(asked.connection):
                self._ask(waiting)

    def _reply(self, asked: Asked, answer: Command) -> None:
        if not asked.command.flag & _ONE_WAY:
            self._effects.append(Reply(asked.connection, answer))

    # ── Routes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _get_route(self, asked: Asked) -> Command:
        command, settings = asked.command, self.settings
        kept = self._kept_route(command)
        if kept is not None:
            return command.answer(body=kept)
        header = headers.GetRouteInfo.decode(command.ext)
        waited_ms = self._now_ms - self._started_ms
        if settings.need_wait_for_service and waited_ms < settings.wait_seconds_for_service * 1000:
            raise Refused(ResponseCode.SYSTEM_ERROR, "name server not ready")
        order_conf = self._order_conf_of(header.topic)
        standard = command.version >= _V4_9_4 or bool(header.accept_standard_json_only)
        body = self._zone_route(asked, header.topic, order_conf)
        if body is None:
            body = self.routes.encoded_route(header.topic, settings, order_conf, standard=standard)
        if body is None:
            remark = f"No topic route info in name server for the topic: {header.topic}{ADVICE}"
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, remark)
        return command.answer(body=body)

    def usual_route(self, command: Command) -> tuple[str, bool] | None:
        """What most queries ask for: the route of a topic, and whether in standard JSON. None: anything else."""
        ext = command.ext
        if command.code != RequestCode.GET_ROUTEINFO_BY_TOPIC or command.flag or ext is None or ZONE_MODE in ext:
            return None
        standard = command.version >= _V4_9_4
        if not standard and "acceptStandardJsonOnly" in ext:
            return None
        return ext.get("topic", ""), standard

    def _kept_route(self, command: Command) -> bytes | None:
        """A route that was made before."""
        asked = None if self.settings.need_wait_for_service else self.usual_route(command)
        return None if asked is None else self.routes.kept_route(asked[0], standard=asked[1])

    def _order_conf_of(self, topic: str) -> str | None:
        if not self.settings.order_message_enable:
            return None
        return self._kv.value.get(ORDER_TOPIC_NAMESPACE, {}).get(topic)

    def _zone_route(self, asked: Asked, topic: str, order_conf: str | None) -> bytes | None:
        """For a client that asks for its own zone: brokers there, and groups without a master wherever they are."""
        ext = asked.command.ext or {}
        zone = ext.get(ZONE_NAME, "")
        if not zone.strip() or ext.get(ZONE_MODE, "").lower() != "true":
            return None
        route = self.routes.route(topic, self.settings, order_conf)
        if route is None:
            return None
        near = [
            broker
            for broker in route.broker_datas
            if 0 not in broker.broker_addrs or (broker.zone_name or "").lower() == zone.lower()
        ]
        names = {broker.broker_name for broker in near}
        addresses = {address for broker in near for address in broker.broker_addrs.values()}
        return msgspec.structs.replace(
            route,
            broker_datas=near,
            queue_datas=[queues for queues in route.queue_datas if queues.broker_name in names],
            filter_server_table={a: servers for a, servers in route.filter_server_table.items() if a in addresses},
        ).encode()

    def _get_cluster_info(self, asked: Asked) -> Command:
        return asked.command.answer(body=self.routes.cluster_info().encode())

    def _get_member_group(self, asked: Asked) -> Command:
        header = headers.GetBrokerMemberGroup.decode(asked.command.ext)
        group = self.routes.member_group(header.cluster_name, header.broker_name)
        return asked.command.answer(body=bodies.GetBrokerMemberGroupResponseBody(broker_member_group=group).encode())

    # ── Brokers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _register_broker(self, asked: Asked) -> Command | None:
        command = asked.command
        header = headers.RegisterBroker.decode(command.ext)
        fault = _fault(header)
        if fault is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"register broker failed: {fault}")
        registering = _Registering(header, None if command.ext is None else command.ext.get(ZONE_NAME))
        registering.memory = memory = self.routes.memory(header, registering.zone, self.settings)
        before = memory.said if memory.may_renew or memory.may_merge else None
        small = registration.read_small(command, header, before)
        if small is not None:
            return self._take(asked, registering, small)
        registering.reader = registration.read(command, header, before, merge=memory.may_merge)
        answer = self._read_on(asked, registering, is_first=True)
        if answer is None:
            if not self._backlog.has_room(asked):
                raise Refused(ResponseCode.SYSTEM_BUSY, BUSY)
            self._backlog.start(asked, registering)
        return answer

    def _read_on(self, asked: Asked, registering: "_Registering", *, is_first: bool = False) -> Command | None:
        """The answer, if that was all there is to read; None when it takes another turn."""
        try:
            next(registering.reader)
        except StopIteration as end:
            reading: registration.Reading = end.value
        else:
            return None
        if not is_first:  # something may have happened between the turns
            memory = self.routes.memory(registering.header, registering.zone, self.settings)
            registering.memory = memory if memory.said is registering.memory.said else Memory()
        return self._take(asked, registering, reading)

    def _take(self, asked: Asked, registering: "_Registering", reading: registration.Reading) -> Command | None:
        """What was read counts, if what it builds on still holds; else all of it must be read."""
        memory = registering.memory
        if reading.is_repeated and memory.may_renew:
            return self._registered(asked, self.routes.renew(registering.header, asked.connection, self._now_ms))
        if reading.is_partial and not memory.may_merge:
            registering.memory = Memory()
            registering.reader = registration.read(asked.command, registering.header, None, merge=False)
            return self._read_on(asked, registering, is_first=True)
        return self._register(asked, registering, reading)

    def _register(self, asked: Asked, registering: "_Registering", reading: registration.Reading) -> Command:
        header = registering.header
        member = Member(header.cluster_name, header.broker_addr)
        is_new = member not in self.routes.live
        group = self.routes.brokers.get(header.broker_name)
        before = None if group is None else group.addresses.get(header.broker_id)
        if before is not None and before != header.broker_addr:
            log.warning(
                "broker registered from a second address name=%s id=%d address=%s before=%s cluster=%s: "
                "it moved, or two brokers have one name",
                shown(header.broker_name),
                header.broker_id,
                shown(header.broker_addr),
                shown(before),
                shown(header.cluster_name),
            )
        done = self.routes.register(
            header,
            reading,
            zone=registering.zone,
            connection=asked.connection,
            settings=self.settings,
            now_ms=self._now_ms,
        )
        if is_new and member in self.routes.live:
            log.info(
                "broker registered name=%s id=%d address=%s cluster=%s topics=%d",
                shown(header.broker_name),
                header.broker_id,
                shown(header.broker_addr),
                shown(header.cluster_name),
                len(reading.topics),
            )
        return self._registered(asked, done)

    def _registered(self, asked: Asked, done: Registered) -> Command:
        if done.refusal is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, done.refusal)
        if done.notice is not None:
            self._tell(done.notice)
        order_topics = self._kv.value.get(ORDER_TOPIC_NAMESPACE)
        body = b""
        if order_topics is not None and self.settings.return_order_topic_config_to_broker:
            body = KVTable(table=order_topics).encode()
        if done.master_address is None:
            return asked.command.answer(ext={}, body=body)
        answer = headers.RegisterBrokerAnswer(ha_server_addr=done.master_ha_address, master_addr=done.master_address)
        return asked.command.answer(ext=answer.encode(), body=body)

    def _unregister_broker(self, asked: Asked) -> Command:
        header = headers.UnregisterBroker.decode(asked.command.ext)
        member = Member(header.cluster_name, header.broker_addr)
        self._leave([(member, header.broker_name)], "it unregistered")
        return asked.command.answer()

    def _heartbeat(self, asked: Asked) -> Command:
        header = headers.BrokerHeartbeat.decode(asked.command.ext)
        self.routes.heartbeat(Member(header.cluster_name, header.broker_addr), self._now_ms)
        return asked.command.answer()

    def _query_data_version(self, asked: Asked) -> Command:
        header = headers.QueryDataVersion.decode(asked.command.ext)
        member = Member(header.cluster_name, header.broker_addr)
        theirs = _version_in(asked) if asked.command.body else None
        ours = self.routes.version_of(member)
        self.routes.heartbeat(member, self._now_ms)
        answer = headers.QueryDataVersionAnswer(changed=ours is None or ours != theirs)
        return asked.command.answer(ext=answer.encode(), body=b"" if ours is None else ours.encode())

    def _drop_silent(self) -> None:
        silent = self.routes.silent(self._now_ms)
        for member, connection in silent:
            self._effects.append(Close(connection, f"broker {member.address} was silent for too long"))
        self._drop([member for member, _ in silent], "it was silent for too long")

    def _drop(self, members: list[Member], why: str) -> None:
        if members:
            self._leave([(member, None) for member in members], why)

    def _leave(self, members: list[tuple[Member, str | None]], why: str) -> None:
        for member, said in members:
            live = self.routes.live.get(member)
            name = ",".join(live.group_names) if live is not None else said
            log.info(
                "broker removed name=%s address=%s cluster=%s: %s",
                shown(name or ""),
                shown(member.address),
                shown(member.cluster),
                why,
            )
        for notice in self.routes.unregister(members, self.settings):
            self._tell(notice)

    def _tell(self, notice: Notice) -> None:
        code, flag = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, CommandFlag.ONE_WAY
        for address in notice.addresses:
            live = self.routes.live_at(address)
            if live is not None:
                command = Command(code, flag=flag, ext=notice.header.encode())
                self._effects.append(Tell(address, command, live.connection))

    # ── Topics ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _get_all_topics(self, asked: Asked) -> Slices[Command]:
        yield 0
        if not self.settings.enable_all_topic_list:
            raise Refused(ResponseCode.SYSTEM_ERROR, "disable")
        return (yield from self._topic_list(asked, lambda _: True))

    def _get_topics_by_cluster(self, asked: Asked) -> Slices[Command]:
        yield 0
        self._check_topic_list_enabled()
        groups = self.routes.clusters.get(headers.GetTopicsByCluster.decode(asked.command.ext).cluster, set())
        return (yield from self._topic_list(asked, lambda queues: not groups.isdisjoint(queues)))

    def _get_system_topics(self, asked: Asked) -> Command:
        return asked.command.answer(body=self.routes.system_topics().encode())

    def _get_unit_topics(self, asked: Asked) -> Slices[Command]:
        yield 0
        self._check_topic_list_enabled()
        match asked.command.code:
            case RequestCode.GET_UNIT_TOPIC_LIST:
                fits = unit_filter(unit=True, subscribed=None)
            case RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST:
                fits = unit_filter(unit=None, subscribed=True)
            case _:
                fits = unit_filter(unit=False, subscribed=True)
        return (yield from self._topic_list(asked, fits))

    def _topic_list(self, asked: Asked, fits: Callable[[dict[str, QueueData]], bool]) -> Slices[Command]:
        """The names of topics whose queues fit, some thousand at a time."""
        topics, parts, size = self.routes.topics, [], 0
        names = list(topics)
        for at in range(0, len(names), NAMES_IN_SLICE):
            found = [name for name in names[at : at + NAMES_IN_SLICE] if name in topics and fits(topics[name])]
            if found:
                parts.append(msgspec.json.encode(found)[1:-1])
                size += len(parts[-1])
            if size > ANSWER_MAX:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"the answer would exceed {ANSWER_MAX} bytes, the largest frame "
                    "(com.rocketmq.remoting.frameMaxLength)",
                )
            yield size
        before, _, after = TopicList().encode().partition(b"[]")
        return asked.command.answer(body=b"".join((before, b"[", b",".join(parts), b"]", after)))

    def _check_topic_list_enabled(self) -> None:
        if not self.settings.enable_topic_list:
            raise Refused(ResponseCode.SYSTEM_ERROR, "disable")

    def _register_topic(self, asked: Asked) -> Command:
        topic = headers.RegisterTopicInNamesrv.decode(asked.command.ext).topic
        if not topic.isprintable() or len(topic) > NAME_LENGTH_MAX:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"topic={shown(topic)} is too long, or can't be printed")
        route = bodies.TopicRouteData.decode(_small(asked), untyped_max=DIALECT_SIZE_MAX, dialect_max=DIALECT_SIZE_MAX)
        if self.routes.is_full and topic not in self.routes.topics:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{len(self.routes.topics)} topics are registered, the limit")
        if not self.routes.add_topic(topic, route.queue_datas):
            log.info("topic not registered topic=%s: a broker of it is unknown, or there is none", shown(topic))
        return asked.command.answer()

    def _delete_topic(self, asked: Asked) -> Command:
        header = headers.DeleteTopicInNamesrv.decode(asked.command.ext)
        self.routes.delete_topic(header.topic, header.cluster_name)
        log.info("topic deleted topic=%s cluster=%s", shown(header.topic), shown(header.cluster_name or "all"))
        return asked.command.answer()

    def _wipe_write_perm(self, asked: Asked) -> Command:
        name = headers.WipeWritePerm.decode(asked.command.ext).broker_name
        count = self.routes.wipe_write_perm(name)
        log.info("write permission wiped broker=%s topics=%d", shown(name), count)
        return asked.command.answer(ext=headers.WipeWritePermAnswer(wipe_topic_count=count).encode())

    def _add_write_perm(self, asked: Asked) -> Command:
        name = headers.AddWritePerm.decode(asked.command.ext).broker_name
        count = self.routes.add_write_perm(name)
        log.info("write permission added broker=%s topics=%d", shown(name), count)
        return asked.command.answer(ext=headers.AddWritePermAnswer(add_topic_count=count).encode())

    # ── What survives a restart ───────────────────────────────────────────────────────────────────────────────────

    def _put_kv(self, asked: Asked) -> None:
        header = headers.PutKVConfig.decode(asked.command.ext)
        table = self._kv.staged
        space = {**table.get(header.namespace, {}), header.key: header.value}
        self._stage_kv({**table, header.namespace: space}, asked)

    def _delete_kv(self, asked: Asked) -> Command | None:
        header = headers.DeleteKVConfig.decode(asked.command.ext)
        space = self._kv.staged.get(header.namespace, {})
        if header.key not in space and self._kv.is_settled:
            return asked.command.answer()
        table = self._kv.staged
        if header.key in space:
            table = {**table, header.namespace: {key: value for key, value in space.items() if key != header.key}}
        self._stage_kv(table, asked)
        return None

    def _stage_kv(self, table: KvTable, asked: Asked) -> None:
        if len(kv_text(table).encode()) > KV_SIZE_MAX:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"the KV configuration would exceed {KV_SIZE_MAX} bytes, the limit"
            )
        version = self._kv.stage(table, asked)
        if version is not None:
            self._save_kv(version)

    def _save_kv(self, version: int) -> None:
        self._effects.append(Save(Kept.KV_CONFIG, version, kv_text(self._kv.staged)))

    def _get_kv(self, asked: Asked) -> Command:
        header = headers.GetKVConfig.decode(asked.command.ext)
        value = self._kv.value.get(header.namespace, {}).get(header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            raise Refused(ResponseCode.QUERY_NOT_FOUND, remark)
        return asked.command.answer(ext=headers.GetKVConfigAnswer(value=value).encode())

    def _get_kv_list(self, asked: Asked) -> Command:
        namespace = headers.GetKVListByNamespace.decode(asked.command.ext).namespace
        space = self._kv.value.get(namespace)
        if space is None:
            raise Refused(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return asked.command.answer(body=KVTable(table=space).encode())

    def _get_config(self, asked: Asked) -> Command:
        others = {
            key: HIDDEN if SECRET.search(key) else value
            for key, value in self._other_properties.items()
            if not key.startswith("tls.")
        }
        return asked.command.answer(body=conf_text.dumps({**others, **self.settings.to_properties()}).encode())

    def _update_config(self, asked: Asked) -> Command | None:
        try:
            wanted = conf_text.loads(_small(asked).decode())
        except UnicodeDecodeError:
            raise BodyError("the properties are not UTF-8 text") from None
        try:
            changed = self._settings.staged.with_request(wanted)
        except GuardedSettingError as error:
            raise Refused(ResponseCode.NO_PERMISSION, str(error)) from None
        except SettingError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from None
        if changed == self._settings.staged and self._settings.is_settled:
            return asked.command.answer()
        version = self._settings.stage(changed, asked)
        if version is not None:
            self._save_settings(version)
        return None

    def _save_settings(self, version: int) -> None:
        properties = {**self._other_properties, **self._settings.staged.to_properties()}
        self._effects.append(Save(Kept.SETTINGS, version, conf_text.dumps_escaped(properties)))

    def _saved(self, document: Kept, version: int) -> None:
        if document is Kept.KV_CONFIG:
            authors, following = self._kv.saved(version)
            if following is not None:
                self._save_kv(following)
        else:
            authors, following = self._settings.saved(version)
            if following is not None:
                self._save_settings(following)
            log.info("settings changed")
        self.routes.forget_encoded_routes()
        for asked in authors:
            self._reply(asked, asked.command.answer())

    def _not_saved(self, document: Kept, version: int, reason: str) -> None:
        authors = self._kv.failed(version) if document is Kept.KV_CONFIG else self._settings.failed(version)
        log.error("not saved document=%s: %s", document.value, reason)
        for asked in authors:
            self._reply(asked, asked.command.answer(ResponseCode.SYSTEM_ERROR, f"nothing is changed: {reason}"))


# ── Helpers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _version_in(asked: Asked) -> bodies.DataVersion:
    return bodies.DataVersion.decode(_small(asked), untyped_max=DIALECT_SIZE_MAX, dialect_max=DIALECT_SIZE_MAX)


def _small(asked: Asked) -> bytes:
    """The body of a request that has no reason to be large."""
    if len(asked.command.body) > BODY_SIZE_MAX:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"the body has {len(asked.command.body)} bytes, the limit is {BODY_SIZE_MAX}"
        )
    return asked.command.body


def _refusal(asked: Asked, error: Refused | ProtocolError) -> Command:
    code = error.code if isinstance(error, Refused) else ResponseCode.SYSTEM_ERROR
    return asked.command.answer(code, str(error)[:REMARK_MAX])


def _fault(header: headers.RegisterBroker) -> str | None:
    """What is wrong with the names and addresses of a registration: everybody is told of them, and tools print them."""
    if is_address(header.broker_addr) is None:
        return f"brokerAddr={shown(header.broker_addr)} is no host:port"
    for name, text in (
        ("brokerName", header.broker_name),
        ("clusterName", header.cluster_name),
        ("haServerAddr", header.ha_server_addr),
    ):
        if not text.isprintable() or len(text) > NAME_LENGTH_MAX:
            return f"{name}={shown(text)} is too long, or has characters that can't be printed"
    return None


class _KvFile(msgspec.Struct, rename="camel"):
    config_table: KvTable = {}


def kv_text(table: Mapping[str, Mapping[str, str]]) -> str:
    """kvConfig.json, as Apache writes it."""
    return msgspec.json.encode({"configTable": table}).decode()


def read_kv_text(text: str | bytes) -> KvTable:
    """From kvConfig.json. Raises BodyError."""
    try:
        return msgspec.json.decode(text, type=_KvFile).config_table
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BodyError(f"not a KV configuration: {error}") from None
