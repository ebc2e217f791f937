"""The role of a broker under a controller: it leads its group, or follows the master that the controller elected.

    start ─▶ fenced: a slave that is not registered at name servers
             └─▶ the controller names a master of a higher epoch than the last one
                   ├─ this broker ─▶ the epoch is written ─▶ it accepts messages, sends its log, keeps the in-sync set
                   │    └ it led that epoch before it was restarted ─▶ it waits for another election
                   └─ another broker ─▶ it follows that one, once a name server returns the address of its HA port

The in-sync set (`in_sync.py`) decides what senders and consumers wait for. A replica that has nearly caught up joins in
two steps: first senders wait for it as well; once it has all messages that were acknowledged before, the controller is
asked to add it.

Java: ReplicasManager.
"""

import logging
from typing import Final

from kourou.broker.controlled.client import ControllerClient, ControllerSettings, Master, Standing
from kourou.broker.controlled.history import CONFIRMED, HistoryCopy, HistorySource
from kourou.broker.controlled.identity import FILE, TEMPORARY_FILE, Identity
from kourou.broker.controlled.in_sync import InSyncSet
from kourou.broker.events import Asked, Outbox, Refused, Request
from kourou.broker.metadata_sync import MetadataSync
from kourou.broker.registration import Registration
from kourou.broker.replication import Replication
from kourou.broker.role_change import RoleChange
from kourou.broker.serving import Serve
from kourou.broker.settings import BrokerSettings, Role
from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.replication.epoch_follower import EpochFollower
from kourou.replication.epoch_frames import Hello
from kourou.replication.epoch_master import EpochMaster
from kourou.replication.follower import Follower, FollowerSettings
from kourou.replication.master import Master as Sender, MasterSettings
from kourou.store.errors import BadStoreError, StoreError
from kourou.store.settings import FlushMode
from kourou.store.store import Store

log = logging.getLogger(__name__)

JOIN_GAP: Final = 1024 * 1024
"""The most bytes that a replica may be behind when senders begin to wait for it."""

JOIN_MS: Final = 1_000
"""How long senders wait for a joining replica; and the pause before it may join if it did not catch up."""

RETRY_MS: Final = 500
"""The pause after the controller refused a change of the set."""


class _Files:
    """The files with the identity of this broker."""

    def __init__(self, store: Store) -> None:
        self._disk, self._root = store.disk, store.paths.root

    def read(self) -> Identity | None:
        """Raises BadStoreError, OSError."""
        for name in (FILE, TEMPORARY_FILE):
            content = self._disk.read(self._root / name)
            if content:
                try:
                    return Identity.decode(content)
                except ValueError as error:
                    raise BadStoreError(f"{self._root / name} is invalid: {error}. Restore or remove it") from None
        return None

    def keep(self, identity: Identity) -> None:
        name = FILE if identity.check_code is None else TEMPORARY_FILE
        self._disk.replace(self._root / name, identity.encode())
        if identity.check_code is None:
            self._disk.remove(self._root / TEMPORARY_FILE)


