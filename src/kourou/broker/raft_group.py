"""A broker in a Raft group: connects the machine (`kourou.raft`) to the store, the tables and the role of the broker.

    requests, services ─▶ the log ─▶ Appended ─▶ Raft.step ─▶ messages ─▶ other members
    messages, syncs ─▶ Raft.step ─▶ Append, Cut … ─▶ the log        Committed ─▶ watermark: senders, consumers

    elected ─▶ a record of the new term, and so the log before it, is committed ─▶ visible, tables read ─▶ brokerId 0
    not the leader ─▶ slave at once; its brokerId is the number in its id, plus 1

The commit offset is a watermark of `kourou.store.durability`: senders and consumers wait for it, but not for a flush.
In a group the flush mode decides whether a majority must have the bytes on disk or only in memory.

After a start it is not known how much of the log is committed, but the store shows all of it. So consumers may not read
from this broker until the group has committed the log up to where it ended at the start (`may_be_read`).

Java: DLedgerCommitLog, DLedgerRoleChangeHandler.
"""

import logging
from collections.abc import Callable
from random import Random
from typing import Final, Protocol, assert_never

from msgspec import structs

from kourou.broker.delays import Delays
from kourou.broker.events import ConnectMember, Outbox, Save
from kourou.broker.groups import Groups
from kourou.broker.message_writer import MessageWriter
from kourou.broker.offsets import Offsets
from kourou.broker.persistence import Persistence
from kourou.broker.properties import Configuration
from kourou.broker.property_values import members_of, number_of
from kourou.broker.raft_tables import RaftTables
from kourou.broker.registration import Registration
from kourou.broker.replication import Replication
from kourou.broker.request_modes import RequestModes
from kourou.broker.returning_senders import ReturningSenders
from kourou.broker.role_change import RoleChange
from kourou.broker.settings import BrokerSettings, Role
from kourou.broker.topics import Topics
from kourou.raft.events import (
    Answered,
    Append,
    Appended,
    BeginTerm,
    ChangeMembers,
    Committed,
    Cut,
    Done,
    Effect,
    Event,
    Flushed,
    Health,
    ReadReady,
    Received,
    Restart,
    RoleChanged,
    Save as SaveState,
    SaveEpochs,
    Send,
    Ship,
    Transfer,
    Trimmed,
)
from kourou.raft.leader import Leader
from kourou.raft.machine import Raft
from kourou.raft.members import Member
from kourou.raft.messages import AppendAnswer, AppendRequest
from kourou.raft.settings import RaftSettings
from kourou.raft.storage import RaftStorage, refuse_member
from kourou.raft.transport import Transport
from kourou.replication.links import Connect, LinkEvent
from kourou.replication.records import BadCopyError
from kourou.store.durability import COMMITTED
from kourou.store.errors import DiskFailedError, DiskFullError, StoreError
from kourou.store.settings import FlushMode, StoreSettings
from kourou.store.store import Store
from kourou.turns import Turns

log = logging.getLogger(__name__)

SAVED_AS: Final = "state of the group"
"""The name of the group's files in `Save` and `Saved`."""

COMMIT_MS: Final = 2_500
"""How long a send waits for a majority. Java: maxWaitAckTimeMs."""

RETRY_MS: Final = 500
"""The pause before a failed job is retried."""

GATHER_MS: Final = 5
"""How long a leader with ASYNC_FLUSH keeps new records back, at most, to send more of them together."""

GATHER_BYTES: Final = 32 * 1024
"""The most bytes that it keeps back."""

BAD_COPY_MS: Final = 5_000
"""How long a follower accepts no records after its leader sent invalid ones: the disk of the leader may be damaged."""

_HANDING_OVER: Final = (
    "[PC_SYNCHRONIZED]broker busy, start flow control for a while: another member takes over the group"
)


