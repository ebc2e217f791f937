"""A broker as the client of its controllers.

    1005 get the leader ─▶ 1012 get a free id ─▶ 1013 apply for it ─▶ 1003 register ─▶ 1002 elect, if without a master
                                                                                    └▶ 1004 get the master, every 5 s

A broker that has an id (`identity.py`) begins with 1003. Once it is registered, it sends heartbeats (904) to every
controller each second, so that the next leader knows which brokers are alive. The master asks for changes of the
in-sync set (1001). A controller also announces a new master (1008); the broker then asks the leader at once, so that a
forged announcement does no harm.

A restarted master may have lost the end of its log, which replicas have, so it must not continue its epoch. If all
brokers were restarted together, the controller may still name it as the master. It then resigns: it tells the
controllers that it is not alive, and sends no heartbeats until they name another master, none, or a new epoch.

Apart from heartbeats, only one request is in flight at a time. A failed request is retried after `RETRY_MS`, and each
cause is logged once.

Java: ReplicasManager, BrokerOuterAPI.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, Protocol

from kourou.broker.controlled.identity import Identity
from kourou.broker.events import Outbox
from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import ProtocolError
from kourou.protocol.headers.table import Header

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3_000
RETRY_MS: Final = 1_000
"""The pause after a failed request. Apache's brokers wait for 5 seconds."""

GONE_MS: Final = 1
"""The heartbeat timeout that a broker sends when it resigns. 0 would mean the controllers' default."""

RESIGN_PERIODS: Final = 3
"""After this many heartbeat timeouts without an election, a broker that has resigned registers again."""


class Master(NamedTuple):
    """The master of this broker's group, as a controller knows it."""

    broker_id: int
    address: str
    epoch: int
    members: frozenset[int]  # the in-sync set
    set_epoch: int


@dataclass(slots=True)
class ControllerSettings:
    """The comments give the names of the properties."""

    addresses: list[str] = field(default_factory=list)  # controllerAddr
    cluster: str = "DefaultCluster"
    name: str = "broker-a"
    heartbeat_ms: int = 1_000  # brokerHeartbeatInterval
    alive_ms: int = 10_000  # brokerNotActiveTimeoutMillis: after this time without a heartbeat a broker counts as dead
    leader_ms: int = 10_000  # syncControllerMetadataPeriod
    master_ms: int = 5_000  # syncBrokerMetadataPeriod
    priority: int = 2**31 - 1  # brokerElectionPriority: the lowest value is preferred


class Standing(NamedTuple):
    """The state of this broker's log, for heartbeats."""

    address: str
    epoch: int
    end: int  # of the log
    confirm_offset: int


class IdentityFiles(Protocol):
    """The files that store the identity."""

    def keep(self, identity: Identity) -> None:
        """Store the identity, durably. Raises OSError."""


