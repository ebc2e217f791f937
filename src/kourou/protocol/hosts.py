"""Addresses in records and message ids: an IP of 4 or 16 bytes, then the port as an int.

IPv4   8 bytes   7f000001 00002a9f                              127.0.0.1:10911
IPv6  20 bytes   20010db8 00000000 00000000 00000001 00002a9f   [2001:db8::1]:10911
"""

import ipaddress
from functools import lru_cache
from typing import Final

from kourou.protocol.errors import LocalProtocolError

IPV4_HOST_SIZE: Final = 8
IPV6_HOST_SIZE: Final = 20


def encode_host(address: str) -> bytes:
    """Encode `ip:port`; an IPv6 address may be in brackets. Raises LocalProtocolError."""
    ip, _, port = address.rpartition(":")
    try:
        packed = ipaddress.ip_address(ip.removeprefix("[").removesuffix("]")).packed
    except ValueError:
        raise LocalProtocolError(f"{address!r} does not start with an IP address") from None
    if not (port.isascii() and port.isdigit() and int(port) <= 0xFFFF):
        raise LocalProtocolError(f"{address!r} does not end in a port from 0 to 65535")
    return packed + int(port).to_bytes(4)


@lru_cache(maxsize=4096)
def decode_host(host: bytes) -> str:
    """Decode a host of 8 or 20 bytes. Cached, because few hosts send many messages."""
    port = int.from_bytes(host[-4:])
    if len(host) == IPV4_HOST_SIZE:
        return f"{host[0]}.{host[1]}.{host[2]}.{host[3]}:{port}"
    assert len(host) == IPV6_HOST_SIZE, "a host has 8 or 20 bytes"
    return f"[{ipaddress.IPv6Address(host[:-4])}]:{port}"
