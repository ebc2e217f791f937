"""Rows -> Parquet files, one for each topic and hour: how a task of an archive writes its rows.

Written by Arrow in the task itself: the rows never pass through Spark's JVM, which would cost several times as much as
reading them. A file is written under a name that readers skip (`staged`) and is durable when the task ends. The driver
decides whether it becomes visible; a task that Spark repeats writes files of its own.
"""

import contextlib
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from kourou.protocol.errors import KourouError
from kourou.protocol.message import MessageQueue
from kourou.spark.columns import COLUMNS, CORRUPT, arrow_schema
from kourou.spark.errors import SparkError
from kourou.spark.pipelines.folders import Folder, open_folder
from kourou.spark.pipelines.intervals import Interval, holds, runs

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

STORED: Final = tuple(name for name in COLUMNS if name != "topic")
"""The columns of a file. Its topic is in its path, as are date and hour."""

HOUR_US: Final = 3_600_000_000

HOUR_MAX: Final = 70_389_527
"""The last of the year 9999."""

GROUP_ROWS: Final = 131_072
GROUP_SIZE: Final = 64 * 1024 * 1024
"""The size of a row group, if there are enough rows."""

HELD_SIZE: Final = 256 * 1024 * 1024
"""The bytes of all files that are kept in memory before the largest part is written."""

FILES_MAX: Final = 64
"""Files that are open at a time."""

_REPEATED: Final = ["broker", "tags", "born_host", "store_host", "queue_id", "reconsume_times", "flag", "sys_flag"]
"""Columns with few different values, for which dictionaries save space."""


BOUNDED: Final = ("queue_id", "queue_offset", "store_timestamp", "born_timestamp", "commit_log_offset")
"""Columns whose smallest and largest values are recorded, so that readers can skip files."""


class StagedFile(msgspec.Struct):
    """A file that is written and not yet visible."""

    name: str
    topic: str
    hour: int
    """Since 1970, UTC."""
    rows: int
    bytes: int
    bounds: dict[str, tuple[int, int]] = {}
    """The smallest and the largest value of some columns; times in microseconds."""

    @property
    def partition(self) -> str:
        return partition(self.topic, self.hour)


class Written(msgspec.Struct):
    """The result of a task."""

    files: list[StagedFile] = msgspec.field(default_factory=list)
    read: int = 0
    """All messages that were read, including skipped ones."""
    read_bytes: int = 0
    known: int = 0
    """Skipped: they are in the lake already."""
    damaged: int = 0
    """Skipped: invalid records, or records with damaged bodies."""
    first_us: int | None = None
    last_us: int | None = None
    """Store times."""
    done: dict[MessageQueue, list[Interval]] = msgspec.field(default_factory=dict)
    """The offsets that were written; only if they are not known in advance."""


def topic_folder(topic: str) -> str:
    """The encoding of a value in a path by Hive, and by all readers of its tables."""
    return f"topic={quote(topic, safe='')}"


def partition(topic: str, hour: int) -> str:
    """The folder of a topic and hour. Times outside the calendar become the nearest one inside."""
    hour = min(max(hour, 0), HOUR_MAX)
    moment = datetime.fromtimestamp(hour * 3600, UTC)
    return f"{topic_folder(topic)}/date={moment:%Y-%m-%d}/hour={moment:%H}"


