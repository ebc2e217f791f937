"""A master's end: it sends the log to each slave that asks for it, and knows how much of it each slave has.

    report ─▶ the first one is the request ─▶ batches from there to the end of the log, and later everything appended
           └▶ each further one: the slave has the log up to this offset ─▶ `acknowledged`

A report counts only if the slave can have those bytes: they were sent on this connection, or, for the first report, on
an earlier one, or they were in the log before this process opened it. Any other report ends the connection with a line
in the log, so that random bytes and false claims acknowledge nothing.

Batches are slices of the log. A slave that does not read gets no more of them (`Link.has_room`), and a slave that
reads fast gets `TURN_MAX` bytes before it is another slave's turn. When there are too many connections, a new one
replaces the oldest one without a report. Slaves report at once, so silent strangers can't keep them out.

A new slave, which reports 0, gets the whole log; Apache's masters send only the last segment. Both start at the
beginning of a segment, as Apache's slaves expect.

Java: DefaultHAService, DefaultHAConnection, GroupTransferService.
"""

import logging
from dataclasses import dataclass, field
from typing import Final

from kourou.replication.frames import HEADER_SIZE, Reports, encode_header
from kourou.replication.links import HangUp, Link, LinkEffect, SourceLog, Transfer
from kourou.replication.refusals import Refusals

log = logging.getLogger(__name__)

TURN_MAX: Final = 1024 * 1024
"""The most bytes that are sent to one slave in a turn."""

GATHER_MS: Final = 5
"""How long an incomplete batch may wait for more bytes: while no sender waits for slaves, and while the slave has not
reported the last batch. A batch of many messages costs both ends hardly more than one of a single message, and senders
that wait share the next batch as they share a sync of the disk."""

GATHER_SENDERS_MS: Final = 5
"""When a timer sends a batch that waits for senders."""

GATHER_LATE_MS: Final = 20
"""When a timer sends an incomplete batch. Usually the next message or report comes first, and no timer is needed."""


@dataclass(slots=True)
class MasterSettings:
    """The comments give the names of the properties."""

    heartbeat_ms: int = 5_000  # haSendHeartbeatInterval
    silence_ms: int = 20_000  # haHousekeepingInterval: after this time without a report a slave is disconnected
    batch_size: int = 32 * 1024  # haTransferBatchSize
    max_gap: int = 256 * 1024 * 1024  # haMaxGapNotInSync
    connections_max: int = 64  # maxHaConnections, ours


@dataclass(slots=True, eq=False)
class Slave:
    """One connection of a slave."""

    link: Link
    heard_ms: int
    sent_ms: int
    reports: Reports = field(default_factory=Reports)
    next_offset: int = -1  # log offset of the next byte to send; -1: no report yet
    acknowledged: int = 0  # it has the log up to here
    sent_bytes: int = 0  # of the log, in all
    rate: int = 0  # bytes sent in the last whole second
    gathers_to_ms: int = 0  # until then an incomplete batch may wait
    current_ms: int = 0  # the slave has everything that was in the log at this time
    is_counted: bool = True  # it has reported since the last connection from the same address began
    was_in_sync: bool = False  # as last logged
    _second_ms: int = 0
    _second_bytes: int = 0
    _mark_offset: int = -1  # where the log ended at `_mark_ms`
    _mark_ms: int = 0

    @property
    def has_asked(self) -> bool:
        return self.next_offset >= 0

    def note(self, end: int, now_ms: int) -> None:
        """The slave has reported while the log ended at `end`."""
        if self.acknowledged >= self._mark_offset:
            self.current_ms = now_ms if self.acknowledged >= end else self._mark_ms
            self._mark_offset, self._mark_ms = end, now_ms

    def count(self, size: int, now_ms: int) -> None:
        """Update `rate`: bytes were sent, or time has passed."""
        self.sent_bytes += size
        if now_ms - self._second_ms >= 1_000:
            self.rate, self._second_bytes, self._second_ms = self._second_bytes, 0, now_ms
        self._second_bytes += size


