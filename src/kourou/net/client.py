"""Opens connections to servers."""

import asyncio

from kourou.net.connection import Connection
from kourou.net.errors import ConnectFailedError, ConnectionLostError
from kourou.net.handlers import Handler, NoRequests
from kourou.net.limits import Budget, Limits
from kourou.net.tls import TlsLayer, TlsSettings

CONNECT_TIMEOUT = 3.0


async def connect(
    host: str,
    port: int,
    *,
    handler: Handler | None = None,
    limits: Limits | None = None,
    tls: TlsSettings | None = None,
    timeout: float = CONNECT_TIMEOUT,
    ends_if_silent: bool = False,
) -> Connection:
    """Connect to `host:port`, with TLS if settings are given. Raises ConnectFailedError."""
    limits = limits or Limits()

    def make(layer: TlsLayer | None) -> Connection:
        return Connection(
            handler or NoRequests(), limits, Budget(limits.buffered), tls_layer=layer, ends_if_silent=ends_if_silent
        )

    loop = asyncio.get_running_loop()
    if "\0" in host:
        raise ConnectFailedError(f"no connection to {host!r}:{port}: this is not a valid host name")
    try:
        layer = None if tls is None else TlsLayer(tls.client_context, server_side=False, server_hostname=host)
        async with asyncio.timeout(timeout):
            _, connection = await loop.create_connection(lambda: make(layer), host, port)
            try:
                await connection.tls_established()
            except BaseException:
                connection.close()
                raise
    except TimeoutError:
        raise ConnectFailedError(f"no connection to {host}:{port} within {timeout:g} s") from None
    except (OSError, OverflowError, ValueError, ConnectionLostError) as error:  # including invalid names and ports
        raise ConnectFailedError(f"no connection to {host}:{port}: {error}") from error
    return connection
