"""Commands out of a byte stream, in pieces of any size."""

import pytest

from kourou.protocol import command, frame
from kourou.protocol.command import Command
from kourou.protocol.errors import FrameError

try:
    from kourou.protocol import _wire
except ImportError:
    _wire = None  # type: ignore[assignment]


SPLITS = {"plain": frame.split_plain} | ({} if _wire is None else {"compiled": _wire.split})


@pytest.fixture(params=SPLITS, autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Decoder` with each of the two ways to cut."""
    monkeypatch.setattr(frame, "split", SPLITS[request.param])


COMMANDS = [
    Command(105, 1, ext={"topic": "T"}),
    Command(310, 2, ext={"a": "g", "i": "KEYS\x01k\x02"}, body=b"x" * 300, binary=True),
    Command(34, -3, flag=2, remark="订单", body=b"{}"),
]
STREAM = b"".join(map(command.encode, COMMANDS))


def test_whole_frames_at_once() -> None:
    decoder = frame.Decoder()
    assert decoder.feed(STREAM) == COMMANDS
    assert (decoder.buffered, decoder.error) == (0, None)
    assert decoder.feed(STREAM) == COMMANDS


def test_byte_by_byte() -> None:
    decoder = frame.Decoder()
    found = [command for n in range(len(STREAM)) for command in decoder.feed(STREAM[n : n + 1])]
    assert found == COMMANDS
    assert decoder.buffered == 0


@pytest.mark.parametrize("cut", range(1, 16))
def test_a_frame_that_ends_in_the_next_piece(cut: int) -> None:
    decoder = frame.Decoder()
    assert decoder.feed(STREAM[:-cut]) == COMMANDS[:-1]
    assert decoder.buffered == len(command.encode(COMMANDS[-1])) - cut
    assert decoder.feed(STREAM[-cut:] + STREAM[:-cut]) == [COMMANDS[-1], *COMMANDS[:-1]]


def test_what_is_unfinished_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large frame in small pieces costs its size, not the square of it."""
    looks = 0
    real = frame.split

    def counting(data: bytes, limit: int) -> tuple[list[Command], int, int, FrameError | None]:
        nonlocal looks
        looks += 1
        return real(data, limit)

    monkeypatch.setattr(frame, "split", counting)
    large = command.encode(Command(1, body=bytes(100_000)))
    decoder = frame.Decoder()
    found = [command for at in range(0, len(large), 100) for command in decoder.feed(large[at : at + 100])]
    assert len(found) == 1
    assert looks == 2


def test_only_the_unfinished_frame_is_held() -> None:
    decoder = frame.Decoder()
    for _ in range(50):
        decoder.feed(STREAM + STREAM[:10])
        assert decoder.buffered <= len(STREAM)
        decoder.feed(STREAM[10:])
        assert decoder.buffered == 0


def test_nothing_is_fed() -> None:
    decoder = frame.Decoder()
    assert decoder.feed(b"") == []
    decoder.feed(STREAM[:7])
    assert decoder.feed(b"") == []
    assert decoder.buffered == 7


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("00000000", "frame length 0: not a RocketMQ frame"),
        ("00000003", "frame length 3: not a RocketMQ frame"),
        ("ffffffff", "frame length -1: not a RocketMQ frame"),
        ("80000000", "frame length -2147483648: not a RocketMQ frame"),
        ("000003e9", "frame of 1001 bytes; the limit is 1000"),
        ("7fffffff", "frame of 2147483647 bytes; the limit is 1000"),
        ("47455420", "frame of 1195725856 bytes"),
        ("00000004 00000001", "a header of 1 bytes does not fit into a frame of 4 bytes"),
        ("00000005 00ffffff 00", "a header of 16777215 bytes does not fit into a frame of 5 bytes"),
        ("00000004 02000000", "unknown header format 2"),
        ("00000004 ff000000", "unknown header format 255"),
        ("00000004 00000000", "JSON header does not decode"),
        ("00000004 01000000", "binary header of 0 bytes does not decode"),
        ("00000006 00000002 7b5d", "JSON header does not decode"),
    ],
)
def test_a_frame_without_sense_ends_the_stream(bad: str, why: str) -> None:
    decoder = frame.Decoder(1000)
    assert decoder.feed(STREAM + bytes.fromhex(bad) + STREAM) == COMMANDS
    assert isinstance(decoder.error, FrameError)
    assert why in str(decoder.error)
    assert decoder.feed(STREAM) == []
    assert decoder.buffered == 0


def test_a_length_is_judged_before_the_frame_is_there() -> None:
    decoder = frame.Decoder(1000)
    assert decoder.feed((1001).to_bytes(4)) == []
    assert decoder.error is not None


def test_a_frame_of_the_largest_size() -> None:
    size = len(command.encode(Command(1))) - 4
    fitting = command.encode(Command(1, body=bytes(1000 - size)))
    assert len(fitting) == 1004
    assert len(frame.Decoder(1000).feed(fitting)) == 1
    decoder = frame.Decoder(999)
    assert decoder.feed(fitting) == []
    assert "the limit is 999" in str(decoder.error)


def test_apaches_limit() -> None:
    decoder = frame.Decoder()
    decoder.feed((16 * 1024 * 1024).to_bytes(4))
    assert decoder.error is None
    decoder = frame.Decoder()
    decoder.feed((16 * 1024 * 1024 + 1).to_bytes(4))
    assert decoder.error is not None


def test_a_generous_limit_does_not_confuse_the_forms() -> None:
    """With frames beyond 16 MiB a binary header's word is less than the frame's length: it is still binary."""
    size = 18 * 1024 * 1024
    made = Command(1, 2, 0, 513, "JAVA", None, None, bytes(size), True)
    assert frame.Decoder(32 * 1024 * 1024).feed(command.encode(made)) == [made]
    text = b'{"code":1}'
    looks_like_json = text + b" " * ((1 << 24) - len(text))
    data = (4 + len(looks_like_json)).to_bytes(4) + (1 << 24).to_bytes(4) + looks_like_json
    decoder = frame.Decoder(32 * 1024 * 1024)
    assert decoder.feed(data) == []
    assert "binary header of 0 bytes" in str(decoder.error)


def test_frames_of_nothing_but_a_header() -> None:
    data = bytes.fromhex("00000006 00000002 7b7d") * 1000
    assert frame.Decoder().feed(data) == [Command(0, version=0, language="OTHER")] * 1000
