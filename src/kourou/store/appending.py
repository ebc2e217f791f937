# cython: annotation_typing=False
"""Appends messages: assigns their queue offsets and log offsets.

The hot loop of sending. Queues and encoded topics are looked up once and cached.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kourou.protocol.codes import TRANSACTION_MASK, SysFlag
from kourou.store import writer
from kourou.store.commit_log import CommitLog, NewMessage, with_room_for_crc
from kourou.store.consume_queue import ConsumeQueue

TOPICS_KEPT_MAX: Final = 100_000

_TRANSACTION = int(TRANSACTION_MASK)
_PREPARED = int(SysFlag.TRANSACTION_PREPARED)
_ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)


def is_queued(sys_flag: int) -> bool:
    """True if a message with these flags gets a queue offset. Half messages and rollbacks get none."""
    return sys_flag & _TRANSACTION not in (_PREPARED, _ROLLBACK)


class Appended:
    """Where a message was stored."""

    __slots__ = ("physical_offset", "queue_offset", "size", "stored_ms")

    def __init__(self, physical_offset: int, queue_offset: int, stored_ms: int, size: int) -> None:
        self.physical_offset = physical_offset
        self.queue_offset = queue_offset
        self.stored_ms = stored_ms
        self.size = size


class _Topic:
    """The cached state of a topic."""

    __slots__ = ("name", "queues")

    def __init__(self, name: bytes) -> None:
        self.name = name  # as in records
        self.queues: dict[int, ConsumeQueue] = {}


class Appender:
    """Appends to one log."""

    def __init__(self, log: CommitLog, queue_of: Callable[[str, int], ConsumeQueue], *, record_crc: bool) -> None:
        self._log = log
        self._queue_of = queue_of
        self._record_crc = record_crc  # in all records, not only where it is required
        self._topics: dict[str, _Topic] = {}

    def forget(self) -> None:
        """Queues were closed or removed: look them up again."""
        self._topics.clear()

    def append(self, messages: Sequence[NewMessage], stored_ms: int) -> list[Appended]:
        """Append messages in order. Raises IllegalMessageError, DiskFullError, DiskFailedError; those before are in."""
        done: list[Appended] = []
        log = self._log
        for message in messages:
            topic = self._topics.get(message.topic)
            if topic is None:
                topic = self._keep(message.topic)
            log.check(message, topic.name)
            queue = topic.queues.get(message.queue_id)
            if queue is None:
                queue = self._queue_of(message.topic, message.queue_id)
                topic.queues[message.queue_id] = queue
            properties = message.properties
            if self._record_crc or writer.has_zero(properties):
                properties = with_room_for_crc(properties)
            kind = message.sys_flag & _TRANSACTION
            is_queued = kind != _PREPARED and kind != _ROLLBACK
            queue_offset = queue.next_offset if is_queued else 0
            # Zeros indicate bytes that a crash lost, unless a CRC confirms them: crash_damage.py.
            sealed = properties is not message.properties
            offset = log.append(message, topic.name, properties, queue_offset, stored_ms, sealed)
            if is_queued:
                queue.next_offset = queue_offset + 1
            place = Appended.__new__(Appended)  # faster than a call, compiled
            place.physical_offset = offset
            place.queue_offset = queue_offset
            place.stored_ms = stored_ms
            place.size = log.end - offset
            done.append(place)
        return done

    def _keep(self, name: str) -> _Topic:
        if len(self._topics) >= TOPICS_KEPT_MAX:
            self._topics.clear()
        topic = self._topics[name] = _Topic(name.encode())
        return topic
