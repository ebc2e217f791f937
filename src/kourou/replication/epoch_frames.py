"""The frames on the HA port of brokers under a controller: the plain frames, with a handshake and with epochs.

    slave → master    int32 1, int16 from the last file, int16 is a learner, int64 id      hello
    master → slave    int32 1, int32 12n, int64 end, int32 epoch, n × (int32, int64)       welcome: its epochs
    slave → master    int32 2, int64 offset                                                a report
    master → slave    int32 2, int32 size, int64 offset, int32 epoch, int64 its start,
                      int64 confirm offset, bytes                                          a batch; none: a heartbeat

The first number is the state of the sender: 1 handshake, 2 transfer. A batch has bytes of one epoch only.

Java: AutoSwitchHAClient, AutoSwitchHAConnection.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

HANDSHAKE: Final = 1
TRANSFER: Final = 2

EPOCHS_MAX: Final = 100_000
"""The most epochs in a welcome, the same as in the file of epochs."""

_STATE: Final = struct.Struct(">i")
_HELLO: Final = struct.Struct(">ihhq")
_REPORT: Final = struct.Struct(">iq")
_WELCOME: Final = struct.Struct(">iiqi")
_ENTRY: Final = struct.Struct(">iq")
_HEADER: Final = struct.Struct(">iiqiqq")

HEADER_SIZE: Final = _HEADER.size


class Hello(NamedTuple):
    """The first frame of a slave."""

    broker_id: int  # assigned by the controller
    from_last_file: bool  # if its log is empty, only the last segment is sent
    is_learner: bool  # it never joins the in-sync set


class Welcome(NamedTuple):
    """The master's answer: the history of its log."""

    end: int
    epoch: int
    epochs: tuple[tuple[int, int], ...]  # number and start


class EpochPiece(NamedTuple):
    """A part of a batch. The first part of each batch has no data, and a heartbeat has no other part."""

    offset: int
    data: memoryview
    epoch: int
    epoch_start: int
    confirm_offset: int


def encode_hello(hello: Hello) -> bytes:
    return _HELLO.pack(HANDSHAKE, hello.from_last_file, hello.is_learner, hello.broker_id)


def encode_report(offset: int) -> bytes:
    """A slave has the log up to `offset`."""
    return _REPORT.pack(TRANSFER, offset)


def encode_welcome(end: int, epochs: Sequence[tuple[int, int]]) -> bytes:
    """The log ends at `end`, and has these epochs."""
    head = _WELCOME.pack(HANDSHAKE, _ENTRY.size * len(epochs), end, epochs[-1][0] if epochs else 0)
    return head + b"".join(_ENTRY.pack(number, start) for number, start in epochs)


def encode_header(offset: int, size: int, epoch: int, epoch_start: int, confirm_offset: int) -> bytes:
    """The header before `size` bytes of the log."""
    return _HEADER.pack(TRANSFER, size, offset, epoch, epoch_start, confirm_offset)


class SlaveWords:
    """Decodes the frames of one slave: a hello, then reports."""

    __slots__ = ("_has_greeted", "_rest")

    def __init__(self) -> None:
        self._rest = b""  # an incomplete hello or report
        self._has_greeted = False

    def feed(self, data: bytes) -> list[Hello | int]:
        """The hello and the offsets of reports that are now complete. Raises ValueError."""
        data = self._rest + data
        said: list[Hello | int] = []
        at = 0
        if not self._has_greeted and len(data) >= _STATE.size:
            (state,) = _STATE.unpack_from(data)
            if state != HANDSHAKE:
                raise ValueError(f"expected a handshake, not {state}: set enableControllerMode alike on both brokers")
            if len(data) >= _HELLO.size:
                _, from_last_file, is_learner, broker_id = _HELLO.unpack_from(data)
                said.append(Hello(broker_id, bool(from_last_file), bool(is_learner)))
                self._has_greeted = True
                at = _HELLO.size
        while self._has_greeted and len(data) - at >= _REPORT.size:
            state, offset = _REPORT.unpack_from(data, at)
            if state != TRANSFER:
                raise ValueError(f"a report has the state {state} instead of {TRANSFER}")
            said.append(offset)
            at += _REPORT.size
        self._rest = data[at:]
        return said


class MasterWords:
    """Decodes the frames of a master: a welcome, then batches. Bytes of the log are passed on as they arrive."""

    __slots__ = ("_batch", "_head", "_left", "_needed")

    def __init__(self) -> None:
        self._head = b""  # an incomplete header: of the welcome, and later of a batch
        self._needed = _WELCOME.size  # bytes of the header that are needed to decode it
        self._batch: EpochPiece | None = None  # the current batch; None before the welcome
        self._left = 0  # the bytes of it that are missing

    def feed(self, data: bytes) -> Iterator[Welcome | EpochPiece]:
        """The welcome, and pieces of batches. Raises ValueError."""
        view, at = memoryview(data), 0
        while at < len(view):
            if self._left:
                piece = view[at : at + self._left]
                at += len(piece)
                yield self._take(piece)
                continue
            missing = view[at : at + self._needed - len(self._head)]
            self._head += bytes(missing)
            at += len(missing)
            if len(self._head) == self._needed:
                found = self._read_header() if self._batch is not None else self._read_welcome()
                if found is not None:
                    self._head = b""
                    self._needed = HEADER_SIZE
                    yield found

    def _take(self, data: memoryview) -> EpochPiece:
        assert self._batch is not None
        piece = self._batch._replace(data=data)
        self._batch = self._batch._replace(offset=piece.offset + len(data))
        self._left -= len(data)
        return piece

    def _read_welcome(self) -> Welcome | None:
        state, size, end, epoch = _WELCOME.unpack_from(self._head)
        if state != HANDSHAKE:
            raise ValueError(f"the master sent {state}, not a handshake: set enableControllerMode alike on both")
        if size % _ENTRY.size or not 0 <= size <= EPOCHS_MAX * _ENTRY.size:
            raise ValueError(f"the master announces {size} bytes of epochs, which is not a valid size")
        self._needed = _WELCOME.size + size
        if len(self._head) < self._needed:
            return None
        self._batch = EpochPiece(0, memoryview(b""), 0, 0, 0)
        return Welcome(end, epoch, tuple(_ENTRY.iter_unpack(self._head[_WELCOME.size :])))

    def _read_header(self) -> EpochPiece:
        state, size, offset, epoch, epoch_start, confirm_offset = _HEADER.unpack(self._head)
        if state != TRANSFER or size < 0:
            raise ValueError(f"a batch has the size {size} and the state {state}, which are not valid")
        self._batch = EpochPiece(offset, memoryview(b""), epoch, epoch_start, confirm_offset)
        self._left = size
        return self._batch
