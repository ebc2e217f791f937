"""The frames on the HA port.

    slave → master    int64 offset                        a report: the slave has the log up to here
    master → slave    int64 offset, int32 size, bytes     a batch: bytes of the log at that offset; none: a heartbeat

There is no handshake: the first report is also the request. A batch may begin and end anywhere in a record, but it
never crosses the end of a segment.

Java: DefaultHAClient, DefaultHAConnection.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

_REPORT: Final = struct.Struct(">q")
_HEADER: Final = struct.Struct(">qi")

REPORT_SIZE: Final = _REPORT.size
HEADER_SIZE: Final = _HEADER.size


def encode_report(offset: int) -> bytes:
    """A slave has the log up to `offset`."""
    return _REPORT.pack(offset)


def encode_header(offset: int, size: int) -> bytes:
    """The header before `size` bytes of the log."""
    return _HEADER.pack(offset, size)


class Reports:
    """Decodes the reports of one slave."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""  # an incomplete report

    def feed(self, data: bytes) -> list[int]:
        """The offsets of the reports that are now complete, in order."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT_SIZE
        self._rest = data[whole:]
        return [offset for (offset,) in _REPORT.iter_unpack(data[:whole])]


class Piece(NamedTuple):
    """A part of a batch: bytes of the log, and their offset. A heartbeat has no bytes."""

    offset: int
    data: memoryview


class Batches:
    """Decodes the batches of a master. Bytes are passed on as they arrive: only headers are buffered."""

    __slots__ = ("_head", "_left", "_offset")

    def __init__(self) -> None:
        self._head = b""  # an incomplete header
        self._left = 0  # the bytes of the current batch that are missing
        self._offset = 0  # the log offset of its next byte

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Pieces of batches; a piece without bytes for a header whose batch has not begun to arrive.

        Raises ValueError for a negative size.
        """
        view, at = memoryview(data), 0
        while at < len(view):
            if self._left:
                piece = view[at : at + self._left]
                at += len(piece)
                offset, self._offset = self._offset, self._offset + len(piece)
                self._left -= len(piece)
                yield Piece(offset, piece)
                continue
            head = self._head + data[at : at + HEADER_SIZE - len(self._head)]
            at += len(head) - len(self._head)
            if len(head) < HEADER_SIZE:
                self._head = head
                return
            self._head = b""
            self._offset, self._left = _HEADER.unpack(head)
            if self._left < 0:
                raise ValueError(f"a batch has the size {self._left}, which is not valid")
            if at == len(view) or not self._left:
                yield Piece(self._offset, view[:0])
