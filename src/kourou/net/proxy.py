"""The preamble of HAProxy's PROXY protocol, versions 1 and 2: the address of the client behind a load balancer.

    v1   PROXY TCP4 192.0.2.1 192.0.2.2 56324 9876\\r\\n
    v2   12-byte signature, version|command, family|transport, length:int16, addresses, extensions

No RocketMQ frame starts like either of them, so a listener recognises them by the first byte. It accepts a preamble
only from addresses that the operator trusts (proxyProtocolTrusted), since any other peer could claim any address.
"""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from kourou.protocol.errors import FrameError

V1_PREFIX = b"PROXY "
V1_SIZE_MAX = 107
V2_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V2_HEAD_SIZE = 16
V2_SIZE_MAX = 4096
FIRST_BYTES = frozenset((V1_PREFIX[0], V2_SIGNATURE[0]))


Networks: TypeAlias = Sequence[IPv4Network | IPv6Network]


def networks(text: str) -> Networks:
    """From `10.0.0.5;192.0.2.0/24`, with `;`, `,` or blanks between them. Raises ValueError."""
    return tuple(ip_network(word) for word in text.replace(";", " ").replace(",", " ").split())


def is_trusted(address: str, trusted: Networks) -> bool:
    """May the peer at "ip:port" send a preamble?"""
    if not trusted:
        return False
    try:
        ip = ip_address(address.rpartition(":")[0].strip("[]").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None)  # an IPv4 peer of a socket for both
    return any(one in network for network in trusted for one in (ip, mapped) if one is not None)


def parse(data: bytes) -> tuple[str | None, int] | None:
    """The client's "ip:port" (None: unknown or local) and the preamble's size; None: more bytes are needed.

    Raises FrameError for bytes that start like a preamble but are not one.
    """
    if data[:1] == V1_PREFIX[:1]:
        return _parse_v1(data)
    return _parse_v2(data)


def _parse_v1(data: bytes) -> tuple[str | None, int] | None:
    if not data.startswith(V1_PREFIX[: len(data)]):
        raise FrameError("neither a RocketMQ frame nor a PROXY preamble")
    end = data.find(b"\r\n", 0, V1_SIZE_MAX)
    if end < 0:
        if len(data) >= V1_SIZE_MAX:
            raise FrameError(f"PROXY preamble does not end within {V1_SIZE_MAX} bytes")
        return None
    words = data[:end].decode("latin-1").split(" ")
    if words[1:2] == ["UNKNOWN"]:
        return None, end + 2
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
        raise FrameError(f"PROXY preamble {data[:end]!r} is malformed")
    try:
        return _address(words[2], int(words[4])), end + 2
    except ValueError as error:
        raise FrameError(f"PROXY preamble {data[:end]!r}: {error}") from None


def _parse_v2(data: bytes) -> tuple[str | None, int] | None:
    if not data.startswith(V2_SIGNATURE[: len(data)]):
        raise FrameError("neither a RocketMQ frame nor a PROXY preamble")
    if len(data) < V2_HEAD_SIZE:
        return None
    version, command = data[12] >> 4, data[12] & 15
    size = V2_HEAD_SIZE + int.from_bytes(data[14:16])
    if version != 2 or command > 1 or size > V2_SIZE_MAX:
        raise FrameError(f"PROXY preamble of version {version}, command {command}, {size} bytes is not supported")
    if len(data) < size:
        return None
    width = {0x11: 4, 0x21: 16}.get(data[13])
    if command == 0 or width is None:
        return None, size
    if size < V2_HEAD_SIZE + 2 * width + 4:
        raise FrameError("PROXY preamble is too short for its addresses")
    port_at = V2_HEAD_SIZE + 2 * width
    host = str(ip_address(data[V2_HEAD_SIZE : V2_HEAD_SIZE + width]))
    return _address(host, int.from_bytes(data[port_at : port_at + 2])), size


def _address(host: str, port: int) -> str:
    if not 0 <= port <= 65535:
        raise ValueError(f"port {port} is out of range")
    if "%" in host:
        raise ValueError("an address with a zone")  # a zone may hold any text, line ends too
    address = ip_address(host)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
