"""Rows -> messages, counted: the last step of pipelines, in place of `write.format("rocketmq")`.

It uses the drafts and the sender of the sink, and in addition

- messages are marked with their origin;
- the order of a queue is always kept: its next messages are sent when the previous ones are acknowledged;
- a rate is kept;
- the sent messages are reported: their number and, on request, their places.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kourou.protocol import properties as _properties
from kourou.protocol.errors import LocalProtocolError
from kourou.protocol.message import MessageQueue
from kourou.protocol.properties import Property
from kourou.spark.cluster import Cluster
from kourou.spark.errors import OptionError, SparkError
from kourou.spark.messages import Draft, Drafts, check_columns
from kourou.spark.options import Options
from kourou.spark.pipelines.intervals import runs
from kourou.spark.pipelines.ledger import NestedDone, from_nested_done, to_nested_done
from kourou.spark.pipelines.report import RunReport
from kourou.spark.pipelines.running import Run
from kourou.spark.pipelines.tasks import need_classic, parallelism
from kourou.spark.pulling import Patience
from kourou.spark.sending import BATCH_ROWS, BATCH_SIZE, Sender, first_turn
from kourou.spark.sink import SINK_OPTIONS, SinkSettings, sink_settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

FORMAT: Final = "kourou-shipment"

WAVE_ROWS: Final = 4096
"""The number of rows that are sent at a time if their order does not matter."""

ONE_TASK_RATE: Final = 10_000.0

RETRY_COLUMN: Final = "retry_topic"
"""A column that this pipeline adds: the topic that a message for %RETRY% belongs to."""

PLACES: Final = ("topic", "broker", "queue_id", "queue_offset")


class Shipment(msgspec.Struct, kw_only=True):
    """The messages that one task, or all tasks, sent."""

    rows: int = 0
    sent: int = 0
    bytes: int = 0
    repeated: int = 0
    """Sent again, because a broker did not answer."""
    unsafe: int = 0
    newest_us: int | None = None
    """The store time of the newest row."""
    done: NestedDone = {}
    """The places of the rows that were sent."""

    def add(self, other: "Shipment") -> None:
        for name in ("rows", "sent", "bytes", "repeated", "unsafe"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        times = [moment for moment in (self.newest_us, other.newest_us) if moment is not None]
        self.newest_us = max(times, default=None)
        done = from_nested_done(self.done)
        for queue, intervals in from_nested_done(other.done).items():
            done.setdefault(queue, []).extend(intervals)
        self.done = to_nested_done(done)


class How(msgspec.Struct, frozen=True, kw_only=True):
    """How rows are sent."""

    write_id: str
    """Identifies a write: if it is repeated, rows without a unique key get the same ones again."""
    mark: str | None = None
    """Prefix of the properties with the origin of a message: <mark>_ID and <mark>_FROM."""
    mark_id: str = ""
    is_ordered: bool = False
    """Messages of one queue are sent to one queue, in the order of their rows, which need the columns of PLACES."""
    rate: float | None = None
    """Messages per second and task at most."""
    is_remembered: bool = False
    """Report which rows were sent."""


class Sending(msgspec.Struct, frozen=True, kw_only=True):
    """The target, and the options of the sink."""

    options: dict[str, str]
    """Options of the sink; Spark does not display these secrets."""
    topic: str | None
    how: How


def sink_options(namesrv: str | None, options: Mapping[str, str]) -> dict[str, str]:
    """The options for writing, without the topic, out of options for reading and writing."""
    names = {name.lower() for name in SINK_OPTIONS} - {"path", "checkpointlocation", "topic"}
    given = {name: value for name, value in options.items() if name.lower() in names}
    return {**given, "namesrv": namesrv} if namesrv else given


def check_target(options: Mapping[str, str], topic: str | None) -> None:
    """Raises OptionError for a topic that does not exist. Needs no Spark: a mistake is reported before it starts."""
    settings = sink_settings(Options({**options, "topic": topic or ""}, SINK_OPTIONS))
    if topic is not None:
        Cluster(settings.name_servers, settings.access, settings.retry_s).route(topic)


def check_rows(frame: "DataFrame", topic: str | None) -> None:
    """Raises OptionError for rows that are not messages."""
    check_columns({field.name: field.dataType.simpleString() for field in frame.schema.fields}, topic)


def send_frame(frame: "DataFrame", sending: Sending) -> Shipment:
    """Returns when all rows are sent and acknowledged. Raises the errors of Spark; OptionError on Spark Connect."""
    need_classic(frame.sparkSession, "sending in a pipeline")
    frame.sparkSession.dataSource.register(ShipmentSource)
    with tempfile.TemporaryDirectory(prefix="kourou-") as folder:
        told = Path(folder) / "told.json"
        writer = frame.write.format(FORMAT).mode("append").options(**sending.options)
        how = msgspec.json.encode(sending.how).decode()
        writer.option("topic", sending.topic or "").option("how", how).option("told", str(told)).save()
        return msgspec.json.decode(told.read_bytes(), type=Shipment)


def note_trouble(report: RunReport, sent: Shipment) -> None:
    """Notes for users about a batch that was sent."""
    if sent.repeated:
        report.notes.append(f"{sent.repeated:,} messages were sent again because a broker did not answer in time")
    if sent.unsafe:
        report.notes.append(f"{sent.unsafe:,} messages are stored less durably than the broker's settings promise")


def by_queue(frame: "DataFrame", tasks: int) -> "DataFrame":
    """Rows in the order that `is_ordered` needs: those of a queue in one task, by offset."""
    return frame.repartition(tasks, "topic", "broker", "queue_id").sortWithinPartitions(*PLACES)


class ShipmentSource(DataSource):
    """The sink in the form of a data source of Spark. Only `send_frame` uses it: its options are internal."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002
        options = dict(self.options)
        how, told = options.pop("how"), options.pop("told")
        return ShipmentWriter(sink_settings(Options(options, SINK_OPTIONS)), msgspec.json.decode(how, type=How), told)


