"""What a start learns about transactions from the store.

    op records, from a little before the kept position ─▶ which half messages have ended
    after a crash: commits at the end of the log ─▶ those whose op records were not written yet

Op records before the kept position are done. Some of them are read again all the same, because clients may repeat an
end. From which half message on the ends are known then: an op record is written after the half messages that it names,
so a half message that lies after the first op record that was read is named by a later one, or by none.

A commit names its half message (the prepared transaction offset). So one that was stored before a crash is found, and
its producer is not asked again. The search covers what follows the last op record, within limits; a clean stop leaves
nothing to search for.
"""

import logging
from collections.abc import Iterator

from kourou.broker import names
from kourou.broker.offsets import Offsets
from kourou.broker.transactions import op_records
from kourou.broker.transactions.half_queue import GROUP, HalfQueue
from kourou.broker.transactions.half_records import HALF_QUEUE
from kourou.broker.transactions.ledger import HISTORY_MAX, Fate, Ledger
from kourou.broker.transactions.op_records import OpQueue
from kourou.protocol.codes import SysFlag
from kourou.protocol.message import transaction_of
from kourou.protocol.properties import Property
from kourou.protocol.record import CorruptRecordError, StoredMessage, decode_record
from kourou.store.consume_queue import ConsumeQueue
from kourou.store.errors import StoreError
from kourou.store.store import Store

log = logging.getLogger(__name__)

DONE_RECORDS_MAX = 1_024
"""Op records before the kept position that a start reads again."""

SEARCHED_BYTES_MAX = 256 * 1024 * 1024
"""Bytes at the end of the log that a start after a crash searches for commits."""

BATCH = 32

_COMMIT = int(SysFlag.TRANSACTION_COMMIT)


def load(halves: HalfQueue, store: Store, offsets: Offsets) -> Iterator[None]:
    """Let `halves` know what the store has. Each step reads some op records.

    Before the first step, half messages from the kept position on are taken to be open.
    """
    first, position = _kept(store, offsets, names.HALF_TOPIC)
    first_op, op_position = _kept(store, offsets, names.HALF_OP_TOPIC)
    begin = max(first_op, op_position - DONE_RECORDS_MAX)
    floor = max(first, position - HISTORY_MAX, _first_after(store, begin))
    halves.ledger = Ledger(min(floor, position), position)
    halves.op_queue = OpQueue(op_position)
    halves.end_at_start = halves.end
    yield
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
    if not store.report.clean:
        _find_commits(halves, store)
    halves.settle()


def _kept(store: Store, offsets: Offsets, topic: str) -> tuple[int, int]:
    """The first offset of a queue, and how far it is done."""
    start, end = store.reader.offsets(topic, HALF_QUEUE)
    kept = offsets.get(GROUP, topic, HALF_QUEUE)
    position = min(max(kept, start), end)
    if kept not in (-1, position):
        log.warning("%s goes on at offset %d, not %d: it goes from %d to %d", topic, position, kept, start, end)
    return start, position


def _first_after(store: Store, op_offset: int) -> int:
    """The first half message that lies after an op record; 0: there was no op record before it."""
    ops, halves = (store.queues.get(topic, HALF_QUEUE) for topic in (names.HALF_OP_TOPIC, names.HALF_TOPIC))
    if ops is None or halves is None or op_offset == 0 or not ops.start <= op_offset < ops.end:
        return 0
    try:
        return _first_from(halves, ops.entry(op_offset)[0])
    except (OSError, StoreError) as error:
        log.error("queues of transactions can't be read: %s", error)
        return halves.end


def _first_from(queue: ConsumeQueue, physical_offset: int) -> int:
    """The first message of a queue that lies at or after an offset of the log."""
    low, high = queue.start, queue.end
    while low < high:
        middle = (low + high) // 2
        if queue.entry(middle)[0] < physical_offset:
            low = middle + 1
        else:
            high = middle
    return low


def _op_records(store: Store, offset: int) -> Iterator[tuple[int, StoredMessage]]:
    """Op records from here on. Those that can't be read are passed over."""
    end = store.reader.offsets(names.HALF_OP_TOPIC, HALF_QUEUE)[1]
    while offset < end:
        result = store.reader.get(names.HALF_OP_TOPIC, HALF_QUEUE, offset, BATCH)
        for raw in result.records:
            try:
                record = decode_record(raw)
            except CorruptRecordError as error:
                log.error("an op record is damaged, and passed over: %s", error)
                continue
            yield record.queue_offset, record
        if result.next_offset <= offset:
            log.error("op record %d can't be read, and is passed over: its transactions are asked for again", offset)
        offset = max(result.next_offset, offset + 1)


def _find_commits(halves: HalfQueue, store: Store) -> None:
    """Commits that no op record names: their half messages have ended."""
    try:
        begin = _search_from(store)
        found = sum(_ended_by(halves, commit) for commit in _commits(store, begin))
    except (OSError, StoreError) as error:
        log.error("commits at the end of the log can't be searched for, their producers are asked again: %s", error)
        return
    if found:
        log.info("%d transactions were committed before the crash, and are not asked for again", found)


def _search_from(store: Store) -> int:
    """Where the last op record lies, or some half message near the end of the log."""
    ops, halves = (store.queues.get(topic, HALF_QUEUE) for topic in (names.HALF_OP_TOPIC, names.HALF_TOPIC))
    limit = store.log.end - SEARCHED_BYTES_MAX
    last_op = -1 if ops is None or ops.start == ops.end else ops.entry(ops.end - 1)[0]
    if last_op >= limit and last_op >= 0:
        return last_op
    first = None if halves is None else _first_from(halves, limit)
    return store.log.end if halves is None or first == halves.end else halves.entry(first or 0)[0]


def _commits(store: Store, begin: int) -> Iterator[StoredMessage]:
    for record in store.log.records(begin):
        if transaction_of(record.sys_flag) == _COMMIT:
            yield record.message()


def _ended_by(halves: HalfQueue, commit: StoredMessage) -> bool:
    """A retry of a committed message has the bits of a commit, too: so the half message must be the same message."""
    half = halves.half_at(commit.prepared_offset)
    if half is None or half.unique_key != commit.properties.get(Property.UNIQUE_KEY):
        return False
    if commit.topic not in (half.real_topic, names.SCHEDULE_TOPIC):
        return False
    standing = halves.standing(half)
    if standing.end is not None:
        return False
    halves.ended(standing, Fate.COMMITTED, 0)
    return True


def _is_end(fate: Fate | None) -> bool:
    return fate is not None and fate.is_end
