"""`format("rocketmq-store")`: the commit-log files of a store, Kourou's or Apache's, as a DataFrame.

    spark.read.format("rocketmq-store").option("topics", "orders").load("/data/rocketmq/store")

No broker is asked: the files may belong to a running or stopped broker, or be a copy. Every worker must have access to
the folder.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kourou.protocol.compression import DECOMPRESSED_LIMIT_BYTES
from kourou.spark.columns import check_types, chosen, ddl
from kourou.spark.errors import OptionError
from kourou.spark.log_files import SPLIT_SIZE, Split, find_files, plan
from kourou.spark.options import Options
from kourou.spark.rows import FAIL, REPORT, SKIP, make_rows
from kourou.spark.selection import EVER, Selection
from kourou.spark.split_reader import scan
from kourou.spark.workers import settle

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS: Final = (
    "path",
    "topics",
    "topicPattern",
    "startingTimestamp",
    "endingTimestamp",
    "columns",
    "splitSize",
    "verify",
    "onCorrupt",
    "decompress",
    "maxBody",
    "brokerName",
)


class StoreSettings(msgspec.Struct, frozen=True):
    """The settings of a read."""

    folders: tuple[str, ...]
    selection: Selection
    columns: tuple[str, ...]
    split_size: int
    verify: bool
    on_damage: str
    decompressing: bool
    broker: str | None
    max_body: int = DECOMPRESSED_LIMIT_BYTES


def read_settings(options: Options) -> StoreSettings:
    """Raises OptionError."""
    options.exclusive("topics", "topicPattern")
    verify = options.choice("verify", ("none", "crc"), "none") == "crc"
    on_damage = options.choice("onCorrupt", (FAIL, REPORT, SKIP), REPORT if verify else FAIL)
    topics = options.names("topics")
    starting, ending = options.time_ms("startingTimestamp"), options.time_ms("endingTimestamp")
    if starting is not None and ending is not None and starting > ending:
        raise OptionError("option startingTimestamp is later than endingTimestamp")
    selection = Selection(
        topics=None if topics is None else frozenset(topics),
        topic_pattern=options.pattern("topicPattern"),
        stored_from_ms=starting or 0,
        stored_to_ms=EVER if ending is None else ending,
    )
    path = options.needed("path", "/data/rocketmq/store")
    return StoreSettings(
        tuple(part.strip().removeprefix("file://") for part in path.split(",") if part.strip()),
        selection,
        chosen(options.names("columns"), corrupt=on_damage == REPORT),
        options.size("splitSize", SPLIT_SIZE, least=1024) or SPLIT_SIZE,
        verify,
        on_damage,
        options.flag("decompress", True),
        options.text("brokerName"),
        options.size("maxBody", DECOMPRESSED_LIMIT_BYTES) or DECOMPRESSED_LIMIT_BYTES,
    )


class SplitPartition(InputPartition):
    """A split, as it is sent to a task."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)


class StoreReader(DataSourceReader):
    """Plans on the driver, reads in tasks."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def partitions(self) -> list[InputPartition]:
        settings = self._settings
        try:
            splits = plan(find_files(settings.folders), settings.selection, settings.split_size)
        except OSError as error:
            raise OptionError(f"{error.filename}: {error.strerror}") from None
        return [SplitPartition(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        settle()
        if partition.value is None:  # Spark's own, without anything to read
            return iter(())
        settings = self._settings
        rows = make_rows(
            settings.columns,
            selection=settings.selection,
            broker=settings.broker,
            decompressing=settings.decompressing,
            max_body=settings.max_body,
            verify=settings.verify,
            on_damage=settings.on_damage,
        )
        return scan(partition.value, rows)


def schema(options: Mapping[str, str]) -> str:
    """The columns of a read. Raises OptionError."""
    return ddl(read_settings(Options(options, OPTIONS)).columns)


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """Raises OptionError."""
    settings = read_settings(Options(options, OPTIONS))
    columns = check_types((field.name, field.dataType.simpleString()) for field in schema.fields)
    return StoreReader(msgspec.structs.replace(settings, columns=columns))