class ShipmentMessage(WriterCommitMessage):
    """The result that a task returns to the driver."""

    def __init__(self, shipment: Shipment) -> None:
        self.shipment = shipment


class ShipmentWriter(DataSourceArrowWriter):
    """Sends in tasks; the driver writes the sum to a file for the calling process."""

    def __init__(self, settings: SinkSettings, how: How, told: str) -> None:
        self._settings = settings
        self._how = how
        self._told = told

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        context = TaskContext.get()
        part = 0 if context is None else context.partitionId()
        settings = self._settings
        cluster = Cluster(settings.name_servers, settings.access, settings.retry_s)
        write_id = self._how.write_id
        sender = Sender(cluster, settings.group, Patience(settings.retry_s), turn=first_turn(write_id, part))
        return ShipmentMessage(ship(iterator, sender, settings.topic, self._how, f"{write_id}/{part}"))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        total = Shipment()
        for message in messages:
            if isinstance(message, ShipmentMessage):
                total.add(message.shipment)
        Path(self._told).write_bytes(msgspec.json.encode(total))


def ship(
    batches: Iterator["pa.RecordBatch"], sender: Sender, topic: str | None, sending: How, identity: str
) -> Shipment:
    """Send the rows in waves. Raises SparkError, UnreachableError."""
    shipment = Shipment()
    sent: dict[MessageQueue, list[int]] = {}
    drafts = Drafts(topic, identity)
    pace = Pace(sending.rate)
    wave = Wave(sending.is_ordered, pace.wave_rows)
    for batch in batches:
        shipment.rows += batch.num_rows
        _note_newest(batch, shipment)
        places = _places(batch)
        retries = batch.column(RETRY_COLUMN).to_pylist() if RETRY_COLUMN in batch.schema.names else None
        for at, draft in enumerate(drafts.of(batch)):
            place = None if places is None else places[at]
            ready = prepared(draft, place, sending, None if retries is None else retries[at])
            if wave.is_full_for(ready):
                _send(wave, sender, pace)
            wave.take(ready)
            shipment.bytes += len(draft.body)
            if place is not None and sending.is_remembered:
                sent.setdefault(MessageQueue(*place[:3]), []).append(place[3])
    _send(wave, sender, pace)
    shipment.sent, shipment.repeated, shipment.unsafe = sender.sent.messages, sender.sent.repeated, sender.sent.unsafe
    shipment.done = to_nested_done({queue: runs(offsets) for queue, offsets in sent.items()})
    return shipment


