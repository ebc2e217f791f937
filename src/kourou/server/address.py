"""The address that is announced to clients."""

import ipaddress
import socket


def own_address(bind: str) -> str:
    """The address of a broker that listens on `bind`: for a wildcard address, the one of outgoing connections.

    To find it, nothing is sent.
    """
    try:
        address = ipaddress.ip_address(bind)
    except ValueError:
        return socket.gethostbyname(bind)
    if not address.is_unspecified:
        return bind
    family, elsewhere = (socket.AF_INET, "192.0.2.1") if address.version == 4 else (socket.AF_INET6, "2001:db8::1")
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((elsewhere, 9))
        except OSError:
            return "127.0.0.1" if address.version == 4 else "::1"
        return str(probe.getsockname()[0])
