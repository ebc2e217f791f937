"""The blocking client of tasks: frames in pieces of any size, large ones, answers in another order, nonsense."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.errors import FrameError
from kourou.protocol.frame import FRAME_SIZE_MAX, Decoder, encode
from kourou.spark.wire import BUFFER_SIZE, SMALL, Access, Intake, Link


def answer(number: int, body: bytes = b"", *, binary: bool = False) -> bytes:
    return encode(Command(0, number, 1, ext={"n": str(number)}, body=body, binary=binary))


BODIES = [b"", b"x", b"y" * SMALL, b"z" * (BUFFER_SIZE - 7), b"", b"w" * (3 * BUFFER_SIZE), *[b"v" * 777] * 20, b"u"]


@pytest.mark.parametrize("piece", [1013, SMALL, 65_536, 10**9])
def test_frames_in_pieces(piece: int) -> None:
    stream = b"".join(answer(number, body, binary=number % 3 == 0) for number, body in enumerate(BODIES))
    near, far = socket.socketpair()

    def write() -> None:
        for at in range(0, len(stream), piece):
            far.sendall(stream[at : at + piece])
        far.close()

    thread = threading.Thread(target=write)
    thread.start()
    intake = Intake(near, "there")
    try:
        for number, body in enumerate(BODIES):
            command, found = intake.frame()
            assert (command.opaque, command.ext, bytes(found)) == (number, {"n": str(number)}, body)
        with pytest.raises(ConnectionResetError, match="there has closed the connection"):
            intake.frame()
    finally:
        thread.join()
        near.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff",
        b"\0\0\0\3",
        (FRAME_SIZE_MAX + 1).to_bytes(4),
        b"\0\0\0\5\0\0\0\1x",  # a header that is none
        b"\0\0\0\5\0\0\0\x63x",  # one that is longer than its frame
        b"\0\0\0\5\7\0\0\1x",  # of an unknown form
    ],
)
def test_bytes_that_are_not_a_frame(garbage: bytes) -> None:
    near, far = socket.socketpair()
    with near, far:
        far.sendall(garbage)
        with pytest.raises(FrameError):
            Intake(near, "there").frame()


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[list[Command]], bytes], int], Link]]:
    """A link to a server that answers a number of requests at once, as a function says."""
    made: list[tuple[Link, threading.Thread]] = []

    def start(react: Callable[[list[Command]], bytes], count: int) -> Link:
        listener = socket.create_server(("127.0.0.1", 0))

        def work() -> None:
            with listener, listener.accept()[0] as connection:
                decoder, commands = Decoder(), []
                while data := connection.recv(65_536):
                    commands += decoder.feed(data)
                    if len(commands) >= count:
                        connection.sendall(react(commands))
                        commands = []

        thread = threading.Thread(target=work)
        thread.start()
        link = Link(f"127.0.0.1:{listener.getsockname()[1]}", Access(timeout=10.0))
        made.append((link, thread))
        return link

    yield start
    for link, thread in made:
        link.close()
        thread.join()


def test_answers_in_another_order(serve: Callable[[Callable[[list[Command]], bytes], int], Link]) -> None:
    """A body stays as it was, also when others came before it; unexpected ones are dropped."""

    def backwards(commands: list[Command]) -> bytes:
        asked_back = encode(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 1))
        return asked_back + b"".join(answer(one.opaque, b"%d" % one.opaque * 9000) for one in reversed(commands))

    link = serve(backwards, 6)
    for _ in range(3):
        numbers = link.send(*(Command(RequestCode.PULL_MESSAGE) for _ in range(6)))
        link.ignore(numbers[3:5])
        command, body = link.answer_in_place(numbers[0])
        assert (command.opaque, bytes(body)) == (numbers[0], b"%d" % numbers[0] * 9000)
        for number in (numbers[5], numbers[1], numbers[2]):
            assert link.answer(number).body == b"%d" % number * 9000
    assert not link.broken


def test_a_link_that_got_nonsense_is_of_no_use(
    serve: Callable[[Callable[[list[Command]], bytes], int], Link],
) -> None:
    link = serve(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", 1)
    with pytest.raises(FrameError):
        link.ask(Command(RequestCode.PULL_MESSAGE))
    assert link.broken


def test_unexpected_answers_are_not_kept(
    serve: Callable[[Callable[[list[Command]], bytes], int], Link],
) -> None:
    def many(commands: list[Command]) -> bytes:
        unasked = b"".join(answer(number, b"x" * 100) for number in range(1_000_000, 1_002_000))
        return unasked + b"".join(answer(one.opaque, b"asked") for one in commands)

    link = serve(many, 1)
    for _ in range(3):
        assert link.ask(Command(RequestCode.PULL_MESSAGE)).body == b"asked"
    assert not link._early
    assert not link._asked
