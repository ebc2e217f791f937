"""Delay levels: messages that are delivered some time after they were sent.

    sent with DELAY = level ─▶ SCHEDULE_TOPIC_XXXX, queue level - 1 ─▶ … its time has come … ─▶ a copy in its real topic

All messages of a level wait equally long, so each queue is in the order of its due times, and only its first entry has
to be looked at. Its due time is where other queues have the hash of the tags: the store time of the message and its
delay, so it is compared with `WallClock.stamp`. `due_ms` is the earliest one of all levels, as a time of the steady
clock: the driver's timer fires then, to the millisecond.

A step delivers a slice and not more: if a million messages are due at once, requests get their turn in between, and
levels share the slice, so that none waits for another one.

The progress of each level is stored in delayOffset.json. That file never claims more than is durable: a delivery counts
once its copy is durable, because a crash would otherwise lose the message. But then the file may be behind, and after a
crash the deliveries since its last write would be repeated. So each copy has the position of its original, in the field
that commits use for the offset of their half message (`~offset`, which is negative and so never one of theirs); and the
file has the log offset up to which its offsets are complete:

    delayOffset.json: offsets {3: 17}, deliveredTo P          the log: … P … copy of 17, copy of 18 … end

At the start, the log after P is searched for copies; each level continues after the last one found. A Java broker
ignores both the field and the member, and repeats deliveries as it always does.

Java: ScheduleMessageService.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from struct import Struct

from kourou.broker.events import Refused
from kourou.broker.message_writer import MessageWriter
from kourou.broker.meters import DELAY
from kourou.broker.names import HALF_TOPIC, SCHEDULE_TOPIC
from kourou.broker.settings import BrokerSettings, Role
from kourou.broker.stats import Stats
from kourou.protocol.bodies import DataVersion, DelayOffsetSerializeWrapper
from kourou.protocol.codes import ResponseCode
from kourou.protocol.errors import BodyError
from kourou.protocol.properties import Property, number
from kourou.protocol.record import RECORD_CRC_SIZE, StoredMessage, decode_record
from kourou.store.commit_log import NewMessage
from kourou.store.errors import StoreError
from kourou.store.metadata import Kind
from kourou.store.store import Store

log = logging.getLogger(__name__)

SLICE = 128
"""How many messages one step delivers at most."""

SLICE_BYTES = 1024 * 1024
"""And how many bytes, unless a single one has more."""

BATCH = 32
RETRY_MS = 1_000
"""How long to wait after the disk refused a delivery."""

CLOCK_SLIP_MS = 60_000
"""How much later than its delay allows an entry may be due. Beyond that, the clock of another broker wrote it."""

LOOKED_THROUGH_BYTES = 64 * 1024 * 1024
"""How much log may follow the position in delayOffset.json before it is written again: a start scans that much."""

RECORDS_IN_SLICE = 2_000
"""Records that are examined for copies before requests have their turn."""

SLICES_AT_START = 1_000_000
"""How many such slices there are before the broker serves."""

_ENTRY = Struct(">qiq")
_SCHEDULE = SCHEDULE_TOPIC.encode()
_CRC_BEGIN = f"{Property.RECORD_CRC}\x01".encode()


class DelayOffsets(DelayOffsetSerializeWrapper):
    """The progress of the levels, and the log offset up to which it is complete."""

    delivered_to: int | None = None


DELAY_OFFSETS = Kind("delayOffset.json", "offsets of delay levels", DelayOffsets)


@dataclass(slots=True)
class _Level:
    """A delay level, or the queue of a level that is no longer configured."""

    queue_id: int
    delay_ms: int | None  # None: no such level is configured any more; what waits is delivered all the same
    offset: int  # the next entry to deliver
    safe: int  # entries before it were delivered durably
    due_ms: int | None = None  # when the entry at `offset` is due, by the stamps of messages; None: nothing waits
    unsafe: deque[tuple[int, int, int]] = field(default_factory=deque)
    """Deliveries that are not durable yet: start and end of their copies in the log, and the offset after them."""

    def settle(self, durable: int) -> bool:
        """The log is durable up to this offset. Returns whether more deliveries became durable."""
        before = self.safe
        while self.unsafe and self.unsafe[0][1] <= durable:
            self.safe = self.unsafe.popleft()[2]
        return self.safe != before


class Delays:
    """Delivers messages that are due."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        writer: MessageWriter,
        stats: Stats,
        delay_ms: Mapping[int, int],
        kept: DelayOffsets | None,
        touch: Callable[[], None],
    ) -> None:
        """`delay_ms` has the delay of each level. `touch` is called after each change, so that it is kept.

        Raises StoreError.
        """
        self._store = store
        self._writer = writer
        self._stats = stats
        self._touch = touch
        self._settings = settings
        self._is_on = settings.role is not Role.SLAVE  # a slave's master delivers
        self._not_before_ms = 0
        self._looked = False  # all levels know when their first message is due
        self._problem: str | None = None
        self._spoken_for = 0  # the last content of the file
        self._before = kept  # the content of the file until this broker knows the progress: that of the last master
        self._version = DataVersion() if kept is None or kept.data_version is None else kept.data_version
        offsets = {} if kept is None else kept.offset_table
        queue_ids = {level - 1 for level in delay_ms} | set(store.queues.of_topic(SCHEDULE_TOPIC))
        self._levels = {
            queue_id: _Level(queue_id, delay_ms.get(queue_id + 1), offset, offset)
            for queue_id in sorted(queue_ids)
            for offset in (self._within(queue_id, offsets.get(queue_id + 1, 0)),)
        }
        self._search: Iterator[None] = iter(())  # of the log, for copies
        self._is_searched = True
        if self._is_on:
            self._begin(kept, SLICES_AT_START)

    def take_over(self) -> None:
        """The broker has become a master: levels continue where those of the last master were. Raises StoreError."""
        if self._is_on:
            return
        self._is_on, self._looked = True, False
        kept = self._before
        offsets = {} if kept is None else kept.offset_table
        for level in self._levels.values():
            level.offset = level.safe = self._within(level.queue_id, offsets.get(level.queue_id + 1, 0))
            level.due_ms = None
            level.unsafe.clear()
        if kept is not None and kept.data_version is not None:
            self._version = kept.data_version
        self._begin(kept, 1)

    def give_up(self) -> None:
        """The broker has become a slave: its master delivers."""
        if self._is_on:
            self._before = self.wrapper()
            self._is_on, self._is_searched = False, True

    def _begin(self, kept: DelayOffsets | None, slices: int) -> None:
        """Look for copies in the log, in at most this many slices; `deliver` does the rest."""
        spoken_for = 0 if kept is None else kept.delivered_to  # None: it is a Java broker's, and so are the copies
        self._search = iter(()) if spoken_for is None else self._find_copies(spoken_for)
        self._is_searched = False
        self._search_on(slices)

    def _search_on(self, slices: int) -> None:
        if len(list(islice(self._search, slices))) < slices:
            self._is_searched = True
            self._touch()

    # ── Progress ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _within(self, queue_id: int, offset: int) -> int:
        """An offset that the queue has, or will have next."""
        start, end = self._store.reader.offsets(SCHEDULE_TOPIC, queue_id)
        there = min(max(offset, start), end)
        if there != offset:
            log.warning(
                "delay level %d continues at offset %d, not %d: its queue has the offsets %d to %d",
                queue_id + 1,
                there,
                offset,
                start,
                end,
            )
        return there

    def _find_copies(self, begin: int) -> Iterator[None]:
        """Levels continue after the copies that the log has from this offset on. Each step reads a slice of it."""
        found = 0
        for count, record in enumerate(self._store.log.records(begin), 1):
            if count % RECORDS_IN_SLICE == 0:
                yield
            if record.prepared_offset >= 0:
                continue
            message = record.message()
            original = self._store.reader.message_at(~message.prepared_offset)
            if (
                original is None
                or original.raw_topic != _SCHEDULE
                or original.physical_offset > message.physical_offset
            ):
                continue
            level = self._levels.get(original.queue_id)
            if level is not None and original.queue_offset >= level.offset:
                level.offset = level.safe = self._within(original.queue_id, original.queue_offset + 1)
                found += 1
        if found:
            log.info("%d delayed messages were delivered before the last stop, and are not delivered again", found)

    @property
    def _knows_all(self) -> bool:
        """Is the progress of the levels known? A slave does not know it; a master does after a search of the log."""
        return self._is_on and self._is_searched

    def offsets(self) -> dict[int, int]:
        """The progress of each level, counting durable deliveries only."""
        if not self._knows_all:
            return {} if self._before is None else self._before.offset_table
        durable = self._store.durability.durable_to
        for level in self._levels.values():
            level.settle(durable)
        return {level.queue_id + 1: level.safe for level in self._levels.values() if level.safe}

    def wrapper(self) -> DelayOffsets:
        """The stored state: durable deliveries, and the log offset up to which they are complete."""
        if not self._knows_all:
            return self._before or DelayOffsets(delivered_to=0)
        offsets, durable = self.offsets(), self._store.durability.durable_to
        # Not after the durable end, where a power failure may cut the log: the next copies would be stored there.
        self._spoken_for = min([durable, *(level.unsafe[0][0] for level in self._levels.values() if level.unsafe)])
        self._version = DataVersion(
            state_version=self._version.state_version,
            timestamp=self._store.log.stored_ms,
            counter=self._version.counter + 1,
        )
        return DelayOffsets(offset_table=offsets, data_version=self._version, delivered_to=self._spoken_for)

    def adopt(self, kept: DelayOffsets) -> None:
        """A slave takes over the progress of its master's levels."""
        if not self._is_on and (self._before is None or kept.offset_table != self._before.offset_table):
            self._before = kept
            self._touch()

    def settle(self) -> None:
        """Deliveries that have become durable may be saved."""
        if not self._knows_all:
            return
        durable = self._store.durability.durable_to
        news = [level for level in self._levels.values() if level.unsafe and level.settle(durable)]
        if news or durable - self._spoken_for > LOOKED_THROUGH_BYTES:
            self._touch()

    def log_was_cut(self, end: int) -> None:
        """The log was cut at this offset: copies or originals may be lost."""
        if not self._is_on:
            if self._before is not None and (self._before.delivered_to or 0) > end:
                self._before = DelayOffsets(delivered_to=0)  # copies are lost: search the log for those that are left
                self._touch()
            return
        lost_from = end
        for level in self._levels.values():
            while level.unsafe and level.unsafe[-1][1] > end:
                begin, _, _ = level.unsafe.pop()
                lost_from = min(lost_from, begin)
                level.offset = level.unsafe[-1][2] if level.unsafe else level.safe
            level.offset = self._within(level.queue_id, level.offset)
            level.due_ms = None
        for _ in self._find_copies(lost_from):  # some of a batch may be left
            pass
        self._looked = False

    # ── Due times ─────────────────────────────────────────────────────────────────────────────────────────────────

    def due_ms(self, now_ms: int) -> int | None:
        """When the next message is due; None: no message waits."""
        if not self._is_on:
            return None
        if not self._looked or not self._is_searched:
            return max(now_ms, self._not_before_ms)
        soonest = min((level.due_ms for level in self._levels.values() if level.due_ms is not None), default=None)
        if soonest is None:
            return None
        return max(now_ms + soonest - self._store.clock.stamp(now_ms), self._not_before_ms)

    def look(self, now_ms: int) -> None:
        """Messages may wait in levels that were empty."""
        self._looked = True
        for level in self._levels.values():
            if level.due_ms is None:
                level.due_ms = self._first_due_ms(level, now_ms)

    def _first_due_ms(self, level: _Level, now_ms: int) -> int | None:
        stamp_ms = self._store.clock.stamp(now_ms)
        try:
            queue = self._store.queues.get(SCHEDULE_TOPIC, level.queue_id)
            if queue is None or queue.end <= level.offset:
                return None
            if level.offset < queue.start:
                level.offset = self._within(level.queue_id, level.offset)
            _, _, due_ms = queue.entry(level.offset)
        except (OSError, StoreError) as error:
            self._pause(f"queue {level.queue_id} of {SCHEDULE_TOPIC} can't be read: {error}", now_ms)
            return stamp_ms
        return _possible(due_ms, level.delay_ms, stamp_ms)

    def _count_due(self, level: _Level, limit: int, stamp_ms: int) -> int:
        """How many entries from the first one on are due."""
        queue = self._store.queues.get(SCHEDULE_TOPIC, level.queue_id)
        assert queue is not None
        count = 0
        for _, _, due_ms in _ENTRY.iter_unpack(queue.entries(level.offset, limit)):
            if _possible(due_ms, level.delay_ms, stamp_ms) > stamp_ms:
                break
            count += 1
        return count

    # ── Delivering ────────────────────────────────────────────────────────────────────────────────────────────────

    def deliver(self, now_ms: int) -> None:
        """Deliver a slice of the messages that are due."""
        if not self._is_on:
            return
        if not self._is_searched:
            self._search_on(1)
            return
        self.settle()
        self.look(now_ms)
        stamp_ms = self._store.clock.stamp(now_ms)
        due = [level for level in self._levels.values() if level.due_ms is not None and level.due_ms <= stamp_ms]
        for level in due:
            if now_ms < self._not_before_ms:
                break
            self._deliver_from(level, max(SLICE // len(due), 1), SLICE_BYTES // len(due), now_ms)

    def _deliver_from(self, level: _Level, count: int, size: int, now_ms: int) -> None:
        stamp_ms = self._store.clock.stamp(now_ms)
        while count > 0 and size > 0 and level.due_ms is not None and level.due_ms <= stamp_ms:
            begin, offset = self._store.log.end, level.offset
            try:
                done = self._deliver_batch(level, min(count, BATCH), now_ms)
            except (OSError, StoreError) as error:
                self._pause(f"queue {level.queue_id} of {SCHEDULE_TOPIC} can't be read: {error}", now_ms)
                done = False
            end = self._store.log.end
            if end > begin:
                level.unsafe.append((begin, end, level.offset))
            elif level.offset != offset and not level.unsafe:  # all levels that remain are empty
                level.safe = level.offset
                self._touch()
            if not done:
                return
            count -= level.offset - offset
            size -= end - begin
            level.due_ms = self._first_due_ms(level, now_ms)

    def _deliver_batch(self, level: _Level, limit: int, now_ms: int) -> bool:
        """Deliver some messages that are due; False if delivery has to pause."""
        stop = level.offset + self._count_due(level, limit, self._store.clock.stamp(now_ms))
        result = self._store.reader.get(SCHEDULE_TOPIC, level.queue_id, level.offset, stop - level.offset)
        if result.next_offset <= level.offset:
            self._pause(f"entry {level.offset} of delay level {level.queue_id + 1} can't be read", now_ms)
            return False
        stop = min(stop, result.next_offset)
        for record in result.records:
            message = decode_record(record)
            if message.queue_offset >= stop:
                break
            if message.queue_offset > level.offset:
                self._gone(level, message.queue_offset)
            if not self._deliver_one(message, now_ms):
                return False
            level.offset = message.queue_offset + 1
        if level.offset < stop:
            self._gone(level, stop)
        return True

    def _gone(self, level: _Level, upto: int) -> None:
        log.error(
            "skipped delayed messages %d to %d of level %d, which are missing or damaged",
            level.offset,
            upto - 1,
            level.queue_id + 1,
        )
        level.offset = upto

    def _deliver_one(self, original: StoredMessage, now_ms: int) -> bool:
        """Put the copy into its real topic; False if the disk refuses it."""
        properties = original.properties
        topic = properties.get(Property.REAL_TOPIC)
        try:
            queue_id = number(properties, Property.REAL_QUEUE_ID)
        except BodyError:
            queue_id = None
        if not topic or topic in (SCHEDULE_TOPIC, HALF_TOPIC) or queue_id is None or queue_id < 0:
            log.error("skipped a delayed message whose properties have no valid topic and queue: %.1000r", properties)
            return True
        try:
            (stored,) = self._writer.put([_copy(original, topic, queue_id)], None, now_ms)
        except Refused as refused:
            if refused.code == ResponseCode.MESSAGE_ILLEGAL:  # by settings that have changed meanwhile
                log.error("skipped a delayed message that can't be delivered: %s", refused.remark)
                return True
            self._pause(refused.remark, now_ms)
            return False
        except StoreError as error:
            self._pause(str(error), now_ms)
            return False
        if self._settings.count_delayed:
            self._stats.put(topic, 1, stored.size, message_type=DELAY)
        if self._problem is not None:
            self._problem = None
            log.warning("delivery of delayed messages has resumed")
        return True

    def _pause(self, problem: str, now_ms: int) -> None:
        self._not_before_ms = now_ms + RETRY_MS
        if self._problem != problem:
            self._problem = problem
            log.error("delivery of delayed messages is paused: %s", problem)


def _possible(due_ms: int, delay_ms: int | None, stamp_ms: int) -> int:
    """When an entry is due, but not later than the delay allows: the clock of another broker was ahead."""
    if delay_ms is not None and due_ms > stamp_ms + delay_ms + CLOCK_SLIP_MS:
        return stamp_ms
    return due_ms


def _copy(original: StoredMessage, topic: str, queue_id: int) -> NewMessage:
    properties = bytes(original.raw_properties)
    if properties[-RECORD_CRC_SIZE:].startswith(_CRC_BEGIN):  # of the original record
        properties = properties[:-RECORD_CRC_SIZE]
    return NewMessage(
        topic=topic,
        queue_id=queue_id,
        body=bytes(original.body),
        properties=properties,
        born_ms=original.born_ms,
        born_host=original.born_host,
        flag=original.flag,
        sys_flag=original.sys_flag,
        reconsume_times=original.reconsume_times,
        prepared_offset=~original.physical_offset,
    )
