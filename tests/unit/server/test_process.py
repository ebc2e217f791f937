"""The life of a process, apart from what it serves."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kourou.server import process
from kourou.server.conf import ConfError
from kourou.server.process import run_until_stopped, write_ready_file


async def test_it_stops_what_it_started_at_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    monkeypatch.setattr(process, "calm_collector", lambda: happened.append("calm"))

    async def start() -> None:
        happened.append("start")
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)

    async def stop() -> None:
        happened.append("stop")

    async with asyncio.timeout(10):
        await run_until_stopped(start, stop)
    assert happened == ["start", "calm", "stop"]


async def test_it_stops_what_did_not_start() -> None:
    """A server that listens and can't write its ready file must not go on listening."""
    happened: list[str] = []

    async def start() -> None:
        raise ConfError("no")

    async def stop() -> None:
        happened.append("stop")

    with pytest.raises(ConfError, match="no"):
        await run_until_stopped(start, stop)
    assert happened == ["stop"]


async def test_it_stops_when_that_which_it_waits_for_has_ended() -> None:
    happened: list[str] = []

    async def nothing() -> None:
        happened.append("start")

    async def ended() -> None:
        raise ConfError("all have ended")

    async def stop() -> None:
        happened.append("stop")

    with pytest.raises(ConfError, match="all have ended"):
        await run_until_stopped(nothing, stop, ended)
    assert happened == ["start", "stop"]


async def test_it_stops_when_its_standard_input_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    monkeypatch.setattr(process, "STANDARD_INPUT", ours)
    happened: list[str] = []

    async def start() -> None:
        os.write(theirs, b"nothing is expected")
        asyncio.get_running_loop().call_later(0.01, os.close, theirs)

    async def stop() -> None:
        happened.append("stop")

    async with asyncio.timeout(10):
        await run_until_stopped(start, stop, with_input=True)
    assert happened == ["stop"]
    os.close(ours)


def test_the_ready_file_is_json(tmp_path: Path) -> None:
    write_ready_file(None, namesrv="h:1")
    write_ready_file(tmp_path / "ready", namesrv="h:1", broker="h:2", ha="h:3", console="http://h", store="/s")
    assert json.loads((tmp_path / "ready").read_text()) == {
        "pid": os.getpid(),
        "namesrv": "h:1",
        "broker": "h:2",
        "ha": "h:3",
        "console": "http://h",
        "store": "/s",
    }
    assert os.listdir(tmp_path) == ["ready"]
    with pytest.raises(ConfError, match="can't be written: No such file or directory"):
        write_ready_file(tmp_path / "nowhere" / "ready")


MEASURE = """
import gc
from kourou.server.process import calm_collector
full = []
gc.callbacks.append(lambda phase, info: full.append(info) if info["generation"] == 2 else None)
def work():
    kept = []
    for _ in range(300_000):
        kept.append([])
work(); before = len(full)
calm_collector(); full.clear()
work(); print(before, len(full), gc.get_freeze_count() > 10_000)
"""


def test_full_collections_become_rare() -> None:
    """In a process of its own: it is for good."""
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, timeout=60)
    before, after, frozen = done.stdout.split()
    assert int(before) > 0
    assert (after, frozen) == ("0", "True"), done
