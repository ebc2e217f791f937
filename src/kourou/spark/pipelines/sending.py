"""Rows -> messages, counted: what pipelines do at their end in place of `write.format("rocketmq")`.

The same drafts and the same sender as the sink's, and beside that

- messages are marked with where they come from;
- the order of a queue is kept, come what may: the next messages of a queue are sent when those before are acknowledged;
- a rate is kept;
- what an earlier run has sent is left out, and what this one sent is told.

A task gives one row: what it did, as JSON.
"""

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kourou.protocol import properties as _properties
from kourou.protocol.errors import LocalProtocolError
from kourou.protocol.message import MessageQueue
from kourou.protocol.properties import Property
from kourou.spark.cluster import Cluster
from kourou.spark.errors import OptionError, SparkError
from kourou.spark.messages import Draft, Drafts, check_columns
from kourou.spark.options import Options
from kourou.spark.pipelines.intervals import holds, runs
from kourou.spark.pipelines.ledger import NestedDone, from_nested_done, to_nested_done
from kourou.spark.pipelines.running import Run
from kourou.spark.pulling import Patience
from kourou.spark.sending import BATCH_ROWS, BATCH_SIZE, Sender
from kourou.spark.sink import SINK_OPTIONS, SinkSettings, sink_settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

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
    known: int = 0
    """Left out: sent by an earlier run."""
    repeated: int = 0
    """Sent again, because a broker did not answer."""
    unsafe: int = 0
    newest_us: int | None = None
    """When the newest row was stored."""
    done: NestedDone = {}
    """The rows that were sent, by where they stood."""

    def add(self, other: "Shipment") -> None:
        for name in ("rows", "sent", "bytes", "known", "repeated", "unsafe"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        times = [moment for moment in (self.newest_us, other.newest_us) if moment is not None]
        self.newest_us = max(times, default=None)
        done = from_nested_done(self.done)
        for queue, intervals in from_nested_done(other.done).items():
            done.setdefault(queue, []).extend(intervals)
        self.done = to_nested_done(done)


class Sending(msgspec.Struct, frozen=True, kw_only=True):
    """How rows are sent."""

    settings: SinkSettings
    write_id: str
    """The same for a write that is repeated: it gives the same unique keys to rows that have none of their own."""
    mark: str | None = None
    """Name of the properties that say where a message comes from: <mark>_ID and <mark>_FROM."""
    mark_id: str = ""
    is_ordered: bool = False
    """Messages of one queue go to one queue, in order. Rows have to come so, and have the columns of PLACES."""
    rate: float | None = None
    """Messages per second and task at most."""
    known: NestedDone = {}
    is_remembered: bool = False
    """Tell which rows were sent."""


def sink_options(namesrv: str | None, topic: str | None, options: Mapping[str, str]) -> SinkSettings:
    """Of options for reading and writing, those that are for writing. Raises OptionError."""
    names = {name.lower() for name in SINK_OPTIONS} - {"path", "checkpointlocation"}
    given = {name: value for name, value in options.items() if name.lower() in names}
    if namesrv:
        given["namesrv"] = namesrv
    if topic is not None:
        given["topic"] = topic
    return sink_settings(Options(given, SINK_OPTIONS))


def check_target(frame: "DataFrame", settings: SinkSettings) -> None:
    """Raises OptionError for rows that are no messages, and for a topic that there is not."""
    check_columns({field.name: field.dataType.simpleString() for field in frame.schema.fields}, settings.topic)
    if settings.topic is not None:
        Cluster(settings.name_servers, settings.access, settings.retry_s).route(settings.topic)


def send_frame(frame: "DataFrame", sending: Sending) -> Shipment:
    """Returns when all rows are sent and acknowledged. Raises what Spark raises."""
    rows = frame.mapInArrow(SendTask(sending), "told binary").collect()
    total = Shipment()
    for row in rows:
        total.add(msgspec.json.decode(bytes(row.told), type=Shipment))
    return total


def by_queue(frame: "DataFrame", tasks: int) -> "DataFrame":
    """Rows as `is_ordered` wants them: those of a queue in one task, by offset."""
    return frame.repartition(tasks, "topic", "broker", "queue_id").sortWithinPartitions(*PLACES)


class SendTask:
    """What a task does."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        part = 0 if context is None else context.partitionId()
        settings = self._sending.settings
        cluster = Cluster(settings.name_servers, settings.access, settings.retry_s)
        sender = Sender(cluster, settings.group, Patience(settings.retry_s), turn=part)
        shipment = ship(batches, sender, self._sending, f"{self._sending.write_id}/{part}")
        yield pa.RecordBatch.from_arrays([pa.array([msgspec.json.encode(shipment)], pa.binary())], ["told"])


def ship(batches: Iterator["pa.RecordBatch"], sender: Sender, sending: Sending, identity: str) -> Shipment:
    """Send what comes, in waves. Raises SparkError, UnreachableError."""
    shipment = Shipment()
    known = from_nested_done(sending.known)
    sent: dict[MessageQueue, list[int]] = {}
    drafts = Drafts(sending.settings.topic, identity)
    pace = Pace(sending.rate)
    wave = Wave(sending.is_ordered, pace.wave_rows)
    for batch in batches:
        shipment.rows += batch.num_rows
        _note_newest(batch, shipment)
        places = _places(batch)
        retries = batch.column(RETRY_COLUMN).to_pylist() if RETRY_COLUMN in batch.schema.names else None
        for at, draft in enumerate(drafts.of(batch)):
            place = None if places is None else places[at]
            if place is not None and holds(known.get(MessageQueue(*place[:3]), ()), place[3]):
                shipment.known += 1
                continue
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
    """Messages that are sent together. In order, it has at most one batch of each queue, which is one request."""

    def __init__(self, is_ordered: bool, rows_max: int) -> None:
        self._is_ordered = is_ordered
        self._rows_max = rows_max
        self._drafts: list[Draft] = []
        self._loads: dict[tuple[str, str | None], tuple[int, int]] = {}

    def is_full_for(self, draft: Draft) -> bool:
        if len(self._drafts) >= self._rows_max:
            return True
        if not self._is_ordered:
            return False
        rows, size = self._loads.get((draft.topic, draft.ordering_key), (0, 0))
        return rows > 0 and (draft.is_delayed or rows >= BATCH_ROWS or size + _size(draft) > BATCH_SIZE)

    def take(self, draft: Draft) -> None:
        self._drafts.append(draft)
        rows, size = self._loads.get((draft.topic, draft.ordering_key), (0, 0))
        self._loads[draft.topic, draft.ordering_key] = (rows + 1, size + _size(draft))

    def empty(self) -> list[Draft]:
        drafts, self._drafts, self._loads = self._drafts, [], {}
        return drafts


def _size(draft: Draft) -> int:
    return 22 + len(draft.body) + 3 * len(draft.properties)  # a character is three bytes at most, of those that matter


class Pace:
    """Keeps a rate, by waiting behind what was sent."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began = time.monotonic()
        self._count = 0
        self.wave_rows = WAVE_ROWS if rate is None else max(min(int(rate / 5), WAVE_ROWS), 1)

    def sent(self, count: int) -> None:
        self._count += count
        if self._rate is not None:
            time.sleep(max(self._began + self._count / self._rate - time.monotonic(), 0.0))


def prepared(draft: Draft, place: tuple[Any, ...] | None, sending: Sending, retry_topic: str | None) -> Draft:
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
    return max(run.spark.sparkContext.defaultParallelism, 1)


def check_rate(rate: float | None, tasks: int) -> float | None:
    """The share of a task. Raises OptionError."""
    if rate is None:
        return None
    if rate <= 0:
        raise OptionError(f"a rate is more than nothing, not {rate}")
    return rate / max(tasks, 1)
