"""The transactions of one broker: all parts together, as the machine knows them."""

import logging
from collections.abc import Callable
from itertools import islice
from typing import Final

from kourou.broker.clients import Clients
from kourou.broker.events import Asked, Outbox, Refused
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
from kourou.protocol import headers
from kourou.protocol.bodies import TransactionMetricsSerializeWrapper
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import ProtocolError
from kourou.protocol.ids import decode_offset_id
from kourou.store.store import Store

log = logging.getLogger(__name__)

STEPS_AT_START: Final = 1_024
"""Batches of op records that are read before the broker serves; the rest is read in slices."""

STEPS_IN_SLICE: Final = 4


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
    ) -> None:
        """`touch` is called when the counts have changed; `kept_ms` says how long messages are kept.

        Raises StoreError.
        """
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
        )
        self._ending = Ending(settings, store, writer, stats, self.halves, self.counts)
        self._loading = opening.load(self.halves, store, offsets)
        self._is_loaded = len(list(islice(self._loading, STEPS_AT_START))) < STEPS_AT_START

    # ── Requests ──────────────────────────────────────────────────────────────────────────────────────────────────

    def end(self, asked: Asked) -> Command | None:
        """END_TRANSACTION."""
        return self._ending.end(asked)

    def resume(self, asked: Asked) -> Command | None:
        """RESUME_CHECK_HALF_MESSAGE: a half message that was discarded, or any copy of one, is checked again."""
        header = headers.ResumeCheckHalfMessage.decode(asked.command.ext)
        try:
            record = self._store.reader.message_at(decode_offset_id(header.msg_id or "").offset)
        except ProtocolError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"msgId is not the id of a stored message: {error}") from None
        half = None if record is None else Half.of_any(record)
        if half is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"there is no half message with the id {header.msg_id}")
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

    def _half_opened(self, now_ms: int) -> None:
        if not self.halves.has_open:
            self._checks.first_opened(now_ms)

    def wrapper(self) -> TransactionMetricsSerializeWrapper:
        """What is kept of the counts."""
        self.counts.forget_but(self._topics.table)
        return self.counts.wrapper()

    # ── Work that is due ──────────────────────────────────────────────────────────────────────────────────────────

    def due_ms(self, now_ms: int) -> int | None:
        """When `step` has something to do; None: nothing is open."""
        if not self._is_on:
            return None
        if not self._is_loaded:
            return now_ms
        times = self.halves.ops_due_ms(), self._checks.due_ms(now_ms)
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    def step(self, now_ms: int) -> None:
        """A slice of what is due: op records, checks."""
        if not self._is_on:
            return
        if not self._is_loaded:
            self._is_loaded = len(list(islice(self._loading, STEPS_IN_SLICE))) < STEPS_IN_SLICE
            return
        self.halves.settle()
        self.halves.write_due_ops(now_ms)
        self._checks.step(now_ms)

    def settle(self) -> None:
        """What has become durable may be kept."""
        if self._is_on:
            self.halves.settle()

    def log_was_cut(self, end: int) -> None:
        """The log lost what is after this offset."""
        self.halves.log_was_cut(end)
        self._checks.log_was_cut(end)

    def stop(self, now_ms: int) -> None:
        """The broker is about to stop: write what is pending."""
        if self._is_on:
            self.halves.write_ops(now_ms)
