"""`kourou send` and `kourou tail`: one line to produce, one line to watch.

`tail` belongs to no group: it pulls from all queues, commits nothing, and nobody's consumers notice it.
"""

import json
import re
import signal
import sys
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kourou.cli.running import CommandError, JsonOutput, LogLevel, NameServers, run

if TYPE_CHECKING:
    import asyncio

TAIL_GROUP = "TOOLS_CONSUMER"
POLL_SECONDS = 15.0
ROUTE_SECONDS = 30.0
RETRY_SECONDS = 1.0

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class BodyForm(StrEnum):
    """How `tail` shows bodies."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    NONE = "none"


# ── send ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def send(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    body: Annotated[str | None, typer.Argument(help="The body; without it, what stands in --file or comes in.")] = None,
    name_servers: NameServers = None,
    tag: Annotated[str | None, typer.Option("--tag", "-t", help="Its tag.")] = None,
    key: Annotated[list[str] | None, typer.Option("--key", "-k", help="A key to find it by; may be repeated.")] = None,
    prop: Annotated[
        list[str] | None, typer.Option("--property", "-p", metavar="KEY=VALUE", help="A property; may be repeated.")
    ] = None,
    ordering_key: Annotated[str | None, typer.Option(help="Messages with the same one stay in order.")] = None,
    delay: Annotated[str | None, typer.Option(help="Deliver it later: 500ms, 10s, 5m, 2h, 1d.")] = None,
    delay_level: Annotated[int, typer.Option(help="Deliver it after the broker's delay level, from 1.")] = 0,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the body from a file.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Each line that comes in is a message.")] = False,
    count: Annotated[int, typer.Option(min=1, help="Send it so many times.")] = 1,
    as_json: JsonOutput = False,
    log_level: LogLevel = "warning",
) -> None:
    """Send a message, or many."""
    options = {
        "tag": tag,
        "keys": key or [],
        "properties": _pairs(prop or []),
        "ordering_key": ordering_key,
        "delay": None if delay is None else timedelta(seconds=parse_span(delay, "--delay")),
        "delay_level": delay_level,
    }
    bodies = _bodies(body, file, lines=lines)
    run(lambda: _send(name_servers, topic, bodies, count, options, as_json=as_json), log_level)


def _bodies(body: str | None, file: Path | None, *, lines: bool) -> Iterable[bytes]:
    if sum((body is not None, file is not None, lines)) > 1:
        raise typer.BadParameter("a body, --file and --lines exclude each other")
    if body is not None:
        return [body.encode()]
    if file is not None:
        try:
            return [file.read_bytes()]
        except OSError as error:
            raise typer.BadParameter(f"{file} can't be read: {error.strerror}") from None
    if lines:
        return (line.rstrip(b"\r\n") for line in sys.stdin.buffer if line.strip())
    if sys.stdin.isatty():
        raise typer.BadParameter("a body is expected: as an argument, by --file, or on the standard input")
    return [sys.stdin.buffer.read()]


async def _send(
    name_servers: str | None,
    topic: str,
    bodies: Iterable[bytes],
    count: int,
    options: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    from kourou.client import connect

    sent = 0
    async with connect(name_servers) as mq:
        for body in bodies:
            for _ in range(count):
                result = await mq.send(topic, body, **options)
                sent += 1
                if as_json:
                    print(
                        json.dumps(
                            {
                                "status": result.status.name,
                                "msgId": result.message_id,
                                "offsetMsgId": result.offset_id,
                                "topic": topic,
                                "broker": result.queue.broker_name,
                                "queueId": result.queue.queue_id,
                                "queueOffset": result.queue_offset,
                            }
                        )
                    )
                elif count == 1:
                    queue = result.queue
                    print(
                        f"{result.status.name} {result.message_id} {queue.broker_name} "
                        f"queue {queue.queue_id} offset {result.queue_offset}"
                    )
    if count > 1 and not as_json:
        print(f"sent {sent} messages")


def _pairs(words: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"--property {word}: KEY=VALUE is expected")
        found[name] = value
    return found


def parse_span(text: str, option: str) -> float:
    """Seconds of `500ms`, `10s`, `5m`, `2h`, `1d`."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{option} {text}: a time such as 500ms, 10s, 5m, 2h or 1d is expected")
    return float(match[1]) * _UNITS[match[2]]


# ── tail ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def tail(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    name_servers: NameServers = None,
    begin: Annotated[
        str, typer.Option("--from", help="last, first, a time ago (5m), or a time (2026-01-31T12:00).")
    ] = "last",
    tags: Annotated[str | None, typer.Option(help="Only these tags: 'paid || new'.")] = None,
    sql: Annotated[str | None, typer.Option(help="Only what this SQL92 expression accepts, if the broker can.")] = None,
    key: Annotated[str | None, typer.Option(help="Only messages with this key.")] = None,
    queue: Annotated[int | None, typer.Option(help="Only this queue.")] = None,
    body: Annotated[BodyForm, typer.Option(help="How bodies are shown.")] = BodyForm.TEXT,
    limit: Annotated[int | None, typer.Option("--limit", "-l", min=1, help="Stop after so many messages.")] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Wait for more at the end.")] = True,
    as_json: JsonOutput = False,
    log_level: LogLevel = "warning",
) -> None:
    """Show messages as they come, without being a consumer."""
    start = _start_of(begin)
    wanted = _Wanted(topic, start, tags, sql, key, queue, follow)
    run(lambda: _tail(name_servers, wanted, body, limit, as_json=as_json), log_level)


@dataclass(frozen=True, slots=True)
class _Wanted:
    topic: str
    start: str | float  # "last", "first", or seconds since the epoch
    tags: str | None
    sql: str | None
    key: str | None
    queue: int | None
    follow: bool


