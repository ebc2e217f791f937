"""Runs functions in Spark's tasks, one call each: by a classic session, or by Spark Connect, which has no RDDs."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kourou.spark.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def is_connect(spark: "SparkSession") -> bool:
    """Does this session use a server by Spark Connect?"""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def need_classic(spark: "SparkSession", what: str) -> None:
    """Raises OptionError on Spark Connect."""
    if is_connect(spark):
        raise OptionError(
            f"{what} needs a classic session of Spark (a master such as local[4], spark://… or k8s://…): Spark Connect "
            "runs its functions in the server, where this process can't count them or stop between two batches"
        )


def parallelism(spark: "SparkSession") -> int:
    """How many tasks run at a time, according to Spark."""
    if not is_connect(spark):
        return max(spark.sparkContext.defaultParallelism, 1)
    from pyspark.sql import functions as F  # noqa: N812

    parts = spark.range(1000).select(F.spark_partition_id().alias("part"))  # the number that Spark uses by default
    return max(parts.distinct().count(), 1)


def run_tasks(spark: "SparkSession", job: Callable[[_Task], _Result], tasks: Sequence[_Task]) -> list[_Result]:
    """Run a task for each; returns the results in order. Raises the errors of Spark."""
    if not tasks:
        return []
    if not is_connect(spark):
        return spark.sparkContext.parallelize(tasks, len(tasks)).map(job).collect()
    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_Job(job, tasks), "number bigint, result binary")
    found = {row.number: pickle.loads(bytes(row.result)) for row in frame.collect()}
    return [found[number] for number in range(len(tasks))]


class _Job(Generic[_Task, _Result]):
    """The work of a task with the numbers that it gets."""

    def __init__(self, job: Callable[[_Task], _Result], tasks: Sequence[_Task]) -> None:
        self._job = job
        self._tasks = tasks
        self.__name__ = "kourou_tasks"  # Spark requires one

    def __call__(self, batches: Iterator[Any]) -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for batch in batches:
            numbers = batch.column(0).to_pylist()
            results = [pickle.dumps(self._job(self._tasks[number])) for number in numbers]
            yield pa.RecordBatch.from_pydict({"number": numbers, "result": results})