class PartitionedFiles:
    """Writes batches of rows with all columns, in order, to files."""

    def __init__(self, folder: Folder, staged: str, *, compression: str = "zstd", level: int | None = 1) -> None:
        """`staged` is the folder for unfinished files."""
        self._folder = folder
        self._staged = staged
        self._compression = compression
        self._level = level
        self._open: dict[tuple[str, int], _File] = {}
        self.files: list[StagedFile] = []

    def write(self, rows: "pa.RecordBatch") -> None:
        for key, part in split(rows):
            self.write_part(key, part)

    def write_part(self, key: tuple[str, int], rows: "pa.RecordBatch") -> None:
        """Rows of one topic and hour, without the topic."""
        file = self._open.pop(key, None) or _File(self, *key)
        self._open[key] = file  # at the end: the first one is the least recently used
        file.take(rows)
        while len(self._open) > FILES_MAX:
            self._close(next(iter(self._open)))
        while sum(file.held for file in self._open.values()) > HELD_SIZE:
            max(self._open.values(), key=lambda file: file.held).flush()

    def _close(self, key: tuple[str, int]) -> None:
        self.files.append(self._open.pop(key).close())

    def close(self) -> list[StagedFile]:
        for key in list(self._open):
            self._close(key)
        return self.files

    def abandon(self) -> None:
        """These files are not needed."""
        for file in self._open.values():
            file.abandon()
        self._open.clear()

    def writer(self, name: str, footers: list[Any]) -> tuple[Any, Any]:
        """An output and its writer of rows. The footer is added to `footers` at the end."""
        import pyarrow.parquet as pq

        sink = self._folder.output(name)
        writer = pq.ParquetWriter(
            sink,
            arrow_schema(STORED),
            compression=self._compression,
            compression_level=self._level,
            use_dictionary=_REPEATED,
            write_statistics=list(BOUNDED),
            store_schema=False,
            coerce_timestamps="us",
            metadata_collector=footers,
        )
        return sink, writer

    def new_name(self) -> str:
        return f"{self._staged}/{uuid.uuid4().hex}.staged"


class _File:
    """One unfinished file. Rows are kept in memory until they fill a row group."""

    def __init__(self, owner: PartitionedFiles, topic: str, hour: int) -> None:
        self._name = owner.new_name()
        self._topic, self._hour = topic, hour
        self._footers: list[Any] = []
        self._sink, self._writer = owner.writer(self._name, self._footers)
        self._batches: list[pa.RecordBatch] = []
        self._rows_held = 0
        self._rows = 0
        self.held = 0

    def take(self, rows: "pa.RecordBatch") -> None:
        self._batches.append(rows)
        self._rows_held += rows.num_rows
        self._rows += rows.num_rows
        self.held += rows.nbytes
        if self._rows_held >= GROUP_ROWS or self.held >= GROUP_SIZE:
            self.flush()

    def flush(self) -> None:
        import pyarrow as pa

        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches), row_group_size=GROUP_ROWS)
        self._batches, self._rows_held, self.held = [], 0, 0

    def close(self) -> StagedFile:
        self.flush()
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        return StagedFile(self._name, self._topic, self._hour, self._rows, size, bounds_of(self._footers[0]))

    def abandon(self) -> None:
        self._batches = []
        for part in (self._writer, self._sink):
            with contextlib.suppress(Exception):  # for example a full disk
                part.close()
        self._writer.is_open = False  # otherwise it would try again when it is garbage collected


def bounds_of(footer: "pq.FileMetaData") -> dict[str, tuple[int, int]]:
    """By column. A column has no bounds if a row group lacks them."""
    found: dict[str, tuple[int, int]] = {}
    unknown: set[str] = set()
    for group in (footer.row_group(number) for number in range(footer.num_row_groups)):
        for column in (group.column(number) for number in range(group.num_columns)):
            name, statistics = column.path_in_schema, column.statistics
            if name not in BOUNDED:
                continue
            if statistics is None or not statistics.has_min_max:
                unknown.add(name)
                continue
            low, high = found.get(name, (statistics.min_raw, statistics.max_raw))
            found[name] = min(low, statistics.min_raw), max(high, statistics.max_raw)
    return {name: bounds for name, bounds in found.items() if name not in unknown}


