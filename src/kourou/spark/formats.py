"""The formats that Spark finds by their names: `rocketmq` and `rocketmq-store`.

Spark looks for formats in a process of its own, repeatedly: once in a session, and once for every streaming query. So a
format imports its modules when it is used, not when it is found.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

LIVE: Final = "rocketmq"
STORE: Final = "rocketmq-store"


class RocketmqSource(DataSource):
    """Topics of a running cluster."""

    @classmethod
    def name(cls) -> str:
        return LIVE

    def schema(self) -> str:
        from kourou.spark import source

        return source.schema(self.options)

    def reader(self, schema: "StructType") -> DataSourceReader:
        from kourou.spark import source

        return source.batch_reader(self.options, schema)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802
        from kourou.spark import source

        return source.stream_reader(self.options, schema)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        from kourou.spark import sink

        return sink.batch_sink(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        from kourou.spark import sink

        return sink.stream_sink(self.options, schema)


class StoreSource(DataSource):
    """The commit-log files of a store."""

    @classmethod
    def name(cls) -> str:
        return STORE

    def schema(self) -> str:
        from kourou.spark import store_source

        return store_source.schema(self.options)

    def reader(self, schema: "StructType") -> DataSourceReader:
        from kourou.spark import store_source

        return store_source.batch_reader(self.options, schema)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: ARG002, N802
        from kourou.spark.errors import OptionError

        raise OptionError(f"format {STORE} can't be streamed: read the topic with format {LIVE}")

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:  # noqa: ARG002
        from kourou.spark.errors import OptionError

        raise OptionError(f"format {STORE} can't be written: write to a topic with format {LIVE}")
