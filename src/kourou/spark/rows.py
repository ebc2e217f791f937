"""Records -> Arrow batches.

    rows = make_rows(columns, selection=…)
    found = rows.fill(scanner, stop_at)      until there is no record, or `stop_at` is reached, or the batch is full
    batch = rows.finish()

`Rows` in this module is plain Python and defines the behaviour. `_rows.pyx` is its compiled form: it writes usual
records directly into Arrow's buffers and passes all others (compressed, with a batch inside, text that is not UTF-8, a
property twice) to `unpack` in this module. A differential test compares the two. `make_rows` uses the compiled form if
it exists.

A record with correct sizes can be damaged: its body does not match its CRC, or can't be decompressed. This is checked
only with `verify`; without it such a body is returned as it is stored, with the flag COMPRESSED still set.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from kourou.protocol import properties as _properties
from kourou.protocol.batch import decode_batch
from kourou.protocol.codes import SysFlag
from kourou.protocol.compression import DECOMPRESSED_LIMIT_BYTES, decompress, without_compression
from kourou.protocol.errors import BodyError
from kourou.protocol.hashes import crc32
from kourou.protocol.ids import encode_offset_id
from kourou.protocol.message import QueueOffset
from kourou.protocol.properties import Property
from kourou.protocol.record import Found, Scanner, StoredMessage
from kourou.spark.columns import CORRUPT, arrow_schema
from kourou.spark.errors import DataLossError
from kourou.spark.selection import EVERYTHING, Selection

if TYPE_CHECKING:
    import pyarrow as pa

FULL: Final = 5
STOPPED: Final = 6
"""Results of `fill` in addition to those of a scanner (record.Found)."""

ROWS_MAX: Final = 10_000
SIZE_MAX: Final = 2 * 1024 * 1024
"""A batch of this size stays in the processor's cache on its way through worker, socket and JVM."""

FAIL: Final = "fail"
REPORT: Final = "report"
SKIP: Final = "skip"

_RECORD: Final = int(Found.RECORD)
_COMPRESSED: Final = int(SysFlag.COMPRESSED)
_BATCH_INSIDE: Final = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
_US_MAX: Final = (2**63 - 1) // 1000

BAD_CRC: Final = "its body does not match its CRC"


class RowBuilder(Protocol):
    """The interface of both forms."""

    rows: int
    size: int
    """Bytes of the records in the batch so far, counting decompressed bodies."""
    skipped: int
    """Damaged records that were skipped, because of `SKIP`."""

    def aim(self, broker: str | None, offset_from: int, offset_to: int) -> None:
        """The following records are from this broker, and only those with offsets in this range are used."""

    def fill(self, scanner: Scanner, stop_at: int) -> int:
        """Add records until one begins at or after `stop_at`, no record follows, or the batch is full.

        Raises DataLossError for a damaged record, if that is configured.
        """

    def damage(self, offset: int, size: int, reason: str) -> None:
        """Note bytes that are not a record. Raises DataLossError, if that is configured."""

    def finish(self) -> "pa.RecordBatch":
        """Returns the batch, and begins a new one."""


def unpack(
    record: StoredMessage, decompressing: bool, max_body: int = DECOMPRESSED_LIMIT_BYTES
) -> tuple[list[StoredMessage], str | None]:
    """The messages of a record, decompressed and taken out of their batch; and why the record is invalid, if it is.

    A body that would become larger than `max_body` is invalid.
    """
    if not decompressing:
        return [record], None
    try:
        body = decompress(record.body, record.sys_flag, max_body)
        sys_flag = without_compression(record.sys_flag)
        if record.sys_flag & _BATCH_INSIDE != _BATCH_INSIDE:
            return [msgspec.structs.replace(record, body=body, sys_flag=sys_flag)], None
        return [
            msgspec.structs.replace(
                record,
                body=bytes(entry.body),
                raw_properties=bytes(entry.raw_properties),
                flag=entry.flag,
                sys_flag=sys_flag,
                queue_offset=QueueOffset(record.queue_offset + number),
            )
            for number, entry in enumerate(decode_batch(body, max(max_body, len(record.body))))
        ], None
    except BodyError as error:
        return [record], str(error)


def added_size(record: StoredMessage, messages: Sequence[StoredMessage]) -> int:
    """By how many bytes the messages of a record are larger than it. Their size decides when a batch is full."""
    return max(sum(len(message.body) for message in messages) - len(record.body), 0)


def microseconds(ms: int) -> int:
    """A timestamp of Spark. Times that it can't represent become the nearest one."""
    return max(-_US_MAX, min(ms, _US_MAX)) * 1000


_VALUES: Final[dict[str, Callable[[StoredMessage, dict[str, str]], object]]] = {
    "topic": lambda m, _: m.topic,
    "queue_id": lambda m, _: m.queue_id,
    "queue_offset": lambda m, _: m.queue_offset,
    "msg_id": lambda m, _: encode_offset_id(m.store_host, m.physical_offset),
    "unique_key": lambda _, p: p.get(Property.UNIQUE_KEY),
    "tags": lambda _, p: p.get(Property.TAGS),
    "keys": lambda _, p: p.get(Property.KEYS),
    "properties": lambda _, p: list(p.items()),
    "body": lambda m, _: bytes(m.body),
    "born_timestamp": lambda m, _: microseconds(m.born_ms),
    "born_host": lambda m, _: m.born_address,
    "store_timestamp": lambda m, _: microseconds(m.stored_ms),
    "store_host": lambda m, _: m.store_address,
    "reconsume_times": lambda m, _: m.reconsume_times,
    "flag": lambda m, _: m.flag,
    "sys_flag": lambda m, _: m.sys_flag,
    "body_crc": lambda m, _: m.body_crc,
    "store_size": lambda m, _: m.size,
    "commit_log_offset": lambda m, _: m.physical_offset,
    "prepared_tx_offset": lambda m, _: m.prepared_offset,
}


