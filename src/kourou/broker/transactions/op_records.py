"""Op records: the half messages that were committed or rolled back.

    END_TRANSACTION ─▶ pending: 17 18 21 … ─▶ op record "17,18,21," in RMQ_SYS_TRANS_OP_HALF_TOPIC

An op record has decimal offsets of the half queue, each followed by a comma. Apache's 4.9 wrote one offset per record,
without a comma. Offsets are gathered: a record is written when their text exceeds `transactionOpMsgMaxSize`, or when
`transactionOpBatchInterval` has passed since the last one. The first one after an idle time is written at once.

A restart reads op records from the first relevant one, which names a half message at or after the position.

Java: TransactionalMessageServiceImpl.deletePrepareMessage, batchSendOpMessage, fillOpRemoveMap.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from kourou.protocol.record import StoredMessage

TAG: Final = "d"
PROPERTIES: Final = "TAGS\x01d\x02WAIT\x01true\x02"

PENDING_MAX: Final = 20_000
"""The most ended transactions that may wait for their op record while the disk refuses writes."""

OP_RECORDS_MAX: Final = 100_000
"""The most op records that are noted one by one; if there are more, neighbours are merged."""

_OFFSET_DIGITS: Final = 19


def encode(offsets: Iterable[int]) -> bytes:
    return "".join([f"{offset}," for offset in offsets]).encode()


def decode(record: StoredMessage) -> list[int]:
    """The offsets in an op record; words that are not numbers are ignored. Empty if it is not an op record."""
    if record.properties.get("TAGS") != TAG:
        return []
    words = bytes(record.body).decode("ascii", "replace").split(",")
    return [int(word) for word in words if word.isdigit() and word.isascii() and len(word) <= _OFFSET_DIGITS]


class PendingOps:
    """Ended transactions without an op record, or whose op record is not durable yet."""

    def __init__(self, now_ms: int) -> None:
        self._offsets: deque[int] = deque()
        self._size = 0  # of their text
        self._written_ms = now_ms  # when the last record was written
        self._written: deque[tuple[int, list[int]]] = deque()  # non-durable records: log end, offsets

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, offset: int) -> None:
        self._offsets.append(offset)
        self._size += len(str(offset)) + 1

    def due_ms(self, size_max: int, interval_ms: int) -> int | None:
        """When the next record is due; None if nothing waits."""
        if not self._offsets:
            return None
        return 0 if self._size > size_max else self._written_ms + interval_ms

    def next_record(self, size_max: int) -> list[int]:
        """The offsets of one record: as many as fit, and the one that exceeds the size."""
        chosen: list[int] = []
        size = 0
        for offset in self._offsets:
            if size >= size_max:
                break
            chosen.append(offset)
            size += len(str(offset)) + 1
        return chosen

    def written(self, offsets: list[int], log_end: int, now_ms: int) -> None:
        """`next_record` was appended to the log."""
        for offset in offsets:
            assert self._offsets.popleft() == offset
            self._size -= len(str(offset)) + 1
        self._written_ms = now_ms
        self._written.append((log_end, offsets))

    def settle(self, durable: int) -> None:
        while self._written and self._written[0][0] <= durable:
            self._written.popleft()

    def cut(self, end: int, void: Iterable[int]) -> None:
        """The log was cut at `end`. Ended transactions whose op records were lost wait again, except the void ones."""
        lost: list[int] = []
        while self._written and self._written[-1][0] > end:
            lost = self._written.pop()[1] + lost
        gone = set(void)
        waiting = [offset for offset in [*lost, *self._offsets] if offset not in gone]
        self._offsets.clear()
        self._size = 0
        for offset in waiting:
            self.add(offset)


class OpQueue:
    """The op record with which a restart begins: the first one that names a half message at or after the position.

    A record is passed together with all following ones that do not name a later half message. So only records are noted
    that name a later half message than all before.
    """

    def __init__(self, position: int) -> None:
        self.position = position
        self._noted: deque[tuple[int, int]] = deque()  # offset of an op record, the last half message named so far
        self._end = position

    def add(self, op_offset: int, last_half: int) -> None:
        """Add an op record, with the highest half offset that it names; -1 if it names none."""
        self._end = op_offset + 1
        if last_half < 0 or (self._noted and last_half <= self._noted[-1][1]):
            return
        self._noted.append((op_offset, last_half))
        if len(self._noted) > OP_RECORDS_MAX:
            self._merge()

    def _merge(self) -> None:
        """Merge neighbours: the first one is then passed together with the second one."""
        noted = list(self._noted)
        merged = [(first[0], second[1]) for first, second in zip(noted[::2], noted[1::2], strict=False)]
        self._noted = deque(merged + noted[2 * len(merged) :])

    def pass_before(self, half_position: int) -> bool:
        """Half messages before this one are durably decided. Returns whether the position has moved."""
        before = self.position
        while self._noted and self._noted[0][1] < half_position:
            self._noted.popleft()
        self.position = max(self.position, self._noted[0][0] if self._noted else self._end)
        return self.position != before

    def cut(self, queue_end: int) -> None:
        """The op queue was cut at this offset."""
        while self._noted and self._noted[-1][0] >= queue_end:
            self._noted.pop()
        self._end = min(self._end, queue_end)
        self.position = min(self.position, queue_end)
