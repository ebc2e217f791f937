"""Changes the role of a running broker to master or slave. Connections of clients stay open.

    a slave becomes a master    queue offsets continue after the last record, and those of groups are limited to them
                                ─▶ delays, timers and transactions start from the contents of the log ─▶ slaves may
                                connect ─▶ messages are accepted
    a master becomes a slave    no more messages ─▶ waiting senders get a timeout ─▶ delays, timers and transactions
                                stop ─▶ its slaves are disconnected, and it looks for a master

In both cases waiting pulls are answered, and the name servers are told at once. Services read the log in slices, so
requests are served meanwhile.

All other parts read `BrokerSettings.role`: the writer and the lane, the requests that a slave refuses, the metadata
that a slave fetches.

`cut_log` is for a replica whose log differs from that of its new master: log, queues, index, timers and all positions
that refer to the removed part are cut with it.

Call both only within a step of the machine, because the lane reads the settings after each step.
"""

import logging
from collections.abc import Callable
from functools import partial

from kourou.broker.delays import Delays
from kourou.broker.long_polls import LongPolls
from kourou.broker.message_writer import MessageWriter
from kourou.broker.metadata_sync import MetadataSync
from kourou.broker.offsets import Offsets
from kourou.broker.registration import Registration
from kourou.broker.replication import Replication
from kourou.broker.settings import BrokerSettings, Role
from kourou.broker.timers.service import Timers
from kourou.broker.transactions.service import Transactions
from kourou.protocol.codes import MASTER_ID
from kourou.store.errors import StoreError
from kourou.store.store import Store
from kourou.store.truncation import LastRecord

log = logging.getLogger(__name__)


class RoleChange:
    """Changes the role of one broker, and cuts its log."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        writer: MessageWriter,
        offsets: Offsets,
        delays: Delays,
        timers: Timers,
        transactions: Transactions,
        replication: Replication,
        metadata_sync: MetadataSync,
        registration: Registration,
        polls: LongPolls,
    ) -> None:
        self._settings = settings
        self._store = store
        self._writer = writer
        self._offsets = offsets
        self._delays = delays
        self._timers = timers
        self._transactions = transactions
        self._replication = replication
        self._metadata_sync = metadata_sync
        self._registration = registration
        self._polls = polls

    # ── Roles ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def become(self, role: Role, broker_id: int, now_ms: int) -> None:
        """Assume this role; `broker_id` is used for a slave. Nothing happens if the broker already has the role."""
        settings = self._settings
        broker_id = broker_id if role is Role.SLAVE else MASTER_ID
        assert role is not Role.SLAVE or broker_id > MASTER_ID, "a slave's brokerId must be greater than 0"
        was, was_id = settings.role, settings.broker_id
        if (was, was_id) == (role, broker_id):
            return
        log.warning("the role changes from %s (brokerId %d) to %s (%d)", was.value, was_id, role.value, broker_id)
        settings.role, settings.broker_id = role, broker_id
        if was is not Role.SLAVE and role is Role.SLAVE:
            self._rest(now_ms)
        elif was is Role.SLAVE and role is not Role.SLAVE:
            self._take_over(now_ms)
        self._replication.role_changed(now_ms)
        self._polls.expire_all()
        self._registration.announce_now()

    def _rest(self, now_ms: int) -> None:
        """A master becomes a slave."""
        for token, missing in self._store.durability.give_up():
            self._writer.now_late(token, missing)
        self._metadata_sync.begin()
        self._delays.give_up()
        self._timers.give_up(now_ms)
        self._transactions.give_up()

    def _take_over(self, now_ms: int) -> None:
        """A slave becomes a master."""
        self._metadata_sync.stop()
        self._store.count_given_out()
        # The old master's offsets may be ahead of the log, which was copied over another connection.
        self._offsets.keep_within(partial(next_offset, self._store))
        services: tuple[tuple[str, Callable[[], None]], ...] = (
            ("delayed messages", self._delays.take_over),
            ("timed messages", lambda: self._timers.take_over(now_ms)),
            ("transactions", lambda: self._transactions.take_over(now_ms)),
        )
        for name, take_over in services:
            try:
                take_over()
            except (OSError, StoreError) as error:  # messages are accepted nevertheless
                log.error("%s can't continue: %s. Restart the broker once the store can be read", name, error)

    # ── Cuts ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def cut_log(self, end: int, now_ms: int, last: LastRecord | None = None) -> None:
        """Cut the log durably at this offset, where a record ends, with everything that refers to the removed part.

        `last` is the last record before that offset, if the caller has searched it in slices.

        Raises StoreError if no record ends there; nothing is changed then. Raises DiskFailedError or OSError if the
        store had to be closed; see `Store.truncate`.
        """
        if end >= self._store.log.end:
            return
        self._timers.before_cut(now_ms)
        for token in self._store.truncate(end, now_ms, last):
            self._writer.now_durable(token)
        for token in self._store.durability.take_cut():
            self._writer.now_lost(token)
        self.log_was_cut()

    def log_was_cut(self) -> None:
        """Limit all offsets to the end of their queues, because new messages will get the offsets of those cut."""
        end = self._store.log.end
        self._offsets.keep_within(partial(queue_end, self._store))
        self._delays.log_was_cut(end)
        self._transactions.log_was_cut(end)
        self._replication.log_was_cut()
        self._timers.log_was_cut()


def queue_end(store: Store, topic: str, queue_id: int) -> int | None:
    """The end of a queue; None if it can't be read."""
    try:
        return store.reader.offsets(topic, queue_id)[1]
    except StoreError as error:
        log.error("%s", error)
        return None


def next_offset(store: Store, topic: str, queue_id: int) -> int | None:
    """The offset of the next message of a queue, also before all records are dispatched; None if it can't be read."""
    end = queue_end(store, topic, queue_id)
    queue = store.queues.get(topic, queue_id)
    return end if end is None or queue is None else max(end, queue.next_offset)
