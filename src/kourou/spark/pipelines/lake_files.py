"""How the files of a commit become visible in a lake of plain Parquet, whose readers list folders and read all files.

A new file is moved to its place. A file that replaces others, which `compact` makes, must appear at the moment in which
the others disappear: a folder with links to all new and remaining files is prepared, and exchanged with the old folder
in one step of the file system. So a listing of the folder has each row once. A reader that listed it before and opens a
file after that step gets the error that the file does not exist.

`show` may be called again for a commit that is partly visible."""

import re
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import Final, Protocol
from urllib.parse import unquote

import msgspec

from kourou.spark.errors import OptionError
from kourou.spark.pipelines.folders import Folder
from kourou.spark.pipelines.ledger import Commit, CommittedFile

HIDDEN: Final = "_kourou"
STAGED: Final = f"{HIDDEN}/staged"
READERS: Final = f"{HIDDEN}/readers.lock"
"""Shared by Kourou's readers; a compaction has it exclusively while it exchanges folders."""

PARQUET: Final = "parquet"
DELTA: Final = "delta"
FORMATS: Final = (PARQUET, DELTA)

_OURS: Final = re.compile(r"\d{12}-\d{5}-[0-9a-f]{12}\.parquet")


class LakeFile(msgspec.Struct, frozen=True):
    """A visible file."""

    path: str
    bytes: int


class Place(msgspec.Struct, frozen=True):
    """The values in the path of a file, which all its rows have."""

    topic: str
    date: str
    hour: int

    @property
    def hours(self) -> int:
        """Since 1970, UTC."""
        return int(datetime.fromisoformat(self.date).replace(tzinfo=UTC, hour=self.hour).timestamp()) // 3600


def place_of(path: str) -> Place:
    """`topic=…/date=…/hour=…/file` -> its parts."""
    topic, date, hour = path.split("/")[:3]
    return Place(unquote(topic.removeprefix("topic=")), date.removeprefix("date="), int(hour.removeprefix("hour=")))


class Files(Protocol):
    """The visible files of a lake."""

    def prepare(self) -> None:
        """Called before the first commit."""

    def show(self, commit: Commit) -> None: ...

    def visible(self) -> Iterator[LakeFile]:
        """The files that Kourou wrote, in the order of places and commits."""

    def are_visible(self, paths: list[str]) -> bool: ...

    def replacing(self) -> AbstractContextManager[None]:
        """Held while files are replaced. Raises BlockingIOError if a reader would be affected now."""

    def check_replacing(self) -> None:
        """Raises OptionError if files can't be replaced here without readers seeing rows twice or not at all."""


class PlainFiles:
    """The files of a lake whose readers list folders. `aside` is a hidden folder of this run."""

    def __init__(self, folder: Folder, aside: str) -> None:
        self._folder = folder
        self._aside = aside

    def prepare(self) -> None:
        pass

    def show(self, commit: Commit) -> None:
        for file in commit.files:
            if not self._folder.exists(file.staged):
                continue  # visible already, and perhaps deleted since, with its whole date
            if file.replaces:
                self._exchange(file)
            else:
                self._folder.move(file.staged, file.path)

    def _exchange(self, file: CommittedFile) -> None:
        place, _, name = file.path.rpartition("/")
        here = set(self._folder.names(place))
        replaced = {path.rpartition("/")[2] for path in file.replaces}
        if name not in here and replaced <= here:  # otherwise it was done, or the rows were deleted
            aside = f"{self._aside}/exchange-{uuid.uuid4().hex}"
            self._folder.make(aside)
            for kept in sorted(here - replaced):
                self._folder.link(f"{place}/{kept}", f"{aside}/{kept}")
            self._folder.link(file.staged, f"{aside}/{name}")
            self._folder.exchange(aside, place)
            self._folder.remove(aside)
        self._folder.remove(file.staged)

    def visible(self) -> Iterator[LakeFile]:
        names = self._folder.names
        for topic in (name for name in names("") if name.startswith("topic=")):
            for date in (name for name in names(topic) if name.startswith("date=")):
                for hour in (name for name in names(f"{topic}/{date}") if name.startswith("hour=")):
                    place = f"{topic}/{date}/{hour}"
                    for name in names(place):
                        if _OURS.fullmatch(name):
                            path = f"{place}/{name}"
                            yield LakeFile(path, self._folder.size(path))

    def are_visible(self, paths: list[str]) -> bool:
        return all(self._folder.exists(path) for path in paths)

    @contextmanager
    def replacing(self) -> Iterator[None]:
        with self._folder.lock(READERS, wait=False):
            yield

    def check_replacing(self) -> None:
        one, two = (f"{self._aside}/exchange-{uuid.uuid4().hex}" for _ in range(2))
        try:
            for name in (one, two):
                self._folder.make(name)
            self._folder.exchange(one, two)
        except OptionError as error:
            raise OptionError(
                f"{error}; readers of plain Parquet would see rows twice or not at all: to compact a lake there, "
                "use --format delta"
            ) from None
        finally:
            for name in (one, two):
                self._folder.remove(name)
