"""Rows -> messages, counted: what pipelines do at their end in place of `write.format("rocketmq")`.

The same drafts and the same sender as the sink's, and beside that

- messages are marked with where they come from;
- the order of a queue is kept, come what may: the next messages of a queue are sent when those before are acknowledged;
- a rate is kept;
- what was sent is told, by number and if wanted by place.
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
"""What is sent at a time where there is no order to keep."""

ONE_TASK_RATE: Final = 10_000.0

RETRY_COLUMN: Final = "retry_topic"
"""A column that this pipeline adds: the topic that a message for %RETRY% belongs to."""

PLACES: Final = ("topic", "broker", "queue_id", "queue_offset")


class Shipment(msgspec.Struct, kw_only=True):
    """What a task, or all of them, sent."""

    rows: int = 0
    sent: int = 0
    bytes: int = 0
    repeated: int = 0
    """Sent again, because a broker did not answer."""
    unsafe: int = 0
    newest_us: int | None = None
    """When the newest row was stored."""
    done: NestedDone = {}
    """The rows that were sent, by where they stood."""

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
    """The same for a write that is repeated: it gives the same unique keys to rows that have none of their own."""
    mark: str | None = None
    """Name of the properties that say where a message comes from: <mark>_ID and <mark>_FROM."""
    mark_id: str = ""
    is_ordered: bool = False
    """Messages of one queue go to one queue, in order. Rows have to come so, and have the columns of PLACES."""
    rate: float | None = None
    """Messages per second and task at most."""
    is_remembered: bool = False
    """Tell which rows were sent."""


class Sending(msgspec.Struct, frozen=True, kw_only=True):
    """Where to, and how."""

    options: dict[str, str]
    """Of the sink; secrets are where Spark does not show them."""
    topic: str | None
    how: How


def sink_options(namesrv: str | None, options: Mapping[str, str]) -> dict[str, str]:
    """Of options for reading and writing, those that are for writing, but for the topic."""
    names = {name.lower() for name in SINK_OPTIONS} - {"path", "checkpointlocation", "topic"}
    given = {name: value for name, value in options.items() if name.lower() in names}
    return {**given, "namesrv": namesrv} if namesrv else given


def check_target(options: Mapping[str, str], topic: str | None) -> None:
    """Raises OptionError for a topic that there is not. Needs no Spark: people wait for that only if it makes sense."""
    settings = sink_settings(Options({**options, "topic": topic or ""}, SINK_OPTIONS))
    if topic is not None:
        Cluster(settings.name_servers, settings.access, settings.retry_s).route(topic)


def check_rows(frame: "DataFrame", topic: str | None) -> None:
    """Raises OptionError for rows that are no messages."""
    check_columns({field.name: field.dataType.simpleString() for field in frame.schema.fields}, topic)


def send_frame(frame: "DataFrame", sending: Sending) -> Shipment:
    """Returns when all rows are sent and acknowledged. Raises what Spark raises; OptionError on Spark Connect."""
    need_classic(frame.sparkSession, "sending in a pipeline")
    frame.sparkSession.dataSource.register(ShipmentSource)
    with tempfile.TemporaryDirectory(prefix="kourou-") as folder:
        told = Path(folder) / "told.json"
        writer = frame.write.format(FORMAT).mode("append").options(**sending.options)
        how = msgspec.json.encode(sending.how).decode()
        writer.option("topic", sending.topic or "").option("how", how).option("told", str(told)).save()
        return msgspec.json.decode(told.read_bytes(), type=Shipment)


def note_trouble(report: RunReport, sent: Shipment) -> None:
    """What people should know of a batch that went through."""
    if sent.repeated:
        report.notes.append(f"{sent.repeated:,} messages were sent again, for a broker did not answer in time")
    if sent.unsafe:
        report.notes.append(f"{sent.unsafe:,} messages are stored less safely than the broker promises")


def by_queue(frame: "DataFrame", tasks: int) -> "DataFrame":
    """Rows as `is_ordered` wants them: those of a queue in one task, by offset."""
    return frame.repartition(tasks, "topic", "broker", "queue_id").sortWithinPartitions(*PLACES)


class ShipmentSource(DataSource):
    """The sink as Spark sees it. Only `send_frame` uses it: its options are no user's business."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002
        options = dict(self.options)
        how, told = options.pop("how"), options.pop("told")
        return ShipmentWriter(sink_settings(Options(options, SINK_OPTIONS)), msgspec.json.decode(how, type=How), told)


class ShipmentMessage(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, shipment: Shipment) -> None:
        self.shipment = shipment


class ShipmentWriter(DataSourceArrowWriter):
    """Sends in tasks; on the driver, adds up, and leaves the sum in a file for the process that asked."""

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
    """Send what comes, in waves. Raises SparkError, UnreachableError."""
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
    """Messages that are sent together. Where order counts, it is one request: a part of one could fail alone."""

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
    return 22 + len(draft.body) + 3 * len(draft.properties)  # a character is three bytes at most, of those that matter


class Pace:
    """Keeps a rate, by waiting behind what was sent."""

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
    """A draft with its marks, and the queue that it has to go to. Raises SparkError."""
    more = {}
    if sending.mark is not None:
        more[f"{sending.mark}_ID"] = sending.mark_id
        if place is not None:
            more[f"{sending.mark}_FROM"] = "/".join(str(part) for part in place)
    if retry_topic is not None:
        more[Property.RETRY_TOPIC] = retry_topic
        draft.is_delayed = True  # brokers take no batches for %RETRY%, and delayed messages go one by one
    if more:
        try:
            draft.properties = _properties.encode({**_properties.decode(draft.properties), **more})
        except LocalProtocolError as error:
            raise SparkError(f"the message at {place} can't be sent: {error}") from None
    if sending.is_ordered and place is not None:
        draft.ordering_key = chr(place[2])  # whose hash is the number of the queue
    return draft


def _places(batch: "pa.RecordBatch") -> list[tuple[Any, ...]] | None:
    """Where rows stood. A column `from_topic` says so where `topic` is where they go."""
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
    """How many tasks send. One can keep a moderate rate alone, however the messages are spread over queues."""
    if rate is not None and rate <= ONE_TASK_RATE:
        return 1
    return parallelism(run.spark)


def check_rate(rate: float | None, tasks: int) -> float | None:
    """The share of a task. Raises OptionError."""
    if rate is None:
        return None
    if rate <= 0:
        raise OptionError(f"a rate is more than nothing, not {rate}")
    return rate / max(tasks, 1)
