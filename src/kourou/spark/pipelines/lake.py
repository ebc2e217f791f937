"""An archive: Parquet files by topic, date and hour, of which every message is in exactly one.

    lake/topic=orders/date=2026-01-31/hour=05/000000000017-00003.parquet     what everybody reads
    lake/_kourou/commits/000000000017.json                                   what is in it (ledger)
    lake/_kourou/staged/<run>/<file>.staged                                  files in the making

A batch goes three steps, and a crash may come between any two of them:

1. Tasks write files under `staged`, where nobody looks: names that begin with `_` are passed over by Spark, Arrow and
   Hive, and the files don't end in `.parquet`. Crash: the next run throws them away and reads the messages again.
2. A commit names the files and the offsets that are in them. With it, and only with it, the batch is done.
3. The files move to where everybody sees them, one after the other. Crash: the next run moves the others. Meanwhile a
   reader may see a part of the batch, but no message twice.

Tasks of a dead run may still be writing; their files are in a folder that no commit names.
"""

import contextlib
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from kourou.protocol.message import MessageQueue
from kourou.spark.columns import COLUMNS, ddl
from kourou.spark.pipelines.folders import Folder, open_folder
from kourou.spark.pipelines.intervals import Interval
from kourou.spark.pipelines.ledger import Commit, CommittedFile, Done, Ledger, to_nested_done
from kourou.spark.pipelines.parquet_files import STORED, StagedFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HIDDEN: Final = "_kourou"
STAGED: Final = f"{HIDDEN}/staged"
OLD: Final = timedelta(days=7)
"""A run that left no lock, where there are none, is dead when it is as old as this."""


class Lake:
    """A lake that is written to. `with` it, so that others know that its staged files are in use."""

    def __init__(self, url: str | Path, job: str, folder: Folder | None = None) -> None:
        self._folder = folder or open_folder(url)
        self._job = job
        self._run = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:12]}"
        self._ledger = Ledger(self._folder, HIDDEN, show=self._show)
        self._holding = contextlib.ExitStack()

    @property
    def url(self) -> str:
        return self._folder.url

    @property
    def staged(self) -> str:
        """The folder for this run's files in the making, seen from the lake."""
        return f"{STAGED}/{self._run}"

    @property
    def done(self) -> Done:
        """Every offset that is in it, by queue."""
        return self._ledger.done

    @property
    def positions(self) -> dict[str, int]:
        return self._ledger.positions

    def __enter__(self) -> Self:
        """Complete what a run before this one left half done. Raises OSError, SparkError."""
        self._folder.make(STAGED)
        with contextlib.ExitStack() as held:
            held.enter_context(self._folder.lock(f"{self.staged}.lock", wait=True))
            self._folder.make(self.staged)
            self._ledger.load()
            self._throw_away_leftovers()
            self._holding = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        with self._holding:
            if kind is None or issubclass(kind, Exception):
                with contextlib.suppress(OSError):
                    self._folder.remove(self.staged)
                    self._folder.remove(f"{self.staged}.lock")

    def add(
        self,
        files: Iterable[StagedFile],
        done: Mapping[MessageQueue, list[Interval]],
        positions: Mapping[str, int] | None = None,
    ) -> Commit:
        """A batch becomes part of the lake. Raises ConflictError, OSError."""
        number = self._ledger.number + 1
        committed = [
            CommittedFile(
                file.name,
                f"{file.partition}/{number:012d}-{at:05d}-{self._run[-12:]}.parquet",
                file.rows,
                file.bytes,
            )
            for at, file in enumerate(files)
        ]
        return self._ledger.commit(
            Commit(
                job=self._job,
                run=self._run,
                at=f"{datetime.now(UTC).isoformat(timespec='milliseconds')}",
                done=to_nested_done(done),
                positions=dict(positions or {}),
                files=committed,
            )
        )

    def _show(self, commit: Commit) -> None:
        """Move a commit's files to where everybody sees them, those that are not there yet."""
        for file in commit.files:
            if self._folder.exists(file.staged):
                self._folder.move(file.staged, file.path)

    def _throw_away_leftovers(self) -> None:
        """Files of runs that are dead. All that a commit names is moved by now."""
        names = set(self._folder.names(STAGED))
        oldest = f"{datetime.now(UTC) - OLD:%Y%m%dT%H%M%S}"
        for run in {name.removesuffix(".lock") for name in names} - {self._run}:
            folder = f"{STAGED}/{run}"
            if f"{run}.lock" not in names:
                if run < oldest:
                    self._folder.remove(folder)
                continue
            try:
                with self._folder.lock(f"{folder}.lock", wait=False):
                    self._folder.remove(folder)
                    self._folder.remove(f"{folder}.lock")
            except BlockingIOError:
                continue  # it lives


def read_lake(spark: "SparkSession", url: str | Path) -> "DataFrame":
    """All messages of a lake, with the columns of every other source, and `date` and `hour` to select by."""
    schema = f"{ddl(STORED)}, topic string, date date, hour int"
    frame = spark.read.schema(schema).parquet(str(url))
    return frame.select(*COLUMNS, "date", "hour")
