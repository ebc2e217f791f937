"""`kourou send`: sends messages."""

import os
import sys
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from kourou.cli.output import show, show_json
from kourou.cli.profiles import open_client
from kourou.cli.running import CommandError, JsonOutput, LogLevel, NameServers, run
from kourou.cli.times import parse_span

if TYPE_CHECKING:
    from kourou.client import Client, SendResult

LINES_AHEAD = 256
"""Lines that are read ahead at most."""

CHUNK_SIZE = 64 * 1024

LINE_SIZE_MAX = 16 * 1024 * 1024
"""Bytes of a body that are read at most; brokers accept less."""


def send(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    body: Annotated[
        str | None, typer.Argument(help="The body (default: read it from --file or the standard input).")
    ] = None,
    name_servers: NameServers = None,
    tag: Annotated[str | None, typer.Option("--tag", "-t", help="The tag.")] = None,
    key: Annotated[
        list[str] | None, typer.Option("--key", "-k", help="A key to find the message by; can be repeated.")
    ] = None,
    prop: Annotated[
        list[str] | None, typer.Option("--property", "-p", metavar="KEY=VALUE", help="A property; can be repeated.")
    ] = None,
    ordering_key: Annotated[str | None, typer.Option(help="Messages with the same key stay in order.")] = None,
    delay: Annotated[
        str | None, typer.Option(help="Deliver the message after this time: 500ms, 10s, 5m, 2h, 1d.")
    ] = None,
    delay_level: Annotated[
        int | None,
        typer.Option(min=1, help="Deliver the message after this delay level of the broker (1 to 18 by default)."),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the body from a file.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Each line of the standard input is a message.")] = False,
    count: Annotated[int, typer.Option(min=1, help="Send the message this many times.")] = 1,
    as_json: JsonOutput = False,
    log_level: LogLevel = "warning",
) -> None:
    """Send messages."""
    if delay is not None and delay_level is not None:
        raise typer.BadParameter("give either --delay or --delay-level, not both")
    options = {
        "tag": tag,
        "keys": key or [],
        "properties": _pairs(prop or []),
        "ordering_key": ordering_key,
        "delay": None if delay is None else timedelta(seconds=parse_span(delay, "--delay")),
        "delay_level": delay_level or 0,
    }
    bodies = _bodies(body, file, lines=lines)
    run(lambda: _send(name_servers, topic, bodies, count, options, as_json=as_json), log_level)


def _bodies(body: str | None, file: Path | None, *, lines: bool) -> list[bytes] | None:
    """The bodies to send; None for the lines of the standard input."""
    if sum((body is not None, file is not None, lines)) > 1:
        raise typer.BadParameter("give only one of a body, --file and --lines")
    if lines:
        return None
    if body is not None:
        return [body.encode("utf-8", "surrogateescape")]
    if file is not None:
        try:
            with file.open("rb") as opened:
                return [_whole(opened, f"--file {file}")]
        except OSError as error:
            raise typer.BadParameter(f"{file} can't be read: {error.strerror}") from None
    if sys.stdin.isatty():
        raise typer.BadParameter("no body is given: give it as an argument, with --file, or on the standard input")
    return [_whole(sys.stdin.buffer, "the standard input")]


def _whole(stream: BinaryIO, what: str) -> bytes:
    body = stream.read(LINE_SIZE_MAX + 1)
    if len(body) > LINE_SIZE_MAX:
        raise typer.BadParameter(f"{what} has more than {LINE_SIZE_MAX} bytes, which is too large for a message")
    return body


async def _send(
    name_servers: str | None,
    topic: str,
    bodies: list[bytes] | None,
    count: int,
    options: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    sent = 0
    async with open_client(name_servers) as mq:
        if options["delay_level"]:
            await _check_delay_level(mq, topic, options["delay_level"])
        async for body in _each(bodies):
            for _ in range(count):
                result = await mq.send(topic, body, **options)
                sent += 1
                if as_json or count == 1:
                    _show(topic, result, as_json=as_json)
    if count > 1 and not as_json:
        show(f"sent {sent} messages")


def _show(topic: str, result: "SendResult", *, as_json: bool) -> None:
    queue = result.queue
    if as_json:
        show_json(
            {
                "status": result.status.name,
                "msgId": result.message_id,
                "offsetMsgId": result.offset_id,
                "topic": topic,
                "broker": queue.broker_name,
                "queueId": queue.queue_id,
                "queueOffset": result.queue_offset,
            }
        )
    else:
        place = f"{queue.broker_name} queue {queue.queue_id} offset {result.queue_offset}"
        show(f"{result.status.name} {result.message_id} {place}")


DELAY_LEVELS = 18
"""The number of levels of a broker that does not report it: Apache's default."""


async def _check_delay_level(mq: "Client", topic: str, level: int) -> None:
    """Raises CommandError for a level that the broker does not have; the broker would use its longest delay."""
    from kourou.protocol.errors import RefusedError

    for data in (await mq.admin.topics.route(topic)).broker_datas:
        address = data.broker_addrs.get(0)
        if address is None:
            continue
        levels = DELAY_LEVELS
        try:
            text = (await mq.admin.brokers.config(address)).get("messageDelayLevel", "")
            levels = len(text.split()) or DELAY_LEVELS
        except RefusedError:
            pass  # sending may be allowed although administration is not
        if level > levels:
            raise CommandError(f"--delay-level {level}: broker {data.broker_name} has levels 1 to {levels}")


# ── Lines ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _each(bodies: list[bytes] | None) -> AsyncIterator[bytes]:
    if bodies is None:
        async for line in lines_of(sys.stdin.buffer):
            if line:
                yield line
        return
    for body in bodies:
        yield body


async def lines_of(stream: BinaryIO) -> AsyncIterator[bytes]:
    """The lines of a stream, without line ends, as they arrive. Raises CommandError for a line that is too long.

    A thread reads them, because a read of a terminal or a pipe may block for ever; heartbeats continue meanwhile. It is
    a daemon thread: the command does not wait for it at its end.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    found: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
    room = threading.Semaphore(LINES_AHEAD)

    def put(line: "bytes | Exception | None") -> None:
        room.acquire()
        loop.call_soon_threadsafe(found.put_nowait, line)

    def read() -> None:
        try:
            for line in _lines(stream):
                put(line)
            put(None)
        except (CommandError, OSError, ValueError) as error:
            with suppress(RuntimeError):  # the loop has ended
                put(error if isinstance(error, CommandError) else CommandError(f"the input can't be read: {error}"))
        except RuntimeError:
            pass  # the loop has ended: the lines are no longer needed

    threading.Thread(target=read, name="kourou-lines", daemon=True).start()
    while (line := await found.get()) is not None:
        room.release()
        if isinstance(line, Exception):
            raise line
        yield line


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Raises CommandError for a line that is too long."""
    kept = bytearray()
    for chunk in _chunks(stream):
        searched = len(kept)
        kept += chunk
        begin = 0
        while (end := kept.find(b"\n", max(searched, begin))) >= 0:
            yield bytes(kept[begin:end]).rstrip(b"\r")
            begin = end + 1
        del kept[:begin]
        if len(kept) > LINE_SIZE_MAX:
            raise CommandError(f"a line has more than {LINE_SIZE_MAX} bytes, which is too large for a message")
    if kept:
        yield bytes(kept)


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    """Chunks as they arrive. Reads below the buffer, whose lock Python needs at exit."""
    try:
        descriptor = os.dup(stream.fileno())
    except (OSError, ValueError):  # not a real file
        while chunk := stream.read(CHUNK_SIZE):
            yield chunk
        return
    while chunk := os.read(descriptor, CHUNK_SIZE):
        yield chunk
    os.close(descriptor)


def _pairs(words: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"--property {word}: KEY=VALUE is expected")
        found[name] = value
    return found


__all__ = ["lines_of", "send"]
