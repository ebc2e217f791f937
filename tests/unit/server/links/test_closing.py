"""The port for slaves after it was closed."""

import asyncio
import contextlib
import socket

from tests.waiting import eventually

from kourou.replication.links import Accepted, LinkEvent
from kourou.server.ha import HaPort


async def test_a_closed_port_does_not_connect() -> None:
    events: list[LinkEvent] = []
    other = HaPort(events.append)
    port = await other.listen("127.0.0.1", 0)
    closed = HaPort(events.append)
    closed.close()
    closed.connect(f"127.0.0.1:{port}")
    open_one = HaPort(events.append, one_master=False)
    open_one.connect(f"127.0.0.1:{port}")
    await eventually(lambda: any(isinstance(event, Accepted) for event in events))
    assert len(other.wires) == 1, "only the open one has connected"
    for one in (open_one, other):
        one.close()
    await eventually(lambda: not other.wires and not open_one.wires)


async def test_a_connection_that_is_accepted_during_close_is_ended() -> None:
    events: list[LinkEvent] = []
    port = HaPort(events.append)
    number = await port.listen("127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    with socket.socket() as peer:
        peer.setblocking(False)
        await loop.sock_connect(peer, ("127.0.0.1", number))
        await asyncio.sleep(0)  # the event loop accepts it
        port.close()
        with contextlib.suppress(ConnectionResetError):
            assert await loop.sock_recv(peer, 1) == b""
    assert not port.wires
