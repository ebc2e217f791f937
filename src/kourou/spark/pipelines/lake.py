"""An archive: Parquet files by topic, date and hour, of which every message is in exactly one.

    lake/topic=orders/date=2026-01-31/hour=05/000000000017-00003-….parquet   the visible files
    lake/_delta_log                                                          lists the visible files (format delta only)
    lake/_kourou/commits/000000000017.json                                   the messages in it (ledger)
    lake/_kourou/staged/<run>/<file>.staged                                  unfinished files
    lake/_kourou/format                                                      parquet or delta

A batch has three steps, and a crash may occur between any two of them:

1. Tasks write files under `staged`, which readers ignore: Spark, Arrow and Hive skip names that begin with `_`, and the
   files don't end in `.parquet`. Crash: the next run deletes them and reads the messages again.
2. A commit names the files and the offsets that are in them. Once it is written, the batch is done.
3. The files are made visible: moved to their final place and, with format delta, entered in Delta's log, all in one
   step. Crash: the next process that opens the lake, or commits to it, completes this first. Meanwhile a reader of
   plain Parquet may see a part of the batch, but no message twice.

Several runs may write at a time. Only the process with the ledger's lock writes commits, makes them visible, and
deletes folders of dead runs. So no folder is deleted whose files are committed and not visible yet. A run keeps its
files that it has committed and could not make visible, for example on a full disk.

Tasks of a dead run may still be writing; their files are in a folder that no commit names.
"""

import contextlib
import errno
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from kourou.protocol.message import MessageQueue
from kourou.spark.columns import COLUMNS, ddl
from kourou.spark.errors import OptionError, SparkError
from kourou.spark.pipelines.delta import DeltaFiles, DeltaLog
from kourou.spark.pipelines.folders import Folder, open_folder
from kourou.spark.pipelines.intervals import Interval
from kourou.spark.pipelines.lake_files import DELTA, FORMATS, HIDDEN, PARQUET, READERS, STAGED, Files, PlainFiles
from kourou.spark.pipelines.ledger import Commit, CommittedFile, ConflictError, Done, Ledger, to_nested_done
from kourou.spark.pipelines.object_stores import below, for_spark, missing_jars, spark_settings
from kourou.spark.pipelines.parquet_files import STORED, StagedFile
from kourou.spark.session import hadoop_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

OLD: Final = timedelta(days=7)
"""On file systems without locks, a run is considered dead at this age."""

_FORMAT: Final = f"{HIDDEN}/format"


