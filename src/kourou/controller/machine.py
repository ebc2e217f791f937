"""The controller's machine: requests in, answers and other effects out.

    request ─▶ decision (decisions.py) ─▶ a record, if something changes ─▶ committed ─▶ Reply, Tell
                                     └──▶ a read, if nothing changes ─▶ this controller still leads ─▶ Reply
    heartbeats, closed connections, time ─▶ a master has died ─▶ a record ─▶ committed ─▶ Tell

Only the leader decides. Its table includes its own uncommitted records, so that a decision need not wait for the
previous one; an answer is sent only after all records on which it is based are committed. When a controller stops
leading, it answers waiting requests with CONTROLLER_NOT_LEADER; the broker then asks the next leader. All requests may
be repeated.

For `SETTLE_MS` after its start a controller considers no master dead, because the brokers' heartbeats have to arrive
first.

Java: ControllerRequestProcessor, ControllerManager.
"""

import logging
from collections import deque
from collections.abc import Callable, Hashable
from random import Random
from typing import Final, NamedTuple, assert_never

from kourou.access.errors import AccessError
from kourou.controller import decisions
from kourou.controller.access import AccessSettings
from kourou.controller.decisions import Decision, refuse
from kourou.controller.events import Asked, Effect, Event, Gone, PeerLink, Reply, Save, Saved, Tell, Tick
from kourou.controller.groups import NAME_MAX, Groups, Record
from kourou.controller.heartbeats import SILENCE_MAX_MS, SILENCE_MS, Beat, Heartbeats
from kourou.controller.member import Image, Member
from kourou.controller.settings import ControllerSettingError, ControllerSettings
from kourou.protocol import bodies, conf_text, fastjson, headers
from kourou.protocol.codes import CommandFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import ProtocolError
from kourou.protocol.headers.table import Header
from kourou.protocol.names import shown

log = logging.getLogger(__name__)

SETTLE_MS: Final = 3_000
"""How long after its start a controller waits for heartbeats before it considers a silent broker dead."""

SCAN_MS: Final = 500
"""How often the leader looks for masters whose heartbeats have stopped."""

WAITING_MAX: Final = 1_000
"""The most requests that wait for a majority of the controllers."""

BODY_MAX: Final = 64 * 1024
"""The largest body of a request, in bytes."""

NAMES_MAX: Final = 1_000
"""The most broker groups in one request."""

NOT_LEADER: Final = "The controller is not in leader state"

_ONE_WAY = int(CommandFlag.ONE_WAY)


class Waiting(NamedTuple):
    """An answer that waits for a commit."""

    asked: Asked | None  # None: the controller itself has decided
    decision: Decision
    offset: int  # the log offset that has to be committed


