"""Splits a byte stream into frames.

`Decoder.feed` takes bytes from the peer, in pieces of any size, and returns the commands that are complete. It buffers
at most one unfinished frame. The asyncio connections, the simulator and the fuzz tests all use it.

An invalid frame ends the stream, because the start of the next frame is unknown: `feed` returns the commands before
it, and `error` has the reason.
"""

from collections.abc import Callable

from kourou.protocol import command as _command
from kourou.protocol.command import Command
from kourou.protocol.errors import FrameError

FRAME_SIZE_MAX = 16 * 1024 * 1024
"""The largest frame length, the same as in Apache's decoder (com.rocketmq.remoting.frameMaxLength)."""

LENGTH_SIZE = 4


def split_plain(data: bytes, limit: int) -> tuple[list[Command], int, int, FrameError | None]:
    """The complete commands in `data`; the bytes used; the bytes that the next frame needs; the error, if any."""
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
        self.buffered = 0  # its bytes so far
        self._need = LENGTH_SIZE  # bytes that are needed before decoding can make progress
        self.error: FrameError | None = None  # once set, the stream can't be decoded further

    def feed(self, data: bytes) -> list[Command]:
        """The commands that `data` completes, in order. After an error, always empty."""
        return self.decode(self.join(data))

    def join(self, data: bytes) -> bytes:
        """The undecoded bytes followed by `data`, as input for `decode`. Empty while no frame can be complete."""
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
        """The commands in the result of `join`, or in the rest of it; an unfinished frame at the end is buffered."""
        if not data:
            return []
        commands, used, self._need, self.error = split(data, self._limit)
        if self.error is None and used < len(data):
            self._keep(data[used:])
        return commands

    def _keep(self, data: bytes) -> None:
        """Buffer a piece. Large pieces are kept as they are and joined once; small ones are collected in one block."""
        blocks = self._blocks
        self.buffered += len(data)
        if len(data) >= BLOCK_SIZE:
            blocks.append(data)
        elif blocks and isinstance(last := blocks[-1], bytearray) and len(last) < BLOCK_SIZE:
            last += data
        else:
            blocks.append(bytearray(data))
