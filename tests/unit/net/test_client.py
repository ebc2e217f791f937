"""Connections that can't be made, and say why."""

import errno
import select
import socket
from contextlib import ExitStack

import pytest

from kourou.net.client import connect
from kourou.net.errors import ConnectFailedError, TransportError
from kourou.net.tls import TlsSettings
from kourou.protocol.command import Command

from .conftest import Listen


async def test_nobody_listens() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with pytest.raises(ConnectFailedError, match=f"no connection to 127.0.0.1:{port}: ") as raised:
            await connect("127.0.0.1", port)
    assert raised.value.retriable
    assert isinstance(raised.value, TransportError)


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("127.0.0.1", -1),
        ("127.0.0.1", 65536),
        ("127.0.0.1", 10**30),
        ("", 1),
        (".", 1),
        ("host name", 1),
        ("host\x00name", 1),
        ("host\nname", 1),
        ("a" * 300, 1),
        ("\udfff", 1),
        ("ü" * 80, 1),
        ("::1%nowhere", 1),
    ],
)
@pytest.mark.parametrize("tls", [None, TlsSettings()], ids=["plain", "tls"])
async def test_addresses_that_are_none(host: str, port: int, tls: TlsSettings | None) -> None:
    """Brokers register whatever they like as their address, and may be told something there."""
    with pytest.raises(ConnectFailedError, match="no connection to"):
        await connect(host, port, tls=tls, timeout=5)


async def test_giving_up_while_connecting() -> None:
    """A server that accepts no connection, with a full backlog: connections to it are not refused, just not made."""
    with ExitStack() as sockets:
        full = sockets.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        made = True
        while made:
            sock = sockets.enter_context(socket.socket())
            sock.setblocking(False)
            assert sock.connect_ex(full.getsockname()) == errno.EINPROGRESS
            _, made, _ = select.select([], [sock], [], 0.3)  # type: ignore[assignment]
        with pytest.raises(ConnectFailedError, match=r"in 0\.1 s"):
            await connect("127.0.0.1", full.getsockname()[1], timeout=0.1)


async def test_localhost_by_name(listen: Listen) -> None:
    listener = await listen()
    connection = await connect("localhost", listener.port)
    assert connection.peer == f"127.0.0.1:{listener.port}"
    assert (await connection.request(Command(1), 5)).code == 0
    connection.close()
    await connection.lost
