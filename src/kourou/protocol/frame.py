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


BLOCK_SIZE = 64 * 1024


class Decoder:
    """Bytes in, commands out, for one direction of one connection."""

    __slots__ = ("_blocks", "_limit", "_need", "buffered", "error")

    def __init__(self, limit: int = FRAME_SIZE_MAX) -> None:
        self._limit = limit
        self._blocks: list[bytes | bytearray] = []  # the unfinished frame; small pieces gather in one block
        self.buffered = 0  # bytes of it that are here already
        self._need = LENGTH_SIZE  # how many must be before splitting can give anything new
        self.error: FrameError | None = None  # set once: the stream is of no use from there on

    def feed(self, data: bytes) -> list[Command]:
        """The commands that `data` completes, in order. After an error: none, ever."""
        return self.decode(self.join(data))

    def join(self, data: bytes) -> bytes:
        """What is not decoded yet, with `data` at its end, for `decode`. Nothing while no frame can be whole."""
        if self.error is not None:
            return b""
        if self.buffered:
            self._keep(data)
            if self.buffered < self._need:
                return b""
            data = b"".join(self._blocks)
            self._blocks.clear()
            self.buffered = 0
        return data

    def decode(self, data: bytes) -> list[Command]:
        """The commands in what `join` gave, or in the rest of it; an unfinished frame at its end is kept."""
        if not data:
            return []
        commands, used, self._need, self.error = split(data, self._limit)
        if self.error is None and used < len(data):
            self._keep(data[used:])
        return commands

    def _keep(self, data: bytes) -> None:
        """Large pieces stay as they came and are joined once; small ones must not cost an object each."""
        blocks = self._blocks
        self.buffered += len(data)
        if len(data) >= BLOCK_SIZE:
            blocks.append(data)
        elif blocks and isinstance(last := blocks[-1], bytearray) and len(last) < BLOCK_SIZE:
            last += data
        else:
            blocks.append(bytearray(data))
