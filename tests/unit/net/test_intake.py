"""PROXY preambles, TLS and frames, byte by byte. No sockets."""

import pytest

from kourou.net import proxy
from kourou.net.intake import Intake
from kourou.net.tls import TlsLayer, TlsMode, TlsSettings
from kourou.protocol import frame
from kourou.protocol.command import Command
from kourou.protocol.errors import FrameError

TRUSTED = proxy.networks("10.0.0.0/8")
PREAMBLE = b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 9876\r\n"
FRAME = frame.encode(Command(105, 7, body=b"x" * 50))
SETTINGS = TlsSettings()


def intake(mode: TlsMode = TlsMode.PERMISSIVE, trusted: proxy.Networks = TRUSTED) -> Intake:
    made = Intake(
        1024 * 1024, tls=SETTINGS if mode is TlsMode.PERMISSIVE else TlsSettings(mode=mode), trusted_proxies=trusted
    )
    made.peer = "10.0.0.5:4711"
    return made


def feed(made: Intake, data: bytes, size: int) -> list[Command]:
    """The commands in what came in pieces of this size."""
    found: list[Command] = []
    for at in range(0, len(data), size):
        plain, answer = made.unwrap(data[at : at + size])
        assert not answer
        found += made.decoder.feed(plain)
    return found


@pytest.mark.parametrize("size", [1, 3, 20, 1000])
@pytest.mark.parametrize("preamble", [b"", PREAMBLE])
def test_frames_in_plain_text(size: int, preamble: bytes) -> None:
    made = intake()
    assert [command.opaque for command in feed(made, preamble + FRAME * 2, size)] == [7, 7]
    assert made.is_plain and not made.has_begun
    assert made.peer == ("192.0.2.1:56324" if preamble else "10.0.0.5:4711")


@pytest.mark.parametrize("size", [1, 7, 100, 100_000])
@pytest.mark.parametrize("preamble", [b"", PREAMBLE])
def test_frames_in_tls(size: int, preamble: bytes) -> None:
    made = intake()
    client = TlsLayer(SETTINGS.client_context, server_side=False)
    to_server, found = preamble + client.start(), []
    for _ in range(10):
        to_client = b""
        for at in range(0, len(to_server), size):
            plain, answer = made.unwrap(to_server[at : at + size])
            found += made.decoder.feed(plain)
            to_client += answer
        to_server = client.receive(to_client)[1] if to_client else b""
        if client.ready and not to_server and not found:
            to_server = client.send(FRAME)
    assert [command.opaque for command in found] == [7]
    assert made.tls is not None and not made.is_plain and not made.has_begun and not made.is_closed
    made.unwrap(client.goodbye())
    assert made.is_closed


def test_a_preamble_counts_from_trusted_addresses_only() -> None:
    with pytest.raises(FrameError, match="not trusted"):
        intake(trusted=()).unwrap(PREAMBLE)


def test_a_second_preamble_is_refused() -> None:
    """The first comes from the balancer, the second from the client, which would pretend another address."""
    made = intake()
    other = PREAMBLE.replace(b"192.0.2.1 ", b"192.0.2.9 ")
    plain, _ = made.unwrap(PREAMBLE + other)
    assert (plain, made.peer) == (other, "192.0.2.1:56324")
    made.decoder.feed(plain)
    assert made.decoder.error is not None


@pytest.mark.parametrize(
    ("mode", "data", "reason"),
    [
        (TlsMode.DISABLED, b"\x16\x03\x01", "disabled on this server"),
        (TlsMode.ENFORCING, FRAME, "required on this server"),
    ],
)
def test_a_kind_of_stream_that_is_not_served(mode: TlsMode, data: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        intake(mode).unwrap(data)


def test_the_time_of_what_is_begun() -> None:
    made = intake()
    made.unwrap(PREAMBLE[:10])
    made.note(1.0, whole=False)
    made.unwrap(PREAMBLE[10:])
    made.note(2.0, whole=False)
    assert made.unfinished_for(3.0) == 0.0  # the preamble is whole, and nothing else is begun
    made.decoder.feed(made.unwrap(FRAME[:20])[0])
    made.note(4.0, whole=False)
    made.decoder.feed(made.unwrap(FRAME[20:30])[0])
    made.note(5.0, whole=False)
    assert made.unfinished_for(6.0) == 2.0  # a byte now and then is no progress
    made.decoder.feed(made.unwrap(FRAME[30:] + FRAME[:20])[0])
    made.note(7.0, whole=True)
    assert made.unfinished_for(8.0) == 1.0
    assert made.forget() == 20 and not made.decoder.buffered
