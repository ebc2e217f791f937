"""The PROXY preamble, versions 1 and 2, whole and in pieces."""

import pytest

from kourou.net import proxy
from kourou.net.connection import Connection
from kourou.protocol import frame
from kourou.protocol.command import Command
from kourou.protocol.errors import FrameError

from .conftest import Knock, Listen
from .peers import Echo, RawPeer, eventually, only_connection

V2 = proxy.V2_SIGNATURE


def v2(command: int, family: int, addresses: bytes, extension: bytes = b"") -> bytes:
    return V2 + bytes([0x20 | command, family]) + len(addresses + extension).to_bytes(2) + addresses + extension


IPV4 = bytes([192, 0, 2, 1, 192, 0, 2, 2]) + (56324).to_bytes(2) + (9876).to_bytes(2)
IPV6 = (
    bytes.fromhex("20010db8" + "0" * 23 + "1" + "20010db8" + "0" * 23 + "2") + (56324).to_bytes(2) + (9876).to_bytes(2)
)

GOOD: dict[str, tuple[bytes, str | None]] = {
    "v1 TCP4": (b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 9876\r\n", "192.0.2.1:56324"),
    "v1 TCP6": (b"PROXY TCP6 2001:db8::1 2001:db8::2 56324 9876\r\n", "[2001:db8::1]:56324"),
    "v1 UNKNOWN": (b"PROXY UNKNOWN\r\n", None),
    "v1 UNKNOWN with more": (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", None),
    "v1 at its longest": (b"PROXY UNKNOWN " + b"f" * 91 + b"\r\n", None),
    "v2 TCP4": (v2(1, 0x11, IPV4), "192.0.2.1:56324"),
    "v2 TCP6": (v2(1, 0x21, IPV6), "[2001:db8::1]:56324"),
    "v2 TCP4 with an extension": (v2(1, 0x11, IPV4, b"\x04\x00\x02ab"), "192.0.2.1:56324"),
    "v2 LOCAL": (v2(0, 0x00, b""), None),
    "v2 LOCAL with addresses": (v2(0, 0x11, IPV4), None),
    "v2 UNSPEC": (v2(1, 0x00, b""), None),
    "v2 unix socket": (v2(1, 0x31, bytes(216)), None),
    "v2 at its longest": (v2(1, 0x11, IPV4, bytes(4096 - 16 - 12)), "192.0.2.1:56324"),
}

BAD = {
    "v1 another word": b"POST / HTTP/1.1\r\n",
    "v1 no end": b"PROXY TCP4 " + b"1" * 100,
    "v1 one byte too long": b"PROXY UNKNOWN " + b"f" * 92 + b"\r\n",
    "v1 too few words": b"PROXY TCP4 192.0.2.1 192.0.2.2 56324\r\n",
    "v1 too many words": b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 9876 1\r\n",
    "v1 no words": b"PROXY \r\n",
    "v1 another protocol": b"PROXY UDP4 192.0.2.1 192.0.2.2 56324 9876\r\n",
    "v1 no address": b"PROXY TCP4 example 192.0.2.2 56324 9876\r\n",
    "v1 an address with a zone": b"PROXY TCP6 fe80::1%eth0\nroot fe80::2 56324 9876\r\n",
    "v1 no port": b"PROXY TCP4 192.0.2.1 192.0.2.2 http 9876\r\n",
    "v1 a port out of range": b"PROXY TCP4 192.0.2.1 192.0.2.2 65536 9876\r\n",
    "v1 a negative port": b"PROXY TCP4 192.0.2.1 192.0.2.2 -1 9876\r\n",
    "v1 not ASCII": b"PROXY TCP4 \xff\xfe 192.0.2.2 56324 9876\r\n",
    "v2 another signature": b"\r\n\r\n\x00\r\nQUIX\n" + bytes(20),
    "v2 another version": V2 + bytes([0x11, 0x11, 0, 12]) + IPV4,
    "v2 another command": V2 + bytes([0x22, 0x11, 0, 12]) + IPV4,
    "v2 too long": V2 + bytes([0x21, 0x11, 0x10, 0]),
    "v2 too short for its addresses": v2(1, 0x11, IPV4[:-1]),
    "v2 too short for IPv6": v2(1, 0x21, IPV4),
}


@pytest.mark.parametrize("name", GOOD)
def test_parse(name: str) -> None:
    data, address = GOOD[name]
    assert proxy.parse(data) == (address, len(data))
    assert proxy.parse(data + b"\0\0\0\4") == (address, len(data))


@pytest.mark.parametrize("name", GOOD)
def test_parse_needs_all_of_it(name: str) -> None:
    data, _ = GOOD[name]
    for size in range(1, len(data)):
        assert proxy.parse(data[:size]) is None


@pytest.mark.parametrize("name", BAD)
def test_parse_refuses(name: str) -> None:
    with pytest.raises(FrameError):
        proxy.parse(BAD[name])


@pytest.mark.parametrize("name", BAD)
def test_parse_refuses_in_time(name: str) -> None:
    """Never more than the longest preamble is awaited."""
    data = BAD[name]
    longest = proxy.V1_SIZE_MAX if data[:1] == b"P" else proxy.V2_SIZE_MAX
    with pytest.raises(FrameError):
        _ = [proxy.parse((data + bytes(longest))[:size]) for size in range(1, longest + 1)]


def test_no_frame_looks_like_a_preamble() -> None:
    for first in proxy.FIRST_BYTES:
        assert int.from_bytes(bytes([first, 0, 0, 0])) > frame.FRAME_SIZE_MAX


async def ask(peer: RawPeer) -> None:
    await peer.send(Command(1, 7, body=b"x"))
    assert (await peer.command()).body == b"x"


@pytest.mark.parametrize("name", GOOD)
async def test_the_address_behind_a_balancer(name: str, listen: Listen, knock: Knock) -> None:
    data, address = GOOD[name]
    handler = Echo()
    peer = await knock(await listen(handler))
    await peer.send(data + frame.encode(Command(1, 1)))
    await peer.command()
    assert handler.connections[0].peer == (address or peer.address)
    await ask(peer)


def _taken(server: Connection, preamble_size: int) -> int:
    """How many bytes of the stream the server has looked at."""
    intake = server.intake
    if intake.is_plain:
        return preamble_size + intake.decoder.buffered
    return len(intake._preamble) + (preamble_size if intake._is_proxied else 0)


@pytest.mark.parametrize("name", ["v1 TCP4", "v2 TCP4"])
async def test_a_preamble_cut_at_every_byte(name: str, listen: Listen, knock: Knock) -> None:
    data, address = GOOD[name]
    handler = Echo()
    listener = await listen(handler)
    stream = data + frame.encode(Command(1, 1))
    for cut in range(1, len(stream)):
        peer = await knock(listener)
        server = await only_connection(listener)
        await peer.send(stream[:cut])
        await eventually(lambda: _taken(server, len(data)) == cut)  # noqa: B023
        await peer.send(stream[cut:])
        assert (await peer.command()).opaque == 1
        assert server.peer == address
        peer.close()
        await eventually(lambda: not listener.connections)
    assert len(handler.seen) == len(stream) - 1


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_preamble_ends_its_connection(name: str, listen: Listen, knock: Knock) -> None:
    handler = Echo()
    listener = await listen(handler)
    peer, other = await knock(listener), await knock(listener)
    await peer.send(BAD[name])
    assert await peer.ended()
    await eventually(lambda: handler.gone)
    assert "\n" not in handler.gone[0].peer + (handler.gone[0].reason or "")
    await ask(other)


async def test_a_second_preamble_is_none(listen: Listen, knock: Knock) -> None:
    """Behind the balancer's preamble a client could write its own, to look like another client."""
    handler = Echo()
    listener = await listen(handler)
    for together in (True, False):
        peer = await knock(listener)
        first, second = GOOD["v1 TCP4"][0], b"PROXY TCP4 198.51.100.9 192.0.2.2 1 9876\r\n"
        if together:
            await peer.send(first + second + frame.encode(Command(1)))
        else:
            server = await only_connection(listener)
            await peer.send(first)
            await eventually(lambda: server.peer == "192.0.2.1:56324")  # noqa: B023
            await peer.send(second + frame.encode(Command(1)))
        assert await peer.ended()
        await eventually(lambda: not listener.connections)
        assert handler.gone.pop().peer == "192.0.2.1:56324"
    assert handler.seen == []


@pytest.mark.parametrize("trusted", ["", "192.0.2.0/24;10.0.0.5", "::1"])
async def test_a_preamble_from_any_other_address_ends_the_connection(
    trusted: str, listen: Listen, knock: Knock
) -> None:
    listener = await listen(trusted=trusted)
    peer = await knock(listener)
    server = await only_connection(listener)
    address = server.peer
    await peer.send(b"PROXY TCP4 203.0.113.9 192.0.2.2 1 2\r\n" + frame.encode(Command(1)))
    assert await peer.ended()
    assert server.peer == address, "nobody is taken for whom he says he is"
    assert server.reason == "a PROXY preamble from an address that is not trusted (proxyProtocolTrusted)"


@pytest.mark.parametrize(
    ("address", "trusted"),
    [
        ("10.0.0.5:1", "10.0.0.5"),
        ("10.0.0.5:1", "192.0.2.0/24, 10.0.0.0/8"),
        ("[::1]:1", "::1"),
        ("[fe80::1%eth0]:1", "fe80::/10"),
        ("[::ffff:10.0.0.5]:1", "10.0.0.5"),
    ],
)
def test_trusted(address: str, trusted: str) -> None:
    assert proxy.is_trusted(address, proxy.networks(trusted))
    assert not proxy.is_trusted(address, proxy.networks("203.0.113.0/24"))
    assert not proxy.is_trusted("", proxy.networks(trusted))


def test_invalid_networks() -> None:
    with pytest.raises(ValueError, match="does not appear to be"):
        proxy.networks("balancer.example.com")
