"""The commit-log files of a store, and how they are cut into splits.

Nothing is opened for writing and no lock is taken: the store may be in use, stopped, a copy, or on a read-only disk. A
store in use is read up to where it ended when the splits were made.

A log ends after its last record. After that, a file may have zeros or, if a broker recovered from a crash, records that
were cut off and are not yet overwritten. These are older than the records before them, while the records after a
damaged range are newer; this distinguishes the two.
"""

import itertools
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from kourou.protocol.record import FILLER_MAGIC, FILLER_SIZE_MIN, MAGIC_V1, Found, Scanner
from kourou.spark.errors import OptionError
from kourou.spark.selection import Selection

SPLIT_SIZE: Final = 128 * 1024 * 1024
CHUNK: Final = 4 * 1024 * 1024
SETBACK_MS: Final = 60_000
"""How far a broker's clock may have gone back: files are excluded by time with this margin."""

NAME_DIGITS: Final = 20

LOOK: Final = 64 * 1024
"""Enough for nearly every record."""

_CLAIM: Final = struct.Struct(">ii")
_MAGIC_START: Final = (MAGIC_V1 & 0xFFFFFFFF).to_bytes(4)[:3]
_MAGIC_AT: Final = 4
_OFFSET_AT: Final = 28
_ZEROS: Final = bytes(CHUNK)


class LogFile(msgspec.Struct, frozen=True):
    """A file of the log: its first offset, and where its content ends."""

    path: str
    start: int
    end: int
    """The log offset after its last valid byte."""


class Split(msgspec.Struct, frozen=True):
    """The part that one task reads: the records that begin at or after `start` and before `end`, as log offsets."""

    file: LogFile
    start: int
    end: int


def find_files(folders: Iterable[str]) -> list[LogFile]:
    """The files of a log, from a store's root or the folder of the log itself. Raises OptionError."""
    found: dict[int, LogFile] = {}
    for folder in folders:
        for path in _segments(Path(folder)):
            start = int(path.name)
            if start in found:
                raise OptionError(f"{path} and {found[start].path} are the same part of a log")
            found[start] = LogFile(str(path), start, start + path.stat().st_size)
    return [found[start] for start in sorted(found)]


def _segments(folder: Path) -> list[Path]:
    try:
        below = folder / "commitlog"
        names = sorted(os.listdir(below if below.is_dir() else folder))
        folder = below if below.is_dir() else folder
    except OSError as error:
        raise OptionError(f"{folder} can't be read: {error.strerror}") from None
    paths = [folder / name for name in names if len(name) == NAME_DIGITS and name.isascii() and name.isdigit()]
    if not paths:
        raise OptionError(f"no commit-log files in {folder}: give a store's root directory or its commitlog directory")
    return paths


# ── Reading bytes ───────────────────────────────────────────────────────────────────────────────────────────────────


class Window:
    """Pieces of a file, read one at a time into the same memory.

    Read, not mapped: a file that is truncated or removed meanwhile causes an error, and does not end the process.
    """

    def __init__(self, file: LogFile) -> None:
        self._file = file
        self._fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        self._room = bytearray(min(CHUNK, file.end - file.start))

    def close(self) -> None:
        os.close(self._fd)

    def read(self, offset: int, size: int = CHUNK) -> memoryview:
        """Bytes from a log offset on: as many as requested, or as exist. Raises OSError."""
        size = min(size, self._file.end - offset)
        if size > len(self._room):
            self._room = bytearray(size)
        view = memoryview(self._room)[: max(size, 0)]
        got = 0
        while got < size:
            count = os.preadv(self._fd, [view[got:]], offset - self._file.start + got)
            if count == 0:
                raise OSError(f"{self._file.path} was truncated while it was read")
            got += count
        return view

    def data_from(self, offset: int) -> int:
        """The next position that may have other bytes than zeros; the end of the file if there is none."""
        try:
            return self._file.start + os.lseek(self._fd, offset - self._file.start, os.SEEK_DATA)
        except OSError:  # a hole up to the end, or a disk without support for holes
            return self._file.end if self._knows_holes() else offset

    def _knows_holes(self) -> bool:
        try:
            os.lseek(self._fd, 0, os.SEEK_HOLE)
        except OSError:
            return False
        return True


def find_record(window: Window, file: LogFile, offset: int) -> int | None:
    """The first position of a record from this one on; None if the file has none.

    A record has its magic, its own offset, and parts that add up to its size. A copy of another record in a body is not
    mistaken for a record, since it has another offset.
    """
    while (offset := window.data_from(offset)) < file.end:
        piece = bytes(window.read(offset, CHUNK))
        for place in _candidates(piece, offset):
            if is_record(window, file, place):
                return place
        if offset + len(piece) >= file.end:
            return None
        offset += len(piece) - _OFFSET_AT - 8
    return None