def _send(wave: "Wave", sender: Sender, pace: "Pace") -> None:
    drafts = wave.empty()
    if drafts:
        sender.send(iter(drafts))
        pace.sent(len(drafts))


class Wave:
    """Messages that are sent together. If their order matters, they are one request, so that none fails alone."""

    def __init__(self, is_ordered: bool, rows_max: int) -> None:
        self._rows_max = min(rows_max, BATCH_ROWS) if is_ordered else rows_max
        self._is_ordered = is_ordered
        self._drafts: list[Draft] = []
        self._size = 0

    def is_full_for(self, draft: Draft) -> bool:
        if not self._drafts or len(self._drafts) >= self._rows_max:
            return bool(self._drafts)
        if not self._is_ordered:
            return False
        last = self._drafts[-1]
        return (
            (last.topic, last.ordering_key) != (draft.topic, draft.ordering_key)
            or draft.is_delayed
            or last.is_delayed
            or self._size + _size(draft) > BATCH_SIZE
        )

    def take(self, draft: Draft) -> None:
        self._drafts.append(draft)
        self._size += _size(draft)

    def empty(self) -> list[Draft]:
        drafts, self._drafts, self._size = self._drafts, [], 0
        return drafts


def _size(draft: Draft) -> int:
    return 22 + len(draft.body) + 3 * len(draft.properties)  # at most three bytes per character of interest


class Pace:
    """Keeps a rate, by waiting after each send."""

    def __init__(
        self,
        rate: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._began = clock()
        self._count = 0
        self.wave_rows = WAVE_ROWS if rate is None else max(min(int(rate / 5), WAVE_ROWS), 1)

    def sent(self, count: int) -> None:
        self._count += count
        if self._rate is not None:
            self._sleep(max(self._began + self._count / self._rate - self._clock(), 0.0))


def prepared(draft: Draft, place: tuple[Any, ...] | None, sending: How, retry_topic: str | None) -> Draft:
    """A draft with its marks, and the queue that it must be sent to. Raises SparkError."""
    more = {}
    if sending.mark is not None:
        more[f"{sending.mark}_ID"] = sending.mark_id
        if place is not None:
            more[f"{sending.mark}_FROM"] = "/".join(str(part) for part in place)
    if retry_topic is not None:
        more[Property.RETRY_TOPIC] = retry_topic
        draft.is_delayed = True  # brokers accept no batches for %RETRY%, and delayed messages are sent one by one
    if more:
        try:
            draft.properties = _properties.encode({**_properties.decode(draft.properties), **more})
        except LocalProtocolError as error:
            raise SparkError(f"the message at {place} can't be sent: {error}") from None
    if sending.is_ordered and place is not None:
        draft.ordering_key = chr(place[2])  # whose hash is the number of the queue
    return draft


def _places(batch: "pa.RecordBatch") -> list[tuple[Any, ...]] | None:
    """The places of rows. If `topic` is their target, a column `from_topic` has their topic."""
    names = ["from_topic" if "from_topic" in batch.schema.names else "topic", *PLACES[1:]]
    if not set(names) <= set(batch.schema.names):
        return None
    columns = (batch.column(name).to_pylist() for name in names)
    return [(topic, broker or "", queue, offset) for topic, broker, queue, offset in zip(*columns, strict=True)]


def _note_newest(batch: "pa.RecordBatch", shipment: Shipment) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if "store_timestamp" in batch.schema.names and batch.num_rows:
        newest = pc.max(batch.column("store_timestamp").cast(pa.int64())).as_py()
        if newest is not None:
            shipment.newest_us = max(shipment.newest_us or newest, newest)


def tasks_for(run: Run, rate: float | None) -> int:
    """How many tasks send. A single one can keep a moderate rate, however the messages are spread over queues."""
    if rate is not None and rate <= ONE_TASK_RATE:
        return 1
    return parallelism(run.spark)


def check_rate(rate: float | None, tasks: int) -> float | None:
    """The share of a task. Raises OptionError."""
    if rate is None:
        return None
    if rate <= 0:
        raise OptionError(f"the rate must be greater than 0, not {rate}")
    return rate / max(tasks, 1)
