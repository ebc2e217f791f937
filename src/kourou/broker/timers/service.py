"""The timers of one broker: combines all parts, for the machine.

    step:  enter     messages of the timer topic ─▶ units in the slots of the wheel
           advance   load the current slot and the next one; leave a slot whose messages are delivered
           deliver   the messages of the current slot that are due
           freeze    the next checkpoint

Times are those of `WallClock.stamp`, which never goes back: a slot is delivered only once, even if an administrator
sets the clock back.

Delivery of a slot begins when all messages that were stored before the slot began are in the wheel. A recall is
accepted until then, so an answered recall is never too late.
"""

import logging
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Final

from kourou.broker.message_writer import MessageWriter
from kourou.broker.names import TIMER_TOPIC
from kourou.broker.persistence import Persistence
from kourou.broker.settings import BrokerSettings, Role
from kourou.broker.stats import Stats
from kourou.broker.timers import opening, timing
from kourou.broker.timers.copies import Offsets
from kourou.broker.timers.counts import Counts
from kourou.broker.timers.delivering import Delivery
from kourou.broker.timers.due_slot import DamagedError, DueSlot
from kourou.broker.timers.lane import make_timer_lane
from kourou.broker.timers.mark import Mark
from kourou.broker.timers.rebuilding import Waiting, search
from kourou.protocol.bodies import TimerMetricsSerializeWrapper
from kourou.protocol.hashes import java_hash
from kourou.protocol.properties import Property
from kourou.protocol.record import StoredMessage, decode_record
from kourou.store import metadata
from kourou.store.errors import StoreError
from kourou.store.store import Store
from kourou.store.timers.layout import DEFAULT, DELETE, NONE, ROLL, UNIT_SIZE, TimerCheckpoint, Unit

log = logging.getLogger(__name__)

SLICE: Final = 128
"""The most messages that are read at once."""

SLICE_BYTES: Final = 1024 * 1024
"""The most bytes that are read at once, and that one step delivers, unless a single message has more."""

SLICE_NS: Final = 5_000_000
"""How long one step enters messages, and how long it delivers messages."""

BEHIND_NS: Final = 10_000_000
"""How long one step enters messages while a slot waits for them."""

UNITS_IN_SLICE: Final = 1_000
"""The most units of slots that one step loads."""

SLOTS_COST: Final = 500
"""The cost of a search for the next slot with units, in units."""

STEPS_AT_START: Final = 10_000
"""The most slices of a search of the log before the broker serves requests; steps do the rest."""

CHANGES_MAX: Final = 65_536
"""The most slots that may change between two checkpoints, since they are kept in memory until then."""

LOOKED_THROUGH_BYTES: Final = 64 * 1024 * 1024
"""How far the log may grow before a new checkpoint is written, since a start searches this part for copies."""

BLANK_SLOTS: Final = 60
"""Unused slots between the newest and the oldest slots in each half of a wheel."""

WAIT_MS: Final = 5
"""The interval of checks whether a sync has ended."""

COUNTS: Final = "counts of timers"
COUNTS_INTERVAL_MS: Final = 5_000
"""How often the counts are saved."""

RETRY_MS: Final = 1_000
"""The pause after the disk refused a write."""

_REAL_TOPIC: Final = Property.REAL_TOPIC.encode()


@lru_cache(1_000)
def _hash(topic: str) -> int:
    return java_hash(topic)


