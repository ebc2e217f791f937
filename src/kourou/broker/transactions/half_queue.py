"""The half queue and its op queue: which half messages are open or have ended, and which of these facts are durable.

    half queue   h0 h1 h2 h3 h1' h4 …      h1' is a copy of h1, appended when its producer was asked
    op queue     "0,2," "3,1," …           op records: the half messages that have ended

Everything is in the log; the `Ledger` is only a copy in memory. The progress of both queues is stored among the
consumer offsets, as the group CID_RMQ_SYS_TRANS, so that a start need not read all of them. The stored progress never
exceeds the durable part of the log: if a crash undoes a commit, its producer is asked again.

A message ends once, whichever of its copies a client names. Copies are found by their unique key in the index. After a
start several copies of a message may seem to be open, because the log does not record which ones were copied. So the
index is also searched for half messages that existed at the start. While the index can't be read or is being rebuilt,
such a message can't end, since its end could count twice; the producer is asked again later.

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
from kourou.protocol.names import shown
from kourou.protocol.record import CorruptRecordError, decode_record
from kourou.protocol.system_names import TRANSACTION_GROUP
from kourou.store.commit_log import NewMessage
from kourou.store.errors import StoreError
from kourou.store.store import Store

log = logging.getLogger(__name__)

COPIES_MAX = 64
"""The most copies of a half message that are examined if a client names an old one, the newest first."""

RETRY_MS = 1_000
"""The pause after the disk refused an op record."""


class CopiesUnknownError(StoreError):
    """The copies of a half message can't be looked up now, so it is not known whether it has ended."""


