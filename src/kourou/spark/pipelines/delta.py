"""Lakes in Delta's format: Delta's log lists the visible files, so that a whole batch becomes visible in one step.

As in every lake, the ledger decides what is archived; Delta's log makes its commits visible. An entry of the log has
the number of the commit (Delta's transaction identifier, of the application "kourou"), so that each commit is entered
exactly once, by any process. Other engines may compact or delete rows meanwhile: Delta's own rules settle
such conflicts.

Written by delta-rs (the package deltalake, extra `delta`), without Spark. delta-rs does not flush its files: this
module does, before the next commit can be written, and removes a truncated file of the log after a power failure, when
the lake is opened. The ledger has the commit of that file."""

import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from kourou.spark.columns import COLUMNS, arrow_schema
from kourou.spark.errors import OptionError, SparkError
from kourou.spark.pipelines.folders import Folder
from kourou.spark.pipelines.lake_files import LakeFile, place_of
from kourou.spark.pipelines.ledger import Commit, CommittedFile
from kourou.spark.pipelines.object_stores import delta_settings, without_query

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

APPLICATION: Final = "kourou"
PARTITIONED: Final = ["topic", "date", "hour"]
TRIES_MAX: Final = 10
"""How often a commit is entered again because another engine changed the same files."""

DELTA_LOG: Final = "_delta_log"
LAST_CHECKPOINT: Final = "_last_checkpoint"

_ENTRY: Final = re.compile(r"\d{20}\.json")
_TIMES: Final = ("store_timestamp", "born_timestamp")


def delta_schema() -> "pa.Schema":
    import pyarrow as pa

    return arrow_schema(COLUMNS).append(pa.field("date", pa.date32())).append(pa.field("hour", pa.int32()))


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Errors of delta-rs as Kourou's."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError:
        raise
    except DeltaError as error:
        raise SparkError(f"{what}: {error}") from None