class Controller:
    """See the module's text."""

    def __init__(
        self,
        settings: ControllerSettings,
        image: Image | None,
        chance: Random,
        now_ms: int,
        access: AccessSettings | None = None,
    ) -> None:
        """`image` is the content of the controller's file, if there is one. Raises BadFileError, AccessError."""
        self.settings = settings
        self._credentials = None if access is None else access.inner_credentials
        self._gate = None if access is None else access.gate()
        self.member = Member(settings, image, chance, now_ms)
        self.heartbeats = Heartbeats()
        self._effects: list[Effect] = []
        self._now_ms = now_ms
        self._settled_ms = now_ms + SETTLE_MS
        self._scan_ms = self._settled_ms
        self._table: Groups | None = None  # with uncommitted changes; None: this controller does not lead
        self._term = -1
        self._waiting: deque[Waiting] = deque()
        self._reading = 0  # answers that wait for a read
        self._handlers: dict[int, Callable[[Command], Decision]] = {
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: self._alter,
            RequestCode.CONTROLLER_ELECT_MASTER: self._elect,
            RequestCode.CONTROLLER_REGISTER_BROKER: self._register,
            RequestCode.CONTROLLER_GET_REPLICA_INFO: self._replica_info,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: self._sync_state,
            RequestCode.CLEAN_BROKER_DATA: self._clean,
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: self._next_id,
            RequestCode.CONTROLLER_APPLY_BROKER_ID: self._apply_id,
        }

    def listens_at(self, address: str) -> None:
        """Set the address of a controller without peers, before the first step: port 0 means any free port."""
        self.member.addresses = {self.member.id: address}

    @property
    def is_busy(self) -> bool:
        return False

    @property
    def wake_ms(self) -> int:
        """When a Tick is due."""
        due = self.member.due_ms()
        return min(due, self._scan_ms) if self.member.is_leading else due

    def step(self, events: list[Event], now_ms: int) -> list[Effect]:
        """Process events, and return the effects to perform."""
        self._now_ms = now_ms
        for event in events:
            self._happen(event)
        self._go_on()
        if self._table is not None and now_ms >= self._scan_ms:
            self._scan_ms = now_ms + SCAN_MS
            self._replace_dead(list(self._table))
            self._go_on()
        image = self.member.image_to_save(now_ms)
        if image is not None:
            self._effects.append(Save(image))
        effects, self._effects = self._effects, []
        return effects

    def _happen(self, event: Event) -> None:
        match event:
            case Asked():
                self._ask(event)
            case Gone(connection):
                self._gone(connection)
            case Saved(error):
                self.member.saved(error, self._now_ms)
            case PeerLink(link_event):
                self.member.happen(link_event, self._now_ms)
            case Tick():
                pass
            case _:
                assert_never(event)

    # ── The group ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _go_on(self) -> None:
        """Let the group make progress; send the answers that are ready."""
        member = self.member
        self._effects += member.step(self._now_ms)
        if self._table is not None and (not member.is_leading or member.term != self._term):
            self._lead_no_more()
        if self._table is None and member.is_leading:
            self._table, self._term = dict(member.table), member.term
            self._scan_ms = max(self._now_ms, self._settled_ms)
            log.info("controller %s is now the leader groups=%d", member.id, len(self._table))
        while self._waiting and self._waiting[0].offset <= member.commit:
            waiting = self._waiting.popleft()
            if waiting.asked is None or waiting.decision.changed:
                self._finish(waiting)
            else:
                self._reading += 1
                member.read(waiting)
        if self._reading:
            self._effects += member.step(self._now_ms)
            self._finish_reads()

    def _finish_reads(self) -> None:
        ready, self.member.ready = self.member.ready, []
        failed, self.member.failed = self.member.failed, []
        self._reading -= len(ready) + len(failed)
        for token in ready:
            assert isinstance(token, Waiting)
            self._finish(token)
        for token, _ in failed:
            assert isinstance(token, Waiting)
            self._refuse(token)

    def _lead_no_more(self) -> None:
        self._table = None
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            self._refuse(one)

    def _refuse(self, waiting: Waiting) -> None:
        if waiting.asked is not None:
            self._reply(waiting.asked, refuse(ResponseCode.CONTROLLER_NOT_LEADER, NOT_LEADER))

    def _finish(self, waiting: Waiting) -> None:
        """The decision is committed: answer, and notify brokers."""
        decision = waiting.decision
        if waiting.asked is not None:
            self._reply(waiting.asked, decision)
        for name in decision.changed:
            if decision.changed[name] is None:
                self.heartbeats.forget(self._is_known)
        if decision.notify is not None:
            self._notify(decision.notify)

    def _is_known(self, name: str, number: int) -> bool:
        group = self.member.table.get(name)
        return group is not None and number in group.replicas

    def _decide(self, asked: Asked | None, decision: Decision) -> None:
        """Append the changes, and let the answer wait for the commit."""
        assert self._table is not None
        if decision.changed:
            record = Record(groups=decision.changed)
            self._table = record.apply(self._table)
            self.member.propose(record)
        self._waiting.append(Waiting(asked, decision, self.member.end))

    # ── Requests ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, asked: Asked) -> None:
        command = asked.command
        try:
            if self._gate is not None:
                self._gate.authenticate(asked, command, self._now_ms)
            if command.code == RequestCode.CONTROLLER_GET_METADATA_INFO:
                self._reply(asked, self._metadata())
            elif command.code == RequestCode.BROKER_HEARTBEAT:
                self._reply(asked, self._heartbeat(asked))
            elif command.code == RequestCode.GET_CONTROLLER_CONFIG:
                body = conf_text.dumps(self.settings.to_properties()).encode()
                self._reply(asked, Decision(body=body))
            elif command.code == RequestCode.UPDATE_CONTROLLER_CONFIG:
                self._reply(asked, self._change_settings(asked.command.body))
            elif command.code not in self._handlers:
                remark = f" request type {command.code} not supported"
                self._reply(asked, refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
            else:
                self._serve(asked)
        except AccessError as error:
            self._reply(asked, refuse(error.code, str(error)[:2_000]))
        except ProtocolError as error:
            self._reply(asked, refuse(ResponseCode.CONTROLLER_INVALID_REQUEST, str(error)[:2_000]))

    def _change_settings(self, body: bytes) -> Decision:
        """UPDATE_CONTROLLER_CONFIG: all of the changes, or none. They are in force until the controller stops."""
        if len(body) > BODY_MAX:
            return refuse(ResponseCode.SYSTEM_ERROR, f"the body has {len(body)} bytes; the limit is {BODY_MAX}")
        try:
            given = conf_text.loads(body.decode())
            self.settings = self.settings.changed_by(given)
        except (UnicodeDecodeError, ControllerSettingError) as error:
            return refuse(ResponseCode.SYSTEM_ERROR, str(error)[:2_000])
        log.info("settings of the controller changed %s", shown(given))
        return Decision()

    def _serve(self, asked: Asked) -> None:
        """Raises ProtocolError."""
        if self._table is None or not self.member.is_leading:
            self._reply(asked, refuse(ResponseCode.CONTROLLER_NOT_LEADER, NOT_LEADER))
        elif len(self._waiting) + self._reading >= WAITING_MAX:
            remark = f"{WAITING_MAX} requests wait for the other controllers: try again"
            self._reply(asked, refuse(ResponseCode.SYSTEM_BUSY, remark))
        elif len(asked.command.body) > BODY_MAX:
            remark = f"the body has {len(asked.command.body)} bytes; the limit is {BODY_MAX}"
            self._reply(asked, refuse(ResponseCode.CONTROLLER_INVALID_REQUEST, remark))
        else:
            self._decide(asked, self._handlers[asked.command.code](asked.command))

    def _reply(self, asked: Asked, decision: Decision) -> None:
        if asked.command.flag & _ONE_WAY:
            return
        ext = None if decision.header is None else decision.header.encode()
        answer = asked.command.answer(decision.code, decision.remark, ext, decision.body)
        self._effects.append(Reply(asked.connection, answer))

    @property
    def _groups(self) -> Groups:
        assert self._table is not None
        return self._table

    def _alive(self, name: str, number: int) -> Beat | None:
        return self.heartbeats.of(name, number, self._now_ms)

    def _alter(self, command: Command) -> Decision:
        header = headers.AlterSyncStateSet.decode(command.ext)
        return decisions.alter_set(self._groups, header, bodies.SyncStateSet.decode(command.body), self._alive)

    def _elect(self, command: Command) -> Decision:
        header = headers.ElectMaster.decode(command.ext)
        group = self._groups.get(header.broker_name)
        is_silent = (
            group is not None and group.master is not None and self._alive(header.broker_name, group.master) is None
        )
        if is_silent and self._now_ms < self._settled_ms:
            remark = "the controller has just started, and waits for heartbeats of the brokers: try again"
            return refuse(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, remark)
        return decisions.elect(self._groups, header, self._alive, unclean=self.settings.unclean)

    def _register(self, command: Command) -> Decision:
        header = headers.RegisterBrokerToController.decode(command.ext)
        return decisions.register(self._groups, header, self._alive)

    def _replica_info(self, command: Command) -> Decision:
        return decisions.master_of(self._groups, headers.GetReplicaInfo.decode(command.ext))

    def _sync_state(self, command: Command) -> Decision:
        names = fastjson.decode(command.body, list[str])
        if len(names) > NAMES_MAX:
            return refuse(ResponseCode.CONTROLLER_INVALID_REQUEST, f"{len(names)} names; the limit is {NAMES_MAX}")
        return decisions.replicas_of(self._groups, names, self._alive)

    def _clean(self, command: Command) -> Decision:
        return decisions.clean(self._groups, headers.CleanControllerBrokerData.decode(command.ext), self._alive)

    def _next_id(self, command: Command) -> Decision:
        return decisions.next_id(self._groups, headers.GetNextBrokerId.decode(command.ext))

    def _apply_id(self, command: Command) -> Decision:
        return decisions.apply_id(self._groups, headers.ApplyBrokerId.decode(command.ext))

    def _metadata(self) -> Decision:
        member = self.member
        leader = member.leader
        if leader == member.id and self._table is None:
            leader = None  # elected, but not ready to decide
        found = headers.GetMetadataAnswer(
            group=self.settings.group,
            controller_leader_id=leader,
            controller_leader_address=None if leader is None else member.addresses[leader],
            is_leader=leader == member.id,
            peers="".join(f"{name}:{address};" for name, address in sorted(member.addresses.items())),
        )
        return Decision(header=found)

    # ── Heartbeats ────────────────────────────────────────────────────────────────────────────────────────────────

    def _heartbeat(self, asked: Asked) -> Decision:
        """BROKER_HEARTBEAT. Raises ProtocolError."""
        header = headers.BrokerHeartbeat.decode(asked.command.ext)
        number = header.broker_id
        if number is None or len(header.broker_addr) > NAME_MAX:
            return refuse(ResponseCode.CONTROLLER_INVALID_REQUEST, "a heartbeat must have a brokerId and an address")
        if self._is_known(header.broker_name, number):
            silence = header.heartbeat_timeout_millis or SILENCE_MS
            beat = Beat(
                asked.connection,
                header.broker_addr,
                self._now_ms,
                min(max(silence, 1), SILENCE_MAX_MS),
                header.epoch or 0,
                header.max_offset or 0,
                2**31 - 1 if header.election_priority is None else header.election_priority,
            )
            self.heartbeats.beat(header.broker_name, number, beat)
        return Decision()

    def _gone(self, connection: Hashable) -> None:
        lost = self.heartbeats.gone(connection)
        if self._table is not None and self._now_ms >= self._settled_ms:
            self._replace_dead(lost)

    def _replace_dead(self, names: list[str]) -> None:
        if self._table is None or not self.member.is_leading or len(self._waiting) >= WAITING_MAX:
            return
        for name in names:
            decision = decisions.replace_dead(self._groups, name, self._alive, unclean=self.settings.unclean)
            if decision is not None:
                group = decision.changed[name]
                master = None if group is None else group.master
                log.warning("the master of group %s has died; its new master: %s", name, master or "none available")
                self._decide(None, decision)

    def _notify(self, name: str) -> None:
        """Tell the brokers of a group that it has a new master."""
        group = self.member.table.get(name)
        if group is None or group.master is None or not self.settings.notify:
            return
        header: Header = headers.NotifyBrokerRoleChanged(
            master_address=group.master_address,
            master_epoch=group.epoch,
            sync_state_set_epoch=group.set_epoch,
            master_broker_id=group.master,
        )
        for number, replica in group.replicas.items():
            beat = self._alive(name, number)
            if beat is not None and replica.address:
                command = Command(
                    RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
                    flag=_ONE_WAY,
                    ext=header.encode(),
                    body=decisions.set_of(group),
                )
                if self._credentials is not None:
                    self._credentials.sign(command)
                self._effects.append(Tell(replica.address, command, beat.connection))
