"""The address that clients are told."""

import ipaddress
import socket


def own_address(bind: str) -> str:
    """Of a broker that listens on `bind`: that address or, if it is all of them, the one that leads out of the machine.

    Asking for it sends nothing.
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
