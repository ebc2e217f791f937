# cython: annotation_typing=False
"""Stored records, as they are in the commit log and in pull answers. layout.py draws their bytes.

`Scanner` moves over records and keeps the fields of the current one in its attributes, without an object per record,
for recovery, dispatch and replication. The other functions use it: `decode_record` and `decode_records` return values,
`check_record` returns the size or raises. A scanner never reads outside its range, whatever the bytes are.

Two magic numbers mark two kinds of records, which differ only in the size of the topic's length. A third one marks the
filler at the end of a segment, because a record never spans two segments. Unwritten bytes are zero.

The CRC of a record covers its body only; an empty body is not checked, as in Java. Optionally the properties end with
a CRC over the rest of the record (`enabledAppendPropCRC`); see `check_record_crc`.
"""

import struct
from enum import IntEnum
from typing import Final

import msgspec

from kourou.protocol import layout, properties as _properties
from kourou.protocol.codes import SysFlag
from kourou.protocol.errors import BodyError, LocalProtocolError
from kourou.protocol.hashes import crc32, java_hash
from kourou.protocol.hosts import IPV4_HOST_SIZE, IPV6_HOST_SIZE, decode_host
from kourou.protocol.layout import Buffer
from kourou.protocol.message import PhysicalOffset, QueueOffset

MAGIC_V1: Final = 0xDAA320A7 - 2**32
MAGIC_V2: Final = 0xDAA320AB - 2**32
FILLER_MAGIC: Final = 0xCBD43194 - 2**32

RECORD_SIZE_MIN: Final = 91
"""The size of a record with IPv4 hosts and with an empty body, topic and properties."""

FILLER_SIZE_MIN: Final = 8
"""Size and magic of the filler: every record leaves at least this much free at the end of its segment."""

V1_TOPIC_SIZE_MAX: Final = 127
V2_TOPIC_SIZE_MAX: Final = 32767

QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
"""The positions of a record's two offsets: a broker fills them in when it appends."""

RECORD_CRC_SIZE: Final = 20
"""The property with the CRC of the whole record: `__CRC32#`, 0x01, ten digits, 0x02."""


