"""Changes the master of a broker group without forking the log.

    promote   a slave ─▶ would messages be lost? ─▶ a new epoch, durably ─▶ it is the master
    demote    a master ─▶ accepts no more messages ─▶ a slave has all of them ─▶ it is a slave
    compare   a slave, before it follows ─▶ the epochs of its master ─▶ records that the master does not have are saved
              in a file and cut off ─▶ it follows; a master without epochs is asked for records instead
    verdict   a master, after each registration ─▶ the members of its group ─▶ the name servers know another master
              with a newer epoch ─▶ it accepts no more messages, and becomes a slave if that master answers

Epochs are those of `store/history.py`. An epoch is durable before its first byte is written. That of a promotion leaves
a gap after the previous number (`PROMOTION_STEP`). If two brokers register as
the master, name servers keep the one with the higher epoch (`DataVersion.stateVersion`).

A role that was set by a command is stored in config/kourouRole.json, and survives restarts until `brokerRole` or
`brokerId` in broker.conf changes: then broker.conf decides. If a master opens a store that was a slave's, it begins a
new epoch. So does a master with ASYNC_FLUSH after a crash, since its slaves may have records that it has lost.

A master that may have slaves (it has a file of epochs) accepts no messages after a start until a name server has
answered or `ASK_FIRST_MS` have passed.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from kourou.broker.events import Announced, Asked, Outbox, Refused, Request
from kourou.broker.record_comparison import RefusedError, compare_records
from kourou.broker.registration import Registration
from kourou.broker.replication import Replication
from kourou.broker.role_change import RoleChange
from kourou.broker.settings import BrokerSettings, Role
from kourou.protocol import bodies, headers
from kourou.protocol.codes import MASTER_ID, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError
from kourou.store.epochs import Epochs
from kourou.store.errors import StoreError
from kourou.store.metadata import Kind, MetadataFile
from kourou.store.settings import FlushMode, StoreSettings
from kourou.store.store import Store
from kourou.store.truncation import last_record_before
from kourou.turns import Slices, Turns

log = logging.getLogger(__name__)

ASK_TIMEOUT_MS: Final = 3_000
ASK_FIRST_MS: Final = 5_000
"""How long a master waits for a name server after its start before it accepts messages."""

PROMOTION_STEP: Final = 1_000
"""How much higher the epoch of a slave that becomes the master is than the last one that it knows. A master begins an
epoch at each start after a crash, with the next number, and its slaves may not have heard of that. It must neither
equal nor outbid a slave that was promoted meanwhile, or there would be two masters."""

DEMOTE_MS: Final = 3_000
"""How long a demotion waits until a slave has all messages."""

ASK_MEMBERS_MS: Final = 500
"""How long a demotion waits for the members of the group, from a name server that has told them before."""


class RoleNote(bodies.base.Body):
    """The role of a broker, and the role in broker.conf at the time it was set."""

    role: str = "ASYNC_MASTER"
    broker_id: int = 0
    configured_role: str = "ASYNC_MASTER"
    configured_id: int = 0
    epoch: int = 0
    """The newest epoch of another master that this broker has met. The log may have no record of it."""
    in_doubt: bool = False
    """It was a master, and its log was not compared with that of the new one yet."""


ROLE = Kind("kourouRole.json", "role of this broker", RoleNote)


def role_at_start(settings: BrokerSettings, store_settings: StoreSettings, store: Store) -> bool:
    """Put the role of the broker into `settings`. True if it had to begin a new epoch. Raises OSError."""
    if settings.controller_mode:
        return False  # the controller decides
    if settings.raft:
        return False  # the group decides on roles, and its terms are the epochs
    file = store.metadata(ROLE)
    note = file.load()
    configured = settings.role.value, settings.broker_id
    if note is not None and (note.configured_role, note.configured_id) == configured:
        settings.role, settings.broker_id = Role(note.role), note.broker_id
        if (note.role, note.broker_id) != configured:
            log.warning("the role %s, set by a command, overrides the role %s of broker.conf", note.role, configured[0])
    history, begins = store.history, False
    if settings.role is not Role.SLAVE:
        was_slave = note is not None and note.role == Role.SLAVE.value
        may_have_lost = not store.report.clean and store_settings.flush_mode is FlushMode.ASYNC and history.is_kept
        begins = was_slave or may_have_lost
        if begins:
            after = max(0 if note is None else note.epoch, history.newest)
            after += PROMOTION_STEP - 1 if was_slave else 0
            log.warning("epoch %d begins at %d", *history.begin(after=after))
    settings.end_in_doubt = settings.role is Role.SLAVE and _may_be_replaced(note, store)
    if settings.role is Role.SLAVE or note is not None:
        seen = 0 if note is None else note.epoch
        _write_note(file, note, settings, configured, seen)
    return begins


def _may_be_replaced(note: RoleNote | None, store: Store) -> bool:
    """Was this slave a master with records that the new one may lack? A slave has a note from its first start on."""
    if note is None:
        return store.log.end > store.log.start
    return note.in_doubt or note.role != Role.SLAVE.value


def _write_note(
    file: MetadataFile[RoleNote],
    before: RoleNote | None,
    settings: BrokerSettings,
    configured: tuple[str, int],
    epoch: int,
) -> None:
    note = RoleNote(
        role=settings.role.value,
        broker_id=settings.broker_id,
        configured_role=configured[0],
        configured_id=configured[1],
        epoch=epoch,
        in_doubt=settings.end_in_doubt,
    )
    if note != before:
        file.write(file.encode(note))


def _in_group(_asked: Asked) -> Command:
    raise Refused(ResponseCode.SYSTEM_ERROR, "this broker belongs to a Raft group, which elects its own leader")


def _under_controller(_asked: Asked) -> Command:
    raise Refused(ResponseCode.SYSTEM_ERROR, "a controller elects the master of this group: use electMaster")


class Failover:
    """Changes the master of a group, and detects that it has changed."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        replication: Replication,
        registration: Registration,
        roles: RoleChange,
        outbox: Outbox,
        turns: Turns,
        write_ops: Callable[[int], None],
    ) -> None:
        """`write_ops` writes the pending ends of transactions before the broker stops being a master."""
        self._settings = settings
        self._store = store
        self._history = store.history
        self._replication = replication
        self._registration = registration
        self._roles = roles
        self._outbox = outbox
        self._turns = turns
        self._write_ops = write_ops
        self._file = store.metadata(ROLE)
        note = self._file.load()
        configured = settings.role.value, settings.broker_id
        self._configured = configured if note is None else (note.configured_role, note.configured_id)
        self._met = 0 if note is None else note.epoch  # the newest epoch of another master
        self._noted_doubt = note is not None and note.in_doubt  # whether the end of the log is in doubt
        self._members: dict[int, str] = {}  # of the group, as a name server has last reported them
        self._asks_members = False  # a demotion waits for that report
        self._demotion: tuple[Asked, int, int] | None = None  # the request, the broker id, the time limit
        self._asks_until_ms: int | None = None
        replication.compare = self._compare
        self._note_epoch()

    def requests(self) -> dict[int, Callable[..., Command | None]]:
        if self._settings.raft:
            return {RequestCode.PROMOTE_BROKER: _in_group, RequestCode.DEMOTE_BROKER: _in_group}
        by_controller = self._settings.controller_mode
        return {
            RequestCode.PROMOTE_BROKER: _under_controller if by_controller else self.promote,
            RequestCode.DEMOTE_BROKER: _under_controller if by_controller else self.demote,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.show_epochs,
        }

    def _note_epoch(self) -> None:
        self._registration.epoch = self._history.newest if self._history.is_kept else 0

    # ── Promotion ─────────────────────────────────────────────────────────────────────────────────────────────────

    def promote(self, asked: Request[headers.PromoteBroker]) -> Command:
        """PROMOTE_BROKER."""
        settings = self._settings
        if settings.role is not Role.SLAVE:
            return asked.command.answer(remark=f"this broker is already the master, in epoch {self._history.newest}")
        lost = self._would_lose()
        if lost is not None and not asked.header.force:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"not promoted: {lost}. Use --force to promote it anyway")
        role = Role.SYNC_MASTER if settings.in_sync_replicas > 1 else Role.ASYNC_MASTER
        epoch = self._begin_epoch(asked.now_ms)
        self._become(role, MASTER_ID, asked.now_ms)
        return asked.command.answer(remark=f"{role.value} in epoch {epoch} from {self._store.log.end} on")

    def _begin_epoch(self, now_ms: int) -> int:
        """Begin an epoch at the durable end of the log; otherwise a power failure would extend the previous epoch."""
        try:
            self._store.flush(now_ms)
            epoch = self._history.begin(after=max(self._met, self._history.newest) + PROMOTION_STEP - 1)
        except (OSError, StoreError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"not promoted: the epoch can't be written: {error}") from None
        self._note_epoch()
        log.warning("epoch %d begins at %d", *epoch)
        return epoch.number

    def _would_lose(self) -> str | None:
        """Which messages a promotion might lose; None if none, as far as this slave knows."""
        follower, end = self._replication.follower, self._store.log.end
        assert follower is not None
        if follower.is_following:
            return (
                f"the master {follower.master} is connected, and the messages that it accepts now would be lost. "
                "Demote it first (kourou admin demote), which waits until a slave has all messages"
            )
        if not follower.heard_to:
            return (
                "this slave has not heard from its master since it started, so it does not know which messages the "
                "master has acknowledged"
            )
        if follower.heard_to > end:
            return (
                f"the master's log ends at {follower.heard_to} or later, but this one at {end}: at least "
                f"{follower.heard_to - end} bytes of messages would be lost"
            )
        return None

    def _become(self, role: Role, broker_id: int, now_ms: int) -> None:
        self._roles.become(role, broker_id, now_ms)
        self._write_note()

    def _write_note(self) -> None:
        self._noted_doubt = self._settings.end_in_doubt
        try:
            _write_note(self._file, None, self._settings, self._configured, self._met)
        except OSError as error:
            log.error("the new role can't be stored: %s. Set brokerRole in broker.conf before the next start", error)

    # ── Demotion ──────────────────────────────────────────────────────────────────────────────────────────────────

    def demote(self, asked: Request[headers.DemoteBroker]) -> Command | None:
        """DEMOTE_BROKER. Answered when a slave has all messages, or after `DEMOTE_MS`."""
        if self._settings.role is Role.SLAVE:
            return asked.command.answer(remark="this broker is already a slave")
        broker_id = asked.header.broker_id or MASTER_ID
        if broker_id < MASTER_ID:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"brokerId={broker_id} is invalid: a slave's is greater than 0")
        if asked.header.force:
            self._become(Role.SLAVE, broker_id or self._free_id(self._configured[1]), asked.now_ms)
            return asked.command.answer()
        if self._demotion is not None:
            raise Refused(ResponseCode.SYSTEM_BUSY, "this broker is already being demoted: wait for the first answer")
        if self._replication.master is None or not self._replication.master.slaves:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, "not demoted: no slave follows this broker. Use --force to demote it anyway"
            )
        self._write_ops(asked.now_ms)
        self._demotion = asked, broker_id, asked.now_ms + DEMOTE_MS
        if self._members and not broker_id:  # a free id is needed, and another broker may have got one meanwhile
            self._asks_members = True
            self._ask_members()
        self._replication.fence("this broker is being demoted to a slave: send to the new master")
        return None

    # ── Steps ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def due_ms(self, now_ms: int) -> int | None:
        """When `step` is due."""
        if self._is_certain_now:
            return now_ms
        if self._demotion is not None:
            until_ms = self._demotion[2]
            if not self._is_copied:
                return until_ms
            return until_ms - DEMOTE_MS + ASK_MEMBERS_MS if self._asks_members else now_ms
        return self._asks_until_ms

    @property
    def _is_certain_now(self) -> bool:
        """The end of the log was in doubt, says the file, and is not any more."""
        return self._noted_doubt and not self._settings.end_in_doubt

    @property
    def _is_copied(self) -> bool:
        """Does a slave have the whole log?"""
        master = self._replication.master
        return master is not None and bool(master.slaves) and master.acknowledged(1) >= self._store.log.end

    def step(self, now_ms: int) -> None:
        """Complete a demotion; stop asking first."""
        if self._is_certain_now:
            self._write_note()
        if self._demotion is not None:
            self._go_on_demoting(*self._demotion, now_ms)
        if self._asks_until_ms is not None and now_ms >= self._asks_until_ms:
            log.warning("no name server knows the master of this group: messages are accepted")
            self._is_master()

    def _go_on_demoting(self, asked: Asked, broker_id: int, until_ms: int, now_ms: int) -> None:
        has_waited = not self._asks_members or now_ms >= until_ms - DEMOTE_MS + ASK_MEMBERS_MS
        if self._is_copied and has_waited:
            self._demotion = None
            self._become(Role.SLAVE, broker_id or self._free_id(self._configured[1]), now_ms)
            self._outbox.reply(asked.peer, asked.command, asked.command.answer())
        elif now_ms >= until_ms:
            self._demotion = None
            self._replication.fence(None)
            remark = (
                f"not demoted: no slave had all messages within {DEMOTE_MS} ms, so the next master would lack some. "
                "Use --force to demote it anyway"
            )
            answer = asked.command.answer(ResponseCode.SYSTEM_ERROR, remark)
            self._outbox.reply(asked.peer, asked.command, answer)

    # ── Comparing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def show_epochs(self, asked: Asked) -> Command:
        """GET_BROKER_EPOCH_CACHE."""
        settings, end = self._settings, self._store.log.end
        if not self._history.is_kept:  # as Apache's brokers answer without a controller
            raise Refused(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")
        epochs = self._history.epochs if settings.role is Role.SLAVE else self._history.all
        entries = [
            bodies.EpochEntry(epoch=number, start_offset=start, end_offset=epochs.end_of(number, max(end, start)))
            for number, start in epochs.entries
        ]
        body = bodies.EpochEntryCache(
            cluster_name=settings.cluster,
            broker_name=settings.name,
            broker_id=settings.broker_id,
            epoch_list=entries,
            max_offset=end,
        )
        return asked.command.answer(body=body.encode())

    def _compare(self, master: str, then: Callable[[str | None, int], None]) -> None:
        """A slave is about to follow a master."""
        request = Command(RequestCode.GET_BROKER_EPOCH_CACHE)
        self._outbox.ask_broker(master, request, ASK_TIMEOUT_MS, partial(self._compare_with, master, then))

    def _compare_with(
        self, master: str, then: Callable[[str | None, int], None], answer: Command | None, now_ms: int
    ) -> None:
        if self._settings.role is not Role.SLAVE:
            return
        if self._replication.master_address != master:
            then(f"{master} is no longer the master to follow", now_ms)
        elif answer is None:
            then(f"the master {master} did not answer the request for its epochs", now_ms)
        elif answer.code != ResponseCode.SUCCESS:  # an Apache broker has no epochs without a controller
            self._compare_records(master, then, now_ms)
        else:
            self._turns.start(self, self._guarded(self._agree_with(answer, now_ms), master, then, now_ms))

    def _compare_records(self, master: str, then: Callable[[str | None, int], None], now_ms: int) -> None:
        """Compare the log with that of a master without epochs."""
        store, follower = self._store, self._replication.follower
        if store.log.start >= store.log.end:
            then(None, now_ms)
            return

        def compared(result: int | Exception, now_ms: int) -> Slices[None]:
            return self._guarded(self._agree_up_to(result, now_ms), master, then, now_ms)

        def is_current() -> bool:
            return self._replication.follower is follower

        compare_records(store, self._outbox, self._turns, master, is_current, compared)

    def _guarded(
        self, work: Slices[None], master: str, then: Callable[[str | None, int], None], now_ms: int
    ) -> Slices[None]:
        """Do the work that makes this log a prefix of the master's, unless the role or the master changes."""
        replication, follower = self._replication, self._replication.follower
        problem = None
        try:
            while True:
                if replication.master_address != master:
                    raise StoreError("it is no longer the master to follow")
                yield next(work)
                if replication.follower is not follower:
                    return
        except StopIteration:
            pass
        except (BodyError, ValueError, KeyError, StoreError, OSError) as error:
            problem = f"this log can't be made a prefix of the log of the master {master}: {error}"
        then(problem, now_ms)

    def _agree_up_to(self, result: int | Exception, now_ms: int) -> Slices[None]:
        """The end of the comparison with a master without epochs. Raises `result`, StoreError, OSError, KeyError."""
        if isinstance(result, int):
            yield from self._cut_off(result, now_ms)
            if self._history.is_kept:
                self._history.adopt(self._history.epochs)
        elif isinstance(result, RefusedError):
            log.warning(
                "following the master %s without comparing the logs: %s", self._replication.master_address, result
            )
        else:
            raise result

    def _agree_with(self, answer: Command, now_ms: int) -> Slices[None]:
        """Cut off the records that the master lacks, according to its epochs.

        Raises StoreError, OSError, KeyError if that is impossible, BodyError and ValueError for an invalid answer.
        """
        theirs, their_end = _epochs_of(answer)
        log_ = self._store.log
        if log_.start < log_.end:
            cut = self._history.epochs.diverges_at(log_.end, theirs, their_end)
            if cut is None or cut < log_.start:
                raise StoreError(
                    "they have no epoch in common. Move this store away; the broker then copies the master's log"
                )
            yield from self._cut_off(cut, now_ms)
        if theirs:
            self._history.adopt(theirs)

    def _cut_off(self, cut: int, now_ms: int) -> Slices[None]:
        """Copy the log from this offset on aside, and cut it off. Raises StoreError, OSError, KeyError."""
        log_ = self._store.log
        if cut >= log_.end:
            return
        last = yield from last_record_before(log_, cut)
        folder = yield from self._history.set_aside(cut)
        log.error(
            "this log differs from the master's from %d on: %d bytes are cut off, and kept in %s",
            cut,
            log_.end - cut,
            folder,
        )
        self._roles.cut_log(cut, now_ms, last)

    # ── Answers of name servers ───────────────────────────────────────────────────────────────────────────────────

    def ask_first(self, now_ms: int) -> None:
        """Called at the start of a broker with name servers: another broker may have become the master meanwhile."""
        settings = self._settings
        if settings.raft or settings.controller_mode:
            return  # the group or the controller decides
        if settings.role is not Role.SLAVE and self._history.is_kept:
            self._asks_until_ms = now_ms + ASK_FIRST_MS
            settings.end_in_doubt = self._replication.needed > 1
            self._replication.fence("this broker asks the name servers whether its group has a newer master: try again")

    def announced(self, event: Announced) -> None:
        """A name server answered."""
        settings, answer = self._settings, event.answer
        if settings.raft or settings.role is Role.SLAVE or settings.controller_mode or answer is None:
            return
        if not self._history.is_kept:
            return
        if answer.code != ResponseCode.SUCCESS:
            return
        if event.code == RequestCode.REGISTER_BROKER:
            self._ask_members()
        elif event.code == RequestCode.GET_BROKER_MEMBER_GROUP:
            try:
                group = bodies.GetBrokerMemberGroupResponseBody.decode(answer.body).broker_member_group
            except BodyError as error:
                log.warning("the members of the group can't be decoded name_server=%s: %s", event.address, error)
                return
            self._members, self._asks_members = {} if group is None else group.broker_addrs, False
            self._judge(self._members)

    def _ask_members(self) -> None:
        """Ask the name servers who the members of the group are."""
        header = headers.GetBrokerMemberGroup(cluster_name=self._settings.cluster, broker_name=self._settings.name)
        self._outbox.announce(Command(RequestCode.GET_BROKER_MEMBER_GROUP, ext=header.encode()), ASK_TIMEOUT_MS)

    def _judge(self, members: dict[int, str]) -> None:
        """Compare the master that the name servers know with this broker; of two masters they keep the newer one."""
        master = members.get(MASTER_ID)
        if master is None or master == self._settings.address:
            self._is_master()
            return
        self._asks_until_ms = None
        reason = f"another broker, {master}, is now the master of this group"
        if self._replication.fenced != reason:
            log.error("%s: this one no longer accepts messages", reason)
            self._replication.fence(reason)
        request = Command(RequestCode.GET_BROKER_EPOCH_CACHE)
        self._outbox.ask_broker(master, request, ASK_TIMEOUT_MS, partial(self._meet_master, master))

    def _is_master(self) -> None:
        """There is no other master."""
        self._asks_until_ms = None
        self._settings.end_in_doubt = False
        if self._demotion is None:
            self._replication.fence(None)

    def _meet_master(self, master: str, answer: Command | None, now_ms: int) -> None:
        """Handle the other master's answer; without one, the next registration tries again."""
        if self._settings.role is Role.SLAVE or answer is None or answer.code != ResponseCode.SUCCESS:
            return
        try:
            theirs, _ = _epochs_of(answer)
        except (BodyError, ValueError) as error:
            log.error("the epochs of the master %s can't be decoded: %s", master, error)
            return
        if theirs.last is None or theirs.last.number <= self._history.newest:
            return
        self._met = theirs.last.number
        log.error("%s is the master in epoch %d: this broker becomes its slave", master, theirs.last.number)
        self._become(Role.SLAVE, self._free_id(), now_ms)

    def _free_id(self, wanted: int = MASTER_ID) -> int:
        """The brokerId of this broker as a slave: `wanted`, or the smallest one, if no other broker has it."""
        own = self._settings.address
        taken = {MASTER_ID} | {broker_id for broker_id, address in self._members.items() if address != own}
        free = next(number for number in range(1, len(taken) + 1) if number not in taken)
        return free if wanted in taken else wanted


def _epochs_of(answer: Command) -> tuple[Epochs, int]:
    """The epochs of a broker, and where its log ends. Raises BodyError, ValueError."""
    found = bodies.EpochEntryCache.decode(answer.body)
    return Epochs((entry.epoch, entry.start_offset) for entry in found.epoch_list), found.max_offset