def split(rows: "pa.RecordBatch") -> Iterator[tuple[tuple[str, int], "pa.RecordBatch"]]:
    """Rows by topic and hour, without the topic, in their original order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not rows.num_rows:
        return
    topics = rows.column("topic").dictionary_encode()
    hours = pc.divide(rows.column("store_timestamp").cast(pa.int64()), HOUR_US)
    stored = rows.select(list(STORED))
    bounds = pc.min_max(hours).as_py()
    if len(topics.dictionary) == 1 and bounds["min"] == bounds["max"]:
        yield (topics.dictionary[0].as_py(), bounds["min"]), stored
        return
    places: dict[tuple[int, int], list[int]] = {}
    for at, key in enumerate(zip(topics.indices.to_pylist(), hours.to_pylist(), strict=True)):
        places.setdefault(key, []).append(at)
    for (topic, hour), here in places.items():
        yield (topics.dictionary[topic].as_py(), hour), stored.take(pa.array(here, pa.int64()))


class Coverage:
    """The offsets of one broker's queues in a lake, for tasks that don't know in advance what they will read."""

    def __init__(self, broker: str, done: Iterable[tuple[str, int, list[Interval]]]) -> None:
        self._broker = broker
        self._done = {(topic, queue): intervals for topic, queue, intervals in done}

    def without_known(self, rows: "pa.RecordBatch") -> "pa.RecordBatch":
        """The rows that are not in the lake."""
        import pyarrow as pa

        if not self._done:
            return rows
        names = ("topic", "queue_id", "queue_offset")
        kept = [
            at
            for at, (topic, queue, offset) in enumerate(
                zip(*(rows.column(name).to_pylist() for name in names), strict=True)
            )
            if not holds(self._done.get((topic, queue), ()), offset)
        ]
        return rows if len(kept) == rows.num_rows else rows.take(pa.array(kept, pa.int64()))

    def offsets(self, rows: "pa.RecordBatch") -> dict[MessageQueue, list[Interval]]:
        """The offsets of rows, by queue. Raises SparkError if an offset occurs twice."""
        places: dict[tuple[str, int], list[int]] = {}
        names = ("topic", "queue_id", "queue_offset")
        for topic, queue, offset in zip(*(rows.column(name).to_pylist() for name in names), strict=True):
            places.setdefault((topic, queue), []).append(offset)
        return {
            MessageQueue(topic, self._broker, queue): unique_runs(offsets, topic, queue)
            for (topic, queue), offsets in places.items()
        }


def unique_runs(offsets: list[int], topic: str, queue: int) -> list[Interval]:
    found = runs(offsets)
    if sum(end - start for start, end in found) != len(offsets):
        raise SparkError(f"the log has an offset of topic {topic}, queue {queue} twice")
    return found


def write_files(
    batches: Iterator["pa.RecordBatch"], lake: str, staged: str, coverage: Coverage | None = None
) -> Written:
    """Write the batches. With `coverage`, rows in the lake are skipped, and the offsets of the others are recorded.

    Raises SparkError if the disk refuses the rows, and the errors of `batches`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    done = Written()
    files = PartitionedFiles(open_folder(lake), staged)
    try:
        for batch in batches:
            rows = _without_damage(batch, done)
            done.read += rows.num_rows
            done.read_bytes += pc.sum(rows.column("store_size")).as_py() or 0
            if coverage is not None:
                fresh = coverage.without_known(rows)
                done.known += rows.num_rows - fresh.num_rows
                rows = fresh
                for queue, intervals in coverage.offsets(rows).items():
                    done.done.setdefault(queue, []).extend(intervals)
            if rows.num_rows:
                _note_times(rows, done)
                files.write(rows)
        done.files = files.close()
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, KourouError):
            raise
        raise SparkError(f"{lake} can't be written to: {error}") from None
    finally:
        files.abandon()
    return done


def _without_damage(rows: "pa.RecordBatch", done: Written) -> "pa.RecordBatch":
    import pyarrow.compute as pc

    if CORRUPT not in rows.schema.names:
        return rows
    is_sound = pc.is_null(rows.column(CORRUPT))
    sound = rows.filter(is_sound)
    done.damaged += rows.num_rows - sound.num_rows
    return sound


def _note_times(rows: "pa.RecordBatch", done: Written) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    bounds = pc.min_max(rows.column("store_timestamp").cast(pa.int64())).as_py()
    done.first_us = bounds["min"] if done.first_us is None else min(done.first_us, bounds["min"])
    done.last_us = bounds["max"] if done.last_us is None else max(done.last_us, bounds["max"])