def _start_of(text: str) -> str | float:
    if text in ("last", "first"):
        return text
    if _SPAN.fullmatch(text):
        return (datetime.now(UTC) - timedelta(seconds=parse_span(text, "--from"))).timestamp()
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise typer.BadParameter(
            f"--from {text}: last, first, a time ago such as 5m, or a time such as 2026-01-31T12:00 is expected"
        ) from None


async def _tail(name_servers: str | None, wanted: _Wanted, form: BodyForm, limit: int | None, *, as_json: bool) -> None:
    import asyncio

    from kourou.client import connect

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    shown = 0
    async with connect(name_servers) as mq:
        messages = _messages(mq, wanted)
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while limit is None or shown < limit:
                following = asyncio.ensure_future(anext(messages, None))
                await asyncio.wait((following, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    following.cancel()
                    await asyncio.gather(following, return_exceptions=True)
                    break
                message = following.result()
                if message is None:
                    break
                _show(message, form, as_json=as_json)
                shown += 1
        finally:
            stopping.cancel()
            await messages.aclose()


async def _messages(mq: Any, wanted: _Wanted) -> AsyncGenerator[Any, None]:
    """The messages of all queues, in the order that they come. Ends when all are read, unless it is to follow."""
    import asyncio

    consumer = mq.pull(group=TAIL_GROUP)
    found: asyncio.Queue[Any] = asyncio.Queue(maxsize=1000)
    readers: dict[Any, asyncio.Task[None]] = {}
    first = True
    try:
        while True:
            queues = [q for q in await consumer.queues(wanted.topic) if wanted.queue in (None, q.queue_id)]
            if first and wanted.queue is not None and not queues:
                raise CommandError(f"--queue {wanted.queue}: {wanted.topic} has no such queue")
            for queue in queues:
                if queue not in readers:
                    start = wanted.start if first else "first"
                    readers[queue] = asyncio.create_task(_read(consumer, queue, start, wanted, found))
            first = False
            until = asyncio.get_running_loop().time() + ROUTE_SECONDS
            async for message in _taken(found, readers, until):
                yield message
            _raise_faults(readers)
            if not wanted.follow and all(task.done() for task in readers.values()) and found.empty():
                return
    finally:
        for task in readers.values():
            task.cancel()
        await asyncio.gather(*readers.values(), return_exceptions=True)


async def _taken(found: "asyncio.Queue[Any]", readers: dict[Any, "asyncio.Task[None]"], until: float) -> Any:
    """What was found, until a time, or until nobody looks any more."""
    import asyncio

    loop = asyncio.get_running_loop()
    while (left := until - loop.time()) > 0:
        looking = [task for task in readers.values() if not task.done()]
        failed = any(task.done() and task.exception() is not None for task in readers.values())
        if found.empty() and (failed or not looking):
            return
        getting = asyncio.ensure_future(found.get())
        await asyncio.wait((getting, *looking), timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if getting.done():
            yield getting.result()
        else:
            getting.cancel()


def _raise_faults(readers: dict[Any, "asyncio.Task[None]"]) -> None:
    for task in readers.values():
        if task.done() and (error := task.exception()) is not None:
            raise error


async def _read(consumer: Any, queue: Any, start: str | float, wanted: _Wanted, found: "asyncio.Queue[Any]") -> None:
    import asyncio

    from kourou.protocol.errors import KourouError

    if start == "first":
        offset = await consumer.min_offset(queue)
    elif start == "last":
        offset = await consumer.max_offset(queue)
    else:
        offset = await consumer.search_offset(queue, start)
    end = None if wanted.follow else await consumer.max_offset(queue)
    while end is None or offset < end:
        try:
            batch = await consumer.pull(
                queue, offset, tags=wanted.tags, sql=wanted.sql, wait=POLL_SECONDS if wanted.follow else 0.0
            )
        except KourouError as error:
            if not error.retriable or not wanted.follow:
                raise
            await asyncio.sleep(RETRY_SECONDS)
            continue
        for message in batch.messages:
            if wanted.key is None or wanted.key in message.keys:
                await found.put(message)
        if not batch.messages and batch.next_offset == offset and not wanted.follow:
            return
        offset = batch.next_offset


def _show(message: Any, form: BodyForm, *, as_json: bool) -> None:
    stored = datetime.fromtimestamp(message.record.stored_ms / 1000, UTC).astimezone()
    if as_json:
        row = {
            "topic": message.topic,
            "broker": message.queue.broker_name,
            "queueId": message.queue.queue_id,
            "queueOffset": message.record.queue_offset,
            "msgId": message.message_id,
            "storeTime": stored.isoformat(timespec="milliseconds"),
            "properties": message.properties,
            "body": _body(message.body, form),
        }
        print(json.dumps(row, ensure_ascii=False), flush=True)
        return
    queue = message.queue
    words = [
        f"{stored:%H:%M:%S}.{stored.microsecond // 1000:03d}",
        f"{queue.broker_name}:{queue.queue_id}@{message.record.queue_offset}",
        *([f"tag={message.tag}"] if message.tag else []),
        *([f"keys={','.join(message.keys)}"] if message.keys else []),
    ]
    body = _body(message.body, form)
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, indent=2)
    print(" ".join(words), *([] if body is None else [_printable(text)]), flush=True)


def _body(body: bytes, form: BodyForm) -> Any:
    match form:
        case BodyForm.NONE:
            return None
        case BodyForm.HEX:
            return body.hex(" ")
        case BodyForm.JSON:
            try:
                return json.loads(body)
            except ValueError:
                return body.decode("utf-8", "replace")
        case BodyForm.TEXT:
            return body.decode("utf-8", "replace")


def _printable(text: str) -> str:
    """Without the characters that could move a terminal's cursor or colours."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)
