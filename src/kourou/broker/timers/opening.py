"""How timers continue after a stop or a crash.

    checkpoint: slots before R are delivered, messages of the queue before Q are in the wheel, copies begin at P
    timer log:  units before `flush_end` are durable ─▶ those after it are used as far as they are valid
    queue:      messages from Q on are put into the wheel again
    commit log: copies from P on ─▶ their originals are not delivered again

A unit after `flush_end` is valid if its message is in the commit log and follows the message of the previous unit. A
message in between that has no unit was delivered at once; if its copy is lost, all units from there on are dropped and
made again from the queue. The wheel never refers to such units, since units enter it after the copies are durable.

A Java broker writes its checkpoint in another order and does not mark copies. Its units are used as a Java broker
would.
"""

import logging
from dataclasses import dataclass, field

from kourou.broker.names import TIMER_TOPIC
from kourou.broker.timers.copies import Offsets
from kourou.broker.timers.timing import RAW_TOPIC
from kourou.protocol.record import decode_record
from kourou.store.store import Store
from kourou.store.timers.layout import DELETE, UNIT_SIZE, Unit

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Opened:
    """Where timers continue."""

    read_ms: int
    queue_offset: int
    pending: int
    done: Offsets = field(default_factory=Offsets)


def resume(store: Store) -> Opened:
    """Continue from the checkpoint, and from the valid units after it. Raises OSError, StoreError."""
    files, check = store.timers, store.timers.checkpoint
    files.wheel.drop_changes()
    done = Offsets()
    if check.delivered_from is not None:
        done = _delivered_since(store, check.delivered_from)
    opened = Opened(check.read_ms, check.queue_offset, check.pending, done)
    _take_units(store, opened)
    start, end = store.reader.offsets(TIMER_TOPIC, 0)
    there = min(max(opened.queue_offset, start), end)
    if there != opened.queue_offset and end:
        log.warning(
            "timers continue at offset %d of %s, not %d: the queue has the offsets %d to %d",
            there,
            TIMER_TOPIC,
            opened.queue_offset,
            start,
            end,
        )
    opened.queue_offset = there
    return opened


def _take_units(store: Store, opened: Opened) -> None:
    """Use the valid units after the checkpoint, and drop the others."""
    files, check = store.timers, store.timers.checkpoint
    is_ours = check.delivered_from is not None
    end = check.flush_end
    for position, unit in files.log.units(end):
        number = _queue_offset(store, unit)
        if number is None:
            break
        is_in_wheel = files.wheel.slot(unit.slot_ms).last >= position  # then it is durable
        if is_ours and not is_in_wheel and not _follows(store, opened, number):
            break
        files.restore(position, unit, change=-1 if unit.magic & DELETE else 1)
        opened.pending += number >= opened.queue_offset
        opened.queue_offset = max(opened.queue_offset, number + 1)
        end = position + UNIT_SIZE
    files.log.cut(end)
    if is_ours:
        return
    slots = [files.wheel.slot(time_ms) for time_ms in files.wheel.times_from(check.read_ms)]
    opened.pending = sum(_count(store, slot.last) for slot in slots)
    if any(slot.last >= end for slot in slots):
        log.error("the timer wheel refers to units that the timer log does not have; it is rebuilt")
        rebuild_wheel(store, opened)


def _count(store: Store, position: int) -> int:
    """How many units a slot has whose newest unit is at this position."""
    count = 0
    while position >= 0 and (unit := store.timers.log.unit(position)) is not None and unit.previous < position:
        position = unit.previous
        count += 1
    return count


def _queue_offset(store: Store, unit: Unit) -> int | None:
    """The queue offset of a unit's message in the timer topic; None if the message does not exist."""
    record = store.reader.record_of(unit.physical_offset, unit.record_size)
    message = None if record is None else decode_record(record)
    return message.queue_offset if message is not None and message.raw_topic == RAW_TOPIC else None


def _follows(store: Store, opened: Opened, number: int) -> bool:
    """Are all messages before this one in the wheel, or durably delivered?"""
    queue = store.queues.get(TIMER_TOPIC, 0)
    if queue is None or number < opened.queue_offset:
        return False
    return all(queue.entry(skipped)[0] in opened.done for skipped in range(opened.queue_offset, number))


def rebuild_wheel(store: Store, opened: Opened) -> None:
    """Rebuild the wheel from the timer log. Raises OSError, StoreError.

    A broker that stopped in the middle of a slot removed the delivered units from the wheel, but not from the timer
    log; the commit log has their copies.
    """
    files = store.timers
    files.wheel.clear()
    begin = store.log.end if files.checkpoint.delivered_from is None else files.checkpoint.delivered_from
    for position, unit in files.log.units(files.log.start):
        if unit.slot_ms >= opened.read_ms:
            files.restore(position, unit, change=-1 if unit.magic & DELETE else 1)
            if unit.slot_ms < opened.read_ms + files.precision_ms:
                begin = min(begin, unit.physical_offset)
    opened.done = _delivered_since(store, begin)
    opened.pending = sum(_count(store, files.wheel.slot(at).last) for at in files.wheel.times_from(opened.read_ms))


def _delivered_since(store: Store, begin: int) -> Offsets:
    """The originals of the copies in the log from this offset on."""
    begin = max(begin, store.log.start)
    return Offsets(~record.prepared_offset for record in store.log.records(begin) if record.prepared_offset < 0)
