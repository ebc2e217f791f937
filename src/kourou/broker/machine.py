"""The broker's machine: events in, effects out.

    Requests ─▶ the function of each request's code ─▶ Reply, or an append and the wait for its safety
    … after all events of a step:
    dispatch ─▶ what was appended becomes visible ─▶ pulls that waited for it are answered
    changed tables ─▶ Save, Announce          due work of the store ─▶ Run

A step takes whatever has come since the last one, so a hundred sends of one read are dispatched once. It never raises
for what a peer sent: a request that makes no sense is answered with the reason.

No request holds the event loop for long. A function that may need more than a few milliseconds is a generator and runs
in slices (`kourou.turns`). Requests that follow it on the same connection do not wait for it, unless they are
long as well.

An answer leaves when what it promises is true: a stored message is as safe as the flush mode says, a new topic is in
topics.json.

Java: BrokerController.
"""

import logging
import random
from collections.abc import Callable, Sequence
from typing import assert_never

from kourou.broker.admin.table import admin_requests
from kourou.broker.clients import Clients
from kourou.broker.consumer_filters import FILTERS_INTERVAL_MS, ConsumerFilters
from kourou.broker.delays import DELAY_OFFSETS, Delays
from kourou.broker.events import (
    Announced,
    Answered,
    Asked,
    Close,
    Done,
    Effect,
    Event,
    Gone,
    Outbox,
    Owe,
    Peer,
    PutOff,
    ReplyFrames,
    Requests,
    Run,
    Saved,
    Tick,
    Turn,
)
from kourou.broker.filtering import Filtering
from kourou.broker.groups import Groups
from kourou.broker.lane import ANSWERS_MAX, make_lane
from kourou.broker.members import Members
from kourou.broker.message_writer import MessageWriter
from kourou.broker.names import SCHEDULE_TOPIC
from kourou.broker.offsets import Offsets
from kourou.broker.persistence import Persistence
from kourou.broker.placement import DelayLevels, Placement, refuse_timers
from kourou.broker.properties import Configuration
from kourou.broker.pull import Pull
from kourou.broker.queries import Queries
from kourou.broker.queue_locks import QueueLocks
from kourou.broker.registration import Registration
from kourou.broker.replies import Replies
from kourou.broker.request_bodies import RequestBodies
from kourou.broker.request_modes import RequestModes
from kourou.broker.retry import Retry
from kourou.broker.send import Send
from kourou.broker.serving import Serve, Serving
from kourou.broker.slow_readers import SlowReaders
from kourou.broker.stats import Stats
from kourou.broker.topics import Topics
from kourou.broker.transactions.half_records import HalfMessages
from kourou.broker.transactions.service import Transactions
from kourou.protocol.codes import RequestCode
from kourou.store import metadata
from kourou.store.backoff import Backoff
from kourou.store.errors import StoreError
from kourou.store.jobs import Slice
from kourou.store.settings import delay_table
from kourou.store.store import Store
from kourou.turns import Slices, Turns

log = logging.getLogger(__name__)

HOUR_MS = 3_600_000

CAUSES_MAX = 100
"""How many different faults are logged with their traces; the metric counts all."""

TOPICS, GROUPS, OFFSETS, DELAYS, REMOVED = "topics", "groups", "offsets", "delays", "removed topics"
TRANSACTIONS, REQUEST_MODES = "counts of transactions", "request modes"
FILTERS = "filters of consumers"


