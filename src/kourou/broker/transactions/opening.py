"""Restores the state of transactions from the store at a start.

    op records, from a little before the stored position ─▶ the half messages that have ended
    after a crash: commits at the end of the log ─▶ those whose op records were not written yet

Op records before the stored position are done. Some of them are read again nevertheless, because clients may repeat a
request. Ends are then known for all half messages after the first op record that was read: an op record is written
after the half messages that it names, so these are named by a later op record, or by none.

A commit names its half message (the prepared transaction offset). So a commit from before a crash is found, and its
producer is not asked again. Op records name half messages in the order in which these ended, and a crash may leave
only some of the op records that were written together. So a commit that no op record names was stored after the half
message that the last op record names last: the search begins there, within limits. After a clean stop without open
half messages, nothing is searched.
"""

import logging
from collections.abc import Iterator

from kourou.broker import names
from kourou.broker.offsets import Offsets
from kourou.broker.transactions import op_records
from kourou.broker.transactions.half_queue import HalfQueue
from kourou.broker.transactions.half_records import HALF_QUEUE
from kourou.broker.transactions.ledger import HISTORY_MAX, Fate, Ledger
from kourou.broker.transactions.op_records import OpQueue
from kourou.protocol.codes import SysFlag
from kourou.protocol.message import transaction_of
from kourou.protocol.properties import Property
from kourou.protocol.record import CorruptRecordError, StoredMessage, decode_record
from kourou.protocol.system_names import TRANSACTION_GROUP
from kourou.store.consume_queue import ConsumeQueue
from kourou.store.errors import StoreError
from kourou.store.store import Store

log = logging.getLogger(__name__)

DONE_RECORDS_MAX = 1_024
"""How many op records before the stored position a start reads again."""

SEARCHED_BYTES_MAX = 256 * 1024 * 1024
"""How many bytes at the end of the log a start after a crash searches for commits."""

BATCH = 32

RECORDS_IN_SLICE = 500
"""The most records that are examined for commits in one slice."""

_COMMIT = int(SysFlag.TRANSACTION_COMMIT)


def load(halves: HalfQueue, store: Store, offsets: Offsets, *, is_whole: bool) -> Iterator[None]:
    """Load the state of `halves` from the store. Each step reads some op records. `is_whole`: no op record is missing.

    Before the first step, half messages from the stored position on are considered open. After the last step it is
    known which ones have ended: `halves.is_loaded`.
    """
    log_end = store.log.end
    op_position, begin = _begin(halves, store, offsets)
    yield
    if store.dispatched < log_end:  # if a slave has become a master, queues may lack the newest records
        while store.dispatched < log_end:
            yield
        op_position, begin = _begin(halves, store, offsets)
    halves.end_at_start = halves.end
    durable = store.durability.durable_to
    for op_offset, record in _op_records(store, begin):
        ended = op_records.decode(record)
        for offset in ended:
            if not _is_end(halves.ledger.fate(offset)):
                halves.ledger.mark(offset, Fate.ENDED, durable)
        if op_offset >= op_position:
            halves.op_queue.add(op_offset, max(ended, default=-1))
        if op_offset % BATCH == 0:
            yield
    if not is_whole or halves.has_open:  # a disk may have refused the last op records of a clean stop
        yield from _find_commits(halves, store)
    halves.is_loaded = True
    halves.settle()


def _begin(halves: HalfQueue, store: Store, offsets: Offsets) -> tuple[int, int]:
    """Consider half messages from the stored position on open. Returns the stored op record, and the first to read."""
    first, position = _kept(store, offsets, names.HALF_TOPIC)
    first_op, op_position = _kept(store, offsets, names.HALF_OP_TOPIC)
    begin = max(first_op, op_position - DONE_RECORDS_MAX)
    floor = max(first, position - HISTORY_MAX, _first_after(store, begin))
    halves.ledger = Ledger(min(floor, position), position)
    halves.op_queue = OpQueue(op_position)
    return op_position, begin


