"""The epochs of a store's log, and the records that were cut from it.

    epochFileCheckpoint                          which epoch wrote which bytes (`epochs.py`)
    kourou-cut/<from>-<to>/commitlog/<segment>   records that were cut from the log

A log without this file has only epoch 1: no slave has followed it, and it was never part of a promotion. `kourou store
inspect` reads a folder of `kourou-cut` like a store.

All methods return after their writes are durable. They run in the owner's thread, because masters change rarely, and
nothing may be written to the log before. Cut records are copied in slices, because there may be gigabytes of them.
"""

from pathlib import Path
from typing import Final

from kourou.store.commit_log import CommitLog
from kourou.store.disk import Disk
from kourou.store.epochs import Epoch, EpochFile, Epochs
from kourou.store.file_room import reserve
from kourou.store.segments import segment_name
from kourou.turns import Slices

SLICE_SIZE: Final = 4 * 1024 * 1024
"""How many bytes of cut records are copied and synced between two looks at the clock."""

FIRST: Final = Epochs(((1, 0),))
"""The epochs of a log without a file."""


class History:
    """The epochs of one log."""

    def __init__(self, disk: Disk, root: Path, log: CommitLog) -> None:
        self._disk = disk
        self._root = root
        self._log = log
        self._file = EpochFile(disk, root / "epochFileCheckpoint")
        self._kept: Epochs | None = None  # the contents of the file; None without one

    def load(self) -> None:
        """Read the file. Raises BadStoreError, OSError."""
        self._kept = self._file.read() or None

    @property
    def is_kept(self) -> bool:
        """Does the file exist? If so, the broker is or was one of several in its group."""
        return self._kept is not None

    @property
    def all(self) -> Epochs:
        """All known epochs, including those without bytes in this log."""
        return self._kept or FIRST

    @property
    def epochs(self) -> Epochs:
        """The epochs of the bytes in the log."""
        return self.all.cut(self._log.end)

    @property
    def newest(self) -> int:
        """The number of the newest known epoch."""
        last = self.all.last
        return 0 if last is None else last.number

    def keep(self) -> None:
        """Write the file if it does not exist. Raises OSError."""
        if self._kept is None:
            self._write(FIRST)

    def begin(self, number: int | None = None, *, after: int = 0) -> Epoch:
        """Begin a new epoch at the end of the log, with the number from a controller, or with the next number.

        The next number is greater than `after`. The log must be durable. Raises OSError, and ValueError if the number
        is not new.
        """
        if number is None:
            started = self.epochs.begun(max(self.newest, after) + 1, self._log.end)
        else:
            before = self.epochs if self._kept is not None else Epochs()
            started = before.begun(number, self._log.end)
        self._write(started)
        assert started.last is not None
        return started.last

    def adopt(self, epochs: Epochs) -> None:
        """Use the epochs of another log, of which this log is the beginning. Raises OSError."""
        if epochs != self._kept:
            self._write(epochs)

    def _write(self, epochs: Epochs) -> None:
        self._file.write(epochs)
        self._kept = epochs

    def set_aside(self, start: int) -> Slices[Path]:
        """Copy the log from this offset on into a folder, before it is cut, in slices. Raises OSError, KeyError."""
        log, size = self._log, self._log.segments.file_size
        at, end = start, self._log.end
        folder = self._root / "kourou-cut" / f"{start}-{end}"
        while at < end:
            base = at - at % size
            stop = min(end, base + size)
            file = self._disk.create(folder / "commitlog" / segment_name(base), size, reserve=False)
            try:
                reserve(file, at - base, stop - at)
                while at < stop:
                    count = min(SLICE_SIZE, stop - at)
                    file.buffer[at - base : at - base + count] = log.read(at, count)
                    file.sync()
                    at += count
                    yield 0
            finally:
                file.close()
        return folder
