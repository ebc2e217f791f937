"""The role of a broker in its group: a master sends its log to slaves, a slave follows its master.

    ASYNC_MASTER   answers senders without waiting for slaves
    SYNC_MASTER    answers a sender when `inSyncReplicas` brokers, including this one, have the message; until then
                   consumers do not see it
    SLAVE          copies the log, serves reads, and refuses messages and changes

A master moves the watermark `REPLICATED` (`store.durability`) to the offset that enough slaves have acknowledged.
One acknowledgement answers all senders that wait for it, and none waits behind another one.

How many brokers must have a message, and the answer if they do not:

    slaves do not acknowledge within slaveTimeout           FLUSH_SLAVE_TIMEOUT; the message is stored
    fewer than minInSyncReplicas brokers are in sync        refused with SYSTEM_ERROR, nothing is stored
    enableAutoInSyncReplicas                                brokers that are not in sync are not waited for, down to
                                                            minInSyncReplicas

A slave may be read from if `slaveReadEnable` is set, and in any case while it has no master to follow: otherwise
consumers would stand still when the master dies. A master that waits for slaves and is replaced may have messages that
the new one lacks (`BrokerSettings.end_in_doubt`): it is not read from until both logs were compared.

Java: DefaultHAService, GroupTransferService, CommitLog.handleDiskFlushAndHA.
"""

import logging
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, Protocol, assert_never

from kourou.broker.events import Outbox
from kourou.broker.message_writer import MessageWriter
from kourou.broker.returning_senders import ReturningSenders
from kourou.broker.settings import BrokerSettings, Role
from kourou.protocol import bodies
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError
from kourou.replication.follower import Follower, FollowerSettings
from kourou.replication.links import (
    Accepted,
    Closed,
    Connected,
    HangUp,
    HasRoom,
    Link,
    LinkEvent,
    NotConnected,
    Received,
)
from kourou.replication.master import Master, MasterSettings
from kourou.replication.refusals import Refusals
from kourou.store.copies import LogCopy, LogSource
from kourou.store.errors import StoreError
from kourou.store.settings import StoreSettings
from kourou.store.store import Store

log = logging.getLogger(__name__)

START_TIMEOUT_MS: Final = 3_000
"""How long a new slave waits for its master's answer about where the log begins."""

REPLICATED: Final = "replicated"
"""The watermark that is moved by acknowledgements of slaves."""


class Group(Protocol):
    """A group whose master a controller elects (`kourou.broker.controlled`)."""

    def make_sender(self, settings: MasterSettings) -> Master: ...

    def make_follower(self, settings: FollowerSettings) -> Follower: ...

    @property
    def required(self) -> int | None:
        """The offset up to which enough replicas have the log; None if senders do not wait for replicas."""

    @property
    def in_sync_count(self) -> int: ...

    @property
    def may_be_read(self) -> bool: ...


class RaftMember(Protocol):
    """The Raft group of this broker, if it belongs to one."""

    @property
    def leader(self) -> str | None:
        """The member that leads."""

    @property
    def may_be_read(self) -> bool:
        """May consumers read from this broker?"""


