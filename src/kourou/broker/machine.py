"""The broker's machine: events in, effects out.

    Requests ─▶ the function of each request's code ─▶ Reply, or an append and the wait until it is durable
    … after all events of a step:
    dispatch ─▶ what was appended becomes visible ─▶ pulls that waited for it are answered
    changed tables ─▶ Save, Announce          due work of the store ─▶ Run

A step takes all events since the last one, so a hundred sends of one read are dispatched once. It never raises
because of a peer's input: an invalid request is answered with the reason.

No request holds the event loop for long: a function that may need more than a few milliseconds is a generator and runs
in slices (`kourou.turns`). Requests that follow it do not wait for it, unless they are long as well.

An answer is sent when its promise is true: a stored message is as durable as the flush mode promises, a new topic is
in topics.json.

Java: BrokerController.
"""

import logging
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import assert_never

from kourou.broker.access import Access
from kourou.broker.access_rules import AccessControl
from kourou.broker.admin.table import admin_requests
from kourou.broker.assignments import Assignments
from kourou.broker.clients import Clients
from kourou.broker.consumer_filters import FILTERS_INTERVAL_MS, ConsumerFilters
from kourou.broker.controlled.group import group_of
from kourou.broker.deadlines import Deadlines, Part
from kourou.broker.delays import DELAY_OFFSETS, Delays
from kourou.broker.events import (
    AccountsRead,
    Announced,
    Answered,
    Close,
    Done,
    Effect,
    Event,
    Gone,
    GroupLink,
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
from kourou.broker.failover import Failover, role_at_start
from kourou.broker.filtering import Filtering
from kourou.broker.groups import Groups
from kourou.broker.lane import ANSWERS_MAX, PUBLISHED_AT_ONCE, make_lane
from kourou.broker.members import Members
from kourou.broker.message_writer import MessageWriter
from kourou.broker.metadata_sync import MetadataSync
from kourou.broker.meters import Meters
from kourou.broker.names import SCHEDULE_TOPIC
from kourou.broker.offsets import Offsets
from kourou.broker.persistence import Persistence
from kourou.broker.placement import DelayLevels, Placement
from kourou.broker.properties import Configuration
from kourou.broker.pull import Pull
from kourou.broker.queries import Queries
from kourou.broker.queue_locks import QueueLocks
from kourou.broker.raft_admin import raft_requests
from kourou.broker.raft_group import SAVED_AS, due_ms_of, join_group
from kourou.broker.registration import Registration
from kourou.broker.replication import Replication
from kourou.broker.replies import Replies
from kourou.broker.request_bodies import RequestBodies
from kourou.broker.request_modes import RequestModes
from kourou.broker.request_table import client_requests
from kourou.broker.retry import Retry
from kourou.broker.role_change import RoleChange, queue_end
from kourou.broker.send import Send
from kourou.broker.serving import Serve, Serving, refuse_on_slaves
from kourou.broker.silent_clients import SilentClients
from kourou.broker.slow_readers import SlowReaders
from kourou.broker.static_topics import StaticTopics
from kourou.broker.stats import Stats
from kourou.broker.strict_locks import StrictLocks
from kourou.broker.timers.placing import TimedMessages
from kourou.broker.timers.recall import timer_requests
from kourou.broker.timers.service import Timers
from kourou.broker.topics import Topics
from kourou.broker.transactions.half_records import HalfMessages
from kourou.broker.transactions.service import Transactions
from kourou.protocol.codes import RequestCode
from kourou.replication.links import Accepted, Closed, Connected, HasRoom, NotConnected, Received
from kourou.store import metadata
from kourou.store.backoff import Backoff
from kourou.store.errors import StoreError
from kourou.store.settings import delay_table
from kourou.store.store import Store
from kourou.turns import Turns

log = logging.getLogger(__name__)

CAUSES_MAX = 100
"""How many different faults are logged with their traces; the metric counts all."""

TOPICS, GROUPS, OFFSETS, DELAYS, REMOVED = "topics", "groups", "offsets", "delays", "removed topics"
TRANSACTIONS, REQUEST_MODES = "counts of transactions", "request modes"
FILTERS, STATIC_TOPICS = "filters of consumers", "static topics"


class Broker:
    """One broker. The store is open, and only the machine uses it until `close`."""

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
        users_key: bytes | None = None,
    ) -> None:
        """`local_day` names the day of a time where the broker is; `clock_ns` measures slices of long work.

        Raises BadStoreError, OSError: the tables can't be read.
        """
        settings, store_settings = configuration.broker, configuration.store
        self.configuration = configuration
        self.settings = settings
        self.store = store
        self.outbox = Outbox(settings.inner_credentials)
        self.access = Access()
        self.faults = 0  # unexpected exceptions
        self._causes: set[str] = set()  # of those, which were logged
        self.turns = Turns(clock_ns, lambda: settings.long_memory_max, lambda error: self._failed("long work", error))
        self.persistence = keep = Persistence(self.outbox, self.turns)
        self.started_ms = self._now_ms = now_ms
        begins_epoch = role_at_start(settings, store_settings, store)
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

        static_file = store.metadata(metadata.STATIC_TOPICS)
        self.static_topics = StaticTopics(
            settings, self.topics, static_file.load(), lambda: keep.touch(STATIC_TOPICS), store.clock
        )
        keep.add(STATIC_TOPICS, static_file, self.static_topics.wrapper)

        self.stats = Stats(self.topics.is_system, now_ms, lambda steady_ms: local_day(store.clock.at(steady_ms)))
        self.meters = Meters(clock_ns, self.topics.is_system)
        self.locks, self.strict_locks = QueueLocks(settings.lock_time_ms), StrictLocks(settings, self.outbox)
        self.clients = Clients(settings, self.outbox, self.turns)
        filters_file = store.metadata(metadata.FILTERS)
        self.filters = ConsumerFilters(settings, filters_file.load(), lambda: keep.touch(FILTERS), store.clock, now_ms)
        keep.add(FILTERS, filters_file, self.filters.wrapper, FILTERS_INTERVAL_MS)
        self.clients.on_group_left = lambda group: self.filters.unregister(group, self._now_ms)
        store.queues.extensions.bit_map_of = self.filters.bit_map_of
        filtering = Filtering(settings, self.filters)
        delay_levels = DelayLevels(delay_table(store_settings.delay_levels))
        self.placement = Placement(
            (HalfMessages(settings).place, delay_levels.place, TimedMessages(settings, store, chance).place)
        )
        self.writer = MessageWriter(store, store_settings, self.outbox, settings, self.placement)
        self.group = group_of(settings, store_settings.flush_mode, store, self.outbox)
        self.replication = Replication(settings, store_settings, store, self.writer, self.outbox, self.group)
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
        self.timers = Timers(settings, store, self.writer, self.stats, keep, now_ms, clock_ns)
        self.retry = Retry(
            settings, store.reader, self.topics, self.groups, self.writer, self.stats, chance, self.access
        )
        self.replies = Replies(settings, self.clients, self.send, self.writer, self.stats, self.outbox)
        topics, groups, clients, offsets = self.topics, self.groups, self.clients, self.offsets
        stats, outbox, replication = self.stats, self.outbox, self.replication
        self.pull = Pull(
            settings, store, topics, groups, clients, offsets, filtering, stats, outbox, replication, self.access
        )
        read = RequestBodies(settings, self.access)
        self.access_control = AccessControl(settings, store, keep, self.access, read, users_key)
        locks, strict = self.locks, self.strict_locks
        self.members = Members(
            settings, store, topics, groups, clients, offsets, locks, strict, self.filters, filtering, read, self.access
        )
        self.queries = Queries(settings, store, self.outbox, self.access)
        follows = self._master_is, lambda: self.replication.has_master
        self.registration = Registration(settings, self.topics, self.static_topics, self.outbox, self.turns, *follows)
        self.slow_readers = SlowReaders(settings, store, self.groups, self.clients, self.offsets, now_ms)

        if begins_epoch or not store.report.clean:
            self.offsets.keep_within(partial(queue_end, store))
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
            lambda: store_settings.reserved_hours * 3_600_000,
            now_ms,
            self.access,
        )

        send, writer = self.send, self.writer
        self.lane = make_lane(
            settings, store, send, writer, topics, groups, clients, offsets, stats, self.access, self.transactions
        )
        self._silent = SilentClients(settings, self.clients, self.locks, self.turns, self.outbox, self._gone, now_ms)
        self._dispatching = Backoff(log, "messages are stored, but not yet visible to consumers")
        self._has_more = False  # more became visible than one step may dispatch
        self.deadlines = Deadlines(
            (
                Part(self.delays.due_ms, self.delays.deliver, is_punctual=True, appends=True),
                Part(self.timers.due_ms, self.timers.step, is_punctual=True, is_near=True, appends=True),
                Part(self.transactions.due_ms, self.transactions.step, is_punctual=True, appends=True),
                Part(self._dispatch_due_ms, lambda _: None, is_punctual=True, is_near=True),
                Part(self.pull.polls.due_ms, self.pull.polls.expire, is_punctual=True, is_near=True),
                Part(lambda _: store.durability.due_ms(), self._tell_late_senders),
                Part(self.persistence.due_ms, self.persistence.give_up_waiting),
                Part(self.registration.due_ms, self.registration.step),
                Part(lambda _: store.due_ms(), self._hand_out_jobs),
                Part(self.stats.due_ms, lambda now_ms: self.turns.start(self.stats, self.stats.step(now_ms))),
                Part(self.clients.due_ms, self.clients.step),
                Part(self.strict_locks.due_ms, self.strict_locks.step, is_near=True),
                Part(self._silent.due_ms, self._silent.step),
                Part(self.slow_readers.due_ms, self.slow_readers.step),
                Part(self.filters.due_ms, self.filters.clean),
                Part(lambda _: self.replication.due_ms(), self.replication.step, is_punctual=True, is_near=True),
                Part(lambda now_ms: self.failover.due_ms(now_ms), lambda now_ms: self.failover.step(now_ms)),
                Part(lambda _: due_ms_of(self.group), lambda _: None),
                Part(lambda _: due_ms_of(self.raft_group), lambda _: None, is_punctual=True, is_near=True),
                Part(lambda _: self.metadata_sync.due_ms(), lambda now_ms: self.metadata_sync.step(now_ms)),
            ),
            self._failed,
        )
        table: dict[int, Serve] = {
            **client_requests(
                self.send, self.retry, self.replies, self.transactions, self.pull, self.members, self.queries
            ),
            **self.access_control.requests.table(),
            **admin_requests(
                configuration,
                store,
                self.topics,
                self.static_topics,
                self.groups,
                self.clients,
                self.offsets,
                self.filters,
                self.delays,
                self.timers.figures,
                self.stats,
                self.writer,
                self.pull.polls,
                self.outbox,
                read,
                self.replication,
                now_ms,
                lambda: self.faults,
                self.access,
            ),
        }
        modes_file = store.metadata(metadata.REQUEST_MODES)
        keep.add(REQUEST_MODES, modes_file, lambda: self.request_modes.wrapper())
        self.request_modes = RequestModes(
            self.topics, self.groups, read, modes_file.load(), lambda: keep.touch(REQUEST_MODES)
        )
        self.assignments = Assignments(settings, clients, self.request_modes, read, outbox, self.turns)
        table |= {**self.request_modes.requests(), RequestCode.QUERY_ASSIGNMENT: self.assignments.query}
        delays, modes = self.delays, self.request_modes
        self.metadata_sync = MetadataSync(
            settings, topics, groups, offsets, delays, modes, self.outbox, self.turns, store, self.replication
        )
        others = self.replication, self.metadata_sync, self.registration, self.pull.polls
        self.roles = RoleChange(settings, store, writer, offsets, delays, self.timers, self.transactions, *others)
        self.failover = Failover(
            settings, store, replication, self.registration, self.roles, outbox, self.turns, self.transactions.stop
        )
        table |= self.failover.requests()
        if self.group is not None:
            self.group.join(self.roles, self.replication, self.metadata_sync, self.registration)
            table |= self.group.requests()
        tables = topics, groups, offsets, self.delays, self.request_modes
        parts = self.writer, self.outbox, self.roles, self.registration, self.replication
        self.raft_group = join_group(configuration, store, tables, keep, self.turns, parts, chance, now_ms)
        table |= raft_requests(self.raft_group, self.outbox, table)
        table |= timer_requests(settings, self.topics, self.writer, self.stats, self.timers)
        refuse_on_slaves(table, settings)
        table = self.static_topics.over(table)
        self._serving = Serving(
            settings, self.outbox, self.persistence, self.turns, self.access, clock_ns, table, self.meters, self.writer
        )

    # ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, reads: Sequence[tuple[Peer, bytes]], now_ms: int) -> list[Effect]:
        """Process the bytes of these connections, and return the effects. The last frame of a read may be incomplete.

        The fast lane serves what it can of each read; the general path the other requests of all reads, in one step.
        """
        lane, effects = self.lane, self.outbox.effects
        events: list[Event] = []
        in_lane, since_ns = False, self.meters.now_ns()
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
                        self.writer.hold(peer, held, count, now_ms, lane.held_batches, since_ns)
                    if used == len(data):
                        continue
                    data = data[used:]
                    if len(answers) >= ANSWERS_MAX:
                        effects.append(PutOff(peer, data))
                        continue
            commands = peer.decode(data)
            if commands:
                events.append(Requests(peer, commands))
        if since_ns and lane is not None:
            lane.took(self.meters.ms_since(since_ns))
        if events or (in_lane and not self._end_reads(now_ms)):
            return self.step(events, now_ms)
        if self.raft_group is None:
            self.replication.transfer(now_ms)
        elif self.raft_group.transfer(now_ms) and lane is not None:
            lane.tables_may_change()
        return self.outbox.take()

    def _end_reads(self, now_ms: int) -> bool:
        """The lane alone has served all reads: dispatch what consumers may see. False: a step is necessary."""
        assert self.lane is not None
        store, durability = self.store, self.store.durability
        try:
            if durability.syncs_at_once or (
                (durability.visible_at_once or store.dispatched < durability.visible_to)
                and not (
                    self._dispatching.is_ready(now_ms)
                    and store.log.end - store.dispatched <= PUBLISHED_AT_ONCE
                    and self.lane.dispatch()
                )
            ):
                return False
        except Exception as error:
            self._failed("the fast lane", error)
            return False
        if self.pull.polls.by_queue:  # otherwise the next step takes the arrivals
            self._do(self._wake, now_ms)
        self.deadlines.stay_awake(now_ms)
        return True

    # ── Stepping ──────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, events: list[Event], now_ms: int) -> list[Effect]:
        """Process these events in order, and return the effects."""
        if len(events) == 1 and self._take_received(events[0], now_ms):
            if self.raft_group is None or not self.raft_group.needs_step():
                return self.outbox.take()
            events = []
        if self.lane is not None:
            self.lane.tables_may_change()
        self._now_ms = self._serving.now_ms = now_ms
        is_due = now_ms >= self.deadlines.wake_ms
        has_jobs = self.store.durability.syncs_at_once
        wall_ms = self.store.clock.at(now_ms)
        for event in events:
            if type(event) is Requests:
                self._serving.serve_all(event.peer, event.commands, now_ms, wall_ms)
            else:
                is_due |= type(event) is Tick
                has_jobs |= type(event) is Done  # it may not be the last one
                try:
                    self._happen(event, now_ms)
                except Exception as error:
                    self._failed(type(event).__name__, error)
        if is_due:
            self.deadlines.step(now_ms, appends=True)
        if self.raft_group is not None:
            self._do(self.raft_group.step, now_ms)
        if self.store.dispatched < self.store.log.end or self.store.has_arrived:
            self._do(self._publish, now_ms)
        if self.raft_group is not None:
            self._do(self.raft_group.settle, now_ms)
        if is_due:
            self.deadlines.step(now_ms, appends=False)
        self._do(self.persistence.step, now_ms)
        self._do(self.registration.step, now_ms)
        self._do(self.replication.step, now_ms)
        if self.group is not None:
            self._do(self.group.step, now_ms)
        if has_jobs:
            self._do(self._hand_out_jobs, now_ms)
        (self.deadlines.look if is_due else self.deadlines.stay_awake)(now_ms)
        return self.outbox.take()

    def _take_received(self, event: Event, now_ms: int) -> bool:
        """A step for bytes of the log, or a replica's report, when no part is due. False: take a usual step."""
        link_event = event.event if type(event) is GroupLink else event
        if type(link_event) is not Received or now_ms >= self.deadlines.wake_ms or self.group:
            return False
        self._do(lambda now_ms: self._happen(event, now_ms), now_ms)
        if self.store.dispatched < self.store.log.end or self.store.has_arrived:
            self._do(self._publish, now_ms)
        if self.raft_group is None:
            self._do(self.replication.transfer, now_ms)
        if self.store.durability.syncs_at_once:
            self._do(self._hand_out_jobs, now_ms)
        self.deadlines.stay_awake(now_ms)
        return True

    def _do(self, part: Callable[[int], object], now_ms: int) -> None:
        """One part of a step. If it fails, the other parts are done nevertheless."""
        try:
            part(now_ms)
        except Exception as error:
            self._failed(part.__qualname__, error)

    def _failed(self, part: str, error: Exception) -> None:
        """An internal error: each part handles errors of the disk itself. Counted, and each cause is logged once."""
        self.faults += 1
        cause = f"{part}: {type(error).__name__}: {error}"
        if cause not in self._causes and len(self._causes) < CAUSES_MAX:
            self._causes.add(cause)
            log.error("a part of a step failed; the broker continues: %s", cause, exc_info=error)

    def _hand_out_jobs(self, now_ms: int) -> None:
        self.outbox.effects += map(Run, self.store.jobs(now_ms))

    def _happen(self, event: Event, now_ms: int) -> None:
        match event:
            case Requests() | Tick():
                pass  # `step` serves requests, and does the work that is due
            case Gone(peer):
                self._gone(peer)
            case Turn():
                self.turns.take_turn()
            case Done(job):
                end = self.store.log.end
                for token in self.store.finished(job, now_ms):
                    self.writer.now_durable(token)
                if self.store.log.end < end:
                    self.roles.log_was_cut()
                self.delays.settle()
                self.transactions.settle()
                self.pull.polls.wake(self.store.take_repaired(), now_ms)
            case GroupLink(link_event):
                if self.raft_group is not None:
                    self.raft_group.happen(link_event, now_ms)
            case Saved(name, version, error):
                keeper = self.raft_group if self.raft_group is not None and name == SAVED_AS else self.persistence
                keeper.saved(name, version, error, now_ms)
            case Answered(token, answer):
                self.outbox.answered(token, answer, now_ms)
            case Announced():
                self.registration.announced(event, now_ms)
                self.failover.announced(event)
                self.strict_locks.announced(event)
            case AccountsRead(acl):
                self.access_control.use_accounts(acl)
            case Accepted() | Connected() | NotConnected() | Received() | HasRoom() | Closed():
                self.replication.happen(event, now_ms)
            case _:
                assert_never(event)

    def _master_is(self, address: str | None, ha_address: str | None, now_ms: int) -> bool:
        """A name server sends this slave the address of its master. False: its controller has elected another one."""
        if self.settings.raft or (self.group is not None and not self.group.is_master_at(address)):
            return False
        self.metadata_sync.follow(address)
        self.replication.follow(address, ha_address, now_ms)
        return True

    def _publish(self, now_ms: int) -> None:
        """Dispatch the records that consumers may see, and wake the pulls that wait for them."""
        store = self.store
        if store.dispatched < store.log.end and self._dispatching.is_ready(now_ms):
            before = store.dispatched
            self._has_more = store.durability.visible_to - before > PUBLISHED_AT_ONCE
            try:
                store.dispatch(PUBLISHED_AT_ONCE)
                if self._has_more and store.dispatched == before:  # a record that is longer
                    store.dispatch()
                self._dispatching.succeeded()
            except (StoreError, OSError) as error:  # a later step continues from there
                self._dispatching.failed(error, now_ms)
        if store.has_arrived:
            self._wake(now_ms)

    def _dispatch_due_ms(self, now_ms: int) -> int | None:
        """When to dispatch again, after a failure or because the rest was left for later; None: nothing is left."""
        has_failed = self._dispatching.failures > 0
        is_left = (has_failed or self._has_more) and self.store.dispatched < self.store.log.end
        return (self._dispatching.retry_ms if has_failed else now_ms) if is_left else None

    def _wake(self, now_ms: int) -> None:
        """Queues got messages: wake the pulls, and the delay service, that wait for them."""
        arrived = self.store.take_arrived()
        if self.pull.polls.by_queue:
            self.pull.polls.wake(arrived, now_ms)
        if any(topic == SCHEDULE_TOPIC for topic, _ in arrived):
            self.delays.look(now_ms)

    def _tell_late_senders(self, now_ms: int) -> None:
        for token, missing in self.store.durability.late(now_ms):
            self.writer.now_late(token, missing)
        for token in self.store.durability.take_cut():
            self.writer.now_lost(token)

    @property
    def is_busy(self) -> bool:
        return self.turns.is_busy or self.replication.is_busy

    @property
    def wake_ms(self) -> int:
        return self.deadlines.wake_ms

    def _gone(self, peer: Peer) -> None:
        self.turns.drop(peer)
        self.pull.polls.gone(peer)
        self.clients.gone(peer)

    # ── Stopping ──────────────────────────────────────────────────────────────────────────────────────────────────

    def leave(self, now_ms: int) -> list[Effect]:
        """The broker is about to stop: the name servers are told, and changed tables are saved."""
        self.registration.leave()
        self.persistence.step(now_ms, all_of_them=True)
        return self.outbox.take()

    def release_pulls(self) -> list[Effect]:
        """Answer all pulls that wait, because the broker is about to stop."""
        self.pull.polls.expire_all()
        return self.outbox.take()

    def keep_all(self, now_ms: int) -> None:
        """Write the tables that have changed, in this thread. Failures are logged."""
        self.transactions.stop(now_ms)
        try:
            self.store.flush(now_ms)  # tables refer to durable messages
        except (StoreError, OSError) as error:
            log.error("the log can't be flushed: %s", error)
        self.delays.settle()
        self.transactions.settle()
        self.timers.stop(now_ms)
        self.persistence.write_all()
