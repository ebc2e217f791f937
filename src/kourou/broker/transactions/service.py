"""The transactions of one broker: combines all parts, for the machine."""

import logging
from collections.abc import Callable
from itertools import islice
from typing import Final

from kourou.broker.access import Access
from kourou.broker.clients import Clients
from kourou.broker.events import Outbox, Refused, Request
from kourou.broker.message_writer import MessageWriter
from kourou.broker.offsets import Offsets
from kourou.broker.settings import BrokerSettings, Role
from kourou.broker.stats import Stats
from kourou.broker.topics import Topics
from kourou.broker.transactions import half_records, opening
from kourou.broker.transactions.checking import Checks
from kourou.broker.transactions.counts import Counts
from kourou.broker.transactions.ending import Ending
from kourou.broker.transactions.half_queue import HalfQueue
from kourou.broker.transactions.half_records import Half
from kourou.broker.transactions.ledger import Fate
from kourou.protocol import headers
from kourou.protocol.bodies import TransactionMetricsSerializeWrapper
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import ProtocolError
from kourou.protocol.headers.table import UPDATE
from kourou.protocol.ids import decode_offset_id
from kourou.store.errors import StoreError
from kourou.store.store import Store

log = logging.getLogger(__name__)

STEPS_AT_START: Final = 2_048
"""The most batches of records that are read before the broker serves requests; the rest is read in slices."""

STEPS_IN_SLICE: Final = 4

RETRY_MS: Final = 1_000
"""The pause after the store could not be read."""


class Transactions:
    """See `kourou.broker.transactions`."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        writer: MessageWriter,
        topics: Topics,
        clients: Clients,
        offsets: Offsets,
        stats: Stats,
        outbox: Outbox,
        store_host: bytes,
        kept: TransactionMetricsSerializeWrapper | None,
        touch: Callable[[], None],
        kept_ms: Callable[[], int],
        now_ms: int,
        access: Access,
    ) -> None:
        """`touch` is called when the counts have changed; `kept_ms` returns how long messages are kept.

        Raises StoreError.
        """
        self._access = access
        self._settings = settings
        self._store = store
        self._writer = writer
        self._topics = topics
        self._is_on = settings.role is not Role.SLAVE  # a slave's master checks
        self.counts = Counts(kept, touch, store.clock)
        self.halves = HalfQueue(settings, store, writer, offsets, stats, store_host, now_ms)
        self._checks = Checks(
            settings,
            store,
            writer,
            topics,
            clients,
            stats,
            outbox,
            self.halves,
            self.counts,
            store_host,
            kept_ms,
            now_ms,
            access,
        )
        self._ending = Ending(settings, store, writer, stats, self.halves, self.counts, access)
        self._offsets = offsets
        self._loading = opening.load(self.halves, store, offsets, is_whole=store.report.clean)
        self._not_before_ms = 0  # after the store could not be read
        self._load(STEPS_AT_START)

    # ── Requests ──────────────────────────────────────────────────────────────────────────────────────────────────

    def end(self, asked: Request[headers.EndTransaction]) -> Command | None:
        """END_TRANSACTION."""
        return self._ending.end(asked)

    def resume(self, asked: Request[headers.ResumeCheckHalfMessage]) -> Command | None:
        """RESUME_CHECK_HALF_MESSAGE: check a discarded half message, or any copy of one, again."""
        header = asked.header
        try:
            record = self._store.reader.message_at(decode_offset_id(header.msg_id or "").offset)
        except ProtocolError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"msgId is not the id of a stored message: {error}") from None
        half = None if record is None else Half.of_any(record)
        if half is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"there is no half message with the id {header.msg_id}")
        self._access.check_topic(asked, half.real_topic, UPDATE)
        self._writer.put([half_records.resumed_copy(half)], None, asked.now_ms)
        self._half_opened(asked.now_ms)
        if half.is_discarded:
            self.counts.opened(half.real_topic, asked.now_ms)
        self._writer.answer(asked.peer, asked.command, asked.command.answer(), asked.now_ms)
        return None

    def half_stored(self, real_topic: str, now_ms: int) -> None:
        """A half message was sent and stored."""
        self._half_opened(now_ms)
        self.counts.opened(real_topic, now_ms)

    def halves_stored(self, real_topic: str, count: int, now_ms: int) -> None:
        """Half messages for one topic were sent and stored, in one read."""
        self._half_opened(now_ms)
        self.counts.opened(real_topic, now_ms, count)

    def may_commit(self, offset: int) -> bool:
        """May a half message be committed without a search for copies, because it has none?"""
        return self.halves.is_first(offset)

    def committed(self, topic: str, offset: int, log_end: int, born_ms: int, now_ms: int) -> None:
        """A half message without copies was committed."""
        self.halves.first_ended(offset, Fate.COMMITTED, log_end)
        self.counts.committed(topic, born_ms, now_ms)

    def _half_opened(self, now_ms: int) -> None:
        if not self.halves.has_open:
            self._checks.first_opened(now_ms)

    def wrapper(self) -> TransactionMetricsSerializeWrapper:
        """The contents of the file of counts."""
        self.counts.forget_but(self._topics.table)
        return self.counts.wrapper()

    # ── Work that is due ──────────────────────────────────────────────────────────────────────────────────────────

    def due_ms(self, now_ms: int) -> int | None:
        """When `step` is due; None if no half message is open."""
        if not self._is_on:
            return None
        if not self.halves.is_loaded:
            return max(now_ms, self._not_before_ms)
        times = self.halves.ops_due_ms(), self._checks.due_ms(now_ms)
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    def step(self, now_ms: int) -> None:
        """Do a slice of the work that is due: op records, checks."""
        if not self._is_on:
            return
        if not self.halves.is_loaded:
            if now_ms >= self._not_before_ms:
                self._load_on(STEPS_IN_SLICE, now_ms)
            return
        self.halves.settle()
        self.halves.write_due_ops(now_ms)
        self._checks.step(now_ms)

    def _load(self, steps: int) -> None:
        """Continue to read the store. Raises OSError, StoreError."""
        for _ in islice(self._loading, steps):
            pass

    def _load_on(self, steps: int, now_ms: int) -> None:
        """The same; if the store can't be read, this is retried later, from the beginning."""
        try:
            self._load(steps)
        except (OSError, StoreError) as error:
            log.error("the ended transactions can't be read from the store; this will be retried: %s", error)
            self._load_again(now_ms)
            self._not_before_ms = now_ms + RETRY_MS

    def _load_again(self, now_ms: int) -> None:
        self._not_before_ms = 0
        self.halves.begin_again(now_ms)
        self._checks.begin_again(now_ms)
        self._loading = opening.load(self.halves, self._store, self._offsets, is_whole=False)

    def settle(self) -> None:
        """Store the progress that has become durable."""
        if self._is_on:
            self.halves.settle()

    def take_over(self, now_ms: int) -> None:
        """The broker has become a master: read the half messages from the log; steps read the rest."""
        if self._is_on:
            return
        self._is_on = True
        self._load_again(now_ms)
        self._load_on(1, now_ms)

    def give_up(self) -> None:
        """The broker has become a slave: its master checks transactions."""
        self._is_on = False

    def log_was_cut(self, end: int) -> None:
        """The log was cut at this offset."""
        if not self._is_on:
            return
        self.halves.log_was_cut(end)
        self._checks.log_was_cut(end)

    def stop(self, now_ms: int) -> None:
        """The broker is about to stop: write everything that is pending."""
        if self._is_on:
            self.halves.write_ops(now_ms)