def values_of(message: StoredMessage, columns: Sequence[str], broker: str | None, corrupt: str | None) -> list[object]:
    """One row."""
    properties = _properties.decode(message.raw_properties)
    given = {"broker": broker, CORRUPT: corrupt}
    return [given[name] if name in given else _VALUES[name](message, properties) for name in columns]


def damage_values(columns: Sequence[str], broker: str | None, offset: int, size: int, reason: str) -> list[object]:
    """The row for bytes that are not a record: their position, number and the reason."""
    given = {"broker": broker, CORRUPT: reason, "commit_log_offset": offset, "store_size": min(size, 2**31 - 1)}
    return [given.get(name) for name in columns]


class Rows:
    """The plain form: a list of values for each column."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        selection: Selection = EVERYTHING,
        broker: str | None = None,
        decompressing: bool = True,
        max_body: int = DECOMPRESSED_LIMIT_BYTES,
        verify: bool = False,
        on_damage: str = FAIL,
        rows_max: int = ROWS_MAX,
        size_max: int = SIZE_MAX,
    ) -> None:
        self._columns = tuple(columns)
        self._schema = arrow_schema(columns)
        self._selection = selection
        self._offset_from, self._offset_to = selection.offset_from, selection.offset_to
        self._topic_test = selection.topic_test()
        self._tags = selection.raw_tags
        self._topics: dict[bytes, bool] = {}  # the topics examined so far
        self._broker = broker
        self._decompressing = decompressing
        self._max_body = max_body
        self._verify = verify
        self._on_damage = on_damage
        self._rows_max = rows_max
        self._size_max = size_max
        self._values: list[list[object]] = []
        self.rows = 0
        self.size = 0
        self.skipped = 0

    def aim(self, broker: str | None, offset_from: int, offset_to: int) -> None:
        self._broker, self._offset_from, self._offset_to = broker, offset_from, offset_to

    def fill(self, scanner: Scanner, stop_at: int) -> int:
        while True:
            if self.rows >= self._rows_max or self.size >= self._size_max:
                return FULL
            if scanner.next_at >= stop_at:
                return STOPPED
            found = scanner.step()
            if found != _RECORD:
                return found
            if self._wants(scanner):
                self._add(scanner)

    def _wants(self, scanner: Scanner) -> bool:
        wanted = self._selection
        if not wanted.stored_from_ms <= scanner.stored_ms < wanted.stored_to_ms:
            return False
        if scanner.sys_flag & _BATCH_INSIDE != _BATCH_INSIDE and not (
            self._offset_from <= scanner.queue_offset < self._offset_to
        ):
            return False
        if self._tags is not None:
            scanner.find_keys()
            if scanner.tags not in self._tags:
                return False
        return self._topic_test is None or topic_verdict(self._topics, self._topic_test, scanner.topic)

    def _add(self, scanner: Scanner) -> None:
        self.size += scanner.size
        message = scanner.message()
        messages, reason = unpack(message, self._decompressing, self._max_body)
        if not self._verify:
            reason = None
        elif message.body and crc32(message.body) != message.body_crc:
            messages, reason = [message], BAD_CRC
        if reason is not None and not judge(self._on_damage, message.physical_offset, reason):
            self.skipped += 1
            return
        for one in messages:
            if self._offset_from <= one.queue_offset < self._offset_to:
                self._values.append(values_of(one, self._columns, self._broker, reason))
                self.rows += 1
        self.size += added_size(message, messages)

    def damage(self, offset: int, size: int, reason: str) -> None:
        if not judge(self._on_damage, offset, reason):
            self.skipped += 1
            return
        self._values.append(damage_values(self._columns, self._broker, offset, size, reason))
        self.rows += 1

    def finish(self) -> "pa.RecordBatch":
        import pyarrow as pa

        columns = list(zip(*self._values, strict=True)) or [()] * len(self._columns)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self._schema, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._values.clear()
        self.rows = self.size = 0
        return batch


def judge(on_damage: str, offset: int, reason: str) -> bool:
    """Is damage returned as a row? Raises DataLossError, if that is configured."""
    if on_damage == FAIL:
        raise DataLossError(
            f"damaged record at commit-log offset {offset}: {reason}"
            " (onCorrupt=report returns it as a row, onCorrupt=skip omits it)"
        )
    return on_damage == REPORT


def topic_verdict(known: dict[bytes, bool], test: Callable[[bytes], bool], topic: bytes) -> bool:
    """Is a topic selected? Computed once for each topic."""
    verdict = known.get(topic)
    if verdict is None:
        verdict = known[topic] = test(topic)
    return verdict


def make_rows(
    columns: Sequence[str],
    *,
    selection: Selection = EVERYTHING,
    broker: str | None = None,
    decompressing: bool = True,
    max_body: int = DECOMPRESSED_LIMIT_BYTES,
    verify: bool = False,
    on_damage: str = FAIL,
    rows_max: int = ROWS_MAX,
    size_max: int = SIZE_MAX,
) -> RowBuilder:
    """The compiled form if it exists, otherwise the plain one."""
    kind: type[RowBuilder] = Rows
    try:
        from kourou.spark import _rows

        kind = _rows.CompiledRows
    except ImportError:
        pass
    return kind(  # type: ignore[call-arg]
        columns,
        selection=selection,
        broker=broker,
        decompressing=decompressing,
        max_body=max_body,
        verify=verify,
        on_damage=on_damage,
        rows_max=rows_max,
        size_max=size_max,
    )
