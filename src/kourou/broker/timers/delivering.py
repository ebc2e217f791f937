"""Reads timed messages, and delivers those that are due: a copy into the real topic, or into the wheel again."""

import logging
from collections.abc import Callable
from typing import Final

from kourou.broker.events import Refused
from kourou.broker.message_writer import MessageWriter
from kourou.broker.meters import DELAY
from kourou.broker.names import TIMER_TOPIC
from kourou.broker.settings import BrokerSettings
from kourou.broker.stats import Stats
from kourou.broker.timers import copies, timing
from kourou.broker.timers.counts import Counts
from kourou.broker.timers.due_slot import DamagedError, DueSlot
from kourou.protocol.codes import ResponseCode
from kourou.protocol.properties import Property
from kourou.protocol.record import StoredMessage, decode_record
from kourou.store.commit_log import NewMessage
from kourou.store.errors import StoreError
from kourou.store.store import Store
from kourou.store.timers.layout import DELETE, ROLL, Unit

log = logging.getLogger(__name__)

NEVER_ENTERED_MS: Final = 2**63 - 1
"""TIMER_ENQUEUE_MS of a message that was due before it could be put into the wheel."""

RECORD_COST: Final = 20
"""The cost of reading a record, in units."""

_REAL_TOPIC: Final = Property.REAL_TOPIC.encode()
_REAL_QUEUE: Final = Property.REAL_QUEUE_ID.encode()
_UNIQUE: Final = Property.UNIQUE_KEY.encode()


