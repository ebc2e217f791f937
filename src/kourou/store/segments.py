"""Equal-sized files as one long address range.

    name   00000000000000000000   00000000000001048576   00000000000002097152
           └ bytes 0 … 1 MiB      └ bytes 1 … 2 MiB      └ … named by the offset of their first byte

A segment is mapped on first use, so that opening a store does not map every file, and the number of mapped files is
limited: above it the one that was mapped first is unmapped, but never the last, which is written to. A slice keeps its
mapping alive, even after the file is removed.

Invariants: names are multiples of the file size and have no gaps; every file has the full size.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from kourou.store.disk import Disk, File
from kourou.store.errors import BadStoreError

NAME_DIGITS = 20
MAPPED_MAX = 256
"""The number of mapped files of a log. A process may have about 65,000 mappings in total."""


class Segments:
    """The files of one log or queue, oldest first."""

    __slots__ = ("_disk", "_mapped_max", "_open", "_reserve", "_starts", "file_size", "folder")

    def __init__(
        self, disk: Disk, folder: Path, file_size: int, *, reserve: bool = True, mapped_max: int = MAPPED_MAX
    ) -> None:
        self._disk = disk
        self._reserve = reserve  # reserve a new file's space at once, or in steps as its owner asks
        self._mapped_max = mapped_max
        self._starts: list[int] = []
        self._open: dict[int, File] = {}
        self.folder = folder
        self.file_size = file_size

    # ── The files ─────────────────────────────────────────────────────────────────────────────────────────────────

    def load(self) -> None:
        """Find the files. An empty last file was being created in a crash, and is removed.

        Raises BadStoreError for a file of another size, a gap, or a name that is not an offset.
        """
        files = self._disk.files(self.folder)
        for name in files:
            if len(name) != NAME_DIGITS or not name.isdigit():
                raise BadStoreError(f"{self.folder / name} is not a segment: its name must be an offset of 20 digits")
        starts = sorted(map(int, files))
        if starts and files[segment_name(starts[-1])] == 0:
            self._disk.remove(self.path(starts.pop()))
            self._disk.sync_folder(self.folder)
        for start in starts:
            self._check(start, files[segment_name(start)])
        for before, after in pairwise(starts):
            if after != before + self.file_size:
                raise BadStoreError(
                    f"{self.folder}: {segment_name(before + self.file_size)} is missing before {segment_name(after)}; "
                    "restore it, or move the newer segments away"
                )
        self._starts = starts

    def _check(self, start: int, size: int) -> None:
        if size != self.file_size:
            raise BadStoreError(
                f"{self.path(start)} has {size} bytes where {self.file_size} are expected: it is cut off, or the store "
                "was written with another file size; set that size, or restore the file"
            )
        if start % self.file_size:
            raise BadStoreError(f"{self.path(start)}: its name is not a multiple of the file size {self.file_size}")

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def starts(self) -> list[int]:
        """The first offsets of the files, oldest first."""
        return self._starts

    @property
    def start(self) -> int:
        """The first offset of the files; 0 without files."""
        return self._starts[0] if self._starts else 0

    @property
    def end(self) -> int:
        """The offset after the last file."""
        return self._starts[-1] + self.file_size if self._starts else 0

    def path(self, start: int) -> Path:
        return self.folder / segment_name(start)

    def holds(self, offset: int) -> bool:
        return self.start <= offset < self.end

    # ── Use ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def file(self, offset: int) -> File:
        """The file with this offset, mapped. Raises KeyError outside of the range, OSError."""
        start = offset - offset % self.file_size
        file = self._open.get(start)
        if file is None:
            if not self.holds(offset):
                raise KeyError(f"{self.folder} has no offset {offset}: it has the offsets {self.start} to {self.end}")
            file = self._disk.open(self.path(start))
            self._keep(start, file)
        return file

    def _keep(self, start: int, file: File) -> None:
        if len(self._open) >= self._mapped_max:
            oldest = next((one for one in self._open if one != self._starts[-1]), None)
            if oldest is not None:
                self._open.pop(oldest).close()
        if not self._reserve:
            file.read_nothing_ahead()
        self._open[start] = file

    def slice(self, offset: int, size: int) -> memoryview:
        """Bytes of one file, not copied. Raises KeyError, OSError."""
        at = offset % self.file_size
        return self.file(offset).buffer[at : at + size]

    def opened(self) -> Iterator[tuple[int, File]]:
        """The mapped files, with their first offsets."""
        return iter(list(self._open.items()))

    def prepare(self, start: int) -> File:
        """Create the file for `start`, without adding it: for a worker thread. Raises OSError."""
        return self._disk.create(self.path(start), self.file_size, reserve=self._reserve)

    def add_lazily(self, start: int) -> File:
        """Create the first file, which its owner makes durable: `Disk.create_lazily`. Raises OSError."""
        assert not self._starts, f"{self.folder} already has files"
        return self.add(start, self._disk.create_lazily(self.path(start), self.file_size))

    def add(self, start: int, file: File | None = None) -> File:
        """Append the next file: the prepared one, or a new one. Raises OSError."""
        assert not self._starts or start == self.end, f"{start} does not follow {self.end}"
        assert start % self.file_size == 0, f"{start} is not a multiple of {self.file_size}"
        if file is None:
            file = self.prepare(start)
        self._starts.append(start)
        self._keep(start, file)
        return file

    def remove_first(self) -> None:
        """Remove the oldest file."""
        self._remove(self._starts.pop(0))

    def drop_first(self) -> Path:
        """Remove the oldest file from this list; the caller removes it from the disk."""
        start = self._starts.pop(0)
        file = self._open.pop(start, None)
        if file is not None:
            file.close()
        return self.path(start)

    def remove_from(self, offset: int) -> None:
        """Remove all files that begin at or after `offset`."""
        while self._starts and self._starts[-1] >= offset:
            self._remove(self._starts.pop())

    def remove_unused(self) -> None:
        """Remove the prepared next file, if any. Raises OSError."""
        self._remove(self.end)

    def _remove(self, start: int) -> None:
        file = self._open.pop(start, None)
        if file is not None:
            file.close()
        self._disk.remove(self.path(start))
        self._disk.sync_folder(self.folder)

    def copy(self, start: int) -> File:
        """Copy a file into a new one that replaces it on the disk, synced: for a worker thread. Raises OSError.

        After a failed sync the system may treat pages as clean that never reached the disk, and a second sync would
        succeed without writing them. So everything must be written again.
        """
        old = self._open.get(start)
        content = (old or self.file(start)).buffer
        return self._disk.create(self.path(start), self.file_size, reserve=self._reserve, content=content)

    def swap(self, start: int, file: File) -> None:
        """Continue with a copy."""
        old = self._open.get(start)
        if old is not None:
            old.close()
        self._open[start] = file

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()


def folder_name(topic: str) -> str:
    """The folder of a topic. A damaged record may have any topic, with slashes or dots.

    The result is always inside the parent folder.
    """
    name = topic.replace("/", "\ufffd").replace("\0", "\ufffd")
    return name if name not in ("", ".", "..") else f"\ufffd{name}"


def segment_name(start: int) -> str:
    return f"{start:0{NAME_DIGITS}}"
