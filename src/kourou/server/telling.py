"""Sends a one-way command to a broker, at the address with which it has registered."""

import asyncio
import logging
from typing import Final

from kourou.net.client import connect
from kourou.net.connection import Connection
from kourou.net.errors import TransportError
from kourou.net.tls import TlsSettings
from kourou.protocol.command import Command
from kourou.protocol.names import shown

log = logging.getLogger(__name__)

TELL_TIMEOUT: Final = 3.0


async def tell(address: str, command: Command, registered: Connection, tls: TlsSettings | None = None) -> None:
    """Send a command. Connects only to the host from which the broker registered, since it may name any address."""
    host, _, port = address.rpartition(":")
    peer = registered.peer.rpartition(":")[0]
    if host.strip("[]") != peer.strip("[]"):
        log.warning("broker not notified address=%s: it registered from another host, %s", shown(address), peer)
        return
    try:
        async with asyncio.timeout(TELL_TIMEOUT):
            connection = await connect(host.strip("[]"), int(port), tls=tls, timeout=TELL_TIMEOUT)
            try:
                await connection.send(command)
            finally:
                connection.close()
    except (TransportError, TimeoutError, ValueError, OverflowError) as error:
        log.warning("broker not notified address=%s code=%d: %s", shown(address), command.code, shown(error))
