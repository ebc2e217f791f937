"""Small files of a lake -> few large ones: the plan, and the work of a task. No Spark.

Files of one topic and hour are merged in the order of their commits, until a merged file is as large as wanted. Files
of at least half that size are not merged, so that a row is not written again by every run."""

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kourou.protocol.errors import KourouError
from kourou.spark.errors import SparkError
from kourou.spark.pipelines.folders import open_folder
from kourou.spark.pipelines.lake_files import LakeFile, place_of
from kourou.spark.pipelines.parquet_files import STORED, PartitionedFiles, StagedFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

TARGET_SIZE: Final = 128 * 1024 * 1024

BATCH_ROWS: Final = 16_384
"""Rows that are read at a time."""


class Merge(msgspec.Struct, frozen=True):
    """Files of one topic and hour that become one."""

    paths: list[str]
    bytes: int


class Merged(msgspec.Struct):
    """The result of a task."""

    file: StagedFile
    paths: list[str]
    """The files whose rows it has."""
    bytes: int
    """Of those."""


def plan(
    files: Iterable[LakeFile], target_size: int = TARGET_SIZE, topics: frozenset[str] = frozenset()
) -> list[Merge]:
    """The merges for these topics, or for all. Files are given by topic and hour, in the order of their commits."""
    found: list[Merge] = []
    for _, here in groupby(files, key=lambda file: file.path.rpartition("/")[0]):
        found.extend(_plan_place([file for file in here if file.bytes < target_size // 2], target_size))
    return [merge for merge in found if not topics or place_of(merge.paths[0]).topic in topics]


def _plan_place(files: list[LakeFile], target_size: int) -> list[Merge]:
    bins: list[list[LakeFile]] = [[]]
    for file in files:
        if sum(one.bytes for one in bins[-1]) + file.bytes > target_size:
            bins.append([])
        bins[-1].append(file)
    return [Merge([file.path for file in one], sum(file.bytes for file in one)) for one in bins if len(one) > 1]


class MergeTask(msgspec.Struct, frozen=True):
    """Write one file with the rows of several; None if one of them was removed meanwhile. Raises SparkError."""

    lake: str
    staged: str

    def __call__(self, merge: Merge, folder: Any = None) -> Merged | None:
        import pyarrow as pa

        folder = folder or open_folder(self.lake)
        place = place_of(merge.paths[0])
        files = PartitionedFiles(folder, self.staged)
        rows = 0
        try:
            for path in merge.paths:
                with folder.input(path) as source:
                    rows += _copy(source, files, place.topic, place.hours)
            written = files.close()
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, KourouError):
                raise
            raise SparkError(f"files of {self.lake} can't be merged: {error}") from None
        finally:
            files.abandon()
        if sum(file.rows for file in written) != rows:
            raise SparkError(
                f"{self.lake}: {merge.paths[0]} and others do not have the number of rows that their metadata says"
            )
        return Merged(written[0], merge.paths, merge.bytes) if len(written) == 1 else None


def _copy(source: Any, files: PartitionedFiles, topic: str, hour: int) -> int:
    """The number of rows in the metadata of a file."""
    import pyarrow.parquet as pq

    opened = pq.ParquetFile(source)
    batches: Iterator[pa.RecordBatch] = opened.iter_batches(BATCH_ROWS, columns=list(STORED))
    for batch in batches:
        files.write_part((topic, hour), batch.select(list(STORED)))
    return int(opened.metadata.num_rows)