class Broker:
    """One broker. The store is open, and the machine's alone until `close`."""

    def __init__(
        self,
        configuration: Configuration,
        store: Store,
        store_host: bytes,
        *,
        now_ms: int,
        memory_bytes: int,
        unique_id: Callable[[int], str],
        chance: random.Random,
        local_day: Callable[[int], object] = lambda now_ms: now_ms // 86_400_000,
        clock_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        """`local_day` names the day of a time where the broker is; `clock_ns` measures slices of long work.

        Raises BadStoreError, OSError: the tables can't be read.
        """
        settings, store_settings = configuration.broker, configuration.store
        self.configuration = configuration
        self.settings = settings
        self.store = store
        self.outbox = Outbox()
        self.faults = 0  # exceptions that no part should have raised
        self._causes: set[str] = set()  # of those, which were logged
        self.turns = Turns(clock_ns, lambda: settings.long_memory_max, lambda error: self._failed("long work", error))
        self.persistence = Persistence(self.outbox, self.turns)
        self.started_ms = now_ms
        keep = self.persistence
        store.reader.limits.memory_window = memory_bytes * settings.memory_ratio // 100

        topics_file = store.metadata(metadata.TOPICS)
        groups_file = store.metadata(metadata.GROUPS)
        offsets_file = store.metadata(metadata.CONSUMER_OFFSETS)
        self.topics = Topics(settings, topics_file.load(), lambda: keep.touch(TOPICS), store.clock)
        self.groups = Groups(settings, groups_file.load(), lambda: keep.touch(GROUPS), store.clock)
        self.offsets = Offsets(offsets_file.load(), lambda: keep.touch(OFFSETS), lambda: settings.offsets_max)
        keep.add(TOPICS, topics_file, self.topics.wrapper)
        keep.add(GROUPS, groups_file, self.groups.wrapper)
        store.removed.touch = lambda: keep.touch(REMOVED)
        keep.add(REMOVED, store.removed_file, store.removed.wrapper)
        keep.add(OFFSETS, offsets_file, self.offsets.wrapper, settings.offsets_interval_ms)

        self.stats = Stats(self.topics.is_system, now_ms, lambda steady_ms: local_day(store.clock.at(steady_ms)))
        self.locks = QueueLocks(settings.lock_time_ms)
        self.clients = Clients(settings, self.outbox, self.turns)
        filters_file = store.metadata(metadata.FILTERS)
        self.filters = ConsumerFilters(settings, filters_file.load(), lambda: keep.touch(FILTERS), store.clock, now_ms)
        keep.add(FILTERS, filters_file, self.filters.wrapper, FILTERS_INTERVAL_MS)
        self.clients.on_group_left = lambda group: self.filters.unregister(group, self._now_ms)
        store.queues.extensions.bit_map_of = self.filters.bit_map_of
        filtering = Filtering(settings, self.filters)
        delay_levels = DelayLevels(delay_table(store_settings.delay_levels))
        self.placement = Placement((HalfMessages(settings).place, delay_levels.place, refuse_timers))
        self.writer = MessageWriter(store, store_settings, self.outbox, settings, self.placement)
        self.send = Send(
            settings,
            self.topics,
            self.groups,
            self.writer,
            self.locks,
            self.stats,
            store_host,
            unique_id,
            chance,
            on_half=lambda real_topic, now_ms: self.transactions.half_stored(real_topic, now_ms),
        )
        delays_file = store.metadata(DELAY_OFFSETS)
        keep.add(DELAYS, delays_file, lambda: self.delays.wrapper(), settings.delay_offsets_interval_ms)
        self.delays = Delays(
            settings,
            store,
            self.writer,
            self.stats,
            delay_levels.delay_ms,
            delays_file.load(),
            lambda: keep.touch(DELAYS),
        )
        self.retry = Retry(settings, store.reader, self.topics, self.groups, self.writer, self.stats, chance)
        self.replies = Replies(settings, self.clients, self.send, self.writer, self.stats, self.outbox)
        self.pull = Pull(
            settings,
            store,
            self.topics,
            self.groups,
            self.clients,
            self.offsets,
            filtering,
            self.stats,
            self.outbox,
        )
        read = RequestBodies(settings)
        self.members = Members(
            settings,
            store,
            self.topics,
            self.groups,
            self.clients,
            self.offsets,
            self.locks,
            self.filters,
            filtering,
            read,
        )
        self.queries = Queries(settings, store, self.outbox)
        self.registration = Registration(settings, self.topics, self.outbox, self.turns)
        self.slow_readers = SlowReaders(settings, store, self.groups, self.clients, self.offsets, now_ms)

        if not store.report.clean:
            self.offsets.keep_within(self._end_of)
        counts_file = store.metadata(metadata.TRANSACTION_METRICS)
        counts_ms = settings.transaction_counts_interval_ms
        keep.add(TRANSACTIONS, counts_file, lambda: self.transactions.wrapper(), counts_ms)
        self.transactions = Transactions(
            settings,
            store,
            self.writer,
            self.topics,
            self.clients,
            self.offsets,
            self.stats,
            self.outbox,
            store_host,
            counts_file.load(),
            lambda: keep.touch(TRANSACTIONS),
            lambda: store_settings.reserved_hours * HOUR_MS,
            now_ms,
        )

        self.lane = make_lane(
            settings,
            store,
            self.send,
            self.writer,
            self.topics,
            self.groups,
            self.clients,
            self.offsets,
            self.stats,
        )
        self._scan_ms = self._now_ms = now_ms
        self._dispatching = Backoff(log, "messages are stored and not yet visible to consumers")
        self._chores: tuple[Callable[[int], object], ...] = (
            self.pull.polls.expire,
            lambda now_ms: self.turns.start(self.stats, self.stats.step(now_ms)),
            self.clients.step,
            self.slow_readers.step,
            self.filters.clean,
            self._tell_late_senders,
            self.persistence.give_up_waiting,
            self._forget_silent_clients,
        )
        table: dict[int, Serve] = {
            RequestCode.SEND_MESSAGE: self.send.send,
            RequestCode.SEND_MESSAGE_V2: self.send.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send.send,
            RequestCode.CONSUMER_SEND_MSG_BACK: self.retry.send_back,
            RequestCode.SEND_REPLY_MESSAGE: self.replies.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.replies.reply,
            RequestCode.END_TRANSACTION: self.transactions.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.transactions.resume,
            RequestCode.PULL_MESSAGE: self.pull.pull,
            RequestCode.LITE_PULL_MESSAGE: self.pull.pull,
            RequestCode.HEART_BEAT: self.members.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.members.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self.members.check_config,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.members.list_consumers,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.members.update_offset,
            RequestCode.QUERY_CONSUMER_OFFSET: self.members.query_offset,
            RequestCode.LOCK_BATCH_MQ: self.members.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.members.unlock,
            RequestCode.VIEW_MESSAGE_BY_ID: self.queries.view,
            RequestCode.QUERY_MESSAGE: self.queries.query,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.queries.search_offset,
            RequestCode.GET_MAX_OFFSET: self.queries.max_offset,
            RequestCode.GET_MIN_OFFSET: self.queries.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.queries.earliest_time,
            **admin_requests(
                configuration,
                store,
                self.topics,
                self.groups,
                self.clients,
                self.offsets,
                self.filters,
                self.delays,
                self.stats,
                self.writer,
                self.pull.polls,
                self.outbox,
                read,
                now_ms,
                lambda: self.faults,
            ),
        }
        modes_file = store.metadata(metadata.REQUEST_MODES)
        keep.add(REQUEST_MODES, modes_file, lambda: self.request_modes.wrapper())
        self.request_modes = RequestModes(
            self.topics, self.groups, read, modes_file.load(), lambda: keep.touch(REQUEST_MODES)
        )
        table[RequestCode.SET_MESSAGE_REQUEST_MODE] = self.request_modes.set
        table[RequestCode.GET_ALL_MESSAGE_REQUEST_MODE] = self.request_modes.show
        self._serving = Serving(settings, self.outbox, self.persistence, self.turns, table)

    # ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, reads: Sequence[tuple[Peer, bytes]], now_ms: int) -> list[Effect]:
        """What follows from the bytes that came on these connections.

        Each read begins with a frame, and the last frame of it may not be whole. The fast lane serves what it can of
        each read; the general path serves the other requests of all reads, in one step.
        """
        lane, effects = self.lane, self.outbox.effects
        events: list[Event] = []
        in_lane = False
        for peer, data in reads:
            if lane is not None:
                try:
                    used, answers, held, count, is_bulk = lane.serve(peer, data, now_ms)
                except Exception as error:
                    self._failed("the fast lane", error)
                    effects.append(Close(peer, "internal error"))
                    continue
                if used:
                    in_lane = True
                    if answers:
                        effects.append(ReplyFrames(peer, answers, 0, is_bulk))
                    if count:
                        effects.append(Owe(peer, count))
                        self.writer.hold(peer, held, count, now_ms)
                    if used == len(data):
                        continue
                    data = data[used:]
                    if len(answers) >= ANSWERS_MAX:
                        effects.append(PutOff(peer, data))
                        continue
            commands = peer.decode(data)
            if commands:
                events.append(Requests(peer, commands))
        if events or (in_lane and not self._end_reads(now_ms)):
            return self.step(events, now_ms)
        return self.outbox.take()

    def _end_reads(self, now_ms: int) -> bool:
        """The lane alone has served all reads: dispatch what it appended. False: a step is necessary."""
        assert self.lane is not None
        try:
            if (
                self.store.durability.syncs_at_once
                or not self._dispatching.is_ready(now_ms)
                or not self.lane.dispatch()
            ):
                return False
        except Exception as error:
            self._failed("the fast lane", error)
            return False
        if self.pull.polls.by_queue:  # otherwise the next step takes the arrivals
            self._do(self._wake, now_ms)
        return True

    # ── Stepping ──────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, events: list[Event], now_ms: int) -> list[Effect]:
        """What follows from these events, in order."""
        if self.lane is not None:
            self.lane.tables_may_change()
        self._now_ms = self._serving.now_ms = now_ms
        ticked = sliced = False
        wall_ms = self.store.clock.at(now_ms)
        for event in events:
            if type(event) is Requests:
                peer = event.peer
                for command in event.commands:
                    self._serving.serve(Asked(peer, command, now_ms, wall_ms))
            else:
                ticked |= type(event) is Tick
                sliced |= type(event) is Done and isinstance(event.job, Slice)  # the next one need not wait for a tick
                try:
                    self._happen(event, now_ms)
                except Exception as error:
                    self._failed(type(event).__name__, error)
        if ticked:
            self._do(self.delays.deliver, now_ms)
            self._do(self.transactions.step, now_ms)
        if self.store.dispatched < self.store.log.end or self.store.has_arrived:
            self._do(self._publish, now_ms)
        if ticked:
            for chore in self._chores:
                self._do(chore, now_ms)
        self._do(self.persistence.step, now_ms)
        self._do(self.registration.step, now_ms)
        if ticked or sliced or self.store.durability.syncs_at_once:
            self._do(self._hand_out_jobs, now_ms)
        return self.outbox.take()

    def _do(self, part: Callable[[int], object], now_ms: int) -> None:
        """One part of a step. Should it fail, the others are done all the same: a broker that stops halfway through
        its steps would take messages and never make them durable.
        """
        try:
            part(now_ms)
        except Exception as error:
            self._failed(part.__qualname__, error)

    def _failed(self, part: str, error: Exception) -> None:
        """A fault of ours: each part expects the errors of the disk. It is counted, and each cause is logged once."""
        self.faults += 1
        cause = f"{part}: {type(error).__name__}: {error}"
        if cause not in self._causes and len(self._causes) < CAUSES_MAX:
            self._causes.add(cause)
            log.error("a part of a step failed, the broker goes on: %s", cause, exc_info=error)

    def _hand_out_jobs(self, now_ms: int) -> None:
        for job in self.store.jobs(now_ms):
            self.outbox.put(Run(job))

    def _happen(self, event: Event, now_ms: int) -> None:
        match event:
            case Requests(peer, commands):
                wall_ms = self.store.clock.at(now_ms)
                for command in commands:
                    self._serving.serve(Asked(peer, command, now_ms, wall_ms))
            case Gone(peer):
                self._gone(peer)
            case Tick():
                pass  # `step` does what is due
            case Turn():
                self.turns.take_turn()
            case Done(job):
                end = self.store.log.end
                for token in self.store.finished(job, now_ms):
                    self.writer.now_safe(token)
                if self.store.log.end < end:
                    self._log_was_cut()
                self.transactions.settle()
                self.pull.polls.wake(self.store.take_repaired(), now_ms)
            case Saved(name, version, error):
                self.persistence.saved(name, version, error, now_ms)
            case Answered(token, answer):
                self.outbox.answered(token, answer, now_ms)
            case Announced():
                self.registration.announced(event, now_ms)
            case _:
                assert_never(event)

    def _log_was_cut(self) -> None:
        """Messages that were seen are lost, and others will take their places: nobody may stand behind them."""
        self.offsets.keep_within(self._end_of)
        self.delays.log_was_cut(self.store.log.end)
        self.transactions.log_was_cut(self.store.log.end)

    def _end_of(self, topic: str, queue_id: int) -> int | None:
        try:
            return self.store.reader.offsets(topic, queue_id)[1]
        except StoreError as error:
            log.error("%s", error)
            return None

    def _publish(self, now_ms: int) -> None:
        """Make visible what may be, and wake the pulls that wait for it."""
        store = self.store
        if store.dispatched < store.log.end and self._dispatching.is_ready(now_ms):
            try:
                store.dispatch()
                self._dispatching.succeeded()
            except (StoreError, OSError) as error:  # a later step goes on from there
                self._dispatching.failed(error, now_ms)
        if store.has_arrived:
            self._wake(now_ms)

    def _wake(self, now_ms: int) -> None:
        """Queues got messages: wake the pulls, and the delay service, that wait for them."""
        arrived = self.store.take_arrived()
        if self.pull.polls.by_queue:
            self.pull.polls.wake(arrived, now_ms)
        for topic, _ in arrived:
            if topic == SCHEDULE_TOPIC:
                self.delays.look(now_ms)
                break

    def _tell_late_senders(self, now_ms: int) -> None:
        for token, missing in self.store.durability.late(now_ms):
            self.writer.now_late(token, missing)
        for token in self.store.durability.take_cut():
            self.writer.now_lost(token)

    def _forget_silent_clients(self, now_ms: int) -> None:
        if now_ms - self._scan_ms >= self.settings.client_scan_ms:
            self._scan_ms = self._now_ms = now_ms
            self.turns.start(self.locks, self.locks.forget_expired(now_ms))
            self.turns.start("silent clients", self._close_silent(now_ms))

    def _close_silent(self, now_ms: int) -> Slices[None]:
        silent = yield from self.clients.silent(now_ms - self.settings.client_timeout_ms)
        for peer in silent:
            self.outbox.put(Close(peer, f"no heartbeat for {self.settings.client_timeout_ms // 1000} s"))
            self._gone(peer)
            yield 0

    @property
    def is_busy(self) -> bool:
        """Something is unfinished, and waits for a Turn."""
        return self.turns.is_busy

    def _gone(self, peer: Peer) -> None:
        self.turns.drop(peer)
        self.pull.polls.gone(peer)
        self.clients.gone(peer)

    def wake_ms(self, now_ms: int) -> int:
        """When `Tick` is due at the latest, for what must not wait for the next regular one."""
        polls_ms, delays_ms = self.pull.polls.next_deadline_ms(), self.delays.next_ms(now_ms)
        deadlines = polls_ms, delays_ms, self.transactions.due_ms(now_ms)
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=now_ms + 1_000)

    # ── Stopping ──────────────────────────────────────────────────────────────────────────────────────────────────

    def leave(self, now_ms: int) -> list[Effect]:
        """The broker is about to stop: the name servers are told, and what has changed is kept."""
        self.registration.leave()
        self.persistence.step(now_ms, all_of_them=True)
        return self.outbox.take()

    def release_pulls(self) -> list[Effect]:
        """Answer all pulls that wait: nothing more will come."""
        self.pull.polls.expire_all()
        return self.outbox.take()

    def keep_all(self, now_ms: int) -> None:
        """Write the tables that have changed, in this thread. What can't be written is logged."""
        self.transactions.stop(now_ms)
        try:
            self.store.flush(now_ms)  # tables speak of what is safe
        except (StoreError, OSError) as error:
            log.error("the log can't be made safe: %s", error)
        self.delays.settle()
        self.transactions.settle()
        self.persistence.write_all()