class RaftGroup:
    """See the module's text."""

    def __init__(
        self,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        store: Store,
        storage: RaftStorage,
        tables: RaftTables,
        writer: MessageWriter,
        outbox: Outbox,
        roles: RoleChange,
        registration: Registration,
        chance: Random,
        now_ms: int,
    ) -> None:
        """Raises BadStoreError, OSError."""
        self._settings = settings
        self._store = store
        self._storage = storage
        self._writer = writer
        self._outbox = outbox
        self._tables = tables
        self._roles = roles
        self._registration = registration
        addresses = members_of(settings.raft_peers)
        members = tuple(Member(member, True, address) for member, address in addresses.items())
        hard, raft_log = storage.open(members, adopt=settings.raft_adopt)
        raft_settings = RaftSettings(
            election_ms=settings.raft_election_ms,
            heartbeat_ms=settings.raft_heartbeat_ms,
            sync=store_settings.flush_mode is FlushMode.SYNC,
            preferred=tuple(filter(None, settings.raft_preferred.replace(",", ";").split(";"))),
        )
        self.id = settings.raft_self
        self.raft = Raft(self.id, hard, raft_log, raft_settings, chance, now_ms)
        self.transport = Transport(settings.raft_group, self.id)
        self._given = addresses  # from the configuration; used until the members are changed for the first time
        self._members_age = (-1, -1)
        self._end_at_start = store.log.end
        self._job: SaveState | SaveEpochs | Cut | Restart | None = None  # running, or failed and to be retried
        self._retry_ms: int | None = None
        self._writable = True
        self._refuses_until_ms = 0  # records of the leader are not accepted before
        self._events: list[Event] = []
        self._is_unusual = False  # something other than the growth of the log
        self._senders = ReturningSenders()
        self._gathers_to_ms = 0  # until then the leader may keep new records back, to send them together
        self.elections = 0  # that this member has won
        self.broken: str | None = None  # why this member has left the group
        self.answer: Callable[[Answered], None] = lambda _: None  # for the request that `ask` got
        store.durability.require_flush(False)
        store.durability.require(COMMITTED, raft_log.start, timeout_ms=COMMIT_MS, even_uncommitted=True)
        self._use_members()

    # ── For other parts of the broker ─────────────────────────────────────────────────────────────────────────────

    @property
    def leader(self) -> str | None:
        """The current leader, as far as this member knows."""
        return self.raft.node.leader

    @property
    def name(self) -> str:
        return self.transport.group

    @property
    def members(self) -> tuple[Member, ...]:
        """All members, with their addresses."""
        members = self.raft.node.members
        if members.version:
            return members.all
        return tuple(structs.replace(one, address=self._given.get(one.id, one.address)) for one in members.all)

    def ask(self, event: Transfer | ChangeMembers) -> None:
        """Pass on an administrator's request; `answer` is called with its result."""
        self._events.append(event)

    @property
    def is_settled(self) -> bool:
        """Is everything that the store shows committed?"""
        return self.raft.node.commit >= min(self._end_at_start, self._store.log.end)

    @property
    def may_be_read(self) -> bool:
        """May consumers read from this broker? From a follower only if that is allowed, or if there is no leader."""
        if not self.is_settled:
            return False
        return self._settings.role is not Role.SLAVE or self._settings.slave_read or self.leader is None

    @property
    def has_tables(self) -> bool:
        """Are the tables those of the group, except for the latest changes?"""
        return self._tables.is_whole

    @property
    def commit_lag(self) -> int:
        """Bytes of the log that are not committed."""
        return self._store.log.end - self.raft.node.commit

    def due_ms(self) -> int | None:
        """When `step` is due."""
        if self.broken is not None:
            return None
        tables_ms = self._tables.due_ms() if self.is_settled else None
        is_gathering = self._store.log.end != self.raft.node.log.stored
        gathered_ms = max(self._gathers_to_ms, self._senders.until_ms) if is_gathering else None
        times = (self.raft.due_ms, self.transport.due_ms(), self._retry_ms, tables_ms, gathered_ms)
        return min(time for time in times if time is not None)

    # ── What happens ──────────────────────────────────────────────────────────────────────────────────────────────

    def happen(self, event: LinkEvent, now_ms: int) -> None:
        """Handle an event of a connection to or from another member."""
        for message in self.transport.happen(event, now_ms):
            if now_ms >= self._refuses_until_ms or not (isinstance(message, AppendRequest) and message.data):
                self._events.append(Received(message))
        self._advance(now_ms)

    def saved(self, _name: str, job: int, error: str | None, now_ms: int) -> None:
        """A file of the group was written, or writing it failed."""
        if error is None:
            self._events.append(Done(job))
            self._job = None
            self._advance(now_ms)
        else:
            log.error("the state of the Raft group can't be written and will be retried: %s", error)
            self._retry_ms = now_ms + RETRY_MS

    def step(self, now_ms: int) -> None:
        """Part of a broker's step, after its requests: send new records to followers, and handle timeouts."""
        if self.broken is None:
            if self._retry_ms is not None and now_ms >= self._retry_ms and self._job is not None:
                self._retry_ms = None
                self._run(self._job, now_ms)
            self.transport.step(now_ms)
            self._advance(now_ms)

    def settle(self, now_ms: int) -> None:
        """Part of a broker's step, after records have become visible: read or write the tables."""
        self._publish(now_ms)
        self._tables.writer.write(now_ms)
        self._advance(now_ms)

    def _publish(self, now_ms: int) -> None:
        """Read new entries of the tables, and become master if this member leads and is ready."""
        if self.broken is not None or not self.is_settled:
            return
        self._tables.read(now_ms)
        role = self.raft.role
        if (
            isinstance(role, Leader)
            and self._settings.role is Role.SLAVE
            and role.is_open
            and role.has_committed
            and self._store.dispatched >= role.start
            and self._tables.is_current
        ):
            self.elections += 1
            self._registration.is_on = True
            self._registration.epoch = self.raft.node.term  # if two brokers lead, name servers prefer the newer term
            self._roles.become(Role.SYNC_MASTER, 0, now_ms)
            self._tables.lead(now_ms)

    def transfer(self, now_ms: int) -> bool:
        """Send records that were appended outside of a step. True: the rules for the lane have changed."""
        before = self._settings.role, self._writer.paused
        self._advance(now_ms)
        return before != (self._settings.role, self._writer.paused)

    def needs_step(self) -> bool:
        """After messages of members: is a usual step necessary?

        No, if all that has happened is that the log has grown, or that more of it is committed.
        """
        is_unusual, self._is_unusual = self._is_unusual, False
        is_to_lead = isinstance(self.raft.role, Leader) and self._settings.role is Role.SLAVE
        return is_unusual or is_to_lead or not self._tables.is_current

    def _advance(self, now_ms: int) -> None:
        """Report the state of the log to the machine, and perform its effects."""
        while self.broken is None:
            events = self._news(now_ms)
            if not events and now_ms < self.raft.due_ms:
                break
            for effect in self._step(events, now_ms):
                self._perform(effect, now_ms)
        is_paused = self._is_handing_over
        self._is_unusual |= is_paused is not self._tables.writer.is_paused
        self._writer.paused = _HANDING_OVER if is_paused else None
        self._tables.writer.is_paused = is_paused
        self._use_members()
        for connection_effect in self.transport.take_effects():
            if isinstance(connection_effect, Connect):
                self._outbox.put(ConnectMember(connection_effect.address))
            else:
                self._outbox.put(connection_effect)

    def _step(self, events: list[Event], now_ms: int) -> list[Effect]:
        """After an internal error, the state of the machine is unknown: the member must not continue."""
        try:
            return self.raft.step(events, now_ms)
        except Exception as error:
            self._leave(f"an internal error: {type(error).__name__}: {error}. Restart the broker")
            if self._settings.role is not Role.SLAVE:
                self._tables.follow()
                self._roles.become(Role.SLAVE, number_of(self.id) + 1, now_ms)
            raise

    def _leave(self, reason: str) -> None:
        self.broken = reason
        log.critical("this member leaves its group: %s", reason)

    @property
    def _is_handing_over(self) -> bool:
        role = self.raft.role
        return isinstance(role, Leader) and role.has_begun and not role.is_open

    def _news(self, now_ms: int) -> list[Event]:
        events, self._events = self._events, []
        store, known = self._store, self.raft.node.log
        end = known.stored
        if store.log.end != end and not self._gathers(events, now_ms):
            end = store.log.end
            self._gathers_to_ms = now_ms + GATHER_MS
            is_leader = isinstance(self.raft.role, Leader)  # a follower may have cut its log, which comes first
            events.insert(0 if is_leader else len(events), Appended(end))
        flushed = store.durability.flushed
        is_cutting = isinstance(self._job, Cut | Restart)  # then syncs count after it
        if not is_cutting and known.durable < min(end, flushed):
            events.append(Flushed(flushed))
        if store.log.start > known.start and store.log.end > store.log.start:
            events.append(Trimmed(store.log.start))
        writable = store.refusal is None
        if writable != self._writable:
            self._writable = writable
            events.append(Health(writable))
        return events

    def _gathers(self, events: list[Event], now_ms: int) -> bool:
        """Should new records of a leader wait, to be sent to the followers together with later ones?

        They wait while the last ones are not committed, and for senders that are about to return. With SYNC_FLUSH
        they do not wait, because the sync gathers them. Anything but answers of followers needs the log as it is.
        """
        role, raft = self.raft.role, self.raft
        if not isinstance(role, Leader) or not role.is_open or raft.node.settings.sync:
            return False
        if self._store.log.end - raft.node.log.stored >= GATHER_BYTES:
            return False
        if any(type(event) is not Received or type(event.message) is not AppendAnswer for event in events):
            return False
        if raft.node.commit < raft.node.log.stored:
            return now_ms < self._gathers_to_ms
        return self._senders.are_expected(self._writer.waiting, now_ms)

    def _use_members(self) -> None:
        members = self.raft.node.members
        if members.age != self._members_age:
            self._members_age = members.age
            self.transport.use({member.id: member.address for member in self.members if member.id != self.id})

    # ── Effects of the machine ────────────────────────────────────────────────────────────────────────────────────

    def _perform(self, effect: Effect, now_ms: int) -> None:
        match effect:
            case Send(to, message):
                self.transport.send(to, message)
            case Ship(to, message, size):
                self._ship(to, effect, size)
            case Append(offset, data):
                self._append(offset, data, now_ms)
            case Committed(offset):
                before = self._writer.waiting
                for token in self._store.durability.reached(COMMITTED, offset):
                    self._writer.now_durable(token)
                if self._writer.waiting < before:
                    self._senders.answered(before - self._writer.waiting, self._writer.waiting, now_ms)
                self._is_unusual |= self._tables.writer.committed(offset)
            case _:
                self._is_unusual = True
                self._perform_unusual(effect, now_ms)

    def _perform_unusual(self, effect: Effect, now_ms: int) -> None:
        match effect:
            case SaveState() | SaveEpochs() | Cut() | Restart():
                self._run(effect, now_ms)
            case BeginTerm(term):
                self._begin_term(term, now_ms)
            case RoleChanged(role, term, leader):
                self._role_changed(role, term, leader, now_ms)
            case Answered():
                self.answer(effect)
            case ReadReady() | Send() | Ship() | Append() | Committed():
                pass
            case _:
                assert_never(effect)

    def _ship(self, to: str, effect: Ship, size: int) -> None:
        try:
            data = self._storage.read(effect.message.previous, size) if size else None
        except (KeyError, OSError) as error:
            log.error("the log can't be read at %d, so nothing is sent to %s: %s", effect.message.previous, to, error)
        else:
            self.transport.send(to, effect.message, data)

    def _append(self, offset: int, data: bytes, now_ms: int) -> None:
        try:
            if offset == self._store.log.end:  # otherwise an earlier append of this step has failed
                self._storage.append(offset, data, now_ms)
        except (DiskFullError, DiskFailedError) as error:
            if self._writable:
                log.error("the log of the leader can't be copied, because this member can't write: %s", error)
            self._writable = False
            self._is_unusual = True
            self._events.append(Health(False))
        except BadCopyError as error:
            self._refuses_until_ms = now_ms + BAD_COPY_MS  # otherwise the leader would send the same again at once
            log.error("the leader sent invalid records at %d, which are ignored: %s", offset, error)
        self._events.append(Appended(self._store.log.end))

    def _begin_term(self, term: int, now_ms: int) -> None:
        try:
            self._storage.begin_term(term, self.id, now_ms)
        except StoreError as error:
            log.error("this member was elected but can't lead, because it can't write to the log: %s", error)
            self._writable = False
            self._events.append(Health(False))
        else:
            self._events.append(Appended(self._store.log.end))

    def _role_changed(self, role: str, term: int, leader: str | None, now_ms: int) -> None:
        log.info("group %s: %s is %s in term %d, leader %s", self._settings.raft_group, self.id, role, term, leader)
        if role != "leader" and self._settings.role is not Role.SLAVE:
            self._tables.follow()
            self._roles.become(Role.SLAVE, number_of(self.id) + 1, now_ms)
        if leader is not None and leader != self.id:
            self._registration.is_on = True

    def _run(self, job: SaveState | SaveEpochs | Cut | Restart, now_ms: int) -> None:
        self._job = job
        match job:
            case SaveState(number, state):
                self._outbox.put(Save(SAVED_AS, number, self._storage.state_file, state))
            case SaveEpochs(number, epochs):
                self._outbox.put(Save(SAVED_AS, number, self._storage.epoch_file, epochs))
            case Cut() | Restart():
                self._change_log(job, now_ms)

    def _change_log(self, job: Cut | Restart, now_ms: int) -> None:
        try:
            if isinstance(job, Cut):
                self._roles.cut_log(job.end, now_ms)
            else:
                self._storage.restart(job.start)
        except (StoreError, OSError) as error:
            if self._store.log.failed is not None:
                log.error("the log can't be cut and will be retried: %s", error)
                self._retry_ms = now_ms + RETRY_MS
            else:
                self._leave(f"the log can't be cut: {error}. Restart the broker once the disk works again")
            return
        self._job = None
        self._tables.log_was_cut()
        self._end_at_start = min(self._end_at_start, self._store.log.end)
        self._events.append(Done(job.job))


class _Due(Protocol):
    def due_ms(self) -> int | None: ...


def due_ms_of(group: _Due | None) -> int | None:
    """When a step of the broker is due for its group; None if the broker has none."""
    return None if group is None else group.due_ms()


def join_group(
    configuration: Configuration,
    store: Store,
    tables: tuple[Topics, Groups, Offsets, Delays, RequestModes],
    persistence: Persistence,
    turns: Turns,
    parts: tuple[MessageWriter, Outbox, RoleChange, Registration, Replication],
    chance: Random,
    now_ms: int,
) -> RaftGroup | None:
    """The Raft group of a broker, which from now on decides its role; None if it belongs to none.

    Raises BadStoreError, OSError.
    """
    if not configuration.broker.raft:
        refuse_member(store)
        return None
    storage = RaftStorage(store)
    in_log = RaftTables(store, storage, *tables, persistence, turns)
    writer, outbox, roles, registration, replication = parts
    group = RaftGroup(
        configuration.broker,
        configuration.store,
        store,
        storage,
        in_log,
        writer,
        outbox,
        roles,
        registration,
        chance,
        now_ms,
    )
    persistence.also_safe = in_log.writer.wait
    replication.raft = group
    return group
