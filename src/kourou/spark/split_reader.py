"""One split of a log -> Arrow batches.

A split that does not begin at the start of its file begins at the first record after its own start: the bytes before it
are the end of a record that the previous split has read. Each split reads the records that begin in it, to their end.

Bytes that are not a record are damage, and each damaged range is reported once: by the split whose scan finds it, even
if it begins just after that split's end. A split that looks for its first record does not report the bytes that it
skips, because the scan of the previous split ended there.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kourou.protocol.record import Found
from kourou.spark.errors import DataLossError
from kourou.spark.log_files import CHUNK, Split, Window, find_record, look, scanner_at
from kourou.spark.rows import FULL, STOPPED, RowBuilder

if TYPE_CHECKING:
    import pyarrow as pa


def scan(split: Split, rows: RowBuilder) -> Iterator["pa.RecordBatch"]:
    """All batches of a split. Raises DataLossError for damage, if that is configured, and for removed files."""
    try:
        window = Window(split.file)
    except OSError as error:
        raise DataLossError(f"{split.file.path} can no longer be read: {error.strerror}") from None
    try:
        yield from _scan(split, rows, window)
        if rows.rows:
            yield rows.finish()
    except OSError as error:
        raise DataLossError(f"{split.file.path}: {error}") from None
    finally:
        window.close()


def _scan(split: Split, rows: RowBuilder, window: Window) -> Iterator["pa.RecordBatch"]:
    file = split.file
    offset: int | None = split.start
    if split.start > file.start:
        offset = find_record(window, file, split.start)
    if offset is None or offset >= split.end:
        return
    while offset < file.end:
        scanner = scanner_at(window, offset, CHUNK)
        while (found := rows.fill(scanner, split.end - offset)) == FULL:
            yield rows.finish()
        here = offset + (scanner.next_at if found == STOPPED else scanner.at)
        if here >= file.end:
            return
        kind, looked = look(window, file, here)
        if kind == Found.FILLER:
            return
        if kind != Found.RECORD:
            here = _tell_damage(rows, window, split, here, looked.reason)
        elif here == offset and here < split.end:  # larger than a piece
            whole = scanner_at(window, here, looked.size)
            while rows.fill(whole, 1) == FULL:
                yield rows.finish()
            here += whole.next_at
        if here >= split.end:
            return
        offset = here


def _tell_damage(rows: RowBuilder, window: Window, split: Split, offset: int, reason: str) -> int:
    """Note a damaged range. Returns its end."""
    beyond = find_record(window, split.file, offset + 1)
    end = split.file.end if beyond is None else beyond
    rows.damage(offset, end - offset, reason)
    return end