class Delivery:
    """Delivers single messages."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        writer: MessageWriter,
        stats: Stats,
        counts: Counts,
        pause: Callable[[str, int], None],
    ) -> None:
        """`pause` is called with a reason and the time if the disk refuses a message."""
        self._settings = settings
        self._store = store
        self._writer = writer
        self._stats = stats
        self._counts = counts
        self._pause = pause

    # ── Records ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _message(self, unit: Unit) -> StoredMessage | None:
        record = self._store.reader.record_of(unit.physical_offset, unit.record_size)
        message = None if record is None else decode_record(record)
        if message is None or message.raw_topic != timing.RAW_TOPIC:
            log.error("skipped the timed message at %d, which is missing or damaged", unit.physical_offset)
            return None
        return message

    def _recalled_by(self, unit: Unit) -> bytes | None:
        """The message that this one recalls, as one of `timing.names_of`."""
        message = self._message(unit)
        return None if message is None else timing.recalled_by(bytes(message.raw_properties))

    def load(self, slot: DueSlot, budget: int) -> int:
        """Load units of a slot. Returns the rest of the budget."""
        precision_ms = self._store.timers.precision_ms
        while not slot.is_loaded and budget > 0:
            position = slot.next_older
            unit = self._store.timers.log.unit(position)
            if unit is None or unit.previous >= position or unit.slot_ms - unit.slot_ms % precision_ms != slot.begin_ms:
                raise DamagedError(f"the timer log is damaged at {position}")
            budget -= self.place(slot, slot.add_older, position, unit)
            slot.next_older = unit.previous
        return budget

    def place(self, slot: DueSlot, add: Callable[[int, int], None], position: int, unit: Unit) -> int:
        """Add a unit to a slot in memory. Returns the cost, in units."""
        if unit.magic & ROLL:
            add(slot.begin_ms + 1, position)
            return 1
        if unit.magic & DELETE:
            recalled = self._recalled_by(unit)
            if recalled is not None:
                slot.deleted.add(recalled)
                slot.deletes.append(position)
            return RECORD_COST
        if slot.begin_ms < unit.exact_ms <= slot.begin_ms + self._store.timers.precision_ms:
            add(unit.exact_ms, position)
            return 1
        add(self._exact_ms(unit, slot.begin_ms), position)  # a Java broker wrote the unit
        return RECORD_COST

    def _exact_ms(self, unit: Unit, slot_ms: int) -> int:
        """When a message is due, according to its record."""
        precision_ms = self._store.timers.precision_ms
        message = self._message(unit)
        if message is None:
            return slot_ms + precision_ms
        due_ms = timing.exact_ms(message, bytes(message.raw_properties), slot_ms, precision_ms)
        return min(due_ms, slot_ms + precision_ms)

    # ── Delivering ────────────────────────────────────────────────────────────────────────────────────────────────

    def deliver(self, unit: Unit, slot: DueSlot, done: copies.Offsets, time_ms: int, now_ms: int) -> bool:
        """Deliver the message of a unit, or put it into the wheel again; False if the disk refuses it."""
        if len(done) and unit.physical_offset in done:
            return True
        message = self._message(unit)
        if message is None:
            return True
        properties = copies.properties_of(message)
        if slot.deleted and self._is_recalled(properties, slot):
            self._counts.left(_text(properties, _REAL_TOPIC) or "", now_ms)
            return True
        if not unit.magic & ROLL:
            return self._put(message, properties, unit.written_ms, time_ms, now_ms)
        rolled = copies.rolled(properties, unit.exact_ms or self._final_ms(message, properties))
        if self._append(copies.copy(message, TIMER_TOPIC, 0, rolled), now_ms) is None:
            return False
        self._counts.left(_text(properties, _REAL_TOPIC) or "", now_ms)
        return True

    def _final_ms(self, message: StoredMessage, properties: bytes) -> int:
        """When a message is finally due that a Java broker put into the wheel and that has to roll."""
        slot_ms = timing.out_ms(properties) or 0
        return timing.exact_ms(message, properties, slot_ms, self._store.timers.precision_ms)

    def _is_recalled(self, properties: bytes, slot: DueSlot) -> bool:
        key = timing.value(properties, _UNIQUE)
        topic = timing.value(properties, _REAL_TOPIC) or b""
        return key is not None and not slot.deleted.isdisjoint(timing.names_of(topic, key))

    def at_once(self, message: StoredMessage, time_ms: int, now_ms: int) -> bool:
        """Deliver a message whose slot is over; False if the disk refuses it."""
        self._counts.came(_text(copies.properties_of(message), _REAL_TOPIC) or "")
        return self._put(message, copies.properties_of(message), NEVER_ENTERED_MS, time_ms, now_ms)

    def _put(self, message: StoredMessage, properties: bytes, entered_ms: int, time_ms: int, now_ms: int) -> bool:
        topic, queue_id = _text(properties, _REAL_TOPIC), _text(properties, _REAL_QUEUE)
        if topic is None or queue_id is None or not copies.may_be_delivered_to(topic, queue_id):
            log.error("skipped a timed message whose properties have no valid topic and queue: %.1000r", properties)
            return True
        delivered = copies.with_times(properties, entered_ms, time_ms)
        size = self._append(copies.copy(message, topic, int(queue_id), delivered), now_ms)
        if size == 0:  # there was no room for more properties
            size = self._append(copies.copy(message, topic, int(queue_id), properties), now_ms)
        if size is None:
            return False
        if entered_ms != NEVER_ENTERED_MS:
            self._counts.left(topic, now_ms)
        self._counts.delivered(topic)
        if self._settings.count_delayed:
            self._stats.put(topic, 1, size, message_type=DELAY)
        return True

    def _append(self, copy: NewMessage, now_ms: int) -> int | None:
        """Append a copy. Returns its size; 0 if it exceeds a limit, None if the disk refuses it."""
        try:
            (stored,) = self._writer.put([copy], None, now_ms)
            return stored.size
        except Refused as refused:
            if refused.code == ResponseCode.MESSAGE_ILLEGAL:
                log.error("skipped a timed message that can't be delivered: %s", refused.remark)
                return 0
            self._pause(refused.remark, now_ms)
        except StoreError as error:
            self._pause(str(error), now_ms)
        return None


def _text(properties: bytes, name: bytes) -> str | None:
    found = timing.value(properties, name)
    return None if found is None else found.decode("utf-8", "replace")