class CorruptRecordError(BodyError):
    """Bytes that should be a record and are not."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"record at {offset}: {reason}")
        self.offset = offset
        self.reason = reason


class Found(IntEnum):
    """The result of `Scanner.step`."""

    END = 0
    """The end of the range, or unwritten bytes."""
    RECORD = 1
    FILLER = 2
    """The rest of the segment is unused."""
    CUT = 3
    """A record or filler that continues after the range: more bytes are needed."""
    BAD = 4
    """Not a record; `reason` says why."""


# The same values under names that record.pxd declares as C constants, so that the compiled loop looks up no globals.
_END = int(Found.END)
_RECORD = int(Found.RECORD)
_FILLER = int(Found.FILLER)
_CUT = int(Found.CUT)
_BAD = int(Found.BAD)
_V1 = MAGIC_V1
_V2 = MAGIC_V2
_SIZE_MIN = RECORD_SIZE_MIN
_HEAD_SIZE = layout.HEAD_SIZE
_TAIL_SIZE = layout.TAIL_SIZE
_BORN_HOST_V6 = int(SysFlag.BORN_HOST_V6)
_STORE_HOST_V6 = int(SysFlag.STORE_HOST_V6)
_NOT_ASCII = layout.NOT_ASCII


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    """All fields of one record. Body and properties are slices of the source buffer."""

    raw_topic: bytes
    body: bytes | memoryview
    raw_properties: bytes | memoryview
    queue_id: int
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    stored_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: PhysicalOffset
    """The log offset of the half message that a commit or rollback belongs to."""
    body_crc: int
    magic: int
    size: int

    @property
    def topic(self) -> str:
        """The topic as text; invalid UTF-8 becomes U+FFFD, as in Java."""
        return self.raw_topic.decode("utf-8", "replace")

    @property
    def properties(self) -> dict[str, str]:
        """The properties, parsed at each call."""
        return _properties.decode(self.raw_properties)

    @property
    def born_address(self) -> str:
        """`ip:port` of the producer."""
        return decode_host(self.born_host)

    @property
    def store_address(self) -> str:
        """`ip:port` of the broker that stored it first."""
        return decode_host(self.store_host)

    def encode(self) -> bytes:
        """The same record again, byte for byte."""
        return encode_record(
            topic=self.raw_topic,
            body=self.body,
            raw_properties=self.raw_properties,
            queue_id=self.queue_id,
            queue_offset=self.queue_offset,
            physical_offset=self.physical_offset,
            flag=self.flag,
            sys_flag=self.sys_flag,
            born_ms=self.born_ms,
            born_host=self.born_host,
            stored_ms=self.stored_ms,
            store_host=self.store_host,
            reconsume_times=self.reconsume_times,
            prepared_offset=self.prepared_offset,
            body_crc=self.body_crc,
            magic=self.magic,
        )


class Scanner:
    """A cursor over the records in `buffer` from `start` to `end`.

        scanner = Scanner(segment, start, end)
        while scanner.step() == Found.RECORD:
            ... scanner.queue_id, scanner.physical_offset, scanner.topic ...

    With `crc`, records whose body does not match its CRC are invalid. With `base`, the log offset of the buffer's
    first byte, so are records that state another position.
    """

    __slots__ = (
        "_base",
        "_buffer",
        "_bytes",
        "_crc",
        "_end",
        "_view",
        "at",
        "body_at",
        "body_crc",
        "body_size",
        "born_ms",
        "flag",
        "keys_at",
        "keys_size",
        "last_at",
        "magic",
        "next_at",
        "physical_offset",
        "prepared_offset",
        "properties_at",
        "properties_size",
        "queue_id",
        "queue_offset",
        "reason",
        "reconsume_times",
        "size",
        "stored_ms",
        "sys_flag",
        "tags_at",
        "tags_hash",
        "tags_size",
        "topic_at",
        "topic_size",
        "unique_key_at",
        "unique_key_size",
    )

    def __init__(
        self, buffer: Buffer, start: int = 0, end: int | None = None, *, crc: bool = False, base: int | None = None
    ) -> None:
        self._buffer = buffer
        self._bytes = memoryview(buffer)
        self._view = self._bytes
        self._end = len(self._bytes) if end is None else end
        if not 0 <= start <= self._end <= len(self._bytes):
            raise ValueError(f"the range {start} to {end} is not inside a buffer of {len(self._bytes)} bytes")
        self._crc = crc
        self._base = -1 if base is None else base
        # Where in the buffer the current record starts, and where the next step continues.
        self.at = start
        self.next_at = start
        # Where the last record starts that `skip_some` has found; -1: none.
        self.last_at = -1
        # Why the last step found no record.
        self.reason = ""

    def move(self, start: int, end: int) -> None:
        """Continue with another range of the same buffer."""
        if not 0 <= start <= end <= len(self._bytes):
            raise ValueError(f"the range {start} to {end} is not inside a buffer of {len(self._bytes)} bytes")
        self.at = self.next_at = start
        self._end = end

    def step(self) -> int:
        """Move to the next record and return a `Found`. The fields are valid after RECORD only.

        After RECORD and FILLER the next step continues after it; after any other result it returns the same again.
        """
        at = self.next_at
        self.at = at
        room = self._end - at
        if room < _SIZE_MIN:
            return self._step_elsewhere(room)
        (
            size,
            magic,
            self.body_crc,
            self.queue_id,
            self.flag,
            self.queue_offset,
            self.physical_offset,
            sys_flag,
            self.born_ms,
        ) = layout.head(self._view, at)
        if (magic != _V1 and magic != _V2) or size > room:
            return self._step_elsewhere(room)
        stored_at = at + (_HEAD_SIZE + 20 if sys_flag & _BORN_HOST_V6 else _HEAD_SIZE + 8)
        tail_at = stored_at + (28 if sys_flag & _STORE_HOST_V6 else 16)
        topic_count_size = 1 if magic == _V1 else 2
        # The bytes that body, topic and properties share. Each takes its part, and none may exceed what is left.
        left = size - (tail_at - at) - _TAIL_SIZE - topic_count_size - 2
        if left < 0:
            return self._stop(_BAD, f"its size is {size}, too small for its kind and its hosts")
        self.reconsume_times, self.prepared_offset, body_size = layout.tail(self._view, tail_at)
        left -= body_size
        if body_size < 0 or left < 0:
            return self._stop(_BAD, f"a body of {body_size} bytes does not fit into a record of {size}")
        body_at = tail_at + _TAIL_SIZE
        topic_at = body_at + body_size + topic_count_size
        (topic_size,) = (
            layout.uint8(self._view, topic_at - 1) if magic == _V1 else layout.int16(self._view, topic_at - 2)
        )
        left -= topic_size
        if topic_size < 0 or left < 0 or (magic == _V1 and topic_size > 127):
            return self._stop(_BAD, f"a topic of {topic_size} bytes does not fit into a record of {size}")
        properties_at = topic_at + topic_size + 2
        (properties_size,) = layout.int16(self._view, properties_at - 2)
        if properties_size != left:
            return self._stop(_BAD, f"properties of {properties_size} bytes, but {left} bytes are left")
        if self._base >= 0 and self.physical_offset != self._base + at:
            return self._stop(_BAD, f"its offset field says {self.physical_offset}")
        if self._crc and body_size and layout.crc(self._view, body_at, body_size) != self.body_crc:
            return self._stop(_BAD, "its body does not match its CRC")
        self.size = size
        self.magic = magic
        self.sys_flag = sys_flag
        (self.stored_ms,) = layout.int64(self._view, stored_at)
        self.body_at = body_at
        self.body_size = body_size
        self.topic_at = topic_at
        self.topic_size = topic_size
        self.properties_at = properties_at
        self.properties_size = properties_size
        self.next_at = at + size
        return _RECORD

    def _step_elsewhere(self, room: int) -> int:
        """Report what is there instead of a complete record."""
        if room < 8:
            return self._stop(_CUT, f"{room} bytes are left") if room else self._stop(_END, "the range ends")
        size, magic = layout.start(self._view, self.at)
        if magic in (MAGIC_V1, MAGIC_V2):
            if size < RECORD_SIZE_MIN:
                return self._stop(_BAD, f"its size is {size}")
            return self._stop(_CUT, f"its size is {size}, but {room} bytes are left")
        if magic == FILLER_MAGIC:
            if size < FILLER_SIZE_MIN:
                return self._stop(_BAD, f"a filler of {size} bytes")
            if size > room:
                return self._stop(_CUT, f"a filler of {size} bytes, but {room} are left")
            self.next_at = self.at + size
            return self._stop(_FILLER, "the rest of the segment is unused")
        if size == 0 and magic == 0:
            return self._stop(_END, "never written")
        return self._stop(_BAD, f"its magic is {magic & 0xFFFFFFFF:#010x}")

    def _stop(self, found: int, reason: str) -> int:
        self.reason = reason
        return found

    def skip_records(self) -> int:
        """Step over records until something else is found; return it. `at` is the end of the last complete record."""
        found = self.step()
        while found == _RECORD:
            found = self.step()
        return found

    def skip_some(self, count: int) -> int:
        """Like `skip_records`, over at most `count` records. Returns RECORD if there may be more."""
        found = _RECORD
        while count > 0 and found == _RECORD:
            found = self.step()
            if found == _RECORD:
                self.last_at = self.at
            count -= 1
        return found

    def find_keys(self) -> None:
        """Find the properties that dispatch needs: `tags_hash`, and the positions of the keys.

        A size of 0 means that a value is missing, and so does a tags hash of 0.
        """
        (
            self.tags_at,
            self.tags_size,
            self.keys_at,
            self.keys_size,
            self.unique_key_at,
            self.unique_key_size,
        ) = layout.find_names(self._view, self.properties_at, self.properties_at + self.properties_size)
        tags_hash = layout.ascii_hash(self._view, self.tags_at, self.tags_size)
        if tags_hash == _NOT_ASCII:
            tags_hash = java_hash(self.tags.decode("utf-8", "replace"))
        self.tags_hash = tags_hash

    @property
    def topic(self) -> bytes:
        """The topic's bytes."""
        return layout.copy(self._view, self.topic_at, self.topic_size)

    @property
    def keys(self) -> bytes:
        """The value of KEYS after `find_keys`: keys separated by blanks."""
        return layout.copy(self._view, self.keys_at, self.keys_size)

    @property
    def tags(self) -> bytes:
        """The value of TAGS after `find_keys`."""
        return layout.copy(self._view, self.tags_at, self.tags_size)

    @property
    def unique_key(self) -> bytes:
        """The value of UNIQ_KEY after `find_keys`."""
        return layout.copy(self._view, self.unique_key_at, self.unique_key_size)

    def message(self) -> StoredMessage:
        """The current record as a value."""
        born_host_at = self.at + _HEAD_SIZE
        born_host_size = 20 if self.sys_flag & _BORN_HOST_V6 else 8
        store_host_at = born_host_at + born_host_size + 8
        store_host_size = 20 if self.sys_flag & _STORE_HOST_V6 else 8
        return StoredMessage(
            layout.copy(self._view, self.topic_at, self.topic_size),
            self._buffer[self.body_at : self.body_at + self.body_size],
            self._buffer[self.properties_at : self.next_at],
            self.queue_id,
            self.queue_offset,
            self.physical_offset,
            self.flag,
            self.sys_flag,
            self.born_ms,
            layout.copy(self._view, born_host_at, born_host_size),
            self.stored_ms,
            layout.copy(self._view, store_host_at, store_host_size),
            self.reconsume_times,
            self.prepared_offset,
            self.body_crc,
            self.magic,
            self.size,
        )


