"""Requests of brokers: registrations, unregistrations, heartbeats, versions.

    start ─▶ Registering ─▶ renewal                          unchanged: answered at once
                    ├─ small ─────▶ apply                    decoded at once
                    └▶ read ─ … ──▶ apply ─ … ─▶ answer      in slices; the tables are changed by one request at a time

Java: DefaultRequestProcessor.
"""

import logging
import re
from collections.abc import Callable, Hashable

from kourou.nameserver import registration
from kourou.nameserver.configuration import Configuration
from kourou.nameserver.events import Asked, Close, Effect, Tell
from kourou.nameserver.groups import Member, Memory, Notice, Registered
from kourou.nameserver.limits import NAME_LENGTH_MAX
from kourou.nameserver.queries import ZONE_NAME
from kourou.nameserver.registrar import Registrar
from kourou.nameserver.requests import DIALECT_SIZE_MAX, Change, Handler, Refused, small_body
from kourou.nameserver.tables import Tables
from kourou.protocol import bodies, headers
from kourou.protocol.codes import MASTER_ID, CommandFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.names import shown
from kourou.protocol.signing import Credentials
from kourou.turns import Slices

log = logging.getLogger(__name__)

is_address = re.compile(r"(?:\[[0-9A-Fa-f:.%\w]+\]|[\w.:%-]+):[0-9]{1,5}", re.ASCII).fullmatch
"""`host:port`, the format of broker addresses. It excludes line breaks and terminal codes."""


class Registering:
    """A registration that is being decoded."""

    __slots__ = ("asked", "header", "memory", "reading", "zone")

    def __init__(self, asked: Asked, header: headers.RegisterBroker) -> None:
        self.asked = asked
        self.header = header
        self.zone = None if asked.command.ext is None else asked.command.ext.get(ZONE_NAME)
        self.memory = Memory()  # of the member's last registration, when decoding began
        self.reading: registration.Reading | None = None