class ControlledGroup:
    """This broker in its group."""

    def __init__(self, settings: BrokerSettings, flush_mode: FlushMode, store: Store, outbox: Outbox) -> None:
        """Raises BadStoreError, OSError if the file of epochs or identity can't be read."""
        self._settings = settings
        self._flush_mode = flush_mode
        self._store = store
        self.history = store.history
        files = _Files(store)
        identity = files.read()
        if identity is not None and (identity.cluster, identity.name) != (settings.cluster, settings.name):
            raise BadStoreError(
                f"this store belongs to the broker {identity.name} of the cluster {identity.cluster}, not to "
                f"{settings.name} of {settings.cluster}: correct brokerName and brokerClusterName, or use another store"
            )
        self.client = ControllerClient(
            ControllerSettings(
                addresses=[word.strip() for word in settings.controllers.split(";") if word.strip()],
                cluster=settings.cluster,
                name=settings.name,
                heartbeat_ms=settings.controller_heartbeat_ms,
                alive_ms=settings.controller_alive_ms,
                leader_ms=settings.controller_leader_ms,
                master_ms=settings.controller_master_ms,
                priority=settings.election_priority,
            ),
            outbox,
            files,
            identity,
            self._standing,
            self._master_is,
        )
        self.master: Master | None = None  # of the group; None until a controller has named one
        self.in_sync: InSyncSet | None = None  # while this broker leads
        self._sender: EpochMaster | None = None
        self._copy: HistoryCopy | None = None
        self._roles: RoleChange | None = None
        self._replication: Replication | None = None
        self._metadata_sync: MetadataSync | None = None
        self._registration: Registration | None = None
        self._is_proposing = False
        self._propose_ms = 0
        self._joined_at = self._join_ms = 0
        self._now_ms = 0
        settings.role, settings.broker_id = Role.SLAVE, self._slave_id

    def join(
        self,
        roles: RoleChange,
        replication: Replication,
        metadata_sync: MetadataSync,
        registration: Registration,
    ) -> None:
        """Connect the parts of the broker that are created later."""
        self._roles, self._registration = roles, registration
        self._replication, self._metadata_sync = replication, metadata_sync
        registration.is_fenced = True

    @property
    def _slave_id(self) -> int:
        """The brokerId of this broker as a slave; 1 until the controller has assigned an id."""
        return self.client.broker_id or 1

    def _standing(self) -> Standing:
        confirmed = min(self._store.durability.visible_to, self._store.log.end)
        epoch = self.master.epoch if self.master is not None else self._last_epoch
        return Standing(self._settings.address, epoch, self._store.log.end, confirmed)

    @property
    def _last_epoch(self) -> int:
        return self.history.newest if self.history.is_kept else 0

    # ── Both ends of replication ──────────────────────────────────────────────────────────────────────────────────

    def make_sender(self, settings: MasterSettings) -> Sender:
        self._stop_copying()
        self._sender = EpochMaster(HistorySource(self._store, self._flush_mode, self.history), settings)
        return self._sender

    def make_follower(self, settings: FollowerSettings) -> Follower:
        self._sender = self.in_sync = None
        self._stop_copying()
        self._store.durability.require(CONFIRMED, self._store.log.end, timeout_ms=None, even_uncommitted=True)
        self._copy = HistoryCopy(self._store, self._flush_mode, self.history, self._cut)
        return EpochFollower(self._copy, settings, self._hello, write_errors=(StoreError,))

    def _stop_copying(self) -> None:
        if self._copy is not None:
            self._store.durability.drop(CONFIRMED)
            self._copy = None

    def _hello(self) -> Hello:
        return Hello(self._slave_id, from_last_file=False, is_learner=self._settings.is_learner)

    def _cut(self, end: int) -> None:
        assert self._roles is not None
        self._roles.cut_log(end, self._now_ms)

    @property
    def may_be_read(self) -> bool:
        """False for a slave until its log agrees with a master's: some of its messages may be cut off until then."""
        return self._copy is None or self._copy.has_agreed

    # ── The master ────────────────────────────────────────────────────────────────────────────────────────────────

    def _master_is(self, master: Master, now_ms: int) -> bool:
        """A controller names the master. Only a higher epoch than the last one changes roles.

        False: it is this broker, which led this epoch before a restart and may have lost messages that replicas have.
        """
        known = self.master
        if known is not None and master.epoch < known.epoch:
            return True
        if known is None or master.epoch > known.epoch:
            self._now_ms = now_ms
            if master.broker_id == self.client.broker_id and master.epoch == self._last_epoch:
                return False
            try:
                if master.broker_id == self.client.broker_id:
                    self._lead(master, now_ms)
                else:
                    self._follow(master, now_ms)
            except (StoreError, OSError) as error:
                log.error("epoch %d can't begin and will be retried: %s", master.epoch, error)
                return True
            self.master = master
            assert self._registration is not None
            self._registration.is_fenced = False
            self._registration.announce_now()
        elif self.in_sync is not None and not self._is_proposing:
            self.in_sync.known(master.members, master.set_epoch)
        return True

    def _lead(self, master: Master, now_ms: int) -> None:
        assert self._roles is not None
        if self._settings.role is Role.SLAVE:
            self._store.flush(now_ms)  # an epoch begins where the log is durable
        try:
            self.history.begin(master.epoch)
        except ValueError as error:
            raise StoreError(
                f"{error}. The epochs of this store do not match the controller's: move the store away"
            ) from None
        log.warning("this broker is the master of epoch %d from %d on", master.epoch, self._store.log.end)
        assert self.client.broker_id is not None
        in_sync = InSyncSet(self.client.broker_id, master.members, master.set_epoch)
        assert self._registration is not None
        self._registration.epoch = master.epoch
        self._is_proposing = False
        self._roles.become(Role.SYNC_MASTER, 0, now_ms)
        self.in_sync = in_sync
        self._propose_ms = now_ms

    def _follow(self, master: Master, now_ms: int) -> None:
        assert self._roles is not None
        log.warning("broker %d at %s is the master of epoch %d", master.broker_id, master.address, master.epoch)
        self._roles.become(Role.SLAVE, self._slave_id, now_ms)
        assert self._replication is not None
        assert self._metadata_sync is not None
        self._replication.follow_nobody(now_ms)
        self._metadata_sync.follow(None)

    def is_master_at(self, address: str | None) -> bool:
        """Is this address, from a name server, that of the master that the controller has elected?"""
        return address is not None and self.master is not None and address == self.master.address

    # ── The in-sync set ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def required(self) -> int | None:
        """The offset up to which enough replicas have the log; None if senders do not wait for replicas."""
        in_sync, sender, settings = self.in_sync, self._sender, self._settings
        if in_sync is None or sender is None:
            return None
        end = self._store.durability.appended
        if settings.all_in_sync:
            return in_sync.had_by_all(sender, end) if len(in_sync.either) > 1 else None
        needed = settings.in_sync_replicas
        if settings.auto_in_sync_replicas:
            needed = max(min(needed, self.in_sync_count), settings.min_in_sync_replicas)
        return in_sync.had_by(needed, sender, end) if needed > 1 else None

    @property
    def in_sync_count(self) -> int:
        return 1 if self.in_sync is None else len(self.in_sync.both)

    def step(self, now_ms: int) -> None:
        """Send requests to the controllers, and propose a new in-sync set, if they are due."""
        self._now_ms = now_ms
        self.client.step(now_ms)
        if self.in_sync is not None and self._sender is not None:
            assert self._replication is not None
            self._check_set(self.in_sync, self._sender, now_ms)
            self._replication.refresh()  # before the next message, which must wait for joining replicas

    def _check_set(self, in_sync: InSyncSet, sender: EpochMaster, now_ms: int) -> None:
        if self._is_proposing or now_ms < self._propose_ms:
            return
        behind_ms = self._settings.ha_behind_ms
        stay = {
            one for one in in_sync.members if one == in_sync.broker_id or sender.is_caught_up(one, now_ms, behind_ms)
        }
        self._let_join(in_sync, sender, now_ms)
        ready = {one for one in in_sync.joining if (sender.acknowledged_by(one) or 0) >= self._joined_at}
        wanted = frozenset(stay | ready)
        if wanted != in_sync.members:
            self._propose(in_sync, wanted)

    def _let_join(self, in_sync: InSyncSet, sender: EpochMaster, now_ms: int) -> None:
        """Let senders wait for replicas that have nearly caught up."""
        end = self._store.log.end
        if in_sync.joining:
            in_sync.joining &= frozenset(sender.replicas)
            if now_ms - self._join_ms > JOIN_MS:
                in_sync.joining = frozenset()
                self._propose_ms = now_ms + JOIN_MS
            return
        last = self.history.all.last
        since = last.start if last is not None else 0
        near = frozenset(
            broker_id
            for broker_id, replica in sender.replicas.items()
            if broker_id not in in_sync.members
            and replica.has_asked
            and replica.hello is not None
            and not replica.hello.is_learner
            and replica.acknowledged >= max(since, end - JOIN_GAP)
        )
        if near:
            in_sync.joining, self._joined_at, self._join_ms = near, end, now_ms

    def _propose(self, in_sync: InSyncSet, wanted: frozenset[int]) -> None:
        assert self.master is not None
        if self.client.leader is None:
            return
        log.warning("proposing to change the in-sync set from %s to %s", sorted(in_sync.members), sorted(wanted))
        in_sync.proposed = wanted
        self._is_proposing = True

        def changed(members: frozenset[int], epoch: int, _now_ms: int) -> None:
            self._is_proposing = False
            if self.in_sync is in_sync:
                in_sync.known(members, epoch)
                log.warning("the in-sync set is now %s", sorted(in_sync.members))

        def failed(now_ms: int) -> None:
            self._is_proposing = False
            self._propose_ms = now_ms + RETRY_MS

        self.client.alter(self.master.epoch, wanted, in_sync.epoch, changed, failed)

    def due_ms(self) -> int | None:
        """When `step` is due."""
        times = [due_ms for due_ms in (self.client.due_ms(),) if due_ms is not None]
        if (
            self.in_sync is not None
            and (len(self.in_sync.members) > 1 or self.in_sync.joining)
            and not self._is_proposing
        ):
            times.append(max(self._propose_ms, self._now_ms + RETRY_MS))
        return min(times, default=None)

    # ── Requests ──────────────────────────────────────────────────────────────────────────────────────────────────

    def requests(self) -> dict[int, Serve]:
        return {
            RequestCode.GET_BROKER_EPOCH_CACHE: self._show_epochs,
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self._role_changed,
            RequestCode.PROMOTE_BROKER: self._refuse,
            RequestCode.DEMOTE_BROKER: self._refuse,
        }

    def _show_epochs(self, asked: Asked) -> Command:
        """GET_BROKER_EPOCH_CACHE."""
        epochs, end = self.history.all, self._store.log.end
        body = bodies.EpochEntryCache(
            cluster_name=self._settings.cluster,
            broker_name=self._settings.name,
            broker_id=self.client.broker_id or 0,
            epoch_list=[
                bodies.EpochEntry(epoch=number, start_offset=start, end_offset=epochs.end_of(number, 2**63 - 1))
                for number, start in epochs.entries
            ],
            max_offset=end,
        )
        return asked.command.answer(body=body.encode())

    def _role_changed(self, asked: Request[headers.NotifyBrokerRoleChanged]) -> Command:
        """NOTIFY_BROKER_ROLE_CHANGED."""
        self.client.master_changed(asked.now_ms)
        return asked.command.answer()

    def _refuse(self, _asked: Asked) -> Command:
        """PROMOTE_BROKER, DEMOTE_BROKER."""
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            "a controller elects the master of this group (enableControllerMode): use electMaster",
        )


def group_of(settings: BrokerSettings, flush_mode: FlushMode, store: Store, outbox: Outbox) -> ControlledGroup | None:
    """The group of a broker under a controller; None without one. Raises as ControlledGroup."""
    return ControlledGroup(settings, flush_mode, store, outbox) if settings.controller_mode else None