class Master:
    """All slaves of one master."""

    def __init__(self, log: SourceLog, settings: MasterSettings) -> None:
        self._log = log
        self._settings = settings
        self._known_to = log.end  # slaves may have the log up to here: from before, or sent to one
        self._effects: list[LinkEffect] = []
        self.gathers = False  # whether no sender waits for slaves
        self.expects_senders = False  # whether senders are about to send, whose messages should share the next batch
        self.slaves: dict[Link, Slave] = {}
        self.refusals = Refusals()  # connections closed because of invalid reports or the limit

    def take_effects(self) -> list[LinkEffect]:
        effects, self._effects = self._effects, []
        return effects

    # ── Connections ───────────────────────────────────────────────────────────────────────────────────────────────

    def connected(self, link: Link, now_ms: int) -> None:
        """A peer has connected, probably a slave. Nothing is sent before its first report."""
        if len(self.slaves) >= self._settings.connections_max:
            reason = f"the limit of {len(self.slaves)} connections is reached (maxHaConnections)"
            silent = next((slave.link for slave in self.slaves.values() if not slave.has_asked), None)
            self._refuse(silent or link, "many", reason, now_ms)
            if silent is None:
                return
        self.slaves[link] = Slave(link, heard_ms=now_ms, sent_ms=now_ms, current_ms=now_ms, _mark_ms=now_ms)

    def received(self, link: Link, data: bytes, now_ms: int) -> None:
        """Bytes arrived from a slave."""
        slave = self.slaves.get(link)
        if slave is None:
            return
        for offset in slave.reports.feed(data):
            slave.heard_ms = now_ms
            if not self._reported(slave, offset, now_ms):
                return

    def _reported(self, slave: Slave, offset: int, now_ms: int) -> bool:
        """A slave reports that it has the log up to `offset`. False: the report is invalid and the connection ended."""
        is_first = not slave.has_asked
        fault = self._begin(slave, offset, now_ms) if is_first else self._advance(slave, offset)
        if fault is not None:
            self._refuse(slave.link, *fault, now_ms)
            return False
        slave.is_counted = True
        if is_first:
            self._doubt_others(slave)
        slave.note(self._log.end, now_ms)
        return True

    def _doubt_others(self, slave: Slave) -> None:
        """Count other connections from this address only once they report again.

        They may be those of the same slave, which has lost them without this broker noticing. Slaves say nothing that
        tells one from another, and one slave must not count as two.
        """
        for other in self.slaves.values():
            if other is not slave and other.link.ip == slave.link.ip:
                other.is_counted = False

    def closed(self, link: Link) -> None:
        """A connection is lost."""
        slave = self.slaves.pop(link, None)
        if slave is not None and slave.has_asked:
            log.warning("slave disconnected address=%s acknowledged=%d", link.address, slave.acknowledged)

    def hang_up_all(self, reason: str) -> None:
        """Close all connections, because this broker is no longer the master."""
        for link in list(self.slaves):
            self._hang_up(link, reason)

    def log_was_cut(self) -> None:
        """The log was cut: disconnect the slaves that have records after its end."""
        self._known_to = min(self._known_to, self._log.end)
        for slave in list(self.slaves.values()):
            if max(slave.next_offset, slave.acknowledged) > self._log.end:
                self._hang_up(slave.link, "the log was cut")

    def _begin(self, slave: Slave, offset: int, now_ms: int) -> tuple[str, str] | None:
        """Handle the first report. If it is invalid, returns why: a cause and a sentence."""
        start, end, address = self._log.start, self._log.end, slave.link.address
        if offset == 0 or (offset == 1 and start == 0):  # for the report 1 see `Follower`
            slave.next_offset = max(start, offset)
            log.info("new slave address=%s: sending the log from %d to %d", address, start, end)
            return None
        if offset > end:
            return (
                "ahead",
                f"it has the log up to {offset}, but this master's log ends at {end}: empty its store and restart it",
            )
        if offset > max(self._known_to, start):
            known = self._known_to
            return "unsent", f"it claims to have the log up to {offset}, but none was sent after {known}"
        if offset < start:
            fault = f"it has the log up to {offset}, but this master's log begins at {start}"
            return "expired", f"{fault}: empty its store and restart it"
        slave.next_offset = slave.acknowledged = offset
        slave.sent_ms = now_ms
        log.info("slave connected address=%s: it has the log up to %d of %d", address, offset, end)
        return None

    def _advance(self, slave: Slave, offset: int) -> tuple[str, str] | None:
        if not 0 <= offset <= slave.next_offset:
            return "false", f"it claims to have the log up to {offset}, but was sent it only up to {slave.next_offset}"
        slave.acknowledged = max(slave.acknowledged, offset)
        return None

    def _refuse(self, link: Link, cause: str, reason: str, now_ms: int) -> None:
        self.refusals.add(cause, link.address, reason, now_ms)
        self.slaves.pop(link, None)
        self._effects.append(HangUp(link, reason))

    def _hang_up(self, link: Link, reason: str) -> None:
        slave = self.slaves.pop(link, None)
        if slave is not None and slave.has_asked:
            log.warning("disconnecting slave address=%s acknowledged=%d: %s", link.address, slave.acknowledged, reason)
        self._effects.append(HangUp(link, reason))

    # ── Sending ───────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, now_ms: int) -> None:
        """Send new bytes and heartbeats that are due. Close silent connections."""
        settings = self._settings
        for slave in list(self.slaves.values()):
            if now_ms - slave.heard_ms > settings.silence_ms:
                self._hang_up(slave.link, f"no report for {settings.silence_ms} ms (haHousekeepingInterval)")
            elif slave.has_asked:
                slave.count(0, now_ms)
                self._send(slave, now_ms)
                self._log_sync(slave)

    def _log_sync(self, slave: Slave) -> None:
        is_in_sync = self.is_in_sync(slave)
        if is_in_sync is slave.was_in_sync:
            return
        slave.was_in_sync = is_in_sync
        address, behind = slave.link.address, self._log.end - slave.acknowledged
        if is_in_sync:
            log.info("slave in sync address=%s behind=%d bytes", address, behind)
        else:
            log.warning(
                "slave not in sync address=%s behind=%d bytes (haMaxGapNotInSync=%d)",
                address,
                behind,
                self._settings.max_gap,
            )

    def transfer(self, now_ms: int) -> None:
        """Send the new bytes of the log."""
        for slave in list(self.slaves.values()):
            if slave.next_offset < self._log.end and slave.has_asked:
                self._send(slave, now_ms)

    def _gathers(self, slave: Slave, now_ms: int) -> bool:
        """Should the slave's new bytes wait a little, to be sent together with later ones?"""
        return now_ms < slave.gathers_to_ms and self._may_gather(slave)

    def _may_gather(self, slave: Slave) -> bool:
        few = self._log.end - slave.next_offset < self._settings.batch_size
        return few and (self.gathers or self.expects_senders or slave.acknowledged < slave.next_offset)

    def _send(self, slave: Slave, now_ms: int) -> None:
        left = 0 if self._gathers(slave, now_ms) else TURN_MAX
        try:
            while left > 0 and slave.next_offset < self._log.end and slave.link.has_room:
                left -= self._send_batch(slave, now_ms)
        except (KeyError, OSError) as error:  # its segment has expired, or can't be read
            self._hang_up(slave.link, f"the log can't be read at {slave.next_offset}: {error}")
            return
        if now_ms - slave.sent_ms >= self._settings.heartbeat_ms and slave.link.has_room:
            slave.sent_ms = now_ms
            self._effects.append(Transfer(slave.link, self._header(slave.next_offset, 0)))

    def _header(self, offset: int, size: int) -> bytes:
        return encode_header(offset, size)

    def _batch_size(self, offset: int) -> int:
        """The size of a batch that begins at this offset; it does not cross the end of a segment."""
        segment = self._log.segment_size
        return min(self._settings.batch_size, self._log.end - offset, segment - offset % segment)

    def _send_batch(self, slave: Slave, now_ms: int) -> int:
        offset = slave.next_offset
        size = self._batch_size(offset)
        self._effects.append(Transfer(slave.link, self._header(offset, size), self._log.read(offset, size)))
        slave.next_offset = offset + size
        slave.sent_ms = now_ms
        slave.gathers_to_ms = now_ms + GATHER_MS
        slave.count(size, now_ms)
        self._known_to = max(self._known_to, slave.next_offset)
        return size + HEADER_SIZE

    @property
    def is_busy(self) -> bool:
        """Are there bytes to send at once, to a slave that has room for them?"""
        return any(self._has_some(slave) and not self._may_gather(slave) for slave in self.slaves.values())

    def _has_some(self, slave: Slave) -> bool:
        """Are there bytes to send to this slave, and has it room for them?"""
        return slave.has_asked and slave.next_offset < self._log.end and slave.link.has_room

    def due_ms(self) -> int | None:
        """When `step` is due, if nothing else happens."""
        settings = self._settings
        times = [
            min(slave.heard_ms + settings.silence_ms + 1, self._send_due_ms(slave)) for slave in self.slaves.values()
        ]
        return min(times, default=None)

    def _send_due_ms(self, slave: Slave) -> int:
        if self._has_some(slave):
            return slave.gathers_to_ms - GATHER_MS + (GATHER_SENDERS_MS if self.expects_senders else GATHER_LATE_MS)
        return slave.sent_ms + self._settings.heartbeat_ms

    # ── What slaves have ──────────────────────────────────────────────────────────────────────────────────────────

    def acknowledged(self, count: int) -> int:
        """The offset up to which at least `count` slaves have the log; 0 if there are fewer slaves."""
        offsets = sorted((slave.acknowledged for slave in self.slaves.values() if slave.is_counted), reverse=True)
        return offsets[count - 1] if count <= len(offsets) else 0

    def in_sync(self) -> int:
        """How many slaves are not further behind than `max_gap`."""
        return sum(self.is_in_sync(slave) for slave in self.slaves.values())

    def lag_ms(self, slave: Slave, now_ms: int) -> int:
        """For how long the slave has been behind the log; 0 if it has everything."""
        return 0 if slave.acknowledged >= self._log.end else now_ms - slave.current_ms

    def is_in_sync(self, slave: Slave) -> bool:
        return slave.has_asked and self._log.end - slave.acknowledged < self._settings.max_gap
