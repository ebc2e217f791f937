"""`format("rocketmq")`: topics of a running cluster, Kourou's or Apache's, as a DataFrame or a stream; and as a sink.

    spark.read.format("rocketmq").option("namesrv", "127.0.0.1:9876").load("orders")
    spark.readStream.format("rocketmq").option("namesrv", …).option("startingOffsets", "earliest").load("orders")

The driver asks brokers for the ends of queues and plans ranges; tasks pull them. A range gives the same rows each time.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kourou.protocol.message import MessageQueue
from kourou.spark.cluster import Cluster, Route
from kourou.spark.columns import check_types, ddl
from kourou.spark.errors import DataLossError, OptionError
from kourou.spark.filter_pushdown import PushedFilters
from kourou.spark.options import Options
from kourou.spark.planning import Range, Task, admit, count_waiting, make_tasks
from kourou.spark.positions import EARLIEST, LATEST, Offsets, from_nested, to_nested
from kourou.spark.pulling import Patience, Puller
from kourou.spark.reading_settings import GROUP, READ_OPTIONS, Position, ReadSettings, TopicTimes, read_settings
from kourou.spark.rows import make_rows
from kourou.spark.selection import EVER, Selection
from kourou.spark.workers import settle

if TYPE_CHECKING:
    import pyarrow as pa


class TaskPartition(InputPartition):
    """The ranges of one task."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)


class Topics:
    """The queues of a reader, and positions in them."""

    def __init__(self, settings: ReadSettings) -> None:
        self._settings = settings
        self.cluster = Cluster(settings.name_servers, settings.access, settings.retry_s)
        self._read: set[str] = set()  # topics that could be read before

    @property
    def reachable(self) -> Cluster:
        """The cluster; with failOnUnreachable=false, it leaves out the queues of brokers that do not answer."""
        return self.cluster if self._settings.fail_on_unreachable else self.cluster.tolerant()

    def queues(self) -> list[MessageQueue]:
        """All current queues. Raises OptionError for topics or queues that do not exist."""
        settings = self._settings
        if settings.assigned:
            return self._assigned(settings.assigned)
        if settings.topic_pattern is not None:
            topics = self.cluster.topics(settings.topic_pattern)
            routes = self.cluster.routes(topics, fresh=True, gone_ok=True)  # topics that were deleted are omitted
            return sorted(queue for route in routes.values() for queue in route.readable)
        routes = self.cluster.routes(settings.topics, fresh=True)
        return sorted(queue for topic, route in routes.items() for queue in self._named_topic(topic, route))

    def _named_topic(self, topic: str, route: Route) -> tuple[MessageQueue, ...]:
        """Its queues; none while its brokers do not answer, or if it was read before and is not readable now."""
        if route.readable:
            self._read.add(topic)
        elif any(route.brokers.values()) and topic not in self._read:
            raise OptionError(
                f"topic {topic} is not readable: change its permission (kourou admin updateTopicPerm -p 6)"
            )
        return route.readable

    def _assigned(self, queues: tuple[MessageQueue, ...]) -> list[MessageQueue]:
        routes = self.cluster.routes({queue.topic for queue in queues}, fresh=True)
        readable = {topic: frozenset(route.readable) for topic, route in routes.items()}
        for queue in queues:
            if queue not in readable[queue.topic]:
                raise OptionError(
                    f"option assign: topic {queue.topic} has no queue {queue.queue_id} on broker {queue.broker_name}"
                )
        return list(queues)

    def place(
        self, position: Position, queues: list[MessageQueue], *, otherwise: str, cluster: Cluster | None = None
    ) -> Offsets:
        """The offsets of a position. Queues that it does not name begin or end according to `otherwise`."""
        cluster = cluster or self.cluster
        if position == "latest":
            return cluster.ends(queues)
        if position == "earliest":
            return cluster.starts(queues)
        if isinstance(position, int):
            return cluster.by_time(queues, position)
        if isinstance(position, TopicTimes):
            return self._named(self._by_topic_time(position, queues, cluster), queues, otherwise, cluster)
        if position == GROUP:
            stands = cluster.committed(queues, self._settings.group or "")
            known = {queue: at for queue, at in stands.items() if at is not None}
            return self._named(known, [queue for queue in queues if queue in stands], otherwise, cluster)
        assert isinstance(position, dict)
        strange = [queue for queue in position if queue not in set(queues)]
        if strange:
            queue = strange[0]
            raise OptionError(
                f"offsets are given for queue {queue.queue_id} of topic {queue.topic} on broker {queue.broker_name}, "
                "which is not read"
            )
        return self._named(position, queues, otherwise, cluster)

    def _by_topic_time(self, times: TopicTimes, queues: list[MessageQueue], cluster: Cluster) -> Offsets:
        """Raises OptionError for a topic that is not read."""
        strange = times.by_topic.keys() - {queue.topic for queue in queues}
        if strange and self._settings.topic_pattern is None:
            raise OptionError(f"a time is given for topic {min(strange)}, which is not read")
        found: Offsets = {}
        for time_ms in sorted(set(times.by_topic.values())):
            here = [queue for queue in queues if times.by_topic.get(queue.topic) == time_ms]
            found.update(cluster.by_time(here, time_ms))
        return found

    def within(self, offsets: Offsets, option: str) -> Offsets:
        """The offsets that a user gave, none after the end of its queue. Raises DataLossError."""
        last = self.reachable.ends(offsets)
        offsets = {queue: offset for queue, offset in offsets.items() if queue in last}
        beyond = [queue for queue in offsets if offsets[queue] > last[queue]]
        if beyond and self._settings.fail_on_loss:
            queue = beyond[0]
            raise DataLossError(
                f"{_name(queue)} ends at offset {last[queue]}, and {option} asks for {offsets[queue]} "
                "(failOnDataLoss=false continues with the existing messages)"
            )
        return {queue: min(offset, last[queue]) for queue, offset in offsets.items()}

    def _named(
        self, given: Mapping[MessageQueue, int], queues: list[MessageQueue], otherwise: str, cluster: Cluster
    ) -> Offsets:
        code = EARLIEST if otherwise == "earliest" else LATEST
        wanted = {queue: given.get(queue, code) for queue in queues}
        starts = cluster.starts(queue for queue, offset in wanted.items() if offset == EARLIEST)
        ends = cluster.ends(queue for queue, offset in wanted.items() if offset == LATEST)
        return {**{queue: offset for queue, offset in wanted.items() if offset >= 0}, **starts, **ends}