class Lake:
    """A lake that is written to. Use it in `with`, so that other runs know that its staged files are in use."""

    def __init__(
        self,
        url: str | Path,
        job: str,
        folder: Folder | None = None,
        *,
        form: str | None = None,
        log: DeltaLog | None = None,
    ) -> None:
        """`form` is parquet or delta; by default that of the lake, and parquet for a new one. Raises OptionError."""
        if form is not None and form not in FORMATS:
            raise OptionError(f"no format {form}: there are {', '.join(FORMATS)}")
        self._folder = folder or open_folder(url)
        self._job = job
        self._run = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:12]}"
        self._asked = form
        self._log = log
        self._files: Files = PlainFiles(self._folder, self.staged)
        self._ledger = Ledger(self._folder, HIDDEN, show=lambda commit: self._files.show(commit))
        self._holding = contextlib.ExitStack()

    @property
    def url(self) -> str:
        return self._folder.url

    @property
    def staged(self) -> str:
        """The folder for this run's unfinished files, relative to the lake."""
        return f"{STAGED}/{self._run}"

    @property
    def done(self) -> Done:
        """All offsets in the lake, by queue."""
        return self._ledger.done

    @property
    def positions(self) -> dict[str, int]:
        return self._ledger.positions

    @property
    def files(self) -> Files:
        """The files that are visible to readers."""
        return self._files

    def __enter__(self) -> Self:
        """Complete the commit of an earlier run that was interrupted. Raises OSError, SparkError."""
        self._folder.make(STAGED)
        self._folder.make(f"{HIDDEN}/commits")
        with contextlib.ExitStack() as held:
            self._choose_format()
            with self._ledger.locked(lambda: self._begin(held)):
                self._throw_away_leftovers()
            self._holding = held.pop_all()
        return self

    def _begin(self, held: contextlib.ExitStack) -> None:
        """The folder of this run, which `show` may need, exists once its lock does."""
        held.enter_context(self._folder.lock(f"{self.staged}.lock", wait=True))
        self._folder.make(self.staged)
        self._files.prepare()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        with self._holding:
            if kind is None or issubclass(kind, Exception):
                # Files that can't be made visible now are kept; the next process that opens the lake does it.
                with contextlib.suppress(OSError, SparkError), self._ledger.locked():
                    self._folder.remove(self.staged)
                    self._folder.remove(f"{self.staged}.lock")

    def _choose_format(self) -> None:
        """Raises OptionError for a lake that has another format."""
        has = format_of(self._folder)
        if has is None:
            has = self._asked or PARQUET
            try:
                self._folder.write_new(_FORMAT, has.encode())
            except FileExistsError:  # another process was faster
                has = format_of(self._folder) or has
        if self._asked not in (None, has):
            raise OptionError(f"{self.url} is a lake of format {has}: format {self._asked} needs another directory")
        if has == DELTA:
            self._files = DeltaFiles(self._folder, self._log or DeltaLog(self._folder.url))

    def add(
        self,
        files: Iterable[StagedFile],
        done: Mapping[MessageQueue, list[Interval]],
        positions: Mapping[str, int] | None = None,
    ) -> Commit:
        """Make a batch part of the lake. Raises ConflictError, SparkError, OSError."""
        files = list(files)
        try:
            with self._ledger.locked():
                self._check_staged(files)
                return self._commit([(file, []) for file in files], done, positions or {})
        except ConflictError:
            for file in files:
                self._folder.remove(file.name)
            raise

    def replace(self, files: Iterable[tuple[StagedFile, list[str]]]) -> Commit | None:
        """Replace visible files by files with the same rows; None if the old ones were removed meanwhile.

        Raises BlockingIOError while a reader of Kourou is at work, SparkError, OSError.
        """
        with self._ledger.locked(), self._files.replacing():
            left = [(file, paths) for file, paths in files if self._files.are_visible(paths)]
            self._check_staged([file for file, _ in left])
            return self._commit(left, {}, {}) if left else None

    def _check_staged(self, files: list[StagedFile]) -> None:
        gone = [file.name for file in files if not self._folder.exists(file.name)]
        if gone:
            raise SparkError(
                f"{self.url}/{gone[0]} was removed, because another run considered this run dead: run it again"
            )

    def _commit(
        self,
        files: list[tuple[StagedFile, list[str]]],
        done: Mapping[MessageQueue, list[Interval]],
        positions: Mapping[str, int],
    ) -> Commit:
        """The caller has the ledger's lock, so the number in the names of the files is that of the commit."""
        number = self._ledger.number + 1
        committed = [
            CommittedFile(
                file.name,
                f"{file.partition}/{number:012d}-{at:05d}-{self._run[-12:]}.parquet",
                file.rows,
                file.bytes,
                replaces,
                file.bounds,
            )
            for at, (file, replaces) in enumerate(files)
        ]
        return self._ledger.append(
            Commit(
                job=self._job,
                run=self._run,
                at=f"{datetime.now(UTC).isoformat(timespec='milliseconds')}",
                done=to_nested_done(done),
                positions=dict(positions),
                files=committed,
            )
        )

    def _throw_away_leftovers(self) -> None:
        """Delete files of dead runs. The caller has the ledger's lock, so all commits are visible."""
        names = set(self._folder.names(STAGED))
        oldest = f"{datetime.now(UTC) - OLD:%Y%m%dT%H%M%S}"
        for run in sorted({name.removesuffix(".lock") for name in names} - {self._run}):
            folder = f"{STAGED}/{run}"
            if f"{run}.lock" not in names:
                if run < oldest:
                    self._throw_away(folder)
                continue
            try:
                with self._folder.lock(f"{folder}.lock", wait=False):
                    self._throw_away(folder)
                    self._folder.remove(f"{folder}.lock")
            except BlockingIOError:
                continue  # the run is alive

    def _throw_away(self, folder: str) -> None:
        self._rescue({f"{folder}/{name}" for name in self._folder.names(folder)})
        self._folder.remove(folder)

    def _rescue(self, staged: set[str]) -> None:
        """Make files of old commits visible that earlier versions may not have made visible."""
        if not staged or not isinstance(self._files, PlainFiles):
            return
        kept = self._ledger.kept()
        replaced = {path for commit in kept for file in commit.files for path in file.replaces}
        for file in (file for commit in kept for file in commit.files):
            is_lost = file.staged in staged and not file.replaces and file.path not in replaced
            if is_lost and not self._folder.exists(file.path):
                self._folder.move(file.staged, file.path)


def format_of(folder: Folder) -> str | None:
    """parquet or delta; None if there is no lake. Raises SparkError for a format that this version does not know."""
    if folder.exists(_FORMAT):
        name = folder.read(_FORMAT).decode("utf-8", "replace")
        if name not in FORMATS:
            raise SparkError(f"{folder.url} is a lake of format {name}, which this version of Kourou does not support")
        return name
    if folder.names("_delta_log"):
        return DELTA
    commits = folder.names(f"{HIDDEN}/commits")
    return PARQUET if any(name.endswith(".json") for name in commits) else None


@contextlib.contextmanager
def reading(url: str | Path, folder: Folder | None = None) -> Iterator[None]:
    """While this is open, `compact` replaces no file of the lake. Earlier commits are visible.

    A folder that can't be written to, or is not a lake, stays unchanged.
    """
    folder = folder or open_folder(url)
    with contextlib.ExitStack() as held:
        if format_of(folder) is not None:
            try:
                with Lake(url, "read", folder) as lake, lake._ledger.locked():
                    held.enter_context(folder.lock(READERS, wait=True, shared=True))
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise
        yield


def read_lake(spark: "SparkSession", url: str | Path, *, version: int | datetime | None = None) -> "DataFrame":
    """All messages of a lake, with the columns of the other sources, and `date` and `hour` for selection.

    A lake of format delta can be read as of a `version` or a time. Raises OptionError if that does not exist.
    """
    schema = f"{ddl(STORED)}, topic string, date date, hour int"
    folder = open_folder(url)
    reader = spark.read.schema(schema).options(**spark_settings(folder.url))
    place = for_spark(folder.url)
    if format_of(folder) == DELTA:
        files = [below(folder.url, path) for path in DeltaLog(folder.url).paths(version)]
        frame = _parquet(reader.option("basePath", place), files) if files else spark.createDataFrame([], schema)
    elif version is not None:
        raise OptionError(f"{folder.url} has no versions: only lakes of format delta have them")
    else:
        frame = _parquet(reader, [place])
    return frame.select(*COLUMNS, "date", "hour")


def _parquet(reader: "DataFrameReader", paths: list[str]) -> "DataFrame":
    """Raises OptionError if this Spark can't read from there."""
    try:
        return reader.parquet(*paths)
    except Exception as error:
        told = missing_jars(error, hadoop_version())
        if told is None:
            raise
        raise told from None
