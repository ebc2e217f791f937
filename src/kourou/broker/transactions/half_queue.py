"""The half queue and its op queue: which half messages are open, which have ended, and what of it is durable.

    half queue   h0 h1 h2 h3 h1' h4 …      h1' is a copy of h1, put there when its producer was asked
    op queue     "0,2," "3,1," …           op records: which of them have ended

Everything is in the log; the `Ledger` only knows it by heart. How far both queues are done is kept among the consumer
offsets, as the group CID_RMQ_SYS_TRANS, so that a start need not read all of them. What is kept there never says more
than the log has durably: a commit that a crash takes back is asked for again.

A message ends once, whichever of its copies a client names. Copies are found by their unique key in the index. After a
start several copies of a message may seem to be open: which ones were copied is not in the log. So the index is asked
about half messages that were there at the start, too.

Java: TransactionalMessageBridge, TransactionalMessageServiceImpl.
"""

import logging
from typing import NamedTuple

from kourou.broker import names
from kourou.broker.events import Refused
from kourou.broker.message_writer import MessageWriter
from kourou.broker.offsets import Offsets
from kourou.broker.settings import BrokerSettings
from kourou.broker.stats import Stats
from kourou.broker.transactions import op_records
from kourou.broker.transactions.half_records import HALF_QUEUE, Half
from kourou.broker.transactions.ledger import Fate, Ledger
from kourou.broker.transactions.op_records import OpQueue, PendingOps
from kourou.protocol.codes import ResponseCode
from kourou.protocol.record import CorruptRecordError, decode_record
from kourou.store.commit_log import NewMessage
from kourou.store.errors import StoreError
from kourou.store.store import Store

log = logging.getLogger(__name__)

GROUP = "CID_RMQ_SYS_TRANS"
COPIES_MAX = 64
"""Copies of a half message that are looked at when a client names an old one, the newest first."""

RETRY_MS = 1_000
"""How long to wait after the disk refused an op record."""


class Standing(NamedTuple):
    """How a transaction stands."""

    end: Fate | None  # how it has ended; None: it has not, as far as is known
    copies: list[int]  # the copies of its half message, this one among them
    open_copies: list[int]  # those that nobody has decided yet