def decode_record(buffer: Buffer, at: int = 0, *, crc: bool = False) -> StoredMessage:
    """The record at `at`. Raises CorruptRecordError."""
    scanner = Scanner(buffer, at, crc=crc)
    _expect_record(scanner)
    return scanner.message()


def decode_records(buffer: Buffer, *, crc: bool = False, count: int | None = None) -> list[StoredMessage]:
    """The records of a pull answer's body: all, or the first `count`.

    Raises CorruptRecordError if the body does not consist of complete records.
    """
    scanner = Scanner(buffer, crc=crc)
    messages: list[StoredMessage] = []
    while scanner.next_at < len(buffer) and (count is None or len(messages) < count):
        _expect_record(scanner)
        messages.append(scanner.message())
    return messages


def check_record(buffer: Buffer, at: int = 0, *, base: int | None = None) -> int:
    """The size of the record at `at`. Raises CorruptRecordError if its sizes, magic or CRC are wrong."""
    scanner = Scanner(buffer, at, crc=True, base=base)
    _expect_record(scanner)
    return scanner.size


def _expect_record(scanner: Scanner) -> None:
    if scanner.step() != _RECORD:
        raise CorruptRecordError(scanner.at, scanner.reason)


def check_record_crc(buffer: Buffer, at: int = 0) -> None:
    """Check the CRC over the whole record, which ends its properties. Raises CorruptRecordError, also if it is missing.

    Java: CommitLog.checkMessageAndReturnSize with `forceVerifyPropCRC`.
    """
    scanner = Scanner(buffer, at)
    _expect_record(scanner)
    rest_end = scanner.next_at - RECORD_CRC_SIZE
    found = bytes(buffer[rest_end : scanner.next_at])
    if scanner.properties_size < RECORD_CRC_SIZE or not found.startswith(_CRC_NAME):
        raise CorruptRecordError(at, f"its properties do not end with {_properties.Property.RECORD_CRC}")
    if found != crc_property(memoryview(buffer)[at:rest_end]):
        raise CorruptRecordError(at, "it does not match the CRC over the whole record")