class BrokerRequests:
    """Serves brokers, and removes brokers that left."""

    def __init__(
        self,
        tables: Tables,
        configuration: Configuration,
        now_ms: Callable[[], int],
        emit: Callable[[Effect], None],
        credentials: Credentials | None,
    ) -> None:
        """`credentials` sign notices to brokers."""
        self._credentials = credentials
        self.registrar = Registrar(tables)
        self._tables = tables
        self._configuration = configuration
        self._now_ms = now_ms
        self._emit = emit

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
        }

    def changes(self) -> dict[int, Change]:
        return {RequestCode.UNREGISTER_BROKER: self._unregister}

    # ── Registrations ─────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, asked: Asked) -> Registering:
        """Check a registration, and decode it if it is small. Raises Refused, ProtocolError."""
        header = headers.RegisterBroker.decode(asked.command.ext)
        registering = Registering(asked, header)
        fault = _fault(header, registering.zone)
        if fault is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"register broker failed: {fault}")
        registering.memory = self._memory(registering)
        registering.reading = registration.read_small(asked.command, header, _before(registering.memory))
        return registering

    def renewal(self, registering: Registering) -> Command | None:
        """The answer to a registration that repeats the last one; None if it must be applied."""
        reading = registering.reading
        if reading is None or not reading.is_repeated or not registering.memory.may_renew:
            return None
        asked = registering.asked
        return self._registered(asked, self.registrar.renew(registering.header, asked.connection, self._now_ms()))

    def read(self, registering: Registering) -> Slices[None]:
        """Decode the rest. Raises BodyError."""
        memory, command = registering.memory, registering.asked.command
        registering.reading = yield from registration.read(
            command, registering.header, _before(memory), merge=memory.may_merge
        )

    def apply(self, registering: Registering) -> Slices[Command]:
        """Apply a decoded registration to the tables. Raises Refused, BodyError."""
        memory = self._memory(registering)
        if memory.said is not registering.memory.said:
            memory = Memory()  # the member sent another registration since decoding began
        registering.memory = memory
        renewal = self.renewal(registering)
        if renewal is not None:
            return renewal
        reading = registering.reading
        assert reading is not None, "apply before read"
        if reading.is_partial and not memory.may_merge:
            reading = yield from registration.read(registering.asked.command, registering.header, None, merge=False)
        return (yield from self._register(registering, reading))

    def _memory(self, registering: Registering) -> Memory:
        return self.registrar.memory(registering.header, registering.zone, self._configuration.settings)

    def _register(self, registering: Registering, reading: registration.Reading) -> Slices[Command]:
        header, asked = registering.header, registering.asked
        member = Member(header.cluster_name, header.broker_addr)
        is_new = member not in self._tables.live
        self._report_second_address(header)
        done = yield from self.registrar.register(
            header,
            reading,
            zone=registering.zone,
            connection=asked.connection,
            settings=self._configuration.settings,
            now_ms=self._now_ms(),
        )
        if is_new and member in self._tables.live:
            log.info(
                "broker registered name=%s id=%d address=%s cluster=%s topics=%d",
                shown(header.broker_name),
                header.broker_id,
                shown(header.broker_addr),
                shown(header.cluster_name),
                len(reading.topics),
            )
        return self._registered(asked, done)

    def _report_second_address(self, header: headers.RegisterBroker) -> None:
        """A broker has moved, or two have the same id: these replace each other at least every 60 seconds.

        The last one counts, as with Apache's name server. Two brokers are reported once, until one of them leaves.
        """
        group = self._tables.brokers.get(header.broker_name)
        before = None if group is None else group.addresses.get(header.broker_id)
        if group is None or before is None or before == header.broker_addr:
            return
        both = frozenset((before, header.broker_addr))
        if group.contested == both:
            return
        group.contested = both
        is_running = Member(header.cluster_name, before) in self._tables.live
        remedy = (
            "If both run, stop one of them, or make it a slave (brokerRole=SLAVE with a brokerId greater than 0)"
            if header.broker_id == MASTER_ID
            else "If both run, give each slave of the group a different brokerId"
        )
        log.log(
            logging.ERROR if is_running else logging.WARNING,
            "a second broker has the same id name=%s id=%d address=%s before=%s cluster=%s. Clients find only the one "
            "that registered last. %s",
            shown(header.broker_name),
            header.broker_id,
            shown(header.broker_addr),
            shown(before),
            shown(header.cluster_name),
            remedy,
        )

    def _registered(self, asked: Asked, done: Registered) -> Command:
        if done.refusal is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, done.refusal)
        if done.notice is not None:
            self._tell(done.notice)
        body = self._configuration.order_topics
        if done.master_address is None:
            return asked.command.answer(ext={}, body=body)
        answer = headers.RegisterBrokerAnswer(ha_server_addr=done.master_ha_address, master_addr=done.master_address)
        return asked.command.answer(ext=answer.encode(), body=body)

    # ── Heartbeats ────────────────────────────────────────────────────────────────────────────────────────────────

    def _heartbeat(self, asked: Asked) -> Command:
        header = headers.BrokerHeartbeat.decode(asked.command.ext)
        self.registrar.heartbeat(Member(header.cluster_name, header.broker_addr), self._now_ms())
        return asked.command.answer()

    def _query_data_version(self, asked: Asked) -> Command:
        header = headers.QueryDataVersion.decode(asked.command.ext)
        member = Member(header.cluster_name, header.broker_addr)
        theirs = _version_in(asked) if asked.command.body else None
        live = self._tables.live.get(member)
        ours = None if live is None else live.version
        self.registrar.heartbeat(member, self._now_ms())
        answer = headers.QueryDataVersionAnswer(changed=ours is None or ours != theirs)
        return asked.command.answer(ext=answer.encode(), body=b"" if ours is None else ours.encode())

    # ── Leaving ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _unregister(self, asked: Asked) -> Slices[Command]:
        header = headers.UnregisterBroker.decode(asked.command.ext)
        member = Member(header.cluster_name, header.broker_addr)
        yield from self._leave([(member, header.broker_name)], "it unregistered")
        return asked.command.answer()

    def leave_with(self, connection: Hashable) -> Slices[None]:
        """Remove the brokers whose last registration came on a closed connection."""
        members = self._tables.members_on(connection)
        yield from self._leave([(member, None) for member in members], "its connection closed")

    def leave_silent(self) -> Slices[None]:
        """Remove brokers that were silent for too long, and close their connections."""
        silent = self._tables.silent(self._now_ms())
        for member in silent:
            connection = self._tables.live[member].connection
            self._emit(Close(connection, f"broker {member.address} was silent for too long"))
        yield from self._leave([(member, None) for member in silent], "it was silent for too long")

    def _leave(self, leaving: list[tuple[Member, str | None]], why: str) -> Slices[None]:
        for member, said in leaving:
            live = self._tables.live.get(member)
            name = ",".join(live.group_names) if live is not None else said
            log.info(
                "broker removed name=%s address=%s cluster=%s: %s",
                shown(name or ""),
                shown(member.address),
                shown(member.cluster),
                why,
            )
            yield 0
        for notice in (yield from self.registrar.unregister(leaving, self._configuration.settings)):
            self._tell(notice)

    def _tell(self, notice: Notice) -> None:
        code, flag = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, CommandFlag.ONE_WAY
        for address in notice.addresses:
            live = self._tables.live_at(address)
            if live is not None:
                command = Command(code, flag=flag, ext=notice.header.encode())
                if self._credentials is not None:
                    self._credentials.sign(command)
                self._emit(Tell(address, command, live.connection))


def _before(memory: Memory) -> registration.Said | None:
    """The state that a registration is compared with."""
    return memory.said if memory.may_renew or memory.may_merge else None


def _version_in(asked: Asked) -> bodies.DataVersion:
    return bodies.DataVersion.decode(small_body(asked), untyped_max=DIALECT_SIZE_MAX, dialect_max=DIALECT_SIZE_MAX)


def _fault(header: headers.RegisterBroker, zone: str | None) -> str | None:
    """The error in the names and addresses of a registration, if any: clients receive them, and tools print them."""
    if is_address(header.broker_addr) is None or len(header.broker_addr) > NAME_LENGTH_MAX:
        return f"brokerAddr={shown(header.broker_addr)} is not host:port"
    for name, text in (
        ("brokerName", header.broker_name),
        ("clusterName", header.cluster_name),
        ("haServerAddr", header.ha_server_addr),
        (ZONE_NAME, zone or ""),
    ):
        if not text.isprintable() or len(text) > NAME_LENGTH_MAX:
            return f"{name}={shown(text)} is too long or has unprintable characters"
    return None