class HalfQueue:
    """The half messages of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        writer: MessageWriter,
        offsets: Offsets,
        stats: Stats,
        store_host: bytes,
        now_ms: int,
    ) -> None:
        self._settings = settings
        self._store = store
        self._writer = writer
        self._offsets = offsets
        self._stats = stats
        self._store_host = store_host
        self._copied: dict[int, tuple[int, int]] = {}
        """By offset: the offset of a newer copy that readers can't see yet, and where it ends in the log."""
        self._ops_not_before_ms = 0
        self._ops_problem: str | None = None
        self.pending = PendingOps(now_ms)
        self.ledger = Ledger(0, 0)
        self.op_queue = OpQueue(0)
        self.end_at_start = 0  # of earlier half messages, several copies may seem to be open

    # ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def end(self) -> int:
        """Where the half queue ends."""
        return self._store.reader.offsets(names.HALF_TOPIC, HALF_QUEUE)[1]

    @property
    def has_open(self) -> bool:
        return self.ledger.position < self.end

    def half_at(self, physical_offset: int) -> Half | None:
        """The half message at an offset of the log; None if there is none."""
        record = self._store.reader.message_at(physical_offset)
        return None if record is None else Half.of(record)

    def standing(self, half: Half) -> Standing:
        """Has it ended, and which copies of it are open? Of one that is too old, nothing may be known."""
        fate = self.ledger.fate(half.offset)
        if fate is Fate.OPEN and half.offset >= self.end_at_start and not half.is_copy:
            return Standing(None, [half.offset], [half.offset])
        if fate is not None and fate.is_end:
            return Standing(fate, [half.offset], [])
        copies = self._copies(half) | {half.offset}
        copies |= {self._copied[offset][0] for offset in copies if offset in self._copied}
        fates = {offset: self.ledger.fate(offset) for offset in sorted(copies)}
        end = next((found for found in fates.values() if found is not None and found.is_end), None)
        return Standing(end, list(fates), [offset for offset, found in fates.items() if found is Fate.OPEN])

    def _copies(self, half: Half) -> set[int]:
        """Offsets of all copies that the index knows."""
        end_ms = max(self._store.log.stored_ms, half.record.stored_ms) + 1000
        try:
            found = self._store.reader.query(names.HALF_TOPIC, half.unique_key, COPIES_MAX, 0, end_ms)
            copies = [Half.of(decode_record(record)) for record in found.records]
        except (OSError, StoreError, CorruptRecordError) as error:
            log.error("copies of a half message can't be looked up, its end may count twice: %s", error)
            return set()
        return {copy.offset for copy in copies if copy is not None and copy.is_copy_of(half)}

    # ── Ends and copies ───────────────────────────────────────────────────────────────────────────────────────────

    def check_room(self) -> None:
        """Raises Refused while no more ends can be noted."""
        if len(self.pending) >= op_records.PENDING_MAX:
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"{len(self.pending)} ends of transactions wait for the disk, which refuses them: "
                f"{self._ops_problem}. The producer is asked again later",
            )

    def ended(self, standing: Standing, fate: Fate, log_end: int) -> None:
        """It was committed or rolled back, which is certain when the log is durable up to `log_end`.

        Op records name older copies, too: after a crash the kept position may be before them.
        """
        for offset in standing.copies:
            self.ledger.mark(offset, fate, log_end)
            self.pending.add(offset)

    def is_decided(self, half: Half) -> bool:
        """Has another copy of it ended, or is a newer one open? Then nobody need be asked about this one."""
        first = half.first_offset
        if half.offset >= self.end_at_start and (first is None or first == half.offset):
            return False
        standing = self.standing(half)
        fate = None if first is None else self.ledger.fate(first)
        end = fate if fate is not None and fate.is_end else standing.end
        if end is not None:
            self.ledger.mark(half.offset, end, 0)
            return True
        if any(offset > half.offset for offset in standing.open_copies):
            self.ledger.mark(half.offset, Fate.COPIED, 0)
            return True
        return False

    def copied(self, half: Half, newer: int, log_end: int) -> None:
        """A newer copy of it was appended, which ends at `log_end`."""
        self.ledger.mark(half.offset, Fate.COPIED, log_end)
        self._copied[half.offset] = newer, log_end

    def given_up(self, begin: int, stop: int, log_end: int = 0) -> None:
        """Nobody is asked about these any more."""
        for offset in range(begin, stop):
            if self.ledger.is_open(offset):
                self.ledger.mark(offset, Fate.GIVEN_UP, log_end)

    # ── Op records ────────────────────────────────────────────────────────────────────────────────────────────────

    def ops_due_ms(self) -> int | None:
        """When an op record is to be written next; None: nothing waits."""
        settings = self._settings
        due_ms = self.pending.due_ms(settings.transaction_op_size, settings.transaction_op_interval_ms)
        return None if due_ms is None else max(due_ms, self._ops_not_before_ms)

    def write_due_ops(self, now_ms: int) -> None:
        """Write op records that are due."""
        due_ms = self.ops_due_ms()
        if due_ms is not None and due_ms <= now_ms:
            self.write_ops(now_ms)

    def write_ops(self, now_ms: int) -> bool:
        """Write all that is pending. False: the disk refuses it, and it is tried again later."""
        while self.pending:
            offsets = self.pending.next_record(self._settings.transaction_op_size)
            message = NewMessage(
                topic=names.HALF_OP_TOPIC,
                queue_id=HALF_QUEUE,
                body=op_records.encode(offsets),
                properties=op_records.PROPERTIES.encode(),
                born_ms=self._store.clock.at(now_ms),
                born_host=self._store_host,
            )
            try:
                (stored,) = self._writer.put([message], None, now_ms)
            except Refused as refused:
                self._ops_not_before_ms = now_ms + RETRY_MS
                if self._ops_problem is None:
                    log.error("ends of transactions are not written, which is retried: %s", refused.remark)
                self._ops_problem = refused.remark
                return False
            self._stats.put(names.HALF_OP_TOPIC, 1, stored.size)
            self.pending.written(offsets, stored.physical_offset + stored.size, now_ms)
            self.op_queue.add(stored.queue_offset, max(offsets))
        self._ops_problem = None
        return True

    # ── Durability ────────────────────────────────────────────────────────────────────────────────────────────────

    def settle(self) -> None:
        """What has become durable may be kept: how far both queues are done."""
        durable, ledger = self._store.durability.durable_to, self.ledger
        start = self._store.reader.offsets(names.HALF_TOPIC, HALF_QUEUE)[0]
        if start > ledger.position:
            lost = ledger.skip_to(start)
            log.error("%d half messages have expired before anybody decided about them", lost)
        if ledger.settle(durable):
            self._offsets.commit(GROUP, names.HALF_TOPIC, HALF_QUEUE, ledger.safe_position)
        self.pending.settle(durable)
        if self.op_queue.pass_before(ledger.safe_position):
            self._offsets.commit(GROUP, names.HALF_OP_TOPIC, HALF_QUEUE, self.op_queue.position)
        visible = self._store.dispatched
        for offset in [offset for offset, (_, log_end) in self._copied.items() if log_end <= visible]:
            del self._copied[offset]

    def log_was_cut(self, end: int) -> None:
        """The log lost what is after this offset: half messages, copies, commits and op records."""
        void = self.ledger.cut(end, self.end)
        self.pending.cut(end, void)
        self.op_queue.cut(self._store.reader.offsets(names.HALF_OP_TOPIC, HALF_QUEUE)[1])
        self._copied = {offset: copy for offset, copy in self._copied.items() if copy[1] <= end}