_CRC_NAME: Final = b"__CRC32#\x01"


def crc_property(rest: bytes | memoryview) -> bytes:
    """The property that ends a record with the CRC of everything before it: ten digits, the lowest first."""
    return _CRC_NAME + f"{crc32(rest):010}"[::-1].encode() + b"\x02"


def encode_record(
    *,
    topic: str | bytes,
    body: bytes | memoryview,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    born_ms: int,
    born_host: bytes,
    stored_ms: int,
    store_host: bytes,
    raw_properties: bytes | memoryview = b"",
    flag: int = 0,
    sys_flag: int = 0,
    reconsume_times: int = 0,
    prepared_offset: int = 0,
    body_crc: int | None = None,
    magic: int | None = None,
    record_crc: bool = False,
) -> bytes:
    """The bytes of a record. Raises LocalProtocolError for values that do not fit its fields.

    The hosts are results of hosts.encode_host and decide the IPv6 bits of the flags. Without `magic`, a topic of up to
    127 bytes gives the first kind, a longer one the second. With `record_crc`, a CRC over the whole record is added.
    """
    topic = _topic_bytes(topic)
    if record_crc:
        raw_properties = _with_crc_room(raw_properties)
    magic = magic or (MAGIC_V1 if len(topic) <= V1_TOPIC_SIZE_MAX else MAGIC_V2)
    if len(topic) > _TOPIC_SIZE_MAX.get(magic, -1):
        raise LocalProtocolError(f"a topic of {len(topic)} bytes is too long for magic {magic & 0xFFFFFFFF:#010x}")
    if len(raw_properties) > _properties.PROPERTIES_SIZE_MAX:
        raise LocalProtocolError(f"properties of {len(raw_properties)} bytes are too long for a record")
    try:
        fixed, host_bits = _FIXED_PARTS[len(born_host), len(store_host)]
    except KeyError:
        raise LocalProtocolError(f"hosts of {len(born_host)} and {len(store_host)} bytes, not 8 or 20") from None
    topic_count = _TOPIC_COUNT[magic]
    try:
        record = b"".join(
            (
                fixed.pack(
                    fixed.size + len(body) + topic_count.size + len(topic) + 2 + len(raw_properties),
                    magic,
                    crc32(body) if body_crc is None else body_crc,
                    queue_id,
                    flag,
                    queue_offset,
                    physical_offset,
                    (sys_flag & ~_HOST_BITS) | host_bits,
                    born_ms,
                    born_host,
                    stored_ms,
                    store_host,
                    reconsume_times,
                    prepared_offset,
                    len(body),
                ),
                body,
                topic_count.pack(len(topic)),
                topic,
                _PROPERTIES_COUNT.pack(len(raw_properties)),
                raw_properties,
            )
        )
    except struct.error as error:
        raise LocalProtocolError(f"a value does not fit its field in a record: {error}") from None
    if record_crc:
        rest = memoryview(record)[:-RECORD_CRC_SIZE]
        record = bytes(rest) + crc_property(rest)
    return record