def read_task(task: Task, settings: ReadSettings, selection: Selection) -> Iterator["pa.RecordBatch"]:
    """The work of a task."""
    wanted = settings.wanted
    if wanted.kind == "TAG" and not wanted.is_all:
        tags = frozenset(tag.strip() for tag in wanted.expression.split("||"))
        selection = msgspec.structs.replace(selection, tags=tags)
    cluster = Cluster(settings.name_servers, settings.access, settings.retry_s, is_planned=True)
    cluster.routes(one.queue.topic for one in task)  # all in one request
    puller = Puller(
        cluster,
        make_rows(
            settings.columns,
            selection=selection,
            decompressing=settings.decompressing,
            max_body=settings.max_body,
        ),
        wanted,
        group=settings.reading_group,
        fail_on_loss=settings.fail_on_loss,
        patience=Patience(settings.retry_s),
    )
    return puller.read(task)


# ── Batches ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class BatchReader(DataSourceReader):
    """From one position to another."""

    def __init__(self, settings: ReadSettings) -> None:
        self._settings = settings
        starting, ending = settings.starting, settings.ending
        self._selection = Selection(
            stored_from_ms=starting if isinstance(starting, int) else 0,
            stored_to_ms=ending if isinstance(ending, int) else EVER,
        )
        self._from_ms = starting.by_topic if isinstance(starting, TopicTimes) else {}
        self._to_ms = ending.by_topic if isinstance(ending, TopicTimes) else {}

    def partitions(self) -> list[InputPartition]:
        settings, topics = self._settings, Topics(self._settings)
        queues = [queue for queue in topics.queues() if self._wants_queue(queue)]
        cluster = topics.reachable
        first = cluster.starts(queues)
        starts = topics.place(settings.starting, queues, otherwise="earliest", cluster=cluster)
        ends = topics.place(settings.ending, queues, otherwise="latest", cluster=cluster)
        if isinstance(settings.ending, dict):
            ends = topics.within(ends, "endingOffsets")
        if self._stored_from_ms():
            later = cluster.by_time(queues, self._stored_from_ms())
            starts = {queue: max(offset, later[queue]) for queue, offset in starts.items() if queue in later}
        queues = [queue for queue in queues if all(queue in known for known in (first, starts, ends))]
        ranges = [self._range(queue, starts[queue], ends[queue], first[queue]) for queue in queues]
        tasks = make_tasks(
            [self._narrowed(one) for one in ranges],
            tasks_min=settings.tasks_min,
            task_rows_max=settings.task_rows_max,
        )
        return [TaskPartition(task) for task in tasks]

    def _range(self, queue: MessageQueue, start: int, end: int, first: int) -> Range:
        if start < first and end > start:
            if self._settings.fail_on_loss:
                raise DataLossError(
                    f"{_name(queue)}: expected offset {start}, but the first message is at {first} "
                    "(failOnDataLoss=false continues with the existing messages)"
                )
            start = first
        return Range(queue, start, max(start, end))

    def _wants_queue(self, _: MessageQueue) -> bool:
        return True

    def _stored_from_ms(self) -> int:
        """No selected row was stored earlier."""
        return 0

    def _narrowed(self, one: Range) -> Range:
        return one

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        settle()
        task = partition.value or ()  # without partitions, Spark makes a partition of None
        if not self._from_ms and not self._to_ms:
            yield from read_task(task, self._settings, self._selection)
            return
        for topic, ranges in groupby(task, lambda one: one.queue.topic):
            yield from read_task(tuple(ranges), self._settings, self._selection_of(topic))

    def _selection_of(self, topic: str) -> Selection:
        return msgspec.structs.replace(
            self._selection,
            stored_from_ms=max(self._selection.stored_from_ms, self._from_ms.get(topic, 0)),
            stored_to_ms=min(self._selection.stored_to_ms, self._to_ms.get(topic, EVER)),
        )


