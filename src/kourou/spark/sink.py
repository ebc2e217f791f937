"""Writing: rows of a DataFrame or a stream become messages, every one acknowledged before its task ends.

At least once: a task or batch that Spark repeats sends its messages again, with the same unique keys.
"""

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kourou.spark.cluster import Cluster
from kourou.spark.errors import OptionError
from kourou.spark.messages import Drafts, check_columns
from kourou.spark.options import Options
from kourou.spark.pulling import Patience
from kourou.spark.reading_settings import ACCESS_OPTIONS, read_access
from kourou.spark.sending import Sender, Sent, first_turn, quick_parcels
from kourou.spark.wire import Access
from kourou.spark.workers import settle

if TYPE_CHECKING:
    import pyarrow as pa

SINK_OPTIONS: Final = (*ACCESS_OPTIONS, "path", "topic", "producerGroup", "writeId", "checkpointLocation")

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


class SinkSettings(msgspec.Struct, frozen=True):
    """The settings of a write."""

    name_servers: tuple[str, ...]
    access: Access
    retry_s: float
    topic: str | None
    group: str
    write_id: str
    """Distinguishes this write from others. The same identity gives the same unique keys."""


def sink_settings(options: Options) -> SinkSettings:
    """Raises OptionError."""
    options.exclusive("topic", "path")
    name_servers, access, retry_s = read_access(options)
    return SinkSettings(
        name_servers,
        access,
        retry_s,
        options.text("topic") or options.text("path"),
        options.text("producerGroup") or "KOUROU_SPARK_SINK",
        options.text("writeId") or uuid.uuid4().hex,
    )


class SinkMessage(WriterCommitMessage):
    """The result that a task returns to the driver."""

    def __init__(self, sent: Sent) -> None:
        self.sent = sent


def write(batches: Iterator["pa.RecordBatch"], settings: SinkSettings) -> SinkMessage:
    """The work of a task. Raises SparkError, UnreachableError."""
    settle()
    context = TaskContext.get()
    part = 0 if context is None else context.partitionId()
    query = None if context is None else context.getLocalProperty(_QUERY_ID)
    batch = None if context is None else context.getLocalProperty(_BATCH_ID)
    write_id = f"{query}/{batch}" if query and batch else settings.write_id
    cluster = Cluster(settings.name_servers, settings.access, settings.retry_s, is_planned=True)
    sender = Sender(cluster, settings.group, Patience(settings.retry_s), turn=first_turn(write_id, part))
    drafts = Drafts(settings.topic, f"{write_id}/{part}")
    for batch in batches:
        parcels = quick_parcels(drafts, batch)
        if parcels is None:
            sender.send(drafts.of(batch))
        else:
            sender.send_parcels(parcels)
    sender.finish()
    return SinkMessage(sender.sent)


class BatchSink(DataSourceArrowWriter):
    """`df.write.format("rocketmq")`."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        return write(iterator, self._settings)


class StreamSink(DataSourceStreamArrowWriter):
    """`df.writeStream.format("rocketmq")`."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        return write(iterator, self._settings)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Every message is acknowledged already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Sent messages remain stored; the batch will be sent again, with the same keys."""


# ── The parts of a format ────────────────────────────────────────────────────────────────────────────────────────


def batch_sink(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchSink:
    """Raises OptionError, UnreachableError."""
    if overwrite:
        raise OptionError('a topic can only be appended to: use .mode("append")')
    return BatchSink(_checked(options, schema))


def stream_sink(options: Mapping[str, str], schema: StructType) -> StreamSink:
    """Raises OptionError, UnreachableError."""
    return StreamSink(_checked(options, schema))


def _checked(options: Mapping[str, str], schema: StructType) -> SinkSettings:
    settings = sink_settings(Options(options, SINK_OPTIONS))
    check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, settings.topic)
    if settings.topic is not None:
        Cluster(settings.name_servers, settings.access, settings.retry_s).route(settings.topic)
    return settings
