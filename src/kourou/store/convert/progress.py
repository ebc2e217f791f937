"""The durable progress of an unfinished conversion.

<target>/kourou-converting.json           the progress; with it, a Kourou broker refuses the directory
<target>/commitlog/kourou-converting.txt  with it, Apache's broker does
<target>/kourou-converting/pairs-000007   pairs of the offset map that were new at the seventh sync
<target>/kourou-converted.json            the report, when all is done; it stays
"""

import struct
from array import array
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from kourou.store.convert.offset_map import OffsetMap
from kourou.store.convert.source import Place
from kourou.store.disk import Disk
from kourou.store.errors import BadStoreError
from kourou.store.paths import Paths

COPY, CHECK = "copy", "check"

_PAIR: Final = struct.Struct(">qq")
_WARNING: Final = (
    b"kourou store convert has not finished this directory. Run it again, with the same arguments: it continues.\n"
)


T = TypeVar("T")


class Progress(msgspec.Struct):
    """How far a conversion is."""

    source: str
    to: str
    fingerprint: str  # of the source
    target_at: int
    place: Place
    phase: str = COPY
    records: int = 0
    syncs: int = 0
    uncommitted: int = 0
    left_out: int = 0
    large: int = 0
    checked: Place | None = None  # up to where the logs were compared, in the source
    checked_at: int = 0  # and in the target
    checked_records: int = 0


class ProgressFiles:
    """The files of the progress."""

    def __init__(self, disk: Disk, target: Path) -> None:
        self._disk = disk
        paths = Paths(target)
        self._path = paths.converting
        self._folder = target / "kourou-converting"
        self.stray = paths.commit_log / "kourou-converting.txt"
        self.report_path = target / "kourou-converted.json"

    def read(self) -> Progress | None:
        """None: no conversion is under way. Raises BadStoreError, OSError."""
        content = self._disk.read(self._path)
        return None if content is None else _decode(self._path, content, Progress)

    def report(self) -> dict[str, Any] | None:
        """The report of a finished conversion. Raises BadStoreError, OSError."""
        content = self._disk.read(self.report_path)
        return None if content is None else _decode(self.report_path, content, dict[str, Any])

    def begin(self, progress: Progress) -> None:
        """From now on, no broker opens the target. Raises OSError."""
        self.write(progress)
        self._disk.replace(self.stray, _WARNING)

    def write(self, progress: Progress) -> None:
        self._disk.replace(self._path, msgspec.json.format(msgspec.json.encode(progress), indent=1))

    def save_pairs(self, offsets: OffsetMap, number: int) -> None:
        """Keep the pairs that are new; the progress refers to them afterwards. Raises OSError."""
        pairs = zip(offsets.old[offsets.saved :], offsets.new[offsets.saved :], strict=True)
        self._disk.replace(self._folder / f"pairs-{number:06}", b"".join(_PAIR.pack(*pair) for pair in pairs))
        offsets.saved = len(offsets.old)

    def load_pairs(self, offsets: OffsetMap, count: int) -> None:
        """Raises BadStoreError, OSError."""
        for number in range(1, count + 1):
            path = self._folder / f"pairs-{number:06}"
            content = self._disk.read(path)
            if content is None or len(content) % _PAIR.size:
                raise BadStoreError(f"{path} is missing or damaged. Remove {self._path.parent} and convert again")
            for old, new in _PAIR.iter_unpack(content):
                offsets.old.append(old)
                offsets.new.append(new)
        if offsets.old != array("q", sorted(offsets.old)):
            raise BadStoreError(f"{self._folder} is damaged. Remove {self._path.parent} and convert again")
        offsets.saved = len(offsets.old)

    def finish(self) -> None:
        """The report is there: the target is complete. A crash in between repeats this. Raises OSError."""
        self._disk.remove_folder(self._folder)
        self._disk.remove(self.stray)
        self._disk.sync_folder(self.stray.parent)
        self._disk.remove(self._path)
        self._disk.sync_folder(self._path.parent)


def _decode(path: Path, content: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadStoreError(f"{path} is damaged ({error}). Remove {path.parent} and convert again") from None
