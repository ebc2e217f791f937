"""`kourou top`: brokers, groups and topics with their rates, in a terminal, until the command is stopped.

It reads only. Kourou's brokers and Apache's are asked over the client, a few requests a second (top_facts.py).
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from kourou.cli.output import is_terminal, live_screen, rounded, show_json, show_laid_out
from kourou.cli.profiles import open_client
from kourou.cli.running import CommandError, JsonOutput, LogLevel, NameServers, run, until_stopped
from kourou.cli.top_facts import KNOWN_MAX, Facts, Snapshot
from kourou.cli.top_view import View, screen

ONCE_LINES = 10_000
"""Lines of the tables that `--once` shows at most."""


def top(
    name_servers: NameServers = None,
    cluster: Annotated[str | None, typer.Option("--cluster", "-c", help="Only the brokers of this cluster.")] = None,
    interval: Annotated[float, typer.Option(min=0.2, max=3600, help="Seconds between two updates.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Update twice, show the rates in between, and exit.")] = False,
    of_topics: Annotated[bool, typer.Option("--topics", help="Show topics instead of groups.")] = False,
    as_json: JsonOutput = False,
    log_level: LogLevel = "error",
) -> None:
    """Show brokers, groups and topics with their rates and lags, and problems first.

    Keys: q quit, s sort by the next column, Tab groups or topics, p pause. With --json there is one object for each
    update; with --once a single one.
    """
    view = View(of_topics=of_topics)
    if once or as_json:
        run(lambda: until_stopped(_print(name_servers, cluster, interval, view, once=once, as_json=as_json)), log_level)
        return
    if not is_terminal():
        raise typer.BadParameter("there is no terminal: use --once or --json")
    run(lambda: until_stopped(_watch(name_servers, cluster, interval, view)), log_level)


async def _print(
    name_servers: str | None, cluster: str | None, interval: float, view: View, *, once: bool, as_json: bool
) -> None:
    async with open_client(name_servers) as mq:
        facts = Facts(mq, cluster)
        await facts.look(KNOWN_MAX if once else 0)  # the first rates are the difference to this
        while True:
            await asyncio.sleep(interval)
            snapshot = await facts.look(*((KNOWN_MAX,) if once else ()))
            if as_json:
                show_json(_as_json(snapshot))
            else:
                show_laid_out(screen(snapshot, view, 200, ONCE_LINES))
            if once:
                return


def _as_json(snapshot: Snapshot) -> dict[str, object]:
    def row(fields: dict[str, object]) -> dict[str, object]:
        return {name: rounded(value) for name, value in fields.items()}

    return {
        "brokers": [row(asdict(one)) for one in snapshot.brokers],
        "groups": [row(asdict(one)) for one in snapshot.groups],
        "topics": [row(asdict(one)) for one in snapshot.topics],
        "problems": list(snapshot.problems),
    }


async def _watch(name_servers: str | None, cluster: str | None, interval: float, view: View) -> None:
    from kourou.protocol.errors import KourouError

    async with open_client(name_servers) as mq:
        facts, snapshot = Facts(mq, cluster), Snapshot()
        async with _keys() as keys:
            with live_screen() as live:
                loop = asyncio.get_running_loop()
                look_at = loop.time()
                while True:
                    if loop.time() >= look_at and not view.is_paused:
                        try:
                            snapshot = await facts.look()
                        except KourouError as error:
                            snapshot = Snapshot(problems=(str(error),))
                        look_at = loop.time() + interval
                    size = live.console.size
                    live.update(screen(snapshot, view, size.width, size.height), refresh=True)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(max(look_at - loop.time(), 0.1)):
                            if not view.press(await keys.get()):
                                return


@contextlib.asynccontextmanager
async def _keys() -> AsyncIterator["asyncio.Queue[str]"]:
    """The keys that are pressed; an end of the input counts as q."""
    keys: asyncio.Queue[str] = asyncio.Queue(100)
    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()

    def read() -> None:
        pressed = os.read(descriptor, 64).decode("ascii", "ignore")
        if not pressed:
            loop.remove_reader(descriptor)
            pressed = "q"
        for key in pressed:
            with contextlib.suppress(asyncio.QueueFull):
                keys.put_nowait(key)

    with _single_keys(descriptor):
        loop.add_reader(descriptor, read)
        try:
            yield keys
        finally:
            loop.remove_reader(descriptor)


@contextlib.contextmanager
def _single_keys(descriptor: int) -> Iterator[None]:
    """The terminal gives keys at once and does not show them; afterwards its mode is restored."""
    import termios
    import tty

    try:
        before = termios.tcgetattr(descriptor)
    except termios.error as error:
        raise CommandError(f"the terminal can't be read: {error}") from None
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
