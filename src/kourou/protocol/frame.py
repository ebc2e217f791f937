"""Frames out of a byte stream.

Give `Decoder.feed` what came from the peer, in pieces of any size; it returns the commands that are whole by now. It
holds at most one unfinished frame. The asyncio connections, the simulator and the fuzz tests all drive this object.

A frame that can't be understood ends the stream, for there is no telling where the next one starts: `feed` returns the
commands before it, and `error` says what is wrong.
"""

from collections.abc import Callable

from kourou.protocol import command as _command
from kourou.protocol.command import Command
from kourou.protocol.errors import FrameError

FRAME_SIZE_MAX = 16 * 1024 * 1024
"""The largest length field that Apache's decoder accepts too (com.rocketmq.remoting.frameMaxLength)."""

LENGTH_SIZE = 4


def split_plain(data: bytes, limit: int) -> tuple[list[Command], int, int, FrameError | None]:
    """The whole commands at the head of `data`; bytes used; bytes that the next frame needs; what is wrong."""
    commands: list[Command] = []
    at, end = 0, len(data)
    while end - at >= LENGTH_SIZE:
        size = int.from_bytes(data[at : at + LENGTH_SIZE], signed=True)
        if not 4 <= size <= limit:
            return commands, at, 0, _command.size_error(size, limit)
        stop = at + LENGTH_SIZE + size
        if stop > end:
            return commands, at, stop - at, None
        try:
            commands.append(_command.decode(data, at + LENGTH_SIZE, stop))
        except FrameError as error:
            return commands, at, 0, error
        at = stop
    return commands, at, LENGTH_SIZE, None


_Split = Callable[[bytes, int], tuple[list[Command], int, int, FrameError | None]]

split: _Split
encode: Callable[[Command], bytes]
try:
    from kourou.protocol import _wire

    split, encode = _wire.split, _wire.encode
except ImportError:
    split, encode = split_plain, _command.encode


class Decoder:
    """Bytes in, commands out, for one direction of one connection."""

    __slots__ = ("_limit", "_need", "_pending", "error")

    def __init__(self, limit: int = FRAME_SIZE_MAX) -> None:
        self._limit = limit
        self._pending = bytearray()  # the unfinished frame, from its first byte
        self._need = LENGTH_SIZE  # how long `_pending` must be before splitting can give anything new
        self.error: FrameError | None = None  # set once: the stream is of no use from there on

    @property
    def buffered(self) -> int:
        """Bytes of the unfinished frame that are here already."""
        return len(self._pending)

    def feed(self, data: bytes) -> list[Command]:
        """The commands that `data` completes, in order. After an error: none, ever."""
        if self.error is not None:
            return []
        pending = self._pending
        if pending:
            pending += data
            if len(pending) < self._need:
                return []
            data = bytes(pending)
            pending.clear()
        commands, used, self._need, self.error = split(data, self._limit)
        if self.error is None and used < len(data):
            pending += memoryview(data)[used:]
        return commands