def _kept(store: Store, offsets: Offsets, topic: str) -> tuple[int, int]:
    """The first offset of a queue, and its stored position."""
    start, end = store.reader.offsets(topic, HALF_QUEUE)
    kept = offsets.get(TRANSACTION_GROUP, topic, HALF_QUEUE)
    position = min(max(kept, start), end)
    if kept not in (-1, position):
        log.warning("%s continues at offset %d, not %d: it has the offsets %d to %d", topic, position, kept, start, end)
    return start, position


def _first_after(store: Store, op_offset: int) -> int:
    """The first half message after an op record in the log; 0 if there was no op record before it."""
    ops, halves = (store.queues.get(topic, HALF_QUEUE) for topic in (names.HALF_OP_TOPIC, names.HALF_TOPIC))
    if ops is None or halves is None or op_offset == 0 or not ops.start <= op_offset < ops.end:
        return 0
    try:
        return _first_from(halves, ops.entry(op_offset)[0])
    except (OSError, StoreError) as error:
        log.error("the queues of transactions can't be read: %s", error)
        return halves.end


def _first_from(queue: ConsumeQueue, physical_offset: int) -> int:
    """The first message of a queue at or after a log offset."""
    low, high = queue.start, queue.end
    while low < high:
        middle = (low + high) // 2
        if queue.entry(middle)[0] < physical_offset:
            low = middle + 1
        else:
            high = middle
    return low


def _op_records(store: Store, offset: int) -> Iterator[tuple[int, StoredMessage]]:
    """Op records from this offset on. Those that can't be read are skipped."""
    end = store.reader.offsets(names.HALF_OP_TOPIC, HALF_QUEUE)[1]
    while offset < end:
        result = store.reader.get(names.HALF_OP_TOPIC, HALF_QUEUE, offset, BATCH)
        for raw in result.records:
            try:
                record = decode_record(raw)
            except CorruptRecordError as error:
                log.error("skipped a damaged op record: %s", error)
                continue
            yield record.queue_offset, record
        if result.next_offset <= offset:
            log.error("skipped op record %d, which can't be read: its transactions will be checked again", offset)
        offset = max(result.next_offset, offset + 1)


def _find_commits(halves: HalfQueue, store: Store) -> Iterator[None]:
    """Find commits that no op record names, and mark their half messages as ended."""
    found = 0
    try:
        for number, record in enumerate(store.log.records(_search_from(store)), 1):
            if transaction_of(record.sys_flag) == _COMMIT:
                found += _ended_by(halves, record.message())
            if number % RECORDS_IN_SLICE == 0:
                yield
    except (OSError, StoreError) as error:
        log.error("can't search the end of the log for commits, so their producers will be asked again: %s", error)
        return
    if found:
        log.info("%d transactions were committed before the crash, and will not be checked again", found)


def _search_from(store: Store) -> int:
    """The log offset of the half message that the last op record names last, or of one near the end of the log."""
    halves = store.queues.get(names.HALF_TOPIC, HALF_QUEUE)
    if halves is None or halves.start == halves.end:
        return store.log.end
    first = max(_last_named(store), _first_from(halves, store.log.end - SEARCHED_BYTES_MAX), halves.start)
    return store.log.end if first >= halves.end else halves.entry(first)[0]


def _last_named(store: Store) -> int:
    """The half message that the last op record names last; -1 if there is none."""
    end = store.reader.offsets(names.HALF_OP_TOPIC, HALF_QUEUE)[1]
    named = [op_records.decode(record) for _, record in _op_records(store, end - 1)] if end > 0 else []
    return named[-1][-1] if named and named[-1] else -1


def _ended_by(halves: HalfQueue, commit: StoredMessage) -> bool:
    """Mark a commit's half message. A retry of a committed message also has the commit bits, so both are compared."""
    half = halves.half_at(commit.prepared_offset)
    if half is None or half.unique_key != commit.properties.get(Property.UNIQUE_KEY):
        return False
    if commit.topic not in (half.real_topic, names.SCHEDULE_TOPIC):
        return False
    return halves.committed_before_start(half)


def _is_end(fate: Fate | None) -> bool:
    return fate is not None and fate.is_end