class Replication:
    """The replication of a broker, according to its role."""

    def __init__(
        self,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        store: Store,
        writer: MessageWriter,
        outbox: Outbox,
        group: Group | None = None,
    ) -> None:
        self._settings = settings
        self._group = group
        self._store = store
        self._writer = writer
        self._outbox = outbox
        self._allowed = _networks(settings.ha_allowed_peers)
        self._flush_mode = store_settings.flush_mode
        self._refusals = Refusals()
        self._waits = False  # the watermark is required
        self._senders = ReturningSenders()
        self.master: Master | None = None
        self.follower: Follower | None = None
        self.master_address: str | None = None  # of a slave's master, for requests; None: not known
        self.compare: Callable[[str, Callable[[str | None, int], None]], None] | None = None
        """Compares the log with that of the master at an address; calls back with None, or why it can't be followed."""
        self._comparing = False
        self.fenced: str | None = None  # why this master accepts no messages, regardless of its slaves
        self.raft: RaftMember | None = None  # a Raft group replaces all of this
        self._begin(0)

    def _begin(self, now_ms: int) -> None:
        """Assume the role of the settings."""
        settings, store = self._settings, self._store
        if settings.role is Role.SLAVE:
            following = FollowerSettings(report_ms=settings.ha_heartbeat_ms, silence_ms=settings.ha_silence_ms)
            if self._group is not None:
                self.follower = self._group.make_follower(following)
            else:
                copy = LogCopy(store, self._flush_mode)
                self.follower = Follower(copy, following, write_errors=(StoreError,), compares=True)
            self._comparing = False
            self.follow(None, None, now_ms)
        else:
            sending = MasterSettings(
                heartbeat_ms=settings.ha_heartbeat_ms,
                silence_ms=settings.ha_silence_ms,
                batch_size=settings.ha_batch_size,
                max_gap=settings.ha_max_gap,
                connections_max=settings.ha_connections_max,
            )
            if self._group is not None:
                self.master = self._group.make_sender(sending)
            else:
                self.master = Master(LogSource(store, self._flush_mode), sending)
        self.refresh()
        warning = self._warning()
        if warning is not None:
            log.warning("%s", warning)

    def fence(self, reason: str | None) -> None:
        """Accept no messages, for this reason; None: accept them again."""
        if reason != self.fenced:
            self.fenced = reason
            self.refresh()

    def role_changed(self, now_ms: int) -> None:
        """The role of the settings has changed. When a master becomes a slave, senders no longer wait for replicas."""
        if (self._settings.role is Role.SLAVE) == (self.follower is not None):
            self.refresh()  # it was and is a master, or was and is a slave
            return
        if self.master is not None:
            self.master.hang_up_all("this broker is no longer the master")
        if self.follower is not None:
            self.follower.follow(None, now_ms)
        self._take_effects()
        durability = self._store.durability
        self._settings.end_in_doubt = (
            self.master is not None
            and self._group is None
            and not self._settings.raft
            and self._waits
            and (durability.confirmed or 0) < durability.appended
        )
        self.master = self.follower = self.master_address = self.fenced = None
        self._begin(now_ms)

    def _warning(self) -> str | None:
        """A warning about the settings of the role, logged at the start; None if there is nothing to warn about."""
        settings = self._settings
        if settings.raft:
            return None
        if settings.role is Role.SYNC_MASTER and settings.in_sync_replicas < 2 and not settings.all_in_sync:
            return (
                "brokerRole=SYNC_MASTER with inSyncReplicas=1, the default since RocketMQ 5: senders are answered "
                "WITHOUT waiting for a slave, and messages may be lost if this broker's disk fails. Set "
                "inSyncReplicas=2 to wait for one slave, and minInSyncReplicas=2 to refuse messages without one"
            )
        if settings.role is Role.ASYNC_MASTER and settings.in_sync_replicas > 1:
            return (
                f"inSyncReplicas={settings.in_sync_replicas} has no effect with brokerRole=ASYNC_MASTER, which does "
                "not wait for slaves: set brokerRole=SYNC_MASTER"
            )
        return None

    # ── What happens ──────────────────────────────────────────────────────────────────────────────────────────────

    def happen(self, event: LinkEvent, now_ms: int) -> None:
        """Handle an event of the HA port, or of the connection to the master."""
        self._store.log.now_ms = now_ms
        match event:
            case Accepted(link):
                self._accept(link, now_ms)
            case Received():
                self.received(event, now_ms)
                return
            case Closed(link):
                if self.master is not None:
                    self.master.closed(link)
                if self.follower is not None:
                    self.follower.closed(link, now_ms)
            case Connected(link):
                if self.follower is not None:
                    self.follower.connected(link, now_ms)
                else:
                    self._outbox.put(HangUp(link, "this broker does not follow a master"))
            case NotConnected(address, reason):
                if self.follower is not None:
                    self.follower.not_connected(address, reason, now_ms)
            case HasRoom():
                pass  # `step` sends
            case _:
                assert_never(event)
        self.refresh()

    def received(self, event: Received, now_ms: int) -> None:
        """Bytes arrived: reports of a slave, or the log of the master."""
        self._store.log.now_ms = now_ms
        if self.follower is not None:
            self.follower.received(event.link, event.data, now_ms)
        elif self.master is not None:
            self.master.received(event.link, event.data, now_ms)
            before = self._writer.waiting
            self.refresh()
            if self._writer.waiting < before:
                self._senders.answered(before - self._writer.waiting, self._writer.waiting, now_ms)

    def _accept(self, link: Link, now_ms: int) -> None:
        if self._settings.raft:
            self._refuse(link, "this broker belongs to a Raft group, which can't have slaves", now_ms)
        elif not self._may_connect(link.address):
            self._refuse(link, "its address is not in haAllowedPeers", now_ms)
        elif self.master is None:
            self._refuse(link, "this broker is a slave: a slave must connect to the master", now_ms)
        else:
            try:
                self._store.history.keep()  # from now on the slave may become the master
            except OSError as error:
                self._refuse(link, f"the epochs of the log can't be written: {error}", now_ms)
            else:
                self.master.connected(link, now_ms)

    def _refuse(self, link: Link, reason: str, now_ms: int) -> None:
        self._refusals.add(reason, link.address, reason, now_ms)
        self._outbox.put(HangUp(link, reason))

    def _may_connect(self, address: str) -> bool:
        if not self._allowed:
            return True
        try:
            ip = ip_address(address.rpartition(":")[0].strip("[]"))
        except ValueError:
            return False
        ip = getattr(ip, "ipv4_mapped", None) or ip
        return any(ip in network for network in self._allowed)

    def follow(self, master: str | None, ha_address: str | None, now_ms: int) -> None:
        """Follow the master that the name servers know, with its HA address; `haMasterAddress` overrides the latter."""
        address = self._settings.ha_master_address or ha_address
        if self.follower is None or address is None:
            return
        self.master_address = master or self.master_address
        if master is None or self._group is not None or self._store.log.end > self._store.log.start:
            self.follower.follow(address, now_ms)
            return
        request = Command(RequestCode.GET_BROKER_RUNTIME_INFO)
        self._outbox.ask_broker(master, request, START_TIMEOUT_MS, partial(self._begin_to_follow, master, address))

    def follow_nobody(self, now_ms: int) -> None:
        """Stop to follow: there is another master, whose address is not known yet."""
        if self.follower is not None:
            self.follower.follow(None, now_ms)

    def _begin_to_follow(self, master: str, address: str, answer: Command | None, now_ms: int) -> None:
        """Begin to follow, once the master has answered where its log begins; without an answer, ask again later."""
        if self.follower is None or answer is None or master != self.master_address:
            return
        try:
            table = bodies.KVTable.decode(answer.body).table
            start, end = int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
        except (BodyError, KeyError, ValueError) as error:
            log.warning("the master's answer about the start of its log is invalid: %r", error)
        else:
            self.follower.first_offset = start if 0 <= start < end else None
        self.follower.follow(address, now_ms)

    def step(self, now_ms: int) -> None:
        """The end of a step of the broker: send new records, and do the work that is due."""
        if self.master is not None and (self.master.slaves or self._group is not None):
            self.master.expects_senders = self._expects_senders(now_ms)
            self.master.step(now_ms)
            self.refresh()
        if self.follower is not None:
            if self.follower.must_compare(now_ms) and not self._comparing:
                self._compare(self.follower)
            self.follower.step(now_ms)
        self._take_effects()

    def _compare(self, follower: Follower) -> None:
        """Check that this log is the beginning of the master's. An empty log, or a master without address, passes."""
        if self.compare is None or self.master_address is None:
            self._settings.end_in_doubt = False
            follower.compared(None, 0)
            return

        asked = self.master_address, follower.master

        def compared(problem: str | None, now_ms: int) -> None:
            if follower is not self.follower:
                return
            self._comparing = False
            if asked == (self.master_address, follower.master):  # otherwise `step` compares with the new master
                self._settings.end_in_doubt &= problem is not None
                follower.compared(problem, now_ms)

        self._comparing = True
        self.compare(self.master_address, compared)

    def transfer(self, now_ms: int) -> None:
        """Outside of a step, send appended records, or report them as a slave."""
        if self.follower is not None:
            self._outbox.effects += self.follower.take_effects()
        elif self.master is not None and self.master.slaves:
            self.master.expects_senders = self._expects_senders(now_ms)
            self.master.transfer(now_ms)
            self._outbox.effects += self.master.take_effects()

    def _expects_senders(self, now_ms: int) -> bool:
        return self._waits and self._senders.are_expected(self._writer.waiting, now_ms)

    def _take_effects(self) -> None:
        machine = self.master or self.follower
        if machine is not None:
            self._outbox.effects += machine.take_effects()

    def log_was_cut(self) -> None:
        """The log was cut."""
        if self.master is not None:
            self.master.log_was_cut()

    # ── What senders and consumers wait for ───────────────────────────────────────────────────────────────────────

    @property
    def refused(self) -> int:
        """How many connections to the HA port were refused."""
        return self._refusals.count + (0 if self.master is None else self.master.refusals.count)

    @property
    def in_sync(self) -> int:
        """How many brokers are in sync, including this one."""
        if self._group is not None:
            return self._group.in_sync_count
        return 1 + (0 if self.master is None else self.master.in_sync())

    @property
    def needed(self) -> int:
        """How many brokers, including this one, must have a message before its sender is answered."""
        settings = self._settings
        if settings.role is not Role.SYNC_MASTER or settings.raft:
            return 1
        if settings.auto_in_sync_replicas:
            return max(min(settings.in_sync_replicas, self.in_sync), settings.min_in_sync_replicas)
        return max(settings.in_sync_replicas, settings.min_in_sync_replicas)

    def refresh(self) -> None:
        """Move the watermark, and answer the senders that wait for it."""
        durability, offset = self._store.durability, self._acknowledged()
        tokens = []
        if offset is not None:
            offset = min(offset, durability.appended)
            if not self._waits:
                durability.require(REPLICATED, offset, timeout_ms=self._settings.slave_timeout_ms)
                self._waits = True
            tokens = durability.reached(REPLICATED, offset)
        elif self._waits:
            tokens = durability.drop(REPLICATED)
            self._waits = False
        if self.master is not None:
            self.master.gathers = not self._waits and self._group is None
        for token in tokens:
            self._writer.now_durable(token)
        self._say_if_too_few(self._too_few())

    def _say_if_too_few(self, missing: str | None) -> None:
        before, self._writer.replicas_missing = self._writer.replicas_missing, missing
        if missing is not None and before is None:
            log.error("messages are refused: %s", missing)
        elif missing is None and before is not None:
            log.info("messages are accepted again: %d brokers are in sync", self.in_sync)

    def _acknowledged(self) -> int | None:
        """The offset up to which enough replicas have the log; None if senders do not wait for replicas."""
        if self._group is not None:
            return self._group.required if self.master is not None else None
        needed = self.needed
        if needed < 2:
            return None
        assert self.master is not None
        return self.master.acknowledged(needed - 1)

    def _too_few(self) -> str | None:
        settings = self._settings
        if self.fenced is not None:
            return self.fenced
        if settings.role is not Role.SYNC_MASTER or settings.raft or self.in_sync >= settings.min_in_sync_replicas:
            return None
        return (
            f"in-sync replicas not enough: {self.in_sync} of minInSyncReplicas={settings.min_in_sync_replicas}. Start "
            "slaves, or wait until they have caught up"
        )

    # ── For other parts of the broker ─────────────────────────────────────────────────────────────────────────────

    @property
    def may_be_read(self) -> bool:
        """May consumers read here? From a slave while it has no master, or if that is allowed."""
        if self._settings.end_in_doubt or (self._group is not None and not self._group.may_be_read):
            return False
        if self.raft is not None:
            return self.raft.may_be_read
        return self.follower is None or self._settings.slave_read or not self.follower.is_following

    @property
    def has_master(self) -> bool:
        """Is this broker a master, or does it follow one?"""
        if self.raft is not None:
            return self.raft.leader is not None
        return self.follower is None or self.follower.is_following

    @property
    def is_busy(self) -> bool:
        """Are there more bytes to send at once?"""
        return self.master is not None and self.master.is_busy

    def due_ms(self) -> int | None:
        """When `step` is due."""
        if self.master is not None:
            return self.master.due_ms()
        return None if self.follower is None or self._comparing else self.follower.due_ms()

    def status(self, wall_of: Callable[[int], int]) -> bodies.HARuntimeInfo:
        """GET_BROKER_HA_STATUS. `wall_of` converts a time of the monotonic clock to the time of day."""
        end = self._store.log.end
        if self.follower is not None:
            return bodies.HARuntimeInfo(
                master=False,
                master_commit_log_max_offset=max(self.follower.heard_to, end),
                ha_client_runtime_info=self._follower_status(self.follower, wall_of),
            )
        master = self.master
        assert master is not None
        slaves = [
            bodies.HAConnectionRuntimeInfo(
                addr=slave.link.address,
                slave_ack_offset=slave.acknowledged,
                diff=end - slave.acknowledged,
                in_sync=master.is_in_sync(slave),
                transferred_byte_in_second=slave.rate,
                transfer_from_where=max(slave.next_offset, 0),
            )
            for slave in master.slaves.values()
        ]
        return bodies.HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=end,
            in_sync_slave_nums=master.in_sync(),
            ha_connection_info=slaves,
        )

    def _follower_status(self, follower: Follower, wall_of: Callable[[int], int]) -> bodies.HAClientRuntimeInfo:
        return bodies.HAClientRuntimeInfo(
            master_addr=follower.master if follower.is_following else None,
            transferred_byte_in_second=follower.rate,
            max_offset=self._store.log.end,
            last_read_timestamp=wall_of(follower.heard_ms) if follower.heard_ms else 0,
            last_write_timestamp=wall_of(follower.said_ms) if follower.said_ms else 0,
            master_flush_offset=self._store.master_flushed,
        )


def _networks(text: str) -> list[IPv4Network | IPv6Network]:
    return [ip_network(word) for word in text.replace(";", " ").replace(",", " ").split()]
