"""The master of a group under a controller: it sends its log with epochs, and knows how much of it each replica has.

    hello ─▶ welcome: the epochs of this log ─▶ the slave cuts its log where it diverges ─▶ report ─▶ batches

Each slave has the id that the controller assigned, and one connection: a new one replaces it. A batch has bytes of one
epoch, and the confirm offset, up to which consumers may see messages.

A slave that has caught up may join the in-sync set; one that has not been caught up for too long leaves it. This module
knows the times, and `kourou.broker.controlled` the set.

Java: AutoSwitchHAConnection, AutoSwitchHAService.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from kourou.replication.epoch_frames import Hello, SlaveWords, encode_header, encode_welcome
from kourou.replication.links import Link, SourceLog, Transfer
from kourou.replication.master import Master, MasterSettings, Slave

log = logging.getLogger(__name__)

NEWS_MS: Final = 20
"""When a new confirm offset is sent to a slave that gets no batch. Apache's masters send it after 5 seconds."""


class EpochSource(SourceLog, Protocol):
    """The log that a master under a controller sends."""

    @property
    def epochs(self) -> Sequence[tuple[int, int]]:
        """Number and first offset of each epoch, the oldest first."""

    @property
    def confirm_offset(self) -> int:
        """The offset up to which consumers may see the log."""

    def epoch_at(self, offset: int) -> tuple[int, int, int]:
        """Number, start and end of the epoch of the byte at this offset. The number is 0 if it is not known."""


@dataclass(slots=True, eq=False)
class Replica(Slave):
    """The connection of a slave that has an id."""

    words: SlaveWords = field(default_factory=SlaveWords)
    hello: Hello | None = None
    told: int = 0  # the confirm offset that was last sent to it


class EpochMaster(Master):
    """All slaves of one master under a controller."""

    def __init__(self, log: EpochSource, settings: MasterSettings) -> None:
        super().__init__(log, settings)
        self._source = log
        self.replicas: dict[int, Replica] = {}  # those that have sent their id, by id

    def connected(self, link: Link, now_ms: int) -> None:
        super().connected(link, now_ms)
        if link in self.slaves:
            self.slaves[link] = Replica(link, heard_ms=now_ms, sent_ms=now_ms, current_ms=now_ms, _mark_ms=now_ms)

    def received(self, link: Link, data: bytes, now_ms: int) -> None:
        slave = self.slaves.get(link)
        if not isinstance(slave, Replica):
            return
        slave.heard_ms = now_ms
        try:
            said = slave.words.feed(data)
        except ValueError as error:
            self._refuse(link, "foreign", str(error), now_ms)
            return
        for word in said:
            if isinstance(word, Hello):
                self._welcome(slave, word)
            elif not self._reported(slave, word, now_ms):
                return

    def _welcome(self, slave: Replica, hello: Hello) -> None:
        before = self.replicas.get(hello.broker_id)
        slave.hello = hello
        self.replicas[hello.broker_id] = slave
        if before is not None:
            self._hang_up(before.link, f"broker {hello.broker_id} has connected again")
        epochs = self._source.epochs
        log.info("slave connected address=%s brokerId=%d", slave.link.address, hello.broker_id)
        self._effects.append(Transfer(slave.link, encode_welcome(self._log.end, epochs)))

    def closed(self, link: Link) -> None:
        self._forget(link)
        super().closed(link)

    def _hang_up(self, link: Link, reason: str) -> None:
        self._forget(link)
        super()._hang_up(link, reason)

    def _refuse(self, link: Link, cause: str, reason: str, now_ms: int) -> None:
        self._forget(link)
        super()._refuse(link, cause, reason, now_ms)

    def _forget(self, link: Link) -> None:
        slave = self.slaves.get(link)
        hello = slave.hello if isinstance(slave, Replica) else None
        if hello is not None and self.replicas.get(hello.broker_id) is slave:
            del self.replicas[hello.broker_id]

    def _begin(self, slave: Slave, offset: int, now_ms: int) -> tuple[str, str] | None:
        if offset == 0 and isinstance(slave, Replica) and slave.hello is not None and slave.hello.from_last_file:
            slave.next_offset = max(self._log.start, self._log.end - self._log.end % self._log.segment_size)
            return None
        return super()._begin(slave, offset, now_ms)

    def _send(self, slave: Slave, now_ms: int) -> None:
        super()._send(slave, now_ms)
        if not isinstance(slave, Replica) or slave.link not in self.slaves:
            return
        if slave.sent_ms == now_ms:
            slave.told = self._confirmed(slave.next_offset)
        elif self._has_news(slave) and now_ms >= slave.sent_ms + NEWS_MS and slave.link.has_room:
            slave.sent_ms, slave.told = now_ms, self._confirmed(slave.next_offset)
            self._effects.append(Transfer(slave.link, self._header(slave.next_offset, 0)))

    def _has_news(self, slave: Replica) -> bool:
        """Has the confirm offset grown since it was last sent to the slave?"""
        return slave.has_asked and slave.told < self._confirmed(slave.next_offset)

    def _confirmed(self, sent_to: int) -> int:
        return min(self._source.confirm_offset, sent_to)

    def due_ms(self) -> int | None:
        due_ms = super().due_ms()
        times = [one.sent_ms + NEWS_MS for one in self.replicas.values() if self._has_news(one) and one.link.has_room]
        return min([*times, due_ms] if due_ms is not None else times, default=None)

    def _header(self, offset: int, size: int) -> bytes:
        number, start, _ = self._source.epoch_at(offset)
        return encode_header(offset, size, number, start, self._confirmed(offset + size))

    def _batch_size(self, offset: int) -> int:
        _, _, end = self._source.epoch_at(offset)
        return min(super()._batch_size(offset), end - offset)

    # ── Catching up ───────────────────────────────────────────────────────────────────────────────────────────────

    def acknowledged_by(self, broker_id: int) -> int | None:
        """The offset up to which this replica has the log; None if it is not connected or has not reported."""
        replica = self.replicas.get(broker_id)
        return replica.acknowledged if replica is not None and replica.has_asked else None

    def is_caught_up(self, broker_id: int, now_ms: int, within_ms: int) -> bool:
        """Has this replica had the whole log at some time in the last `within_ms`?"""
        replica = self.replicas.get(broker_id)
        if replica is None or not replica.has_asked:
            return False
        return replica.acknowledged >= self._log.end or now_ms - replica.current_ms <= within_ms