def _candidates(piece: bytes, offset: int) -> Iterator[int]:
    if piece == _ZEROS[: len(piece)]:
        return
    found = piece.find(_MAGIC_START, _MAGIC_AT)
    while found >= 0:
        at = found - _MAGIC_AT
        if int.from_bytes(piece[at + _OFFSET_AT : at + _OFFSET_AT + 8]) == offset + at:
            yield offset + at
        found = piece.find(_MAGIC_START, found + 1)


def is_record(window: Window, file: LogFile, offset: int) -> bool:
    return look(window, file, offset)[0] == Found.RECORD


def look(window: Window, file: LogFile, offset: int) -> tuple[int, Scanner]:
    """What is at a position: RECORD, FILLER, END for zeros, or BAD; and a scanner that is at it."""
    size = LOOK
    while True:
        scanner = scanner_at(window, offset, size)
        found = scanner.step()
        if found != Found.CUT:
            return found, scanner
        claimed, magic = _CLAIM.unpack(window.read(offset, 8)) if file.end - offset >= 8 else (0, 0)
        if magic == FILLER_MAGIC:
            return Found.FILLER, scanner
        if claimed <= size or offset + size >= file.end:
            return Found.BAD, scanner
        size = claimed


def scanner_at(window: Window, offset: int, size: int) -> Scanner:
    """A scanner over a piece of the log. The next piece reuses its memory."""
    return Scanner(window.read(offset, size), base=offset)


# ── Planning ────────────────────────────────────────────────────────────────────────────────────────────────────────


def plan(files: list[LogFile], selection: Selection, split_size: int) -> list[Split]:
    """Splits that together have every record of the files once.

    Files without a record in the requested period are omitted. Raises OSError.
    """
    times = [_first_stored_ms(file) for file in files]
    last = max((number for number, time_ms in enumerate(times) if time_ms is not None), default=-1)
    splits: list[Split] = []
    for number, file in enumerate(files[: last + 1]):
        following = next((time_ms for time_ms in times[number + 1 : last + 1] if time_ms is not None), None)
        begins = times[number]
        if following is not None and following + SETBACK_MS < selection.stored_from_ms:
            continue
        if begins is not None and begins - SETBACK_MS >= selection.stored_to_ms:
            continue
        if number == last:
            file = msgspec.structs.replace(file, end=log_end(file))
        splits += cut(file, split_size)
    return splits


def cut(file: LogFile, split_size: int) -> list[Split]:
    """A file in pieces of about this size."""
    size = file.end - file.start
    count = max(round(size / split_size), 1) if size else 0
    bounds = [file.start + size * number // count for number in range(count)] + [file.end]
    return [Split(file, start, end) for start, end in itertools.pairwise(bounds)]


def _first_stored_ms(file: LogFile) -> int | None:
    """The store time of the first record of a file; None if the file has none."""
    window = Window(file)
    try:
        found, scanner = look(window, file, file.start)
        if found == Found.RECORD:
            return scanner.stored_ms
        place = find_record(window, file, file.start)
        return None if place is None else look(window, file, place)[1].stored_ms
    finally:
        window.close()


def log_end(file: LogFile) -> int:
    """Where the content of a log's last file ends."""
    window = Window(file)
    try:
        return _walk_to_end(window, file)
    finally:
        window.close()


def _walk_to_end(window: Window, file: LogFile) -> int:
    offset, stored_ms = file.start, 0
    while offset < file.end:
        scanner = scanner_at(window, offset, CHUNK)
        scanner.skip_records()
        end = offset + scanner.at
        if end > offset:
            stored_ms = max(stored_ms, _last_stored_ms(window, offset, end))
        if end >= file.end:
            return end
        found, scanner = look(window, file, end)
        if found == Found.FILLER:
            return end + FILLER_SIZE_MIN
        if found == Found.RECORD:  # the record did not fit into the piece
            offset = end + (scanner.size if end == offset else 0)
            continue
        beyond = find_record(window, file, end + 1)
        if beyond is None or look(window, file, beyond)[1].stored_ms < stored_ms:
            return end
        offset = beyond
    return offset


def _last_stored_ms(window: Window, offset: int, end: int) -> int:
    """The store time of the last record between two positions."""
    scanner = Scanner(window.read(offset, end - offset), base=offset)
    stored_ms = 0
    while scanner.step() == Found.RECORD:
        stored_ms = scanner.stored_ms
    return stored_ms