class DeltaLog:
    """The log of one table. Reads it again before each step."""

    def __init__(self, url: str) -> None:
        """Raises OptionError if the package is missing."""
        try:
            import deltalake  # noqa: F401
        except ImportError:
            raise OptionError("format delta needs the package deltalake: pip install 'kourou[delta]'") from None
        self._url = without_query(url)
        self._storage = delta_settings(url) or None
        self._table: DeltaTable | None = None

    def create(self) -> None:
        """Create the log if it does not exist."""
        from deltalake import DeltaTable

        with _told(f"{self._url}: Delta's log can't be created"):
            if not DeltaTable.is_deltatable(self._url, self._storage):
                DeltaTable.create(
                    self._url,
                    schema=delta_schema(),
                    partition_by=PARTITIONED,
                    mode="ignore",
                    storage_options=self._storage,
                )

    def number(self) -> int:
        """The newest commit in the log; 0 if there is none."""
        with _told(f"{self._url}: Delta's log can't be read"):
            return self._fresh().transaction_version(APPLICATION) or 0

    def paths(self, version: int | datetime | None = None) -> list[str]:
        """The visible files, now or at some version or time. Raises OptionError."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            table = DeltaTable(self._url, storage_options=self._storage)
            if version is not None:
                table.load_as_version(version)
        except DeltaError as error:
            raise OptionError(f"{self._url} has no version {version}: {error}") from None
        return [path for path, _ in _files(table)]

    def files(self) -> list[LakeFile]:
        with _told(f"{self._url}: Delta's log can't be read"):
            return [LakeFile(path, size) for path, size in _files(self._fresh())]

    def enter(self, number: int, files: list[CommittedFile]) -> None:
        """Make files visible, and those that they replace invisible, in one step; nothing if that is done already.

        Raises SparkError if other engines keep changing the same files.
        """
        from deltalake.exceptions import CommitFailedError

        for tried in range(TRIES_MAX):
            try:
                with _told(f"{self._url}: commit {number} can't be added to Delta's log"):
                    if self.number() < number:
                        self._enter(number, files)
            except CommitFailedError as error:
                if tried + 1 == TRIES_MAX:
                    raise SparkError(f"{self._url}: commit {number} can't be added to Delta's log: {error}") from None
            else:
                return

    def _enter(self, number: int, files: list[CommittedFile]) -> None:
        from deltalake import CommitProperties
        from deltalake.transaction import AddAction, RemoveAction, Transaction

        table = self._fresh()
        counting = dict(_files(table)) if any(file.replaces for file in files) else {}
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        actions: list[AddAction | RemoveAction] = []
        for file in files:
            if any(path not in counting for path in file.replaces):
                continue  # another process has replaced or deleted these
            place = place_of(file.path)
            values: dict[str, str | None] = {"topic": place.topic, "date": place.date, "hour": str(place.hour)}
            is_new = not file.replaces
            actions.append(AddAction(file.path, file.bytes, values, now_ms, is_new, _statistics(file)))
            actions.extend(RemoveAction(path, False, now_ms, counting[path], values) for path in file.replaces)
        table.create_write_transaction(
            actions,
            mode="append",
            schema=delta_schema(),
            partition_by=PARTITIONED,
            commit_properties=CommitProperties(
                custom_metadata={"kourouCommit": str(number)},
                app_transactions=[Transaction(APPLICATION, number)],
            ),
        )

    def vacuum(self, keep: timedelta) -> int:
        """Delete files that have been invisible for this time. Returns how many."""
        hours = max(int(keep.total_seconds() // 3600), 0)
        with _told(f"{self._url}: files that are replaced can't be deleted"):
            return len(self._fresh().vacuum(hours, dry_run=False, enforce_retention_duration=False))

    def _fresh(self) -> "DeltaTable":
        from deltalake import DeltaTable

        if self._table is None:
            self._table = DeltaTable(self._url, storage_options=self._storage)
        else:
            self._table.update_incremental()
        return self._table


def _files(table: "DeltaTable") -> Iterator[tuple[str, int]]:
    actions = table.get_add_actions()
    for path, size in zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True):
        yield unquote(str(path)), int(size)


def _is_json(data: bytes) -> bool:
    """Is there at least one line, and is each line a complete value?"""
    try:
        return bool([json.loads(line) for line in data.splitlines()])
    except ValueError:
        return False


def _statistics(file: CommittedFile) -> str:
    """The bounds by which Delta's readers skip files. Times are in milliseconds in Delta, so bounds are widened."""
    least: dict[str, int | str] = {}
    greatest: dict[str, int | str] = {}
    for name, (low, high) in file.bounds.items():
        is_time = name in _TIMES
        try:
            least[name] = _time(low // 1000) if is_time else low
            greatest[name] = _time(high // 1000 + 1) if is_time else high
        except (OverflowError, ValueError, OSError):  # a time outside the calendar
            least.pop(name, None)
    return json.dumps({"numRecords": file.rows, "minValues": least, "maxValues": greatest, "nullCount": {}})


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{ms % 1000:03d}Z"


class DeltaFiles:
    """The files that Delta's log names."""

    def __init__(self, folder: Folder, log: DeltaLog) -> None:
        self._folder = folder
        self._log = log

    def prepare(self) -> None:
        """The caller has the ledger's lock."""
        self._repair()
        self._log.create()
        self._sync()

    def _repair(self) -> None:
        """Remove truncated files among the newest ones of Delta's log, after a power failure."""
        names = self._folder.names(DELTA_LOG)
        for name in [name for name in names if _ENTRY.fullmatch(name)][-1:]:
            if not _is_json(self._folder.read(f"{DELTA_LOG}/{name}")):
                self._folder.remove(f"{DELTA_LOG}/{name}")
        checkpoints = [name for name in names if name.endswith(".checkpoint.parquet")]
        for name in [name for name in checkpoints[-1:] if not self._is_parquet(f"{DELTA_LOG}/{name}")]:
            self._folder.remove(f"{DELTA_LOG}/{LAST_CHECKPOINT}")
            self._folder.remove(f"{DELTA_LOG}/{name}")
        last = f"{DELTA_LOG}/{LAST_CHECKPOINT}"
        if self._folder.exists(last) and not _is_json(self._folder.read(last)):
            self._folder.remove(last)

    def _is_parquet(self, name: str) -> bool:
        with self._folder.input(name) as file:
            file.seek(max(self._folder.size(name) - 4, 0))
            return bool(file.read(4) == b"PAR1")

    def _sync(self) -> None:
        names = self._folder.names(DELTA_LOG)
        entries = [name for name in names if _ENTRY.fullmatch(name)][-2:]
        checkpoints = [name for name in names if name.endswith(".checkpoint.parquet")][-1:]
        for name in (*checkpoints, *entries, LAST_CHECKPOINT):
            self._folder.sync(f"{DELTA_LOG}/{name}")

    def show(self, commit: Commit) -> None:
        if not commit.files or self._log.number() >= commit.number:
            return
        for file in commit.files:
            if self._folder.exists(file.staged):
                self._folder.move(file.staged, file.path)
        self._log.enter(commit.number, commit.files)
        self._sync()

    def visible(self) -> Iterator[LakeFile]:
        yield from sorted(self._log.files(), key=lambda file: file.path)

    def are_visible(self, paths: list[str]) -> bool:
        return {file.path for file in self._log.files()} >= set(paths)

    def replacing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def check_replacing(self) -> None:
        pass

    def vacuum(self, keep: timedelta) -> int:
        return self._log.vacuum(keep)
