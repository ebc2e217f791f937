"""The machine at the other end of an idle connection loses power and starts again."""

import asyncio
import subprocess
import sys
import time

import pytest
from tests.waiting import eventually

from kourou.replication.links import Closed, Connected, LinkEvent
from kourou.server.ha import UNACKNOWLEDGED_MS, HaPort

from .raft_faults import Network, may_isolate

LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], 40911)) as server:
    print("ready", flush=True)
    kept = []
    while True:
        kept.append(server.accept())
"""


@pytest.mark.slow
@pytest.mark.once
async def test_an_idle_connection_ends_when_the_other_machine_has_restarted() -> None:
    """Members that follow say nothing to each other, and need the connection to elect a leader."""
    if not may_isolate():
        pytest.skip("network namespaces are not allowed here")
    events: list[LinkEvent] = []
    port = HaPort(events.append, one_master=False)
    with Network() as network:
        other = network.addresses[0]
        command = ["ip", "netns", "exec", network.space(0), sys.executable, "-c", LISTEN, other]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        port.connect(f"{other}:40911")
        await eventually(lambda: any(isinstance(event, Connected) for event in events))
        with network.restart(0):
            process.kill()
            await process.wait()
        restarted_at = time.monotonic()
        try:
            await eventually(lambda: any(isinstance(event, Closed) for event in events), seconds=30)
        finally:
            port.close()
    assert time.monotonic() - restarted_at < UNACKNOWLEDGED_MS / 1000
