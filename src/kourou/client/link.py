"""A client's connection to one server.

It is a `Connection` like a server's, with one more rule: a server from which nothing came while a request waited for
its whole time is taken for dead.
"""

from typing import TypeAlias

from kourou.net.client import CONNECT_TIMEOUT, connect
from kourou.net.connection import Connection
from kourou.net.handlers import Handler
from kourou.net.limits import Limits
from kourou.net.tls import TlsSettings

Link: TypeAlias = Connection


async def open_link(
    host: str,
    port: int,
    handler: Handler,
    limits: Limits,
    tls: TlsSettings | None = None,
    timeout: float = CONNECT_TIMEOUT,
) -> Link:
    """A connection to `host:port`, in TLS when its settings are given. Raises ConnectFailedError."""
    return await connect(host, port, handler=handler, limits=limits, tls=tls, timeout=timeout, ends_if_silent=True)
