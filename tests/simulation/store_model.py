"""The expected contents of a store: a simple log in one long string of bytes, and the promises about it."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache

from kourou.protocol import properties as properties_
from kourou.protocol.hashes import index_hash, java_hash
from kourou.protocol.record import crc_property, encode_filler, encode_record
from kourou.store.commit_log import NewMessage

PREPARED, ROLLBACK = 4, 12
QueueName = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Record:
    """A record, and what queues and index should say of it."""

    offset: int
    size: int
    queue: QueueName
    queue_offset: int | None  # None: it has no place in a queue
    tags_code: int
    keys: frozenset[str]
    stored_ms: int

    @property
    def end(self) -> int:
        return self.offset + self.size


@dataclass(slots=True)
class Model:
    """The log as it should be, and how much of it is promised to be there after a crash."""

    file_size: int
    store_host: bytes
    sealed: bool = False  # each record ends in a CRC over all of it
    image: bytearray = field(default_factory=bytearray)  # the whole log, fillers included
    records: list[Record] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [0])  # where the log may end: behind records and fillers
    next_offsets: dict[QueueName, int] = field(default_factory=lambda: defaultdict(int))
    renumbered: dict[QueueName, tuple[int, int]] = field(
        default_factory=dict
    )  # at which log offset, to go on with which
    stored_ms: int = 0
    safe: int = 0  # what is before it survives everything
    gone: int = 0  # what is before it was removed, or may have been
    removed: dict[QueueName, int] = field(default_factory=dict)  # so are the queue's entries of records before there
    banned: dict[QueueName, int] = field(default_factory=dict)  # the queue must have no entries of records before there

    @property
    def end(self) -> int:
        return len(self.image)

    @property
    def room(self) -> int:
        """The rest of the current segment."""
        return self.file_size - self.end % self.file_size

    def copy(self) -> "Model":
        return deepcopy(self, {id(record): record for record in self.records})

    # ── Appending ─────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, messages: Sequence[NewMessage], now_ms: int, *, together: bool) -> list[Record]:
        """What appending these should do."""
        self.stored_ms = max(self.stored_ms, now_ms)
        if together:
            self._next_segment_unless(
                sum(len(self._bytes(message, 0, 0)) + 21 - self._grown(message) for message in messages)
            )
        return [self._append_one(message) for message in messages]

    def _append_one(self, message: NewMessage) -> Record:
        kind = message.sys_flag & 12
        queue = (message.topic, message.queue_id)
        queue_offset = None if kind in (PREPARED, ROLLBACK) else self.next_offsets[queue]
        self._next_segment_unless(len(self._bytes(message, 0, 0)))
        content = self._bytes(message, queue_offset or 0, self.end)
        found = properties_.decode(message.properties)
        record = Record(
            self.end,
            len(content),
            queue,
            queue_offset,
            java_hash(found.get("TAGS", "")),
            frozenset() if kind == ROLLBACK else frozenset(_keys(found)),
            self.stored_ms,
        )
        if queue_offset is not None:
            self.next_offsets[queue] += 1
        self.image += content
        self.records.append(record)
        self.ends.append(self.end)
        return record

    def _next_segment_unless(self, size: int) -> None:
        if size + 8 > self.room:
            self.image += encode_filler(self.room).ljust(self.room, b"\0")
            self.ends.append(self.end)

    def _bytes(self, message: NewMessage, queue_offset: int, offset: int) -> bytes:
        grown = self._grown(message)
        properties = message.properties + bytes(grown)
        if grown == 21:
            properties = message.properties + b"\2" + bytes(20)
        content = encode_record(
            topic=message.topic,
            body=message.body,
            queue_id=message.queue_id,
            queue_offset=queue_offset,
            physical_offset=offset,
            born_ms=message.born_ms,
            born_host=message.born_host,
            stored_ms=self.stored_ms,
            store_host=self.store_host,
            raw_properties=properties,
            flag=message.flag,
            sys_flag=message.sys_flag,
            reconsume_times=message.reconsume_times,
            prepared_offset=message.prepared_offset,
        )
        return content[:-20] + crc_property(content[:-20]) if grown else content

    def _grown(self, message: NewMessage) -> int:
        """How much longer properties become when a CRC over the whole record is put behind them."""
        if not self.sealed and b"\0" not in message.properties:
            return 0
        return 21 if message.properties and not message.properties.endswith(b"\2") else 20

    # ── Losing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def cut(self, end: int) -> None:
        """The log ends here."""
        assert end in self.ends, f"{end} is no end of a record"
        del self.image[end:]
        self.records = [record for record in self.records if record.end <= end]
        self.ends = self.ends[: bisect_right(self.ends, end)]
        self.stored_ms = self.records[-1].stored_ms if self.records else 0
        self.removed = {queue: min(at, end) for queue, at in self.removed.items()}
        self.banned = {queue: min(at, end) for queue, at in self.banned.items()}
        self.renumbered = {queue: at for queue, at in self.renumbered.items() if at[0] <= end}
        self.next_offsets.clear()
        self.next_offsets.update({queue: number for queue, (_, number) in self.renumbered.items()})
        for record in self.records:
            if record.queue_offset is not None and record.offset >= self.renumbered.get(record.queue, (0, 0))[0]:
                self.next_offsets[record.queue] = record.queue_offset + 1

    def renumber(self, queue: QueueName, number: int) -> None:
        """The next message of a queue gets this offset."""
        if self.next_offsets[queue] != number:
            self.next_offsets[queue] = number
            self.renumbered[queue] = (self.end, number)

    # ── Questions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def queues(self, end: int) -> dict[QueueName, dict[int, Record]]:
        """The records of each queue by their place in it, of a log that ends there.

        A queue that was removed and made again begins with 0 again.
        """
        found: dict[QueueName, dict[int, Record]] = defaultdict(dict)
        for record in self.records:
            if record.queue_offset is not None and record.end <= end:
                if record.queue_offset == 0:
                    found[record.queue] = {}
                found[record.queue][record.queue_offset] = record
        return found

    def must_stay(self, record: Record) -> bool:
        """Must the record and its entry still exist?"""
        return record.offset >= max(self.gone, self.removed.get(record.queue, 0))

    def remove_topic(self, topic: str) -> None:
        """Its removal has begun: entries may be gone."""
        for queue in {record.queue for record in self.records if record.queue[0] == topic}:
            self.removed[queue] = self.end

    def was_removed(self, topic: str) -> None:
        """Its removal was acknowledged: entries must be gone."""
        for queue in {record.queue for record in self.records if record.queue[0] == topic}:
            self.banned[queue] = self.end

    def offsets_by_key(self, start: int, end: int) -> dict[tuple[str, str], list[int]]:
        """Which records of this stretch an index finds by topic and key; also those of keys with the same hash."""
        by_hash: dict[int, list[int]] = defaultdict(list)
        keys: dict[tuple[str, str], int] = {}
        for record in self.records:
            if start <= record.offset < end:
                topic = record.queue[0]
                hashes = {(topic, key): _hash(topic, key) for key in record.keys}
                keys.update(hashes)
                for hash_ in set(hashes.values()):
                    by_hash[hash_].append(record.offset)
        return {key: by_hash[hash_] for key, hash_ in keys.items()}


@cache
def _hash(topic: str, key: str) -> int:
    """Each image is asked for the same keys."""
    return index_hash(f"{topic}#{key}")


def _keys(found: dict[str, str]) -> list[str]:
    unique = [found["UNIQ_KEY"]] if found.get("UNIQ_KEY") else []
    return unique + [key for key in found.get("KEYS", "").split(" ") if key]