class ControllerClient:
    """Talks to the controllers."""

    def __init__(
        self,
        settings: ControllerSettings,
        outbox: Outbox,
        files: IdentityFiles,
        identity: Identity | None,
        standing: Callable[[], Standing],
        on_master: Callable[[Master, int], bool],
    ) -> None:
        """`identity` comes from the files; if it has a check code, the controller may not have confirmed it.

        `on_master` returns False if this broker is named as the master of an epoch in which it can't lead.
        """
        self._settings = settings
        self._outbox = outbox
        self._files = files
        self._standing = standing
        self._on_master = on_master
        self._applied = identity if identity is not None and identity.check_code is not None else None
        self.identity = identity if self._applied is None else None
        self.leader: str | None = None
        self.is_registered = False
        self._next_controller = 0  # the next one to ask for the leader
        self._is_asking = False
        self._beating: set[str] = set()  # controllers that have not answered the last heartbeat
        self._leader_due_ms = self._next_ms = self._heartbeat_due_ms = 0
        self._has_master = False
        self._resigned_until_ms: int | None = None  # no heartbeats before this time; None: it has not resigned
        self._problem = ""  # as last logged

    @property
    def broker_id(self) -> int | None:
        """The id that the controller has confirmed."""
        return None if self.identity is None else self.identity.broker_id

    # ── Due work ──────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, now_ms: int) -> None:
        """Send the heartbeats and the next request if they are due."""
        if self._resigned_until_ms is not None:
            if now_ms >= self._resigned_until_ms:
                self._resigned_until_ms, self.is_registered = None, False
        elif self.is_registered and now_ms >= self._heartbeat_due_ms:
            self._send_heartbeats(now_ms, self._settings.alive_ms)
        if self._is_asking or now_ms < self._next_ms:
            return
        if self.leader is None or now_ms >= self._leader_due_ms:
            self._ask_leader()
        elif self.identity is None:
            self._ask_identity()
        elif not self.is_registered:
            self._register()
        elif not self._has_master:
            self._elect()
        else:
            self._ask_master()

    def due_ms(self) -> int | None:
        """When `step` is due if there is no event before."""
        times = [self._heartbeat_due_ms] if self.is_registered else []
        if self._resigned_until_ms is not None:
            times = [self._resigned_until_ms]
        if not self._is_asking:
            times.append(max(self._next_ms, min(self._leader_due_ms, self._next_ms)))
        return min(times, default=None)

    def look(self, now_ms: int) -> None:
        """Ask for the master now, because something has changed."""
        self._next_ms = min(self._next_ms, now_ms)

    def _send_heartbeats(self, now_ms: int, alive_ms: int) -> None:
        assert self.identity is not None
        settings, standing = self._settings, self._standing()
        self._heartbeat_due_ms = now_ms + settings.heartbeat_ms
        header = headers.BrokerHeartbeat(
            cluster_name=settings.cluster,
            broker_addr=standing.address,
            broker_name=settings.name,
            broker_id=self.identity.broker_id,
            epoch=standing.epoch,
            max_offset=standing.end,
            confirm_offset=standing.confirm_offset,
            heartbeat_timeout_millis=alive_ms,
            election_priority=settings.priority,
        )
        addresses = {*settings.addresses, *([self.leader] if self.leader is not None else [])}
        for address in addresses if alive_ms == GONE_MS else addresses - self._beating:
            self._beating.add(address)
            command = Command(RequestCode.BROKER_HEARTBEAT, ext=header.encode())
            self._outbox.ask_broker(address, command, TIMEOUT_MS, partial(self._beaten, address))

    def _beaten(self, address: str, _answer: Command | None, _now_ms: int) -> None:
        self._beating.discard(address)

    # ── Requests to the leader ────────────────────────────────────────────────────────────────────────────────────

    def _ask(
        self,
        code: RequestCode,
        header: Header,
        then: Callable[[Command, int], None],
        accepted: tuple[ResponseCode, ...] = (ResponseCode.SUCCESS,),
    ) -> None:
        """Send a request to the leader; `then` is called with an answer that has an accepted code."""
        assert self.leader is not None
        self._is_asking = True
        command = Command(code, ext=header.encode())
        self._outbox.ask_broker(self.leader, command, TIMEOUT_MS, partial(self._answered, code, then, accepted))

    def _answered(
        self,
        code: RequestCode,
        then: Callable[[Command, int], None],
        accepted: tuple[ResponseCode, ...],
        answer: Command | None,
        now_ms: int,
    ) -> None:
        self._is_asking = False
        if answer is None:
            self.leader = None
            self._failed(f"{code.name}: no answer within {TIMEOUT_MS} ms", now_ms)
        elif answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self.leader = None
            self._failed(f"{code.name}: the controller is no longer the leader", now_ms)
        elif answer.code not in accepted:
            self._refused(code, answer, now_ms)
        else:
            try:
                then(answer, now_ms)
            except ProtocolError as error:
                self._failed(f"{code.name}: the answer can't be decoded: {error}", now_ms)

    def _refused(self, code: RequestCode, answer: Command, now_ms: int) -> None:
        if answer.code in (
            ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
            ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        ):
            if not self.is_registered and self.identity is not None:
                # The controllers have lost their data, or this broker was removed: it applies for the same id.
                self._applied, self.identity = self.identity._replace(check_code=self._new_code(now_ms)), None
            self.is_registered = False
        elif code == RequestCode.CONTROLLER_APPLY_BROKER_ID:
            self._applied = None  # another broker has the id: ask for the next one
        self._failed(f"{code.name} was refused with code {answer.code}: {answer.remark}", now_ms)

    def _failed(self, problem: str, now_ms: int) -> None:
        self._next_ms = now_ms + RETRY_MS
        if problem != self._problem:
            self._problem = problem
            log.warning("a request failed and will be retried controller=%s: %s", self.leader, problem)

    def _ask_leader(self) -> None:
        addresses = self._settings.addresses
        address = addresses[self._next_controller % len(addresses)]
        self._next_controller += 1
        self._is_asking = True
        command = Command(RequestCode.CONTROLLER_GET_METADATA_INFO)
        self._outbox.ask_broker(address, command, TIMEOUT_MS, partial(self._take_leader, address))

    def _take_leader(self, address: str, answer: Command | None, now_ms: int) -> None:
        self._is_asking = False
        if answer is None or answer.code != ResponseCode.SUCCESS:
            reason = "no answer" if answer is None else f"code {answer.code}: {answer.remark}"
            if self.leader is None:
                self._failed(f"the controller at {address} did not name the leader: {reason}", now_ms)
            else:  # the known leader is used until a request to it fails
                self._leader_due_ms = now_ms + RETRY_MS
            return
        try:
            found = headers.GetMetadataAnswer.decode(answer.ext)
        except ProtocolError as error:
            self._failed(f"the controller at {address}: {error}", now_ms)
            return
        leader = found.controller_leader_address or (address if found.is_leader else None)
        if leader is None:
            self.leader = None
            self._failed(f"the controllers have no leader, according to {address}", now_ms)
            return
        if leader != self.leader:
            log.info("the leader of the controllers is %s", leader)
        self.leader = leader
        self._next_controller -= 1  # it answered: ask it again next time
        self._leader_due_ms = now_ms + self._settings.leader_ms

    # ── An id ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _new_code(self, now_ms: int) -> str:
        return f"{self._standing().address};{now_ms}"

    def _ask_identity(self) -> None:
        settings = self._settings
        if self._applied is not None:
            self._apply(self._applied)
            return
        header = headers.GetNextBrokerId(cluster_name=settings.cluster, broker_name=settings.name)
        self._ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header, self._take_free_id)

    def _take_free_id(self, answer: Command, now_ms: int) -> None:
        found = headers.GetNextBrokerIdAnswer.decode(answer.ext)
        if found.next_broker_id is None or found.next_broker_id < 1:
            self._failed(f"the controller offered the invalid id {found.next_broker_id}", now_ms)
            return
        settings = self._settings
        applied = Identity(settings.cluster, settings.name, found.next_broker_id, self._new_code(now_ms))
        if self._keep(applied, now_ms):
            self._applied = applied

    def _keep(self, identity: Identity, now_ms: int) -> bool:
        try:
            self._files.keep(identity)
        except OSError as error:
            self._failed(f"the id from the controller can't be stored: {error}", now_ms)
            return False
        return True

    def _apply(self, applied: Identity) -> None:
        header = headers.ApplyBrokerId(
            cluster_name=applied.cluster,
            broker_name=applied.name,
            applied_broker_id=applied.broker_id,
            register_check_code=applied.check_code,
        )
        self._ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, header, self._take_applied)

    def _take_applied(self, _answer: Command, now_ms: int) -> None:
        assert self._applied is not None
        identity = self._applied._replace(check_code=None)
        if self._keep(identity, now_ms):
            self._applied, self.identity = None, identity
            log.info("the controller assigned the id %d to this broker", identity.broker_id)

    # ── The master ────────────────────────────────────────────────────────────────────────────────────────────────

    def _register(self) -> None:
        assert self.identity is not None
        header = headers.RegisterBrokerToController(
            cluster_name=self._settings.cluster,
            broker_name=self._settings.name,
            broker_id=self.identity.broker_id,
            broker_address=self._standing().address,
        )
        self._ask(RequestCode.CONTROLLER_REGISTER_BROKER, header, self._take_registration)

    def _take_registration(self, answer: Command, now_ms: int) -> None:
        found = headers.RegisterBrokerToControllerAnswer.decode(answer.ext)
        self.is_registered, self._resigned_until_ms = True, None
        self._problem = ""
        self._send_heartbeats(now_ms, self._settings.alive_ms)  # only brokers that are alive are elected
        self._take_master(found, answer, now_ms)

    def _elect(self) -> None:
        assert self.identity is not None
        header = headers.ElectMaster(
            cluster_name=self._settings.cluster,
            broker_name=self._settings.name,
            broker_id=self.identity.broker_id,
            designate_elect=False,
        )
        accepted = (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
        self._ask(RequestCode.CONTROLLER_ELECT_MASTER, header, self._take_elected, accepted)

    def _take_elected(self, answer: Command, now_ms: int) -> None:
        self._take_master(headers.ElectMasterAnswer.decode(answer.ext), answer, now_ms)

    def _ask_master(self) -> None:
        header = headers.GetReplicaInfo(broker_name=self._settings.name)
        self._ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, header, self._take_replicas)

    def _take_replicas(self, answer: Command, now_ms: int) -> None:
        self._take_master(headers.GetReplicaInfoAnswer.decode(answer.ext), answer, now_ms)

    def _take_master(
        self,
        found: headers.RegisterBrokerToControllerAnswer | headers.ElectMasterAnswer | headers.GetReplicaInfoAnswer,
        answer: Command,
        now_ms: int,
    ) -> None:
        """Handle an answer to 1003, 1002 or 1004: all name the master, or say that there is none."""
        self._problem = ""
        if found.master_broker_id is None or not found.master_address or not found.master_epoch:
            self._has_master = False
            self._next_ms = now_ms + (RETRY_MS if answer.code == ResponseCode.SUCCESS else 0)
            self._return(now_ms)
            return
        self._has_master = True
        self._next_ms = now_ms + self._settings.master_ms
        members, set_epoch = _in_sync_set(answer.body)
        set_epoch = getattr(found, "sync_state_set_epoch", None) or set_epoch
        master = Master(found.master_broker_id, found.master_address, found.master_epoch, members, set_epoch)
        if self._on_master(master, now_ms):
            self._return(now_ms)
        else:
            self._resign(master, now_ms)

    def _resign(self, master: Master, now_ms: int) -> None:
        """The controllers name this broker as the master of an epoch that it can't continue."""
        self._next_ms = now_ms + RETRY_MS
        if self._resigned_until_ms is None:
            log.warning("epoch %d can't continue after a restart: this broker waits for a new election", master.epoch)
            self._send_heartbeats(now_ms, GONE_MS)
            self._resigned_until_ms = now_ms + RESIGN_PERIODS * self._settings.alive_ms

    def _return(self, now_ms: int) -> None:
        """The epoch from which this broker has resigned is over: send heartbeats again."""
        if self._resigned_until_ms is not None:
            self._resigned_until_ms = None
            self._send_heartbeats(now_ms, self._settings.alive_ms)

    def master_changed(self, now_ms: int) -> None:
        """A controller announces another master (1008): ask the leader for it, instead of trusting the message."""
        self._has_master = True  # so that this broker asks for the master before it asks for an election
        self.look(now_ms)

    # ── The in-sync set ───────────────────────────────────────────────────────────────────────────────────────────

    def alter(
        self,
        epoch: int,
        members: frozenset[int],
        set_epoch: int,
        then: Callable[[frozenset[int], int, int], None],
        failed: Callable[[int], None],
    ) -> None:
        """Ask for a new in-sync set, as the master of `epoch`; `set_epoch` is that of the set it knows.

        `then` is called with the new set, its epoch and the time; `failed` with the time, if it is unknown which set is
        in force.
        """
        if self.leader is None or self.identity is None:
            return
        header = headers.AlterSyncStateSet(
            broker_name=self._settings.name, master_broker_id=self.identity.broker_id, master_epoch=epoch
        )
        body = bodies.SyncStateSet(sync_state_set=sorted(members), sync_state_set_epoch=set_epoch).encode()
        command = Command(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, ext=header.encode(), body=body)
        self._outbox.ask_broker(self.leader, command, TIMEOUT_MS, partial(self._altered, then, failed))

    def _altered(
        self,
        then: Callable[[frozenset[int], int, int], None],
        failed: Callable[[int], None],
        answer: Command | None,
        now_ms: int,
    ) -> None:
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            try:
                members, set_epoch = _in_sync_set(answer.body)
                found = headers.AlterSyncStateSetAnswer.decode(answer.ext)
                then(members, found.new_sync_state_set_epoch or set_epoch, now_ms)
                return
            except ProtocolError as error:
                log.warning("the controller's answer with the new in-sync set can't be decoded: %s", error)
        reason = "no answer" if answer is None else f"code {answer.code}: {answer.remark}"
        if answer is None or answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self._leader_due_ms = now_ms
        log.warning("the in-sync set was not changed: %s; asking the controller for the current one", reason)
        self.look(now_ms)
        failed(now_ms)


def _in_sync_set(body: bytes) -> tuple[frozenset[int], int]:
    """Raises BodyError."""
    if not body:
        return frozenset(), 0
    found = bodies.SyncStateSet.decode(body)
    return frozenset(found.sync_state_set), found.sync_state_set_epoch