class NarrowingReader(BatchReader):
    """Reads less if filters allow it.

    Used only with option `pushdown`: without `spark.sql.python.filterPushdown.enabled`, Spark refuses every read of a
    reader that supports filters.
    """

    def __init__(self, settings: ReadSettings) -> None:
        super().__init__(settings)
        self._pushed = PushedFilters()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """The filters that Spark has to evaluate."""
        left = [one for one in filters if not self._pushed.take(one)]
        self._selection = self._pushed.select(self._selection)
        return left

    def _wants_queue(self, queue: MessageQueue) -> bool:
        return self._pushed.wants(queue)

    def _stored_from_ms(self) -> int:
        return self._pushed.stored_from_ms

    def _narrowed(self, one: Range) -> Range:
        return self._pushed.cut(one)


# ── Streams ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are {topic: {broker: {queue: offset}}}; a batch is the range between two of them.

    Queues that are created later are read from their first message on. Queues of a broker that does not answer keep
    their offset until it does.
    """

    def __init__(self, settings: ReadSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._topics: Topics | None = None
        self._target: Offsets | None = None  # where an availableNow run ends
        self._last_batch_s: float | None = None
        self._told: Offsets = {}  # the offsets last committed to the group
        self._newest: Offsets | None = None

    @property
    def topics(self) -> Topics:
        if self._topics is None:
            self._topics = Topics(self._settings)
        return self._topics

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        queues = self.topics.queues()
        starting = self._settings.starting
        offsets = self.topics.place(starting, queues, otherwise="latest" if starting == "latest" else "earliest")
        return _plain(self.topics.within(offsets, "startingOffsets") if isinstance(starting, dict) else offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self.topics.reachable.ends(self.topics.queues())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        settings = self._settings
        if settings.rows_max is not None:
            return ReadMaxRows(settings.rows_max)
        if settings.bytes_max is not None:
            return ReadMaxBytes(settings.bytes_max)
        if settings.rows_min is not None:
            return ReadMinRows(settings.rows_min)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin = from_nested(start)
        self._commit(begin)  # all earlier batches are done, including the last one of an earlier run
        cluster = self.topics.reachable
        end = dict(self._target) if self._target is not None else cluster.ends(self.topics.queues())
        self._newest = dict(end)
        for queue, offset in begin.items():
            end.setdefault(queue, offset)
        begin.update(cluster.starts(queue for queue in end if queue not in begin))
        end = {queue: offset for queue, offset in end.items() if queue in begin}
        if not isinstance(limit, ReadAllAvailable):
            end = self._limited(begin, end)
        return _plain(end)

    def _limited(self, begin: Offsets, end: Offsets) -> Offsets:
        settings = self._settings
        waiting = count_waiting(begin, end)
        if settings.rows_min is not None and self._target is None and waiting < settings.rows_min:
            now = self._clock()
            if self._last_batch_s is None:
                self._last_batch_s = now
            if now - self._last_batch_s < settings.delay_max_s:
                return {queue: min(begin.get(queue, offset), offset) for queue, offset in end.items()}
        self._last_batch_s = self._clock()
        rows_max = settings.rows_max
        if settings.bytes_max is not None and waiting:
            by_size = max(settings.bytes_max // self._row_size(begin, end), 1)
            rows_max = by_size if rows_max is None else min(rows_max, by_size)
        return end if rows_max is None else admit(begin, end, rows_max)

    def _row_size(self, begin: Offsets, end: Offsets) -> int:
        """The average size of a record, from the next messages of the queue with most waiting messages."""
        queue = max(end, key=lambda queue: end[queue] - begin.get(queue, 0))
        start = begin.get(queue, 0)
        sample = Range(queue, start, min(start + 32, end[queue]))
        settings = msgspec.structs.replace(self._settings, columns=("store_size",), fail_on_loss=False)
        sizes = [size for batch in read_task((sample,), settings, Selection()) for size in batch.column(0).to_pylist()]
        return max(sum(sizes) // len(sizes), 1) if sizes else 1024

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._newest is None else _plain(self._newest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, until = from_nested(start), from_nested(end)
        begin.update(self.topics.cluster.starts(queue for queue in until if queue not in begin))
        ranges = [self._range(queue, begin[queue], offset) for queue, offset in until.items()]
        tasks = make_tasks(ranges, tasks_min=self._settings.tasks_min, task_rows_max=self._settings.task_rows_max)
        return [TaskPartition(task) for task in tasks]

    def _range(self, queue: MessageQueue, start: int, end: int) -> Range:
        if end >= start:
            return Range(queue, start, end)
        first = self.topics.cluster.starts([queue])[queue]
        is_gone = first >= end  # a batch that is repeated begins at the current start of the queue
        if self._settings.fail_on_loss:
            if is_gone:
                raise DataLossError(
                    f"{_name(queue)}: messages up to {end - 1} are gone; the first message is at {first}. "
                    "They expired before they were read (failOnDataLoss=false continues without them)"
                )
            raise DataLossError(
                f"{_name(queue)} ends at offset {end}, but was read up to {start} before: the topic may have been "
                "deleted and created again (failOnDataLoss=false reads it from the start)"
            )
        return Range(queue, end if is_gone else 0, end)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        settle()
        return read_task(partition.value, self._settings, Selection())

    def commit(self, end: dict[str, Any]) -> None:
        self._commit(from_nested(end))

    def _commit(self, offsets: Offsets) -> None:
        """Commit the offsets of the group, so that its lag can be monitored. Reading uses only the checkpoint."""
        group = self._settings.group
        if group is None or offsets == self._told:
            return
        moved = {queue: offset for queue, offset in offsets.items() if self._told.get(queue) != offset}
        self.topics.reachable.commit(moved, group)
        self._told = offsets


def _name(queue: MessageQueue) -> str:
    return f"topic {queue.topic}, broker {queue.broker_name}, queue {queue.queue_id}"


def _plain(offsets: Offsets) -> dict[str, Any]:
    return dict(to_nested(offsets))


def commit_progress(end_offset: Mapping[str, Any], options: Mapping[str, str]) -> None:
    """Commit the end of a query's last batch to its group: Spark tells a source only when the next batch is planned.

    `end_offset` is `sources[n].endOffset` of `query.lastProgress`, `options` those of the stream.
    """
    settings = read_settings(Options(options, READ_OPTIONS), streaming=True)
    if settings.group is None:
        raise OptionError("set option group to the group whose offsets are committed")
    Topics(settings).cluster.commit(from_nested(end_offset), settings.group)


# ── The parts of a format ────────────────────────────────────────────────────────────────────────────────────────


def schema(options: Mapping[str, str]) -> str:
    """The columns of a read. Raises OptionError, as all of these do."""
    return ddl(read_settings(Options(options, READ_OPTIONS), streaming=False).columns)


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    settings = _with_columns(read_settings(Options(options, READ_OPTIONS), streaming=False), schema)
    return NarrowingReader(settings) if settings.pushdown else BatchReader(settings)


def stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    return StreamReader(_with_columns(read_settings(Options(options, READ_OPTIONS), streaming=True), schema))


def _with_columns(settings: ReadSettings, schema: StructType) -> ReadSettings:
    columns = check_types((field.name, field.dataType.simpleString()) for field in schema.fields)
    return msgspec.structs.replace(settings, columns=columns)