class Timers:
    """See `kourou.broker.timers`."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        writer: MessageWriter,
        stats: Stats,
        keep: Persistence,
        now_ms: int,
        clock_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        """`keep` saves the counts; `clock_ns` measures slices. Raises StoreError, OSError."""
        counts_file = store.metadata(metadata.TIMER_METRICS)
        keep.add(COUNTS, counts_file, self.wrapper, COUNTS_INTERVAL_MS)
        self._settings = settings
        self._store = store
        self._clock_ns = clock_ns
        self._files = store.timers
        self._precision_ms = store.timers.precision_ms
        self.counts = Counts(counts_file.load(), lambda: keep.touch(COUNTS), store.clock)
        self._delivery = Delivery(settings, store, writer, stats, self.counts, self._pause)
        self.lane = make_timer_lane(settings, store, writer, stats, self.counts)
        self._is_on = settings.timers and settings.role is not Role.SLAVE  # a slave's master delivers
        self._slots: dict[int, DueSlot] = {}  # the current slot and the next one
        self._mark = Mark(store)
        self._copies_from = 0  # where the copies of the current slot begin in the commit log
        self._done_from = 0  # where the copies of the originals in `_done` begin
        self._blocked_ms = 0  # store time of the message that waits for a slot to be delivered; 0: none
        self._changed = False  # since the last checkpoint
        self._flush_ms = now_ms
        self._not_before_ms = 0
        self._problem: str | None = None
        self._must_go_back = False
        self._is_damaged = False
        self._old_until = 0  # messages before this log offset may be due in slots that began long ago
        self._done_until_ms = 0  # messages that were stored before this time may be in `_done`
        self._search: Iterator[None] | None = None
        self._waiting = Waiting()
        self._whole_from = 0  # no checkpoint is written before the queue is read up to here
        self._done = Offsets()
        self.read_ms = 0  # slots before this time are delivered
        self.queue_offset = 0  # messages before this offset are in the wheel or delivered
        self.pending = 0  # units in the wheel
        if self._is_on:
            self._open(now_ms)

    # ── Opening ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, now_ms: int) -> None:
        store, files = self._store, self._files
        problem = files.open()
        check = files.checkpoint
        start, end = store.reader.offsets(TIMER_TOPIC, 0)
        if problem is None and not check.flush_end and not files.log.start and check.delivered_from is None:
            first = next(files.log.units(0), None)
            if first is None and max(end, check.queue_offset) > start:
                problem = "timerlog"
        if problem == "timerwheel":
            log.error("%s is missing; it is rebuilt from the timer log", files.wheel.path)
            opened = opening.resume(store)
            opening.rebuild_wheel(store, opened)
            self._go_on(opened, now_ms)
        elif problem is not None:
            log.error("%s is missing or damaged; the timers are rebuilt from the commit log", problem)
            self._rebuild(now_ms, STEPS_AT_START)
        else:
            self._go_on(opening.resume(store), now_ms)

    def _go_on(self, opened: opening.Opened, now_ms: int) -> None:
        clock = self._store.clock
        clock.start_from(opened.read_ms)
        self._slots.clear()
        self._mark = Mark(self._store)
        self.read_ms = self._floor(opened.read_ms or clock.stamp(now_ms))
        self.queue_offset, self.pending, self._done = opened.queue_offset, opened.pending, opened.done
        self._done_until_ms = clock.stamp(now_ms)
        self._done_from = self._files.checkpoint.delivered_from or 0
        self._old_until = self._store.log.end
        if len(self._done):
            log.info("%d timed messages were delivered after the checkpoint, and will not be again", len(self._done))

    def _rebuild(self, now_ms: int, slices: int) -> None:
        """Begin with new files, and find the waiting messages in the log."""
        self._files.clear()
        self._is_damaged = False
        self._go_on(opening.Opened(0, self._store.reader.offsets(TIMER_TOPIC, 0)[0], 0), now_ms)
        self._waiting = Waiting()
        self._search = search(self._store, self._waiting)
        self._search_on(slices)

    def _search_on(self, slices: int) -> None:
        assert self._search is not None
        if len(list(islice(self._search, slices))) == slices:
            return
        self._search = None
        self._done, self._waiting = Offsets(self._waiting.done()), Waiting()
        self._whole_from = self._store.reader.offsets(TIMER_TOPIC, 0)[1]
        self._done_until_ms = 2**62  # until the queue was read
        self._changed = True

    def log_was_cut(self) -> None:
        """The end of the log was cut: undo everything that depends on it."""
        self._must_go_back = self._is_on

    def take_over(self, now_ms: int) -> None:
        """The broker has become a master: find the waiting messages in the log, in slices."""
        if not self._is_on and self._settings.timers:
            self._is_on = self._is_damaged = self._must_go_back = True
            self._not_before_ms = now_ms

    def give_up(self, now_ms: int) -> None:
        """The broker has become a slave: its master delivers. Remove the files, since the log may change."""
        if not self._is_on:
            return
        self._is_on, self._must_go_back, self._search, self._whole_from = False, False, None, 0
        self._slots.clear()
        self.pending = 0
        self.before_cut(now_ms)

    def before_cut(self, now_ms: int) -> None:
        """The end of a slave's log is about to be cut: remove the files, which may refer to it."""
        if self._is_on:
            return
        try:
            self._files.forget(now_ms)
        except OSError as error:
            log.error("can't remove the timer files: %s. Remove timerwheel, timerlog and config/timercheck", error)

    def _go_back(self, now_ms: int) -> None:
        """Start over from the durable state. If that fails, it is retried before anything else is done."""
        self._must_go_back = True
        self._slots.clear()
        if self._files.log_failed:
            self._files.go_back()
        has_none = self._files.checkpoint.delivered_from is None  # then only the log has the deliveries
        if self._whole_from or self._is_damaged or has_none:
            self._is_damaged = True  # also if it fails halfway
            self._rebuild(now_ms, 1)
        else:
            self._go_on(opening.resume(self._store), now_ms)
        self._must_go_back = False

    def _floor(self, time_ms: int) -> int:
        return time_ms - time_ms % self._precision_ms

    # ── Steps ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def due_ms(self, now_ms: int) -> int | None:
        """When `step` is due; None if nothing waits."""
        if not self._is_on:
            return None
        earliest_ms = max(now_ms + (WAIT_MS if self._must_wait else 0), self._not_before_ms)
        if self._search is not None or self._has_news or self._must_go_back:
            return earliest_ms
        times = [self._flush_ms] if self._changed and self._files.can_freeze else []
        if self.pending and not self._settings.timer_stop_dequeue:
            times.append(now_ms + self._next_ms() - self._store.clock.stamp(now_ms))
        return max(min(times), earliest_ms) if times else None

    @property
    def _must_wait(self) -> bool:
        """Must a sync end before anything else can be done?"""
        if self._must_go_back or self._files.log_failed:
            return self._files.job is not None
        return not self._mark.is_dispatched or self._files.wheel.changes >= CHANGES_MAX

    def _next_ms(self) -> int:
        """When something in the wheel is due, in the time of `WallClock.stamp`."""
        current, following = (self._slots.get(self.read_ms + ahead) for ahead in (0, self._precision_ms))
        if current is None or following is None or not current.is_loaded or not following.is_loaded:
            return self.read_ms + 1
        end_ms = self.read_ms + self._precision_ms
        return end_ms if current.first_ms is None else min(current.first_ms, end_ms)

    @property
    def _has_news(self) -> bool:
        if self._settings.timer_stop_enqueue:
            return False
        queue = self._store.queues.get(TIMER_TOPIC, 0)
        return queue is not None and self.queue_offset < queue.end

    def step(self, now_ms: int) -> None:
        """Do a slice of the work that is due."""
        if not self._is_on or now_ms < self._not_before_ms:
            return
        try:
            if self._must_go_back or self._files.log_failed:
                if self._files.job is None:
                    self._go_back(now_ms)
                return
            if self._search is not None:
                self._search_on(1)
                return
            time_ms = self._store.clock.stamp(now_ms)
            self._enter(now_ms, time_ms)
            if not self._settings.timer_stop_dequeue:
                self._advance(time_ms)
                self._deliver(now_ms, time_ms)
            self._freeze(now_ms, time_ms)
        except DamagedError as error:
            log.error("%s; the timers are rebuilt from the commit log", error)
            self._is_damaged = True
            self._must_go_back = True
            return
        except (OSError, StoreError) as error:
            self._pause(str(error), now_ms)
            return
        if self._problem is not None and now_ms >= self._not_before_ms:
            self._problem = None
            log.warning("delivery of timed messages has resumed")

    def _pause(self, problem: str, now_ms: int) -> None:
        self._not_before_ms = now_ms + RETRY_MS
        if self._problem != problem:
            self._problem = problem
            log.error("delivery of timed messages is paused: %s", problem)

    # ── Entering ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _enter(self, now_ms: int, time_ms: int) -> None:
        """Put messages of the timer topic into the wheel."""
        if not self._has_news or self._files.wheel.changes >= CHANGES_MAX:
            return
        start = self._store.reader.offsets(TIMER_TOPIC, 0)[0]
        if self.queue_offset < start:
            log.error("timed messages %d to %d are missing from the log", self.queue_offset, start - 1)
            self.queue_offset = start
        self._blocked_ms = 0
        is_behind = self._mark.time_ms > self.read_ms and not self._mark.is_reached(self.queue_offset)
        until_ns = self._clock_ns() + (BEHIND_NS if is_behind else SLICE_NS)
        while self._enter_some(now_ms, time_ms) and self._clock_ns() < until_ns:
            pass

    def _enter_some(self, now_ms: int, time_ms: int) -> bool:
        """Put the next messages into the wheel. False if there are no more, or if they have to wait."""
        if not self._enter_usual(now_ms, time_ms) and not self._enter_any(now_ms, time_ms):
            return False
        self._changed = True
        return self._has_news and self._files.wheel.changes < CHANGES_MAX

    def _enter_usual(self, now_ms: int, time_ms: int) -> bool:
        """Let the lane put messages into the wheel. False: there is no lane, or the next message is unusual."""
        if self.lane is None or not self.pending or len(self._done):
            return False
        written_ms = self._floor(time_ms)
        until_ms = written_ms + self._slots_ahead * self._precision_ms
        place = self._slots, self.queue_offset, self.read_ms, written_ms, until_ms
        count = self.lane.enter(*place, now_ms, count_max=SLICE, size_max=SLICE_BYTES)
        self.pending += count
        self.queue_offset += count
        return count > 0

    def _enter_any(self, now_ms: int, time_ms: int) -> bool:
        """Put messages into the wheel one by one. False if they have to wait."""
        result = self._store.reader.get(TIMER_TOPIC, 0, self.queue_offset, SLICE, max_size=SLICE_BYTES, is_bulk=True)
        if result.next_offset <= self.queue_offset:
            self._pause(f"entry {self.queue_offset} of {TIMER_TOPIC} can't be read", now_ms)
            return False
        for record in result.records:
            message = decode_record(record)
            if not self.pending and message.physical_offset >= self._old_until:
                # No message from here on is due in a slot before the one that it was stored in.
                self._leave_empty(self._floor(min(time_ms, message.stored_ms)))
            if not self._enter_one(message, now_ms, time_ms):
                return False
            self.queue_offset = message.queue_offset + 1
        self.queue_offset = max(self.queue_offset, result.next_offset)
        return True

    @property
    def _slots_ahead(self) -> int:
        """The range of the wheel."""
        return min(self._settings.timer_roll_slots, self._files.wheel.slots // 2 - BLANK_SLOTS)

    def _enter_one(self, message: StoredMessage, now_ms: int, time_ms: int) -> bool:
        """Put one message into the wheel. False if the disk refuses it, or if its slot has undelivered messages."""
        properties = bytes(message.raw_properties)
        topic, slot_ms = timing.value(properties, _REAL_TOPIC), timing.out_ms(properties)
        if topic is None or slot_ms is None:
            log.error("message %d of %s has no valid topic, queue and time", message.queue_offset, TIMER_TOPIC)
            return True
        if len(self._done) and message.physical_offset in self._done:
            return True
        is_delete = timing.value(properties, timing.DELETE_KEY) is not None
        exact_ms = timing.exact_ms(message, properties, slot_ms, self._precision_ms)
        slot_ms = timing.slot_of(exact_ms, self._precision_ms)
        if slot_ms < self.read_ms:
            return is_delete or self._delivery.at_once(message, time_ms, now_ms)
        written_ms = self._floor(time_ms)
        magic, target_ms = DEFAULT | (DELETE if is_delete else 0), slot_ms
        slots = self._slots_ahead
        beyond = (slot_ms - written_ms) // self._precision_ms - slots
        if beyond >= 0:  # if it would soon roll again, it rolls earlier
            magic |= ROLL
            target_ms = written_ms + (slots // 2 if beyond < slots // 3 else slots) * self._precision_ms
        if self._files.wheel.is_in_use(target_ms, self.read_ms):  # the clock was set forward by more than a week
            free_ms = self._files.wheel.free_before(target_ms, self.read_ms)
            if free_ms is None:
                self._blocked_ms = message.stored_ms
                return False
            magic, target_ms = magic | ROLL, free_ms
        name = topic.decode("utf-8", "replace")
        unit = Unit(
            UNIT_SIZE,
            NONE,
            magic,
            written_ms,
            target_ms - written_ms,
            message.physical_offset,
            message.size,
            _hash(name),
            exact_ms,
        )
        position = self._files.put(target_ms, unit, change=-1 if is_delete else 1)
        self.pending += 1
        self.counts.entered(name, now_ms, is_delete=is_delete)
        if not is_delete:
            self.counts.waits(name, (exact_ms - message.born_ms) // 1000)
        slot = self._slots.get(target_ms)
        if slot is not None:
            self._delivery.place(slot, slot.add, position, unit)
        return True

    # ── Slots in memory ───────────────────────────────────────────────────────────────────────────────────────────

    def _slot(self, begin_ms: int) -> DueSlot:
        slot = self._slots.get(begin_ms)
        if slot is None:
            slot = self._slots[begin_ms] = DueSlot(begin_ms, self._files.wheel.slot(begin_ms).last)
        return slot

    def _leave_empty(self, begin_ms: int) -> None:
        """The wheel is empty: continue with a later slot."""
        if begin_ms > self.read_ms:
            self._slots.clear()
            self.read_ms = begin_ms

    def _is_complete(self, begin_ms: int) -> bool:
        """Are all messages in the wheel that were stored before a slot began?"""
        if self._mark.time_ms <= begin_ms or not self._mark.is_dispatched:
            return False
        return self._mark.is_reached(self.queue_offset) or not self._has_news or self._blocked_ms > begin_ms

    def _advance(self, time_ms: int) -> None:
        """Load the current slot and the next one, and leave slots that are done."""
        budget = self._delivery.load(self._slot(self.read_ms), UNITS_IN_SLICE)
        while budget > 0:
            if self._mark.time_ms <= self.read_ms < time_ms:
                self._mark.set(time_ms)
            slot = self._slot(self.read_ms)
            budget = self._delivery.load(slot, budget)
            end_ms = self.read_ms + self._precision_ms
            if budget <= 0 or slot.first_ms is not None or time_ms < end_ms or not self._is_complete(self.read_ms):
                break
            self._leave(slot)
            now_ms = self._floor(time_ms)
            if self.read_ms < now_ms and self.read_ms not in self._slots:
                self.read_ms = self._files.wheel.next_used(self.read_ms, now_ms)
                budget -= SLOTS_COST
        self._delivery.load(self._slot(self.read_ms + self._precision_ms), budget)

    def _leave(self, slot: DueSlot) -> None:
        """A slot is delivered: continue with the next one."""
        self.pending -= len(slot.deletes)
        del self._slots[slot.begin_ms]
        self._changed |= slot.taken > 0
        self.read_ms = slot.begin_ms + self._precision_ms
        if self._done_until_ms < self.read_ms:
            self._done = Offsets()

    # ── Delivering ────────────────────────────────────────────────────────────────────────────────────────────────

    def _deliver(self, now_ms: int, time_ms: int) -> None:
        """Deliver the messages of the current slot that are due."""
        slot = self._slots.get(self.read_ms)
        if slot is None or not slot.is_loaded or not self._is_complete(slot.begin_ms):
            return
        begin, until_ns = self._store.log.end, self._clock_ns() + SLICE_NS
        while self._store.log.end - begin < SLICE_BYTES:
            due = slot.due(time_ms)
            if due is None:
                return
            if not slot.taken:
                self._copies_from = self._store.log.end
            count = 0
            if self.lane is not None and not slot.deleted and not len(self._done):
                size_max = SLICE_BYTES - (self._store.log.end - begin)
                count = self.lane.deliver(due, time_ms, now_ms, size_max=size_max)
            if not count:
                if not self._deliver_one(self._files.log.unit(due[-1]), slot, now_ms, time_ms):
                    return
                count = 1
            slot.took(count)
            self.pending -= count
            self._changed = True
            if self._clock_ns() > until_ns:
                return

    def _deliver_one(self, unit: Unit | None, slot: DueSlot, now_ms: int, time_ms: int) -> bool:
        """Deliver a message. False if the disk refuses it."""
        if unit is None:
            return True
        if not self._delivery.deliver(unit, slot, self._done, time_ms, now_ms):
            return False
        if unit.magic & ROLL:  # may be a recall, which has to be entered in time
            self._mark.move()
            self._old_until = self._store.log.end
        return True

    # ── Checkpoints ───────────────────────────────────────────────────────────────────────────────────────────────

    def _freeze(self, now_ms: int, time_ms: int) -> None:
        """Prepare the next checkpoint, if one is due."""
        if not self._files.can_freeze or self.queue_offset < self._whole_from:
            return
        if self._whole_from:
            self._whole_from = 0
            self._done = Offsets()  # now the units are exactly the waiting messages
        is_crowded = self._files.wheel.changes >= CHANGES_MAX // 2
        if not is_crowded and (now_ms < self._flush_ms or not (self._changed or self._is_far_behind)):
            return
        self._flush_ms = now_ms + self._settings.timer_flush_ms
        self._changed = False
        self._files.freeze(self._checkpoint(time_ms), self._store.log.end)

    @property
    def _is_far_behind(self) -> bool:
        check = self._files.checkpoint
        return bool(self._files.log.end) and self._store.log.end - (check.delivered_from or 0) > LOOKED_THROUGH_BYTES

    def _checkpoint(self, time_ms: int) -> TimerCheckpoint:
        """The current state of the timers."""
        slot, check = self._slots.get(self.read_ms), self._files.checkpoint
        taken = 0 if slot is None else slot.taken
        return TimerCheckpoint(
            read_ms=self.read_ms,
            queue_offset=self.queue_offset,
            master_queue_offset=self.queue_offset,
            state_version=check.state_version,
            timestamp=time_ms,
            counter=check.counter + 1,
            delivered_from=self._delivered_from(taken),
            pending=self.pending + taken,
        )

    def _delivered_from(self, taken: int) -> int:
        if len(self._done):
            return self._done_from
        return self._copies_from if taken else self._store.log.end

    def stop(self, now_ms: int) -> None:
        """The broker is about to stop, and the log is flushed: write the last checkpoint, in this thread.

        Delivered units of the current slot are removed from it, so that no broker delivers them again.
        """
        files, store = self._files, self._store
        durable_to = store.durability.durable_to
        if not self._is_on or self._must_go_back or self._search is not None or self.queue_offset < self._whole_from:
            return
        files.flush(durable_to, now_ms)
        slot = self._slots.get(self.read_ms)
        if not files.can_freeze or files.log_failed or (slot is None and not self._changed):
            return
        try:
            if slot is not None and slot.taken:
                files.relink(slot.begin_ms, slot.rest())
                self._slots.clear()
            files.freeze(self._checkpoint(store.clock.stamp(now_ms)), store.log.end)
            files.flush(durable_to, now_ms)
        except (OSError, StoreError) as error:
            log.error("the last checkpoint of the timers could not be written: %s", error)

    # ── Figures ───────────────────────────────────────────────────────────────────────────────────────────────────

    def time_ms(self, now_ms: int) -> int:
        """The time that timers use."""
        return self._store.clock.stamp(now_ms)

    def checkpoint_head(self) -> bytes:
        """The answer to GET_TIMER_CHECK_POINT: the durable state of the timers."""
        return self._files.checkpoint.head

    def wrapper(self) -> TimerMetricsSerializeWrapper:
        """The contents of the file of counts."""
        return self.counts.wrapper()

    def figures(self, now_ms: int) -> dict[str, str]:
        """The figures of timers in GET_BROKER_RUNTIME_INFO."""
        behind_ms = behind = 0
        if self._is_on:
            behind_ms = max(self.time_ms(now_ms) - self.read_ms, 0) if self.pending else 0
            behind = max(self._store.reader.offsets(TIMER_TOPIC, 0)[1] - self.queue_offset, 0)
        entered, delivered = self.counts.rates(now_ms)
        return {
            "timerReadBehind": str(behind_ms // 1000),
            "timerOffsetBehind": str(behind),
            "timerCongestNum": str(self.pending),
            "timerEnqueueTps": str(entered),
            "timerDequeueTps": str(delivered),
        }