class Standing(NamedTuple):
    """The state of a transaction."""

    end: Fate | None  # how it has ended; None if it has not, as far as is known
    copies: list[int]  # the copies of its half message, including this one
    open_copies: list[int]  # those that are not decided yet


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
        self.begin_again(now_ms)

    def begin_again(self, now_ms: int) -> None:
        """Reset the state; `opening.load` reads it from the store."""
        self._copied: dict[int, tuple[int, int]] = {}
        """By offset: the offset of a newer copy that is not visible yet, and its end in the log."""
        self._committed_keys: set[str] = set()
        """Unique keys of commits that were found at the start, while their half messages could not be looked up."""
        self._ops_not_before_ms = 0
        self.ops_problem: str | None = None  # why op records could not be written
        self.pending = PendingOps(now_ms)
        self.ledger = Ledger(0, 0)
        self.op_queue = OpQueue(0)
        self.end_at_start = 2**63 - 1  # several copies of half messages before this offset may seem to be open
        self.is_loaded = False  # whether it is known which of them have ended

    # ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def end(self) -> int:
        """Where the half queue ends."""
        return self._store.reader.offsets(names.HALF_TOPIC, HALF_QUEUE)[1]

    @property
    def has_open(self) -> bool:
        return self.ledger.position < self.end

    def half_at(self, physical_offset: int) -> Half | None:
        """The half message at a log offset; None if there is none."""
        record = self._store.reader.message_at(physical_offset)
        return None if record is None else Half.of(record)

    def standing(self, half: Half) -> Standing:
        """Whether a half message has ended, and its open copies. If it is too old, this may not be known.

        Raises CopiesUnknownError.
        """
        fate = self.ledger.fate(half.offset)
        if fate is Fate.OPEN and half.offset >= self.end_at_start and not half.is_copy:
            return Standing(None, [half.offset], [half.offset])
        if fate is not None and fate.is_end:
            return Standing(fate, [half.offset], [])
        copies = self._copies(half) | {half.offset}
        copies |= {self._copied[offset][0] for offset in copies if offset in self._copied}
        fates = {offset: self.ledger.fate(offset) for offset in sorted(copies)}
        end = next((found for found in fates.values() if found is not None and found.is_end), None)
        if end is None and half.unique_key in self._committed_keys:
            end = Fate.COMMITTED
        return Standing(end, list(fates), [offset for offset, found in fates.items() if found is Fate.OPEN])

    def _copies(self, half: Half) -> set[int]:
        """Offsets of all copies that the index knows. Raises CopiesUnknownError."""
        if self._store.index_repair.behind:
            raise CopiesUnknownError("copies of the half message can't be looked up while the index is being rebuilt")
        end_ms = max(self._store.log.stored_ms, half.record.stored_ms) + 1000
        try:
            found = self._store.reader.query(names.HALF_TOPIC, half.unique_key, COPIES_MAX, 0, end_ms)
        except (OSError, StoreError) as error:
            raise CopiesUnknownError(f"copies of the half message can't be looked up: {error}") from error
        copies: set[int] = set()
        for record in found.records:
            try:
                copy = Half.of(decode_record(record))
            except CorruptRecordError as error:
                log.error("a copy of a half message is damaged: %s", error)
                continue
            if copy is not None and copy.is_copy_of(half):
                copies.add(copy.offset)
        return copies

    # ── Ends and copies ───────────────────────────────────────────────────────────────────────────────────────────

    def check_room(self) -> None:
        """Raises Refused while no more ended transactions can be recorded."""
        if len(self.pending) >= op_records.PENDING_MAX:
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"{len(self.pending)} ended transactions can't be recorded, because the disk refuses writes: "
                f"{self.ops_problem}. The producer will be asked again later",
            )

    def ended(self, standing: Standing, fate: Fate, log_end: int) -> None:
        """A transaction was committed or rolled back, which is certain once the log is durable up to `log_end`.

        Op records also name older copies, since after a crash the stored position may be before them.
        """
        for offset in standing.copies:
            self.ledger.mark(offset, fate, log_end)
            self.pending.add(offset)

    def may_have_ended(self, half: Half) -> bool:
        """Is it still unknown whether a half message has ended?"""
        return not self.is_loaded and (half.offset < self.end_at_start or half.is_copy)

    def is_first(self, offset: int) -> bool:
        """Is this an open half message from after the start that may end? If it is not a copy, no copy is open."""
        return (
            offset >= self.end_at_start and self.ledger.is_open(offset) and len(self.pending) < op_records.PENDING_MAX
        )

    def first_ended(self, offset: int, fate: Fate, log_end: int) -> None:
        """The same as `ended`, for a half message without copies."""
        self.ledger.mark(offset, fate, log_end)
        self.pending.add(offset)

    def committed_before_start(self, half: Half) -> bool:
        """A commit of the half message was found in the log. Returns whether that was unknown.

        If its copies can't be looked up now, they will count as committed once they can be.
        """
        try:
            standing = self.standing(half)
        except CopiesUnknownError as error:
            log.error("message %s is committed, but its copies are not known yet: %s", shown(half.unique_key), error)
            self._committed_keys.add(half.unique_key)
            standing = Standing(None, [half.offset], [half.offset])
        if standing.end is not None:
            return False
        self.ended(standing, Fate.COMMITTED, 0)
        return True

    def is_decided(self, half: Half) -> bool:
        """Has another copy ended, or is a newer one open? Then the producer need not be asked about this one.

        An Apache broker that takes over the store knows ends only from op records, so this copy gets its own.

        Raises CopiesUnknownError.
        """
        first = half.first_offset
        if half.offset >= self.end_at_start and (first is None or first == half.offset):
            return False
        standing = self.standing(half)
        fate = None if first is None else self.ledger.fate(first)
        end = fate if fate is not None and fate.is_end else standing.end
        if end is not None:
            self.ledger.mark(half.offset, end, 0)
            if len(self.pending) < op_records.PENDING_MAX:  # otherwise the index finds it again
                self.pending.add(half.offset)
            return True
        if any(offset > half.offset for offset in standing.open_copies):
            self.ledger.mark(half.offset, Fate.COPIED, 0)
            return True
        return False

    def copied(self, half: Half, newer: int, log_end: int) -> None:
        """A newer copy was appended, which ends at `log_end`."""
        self.ledger.mark(half.offset, Fate.COPIED, log_end)
        self._copied[half.offset] = newer, log_end

    def given_up(self, begin: int, stop: int, log_end: int = 0) -> None:
        """The producers of these half messages are no longer asked."""
        for offset in range(begin, stop):
            if self.ledger.is_open(offset):
                self.ledger.mark(offset, Fate.GIVEN_UP, log_end)

    # ── Op records ────────────────────────────────────────────────────────────────────────────────────────────────

    def ops_due_ms(self) -> int | None:
        """When the next op record is due; None if nothing waits."""
        settings = self._settings
        due_ms = self.pending.due_ms(settings.transaction_op_size, settings.transaction_op_interval_ms)
        return None if due_ms is None else max(due_ms, self._ops_not_before_ms)

    def write_due_ops(self, now_ms: int) -> None:
        """Write op records that are due."""
        due_ms = self.ops_due_ms()
        if due_ms is not None and due_ms <= now_ms:
            self.write_ops(now_ms)

    def write_ops(self, now_ms: int) -> bool:
        """Write everything that is pending. False if the disk refuses it; it is retried later.

        Nothing is written before all op records are read, because they are noted in order.
        """
        if not self.is_loaded:
            return not self.pending
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
                if self.ops_problem is None:
                    log.error("ended transactions can't be recorded; this will be retried: %s", refused.remark)
                self.ops_problem = refused.remark
                return False
            self._stats.put(names.HALF_OP_TOPIC, 1, stored.size)
            self.pending.written(offsets, stored.physical_offset + stored.size, now_ms)
            self.op_queue.add(stored.queue_offset, max(offsets))
        self.ops_problem = None
        return True

    # ── Durability ────────────────────────────────────────────────────────────────────────────────────────────────

    def settle(self) -> None:
        """Store the progress of both queues, as far as it has become durable."""
        durable, ledger = self._store.durability.durable_to, self.ledger
        start = self._store.reader.offsets(names.HALF_TOPIC, HALF_QUEUE)[0]
        if start > ledger.position:
            lost = ledger.skip_to(start)
            log.error("%d half messages have expired before their producers committed or rolled them back", lost)
        if ledger.settle(durable):
            self._offsets.commit(TRANSACTION_GROUP, names.HALF_TOPIC, HALF_QUEUE, ledger.safe_position)
        self.pending.settle(durable)
        if self.op_queue.pass_before(ledger.safe_position):
            self._offsets.commit(TRANSACTION_GROUP, names.HALF_OP_TOPIC, HALF_QUEUE, self.op_queue.position)
        visible = self._store.dispatched
        for offset in [offset for offset, (_, log_end) in self._copied.items() if log_end <= visible]:
            del self._copied[offset]

    def log_was_cut(self, end: int) -> None:
        """The log was cut at this offset: undo half messages, copies, commits and op records after it."""
        void = self.ledger.cut(end, self.end)
        self.pending.cut(end, void)
        self.op_queue.cut(self._store.reader.offsets(names.HALF_OP_TOPIC, HALF_QUEUE)[1])
        self._copied = {offset: copy for offset, copy in self._copied.items() if copy[1] <= end}