_HOST_BITS: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
# By the sizes of born host and store host: the layout of everything before the body, and the matching flags.
_FIXED_PARTS: Final = {
    (born, store): (struct.Struct(f">iiiiiqqiq{born}sq{store}siqi"), int(born_bit | store_bit))
    for born, born_bit in ((IPV4_HOST_SIZE, 0), (IPV6_HOST_SIZE, SysFlag.BORN_HOST_V6))
    for store, store_bit in ((IPV4_HOST_SIZE, 0), (IPV6_HOST_SIZE, SysFlag.STORE_HOST_V6))
}
_TOPIC_COUNT: Final = {MAGIC_V1: struct.Struct(">b"), MAGIC_V2: struct.Struct(">h")}
_TOPIC_SIZE_MAX: Final = {MAGIC_V1: V1_TOPIC_SIZE_MAX, MAGIC_V2: V2_TOPIC_SIZE_MAX}
_PROPERTIES_COUNT: Final = struct.Struct(">h")


def _topic_bytes(topic: str | bytes) -> bytes:
    if isinstance(topic, bytes):
        return topic
    try:
        return topic.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"topic {topic[:40]!r} is not valid Unicode: {error.reason}") from None


def _with_crc_room(raw_properties: bytes | memoryview) -> bytes:
    raw = bytes(raw_properties)
    if raw and not raw.endswith(b"\x02"):
        raw += b"\x02"
    return raw + bytes(RECORD_CRC_SIZE)


def encode_filler(size: int) -> bytes:
    """The filler that marks the last `size` bytes of a segment as unused; the bytes after its head stay unchanged."""
    if size < FILLER_SIZE_MIN:
        raise LocalProtocolError(f"a filler needs at least {FILLER_SIZE_MIN} bytes, not {size}")
    return struct.pack(">ii", size, FILLER_MAGIC)
