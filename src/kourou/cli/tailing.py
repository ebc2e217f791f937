"""`kourou tail`: shows messages as they arrive.

It joins no group: it pulls from all queues and commits nothing, so it does not affect any consumer.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kourou.cli.message_form import BodyForm, show_message
from kourou.cli.profiles import open_client
from kourou.cli.running import CommandError, JsonOutput, LogLevel, NameServers, run, until_stopped
from kourou.cli.times import Ends, parse_start

if TYPE_CHECKING:
    import asyncio

TAIL_GROUP = "TOOLS_CONSUMER"
POLL_SECONDS = 15.0
ROUTE_SECONDS = 30.0
RETRY_SECONDS = 1.0


def tail(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    name_servers: NameServers = None,
    begin: Annotated[
        str, typer.Option("--from", help="last, first, a time ago (5m), or a time (2026-01-31T12:00).")
    ] = "last",
    tags: Annotated[str | None, typer.Option(help="Only these tags: 'paid || new'.")] = None,
    sql: Annotated[
        str | None, typer.Option(help="Only messages that this SQL92 expression accepts, if the broker supports it.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Only messages with this key.")] = None,
    queue: Annotated[int | None, typer.Option(help="Only this queue.")] = None,
    body: Annotated[BodyForm, typer.Option(help="How to show bodies.")] = BodyForm.TEXT,
    limit: Annotated[int | None, typer.Option("--limit", "-l", min=1, help="Stop after this many messages.")] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Wait for new messages at the end.")] = True,
    as_json: JsonOutput = False,
    log_level: LogLevel = "warning",
) -> None:
    """Show messages as they arrive, without joining a group."""
    wanted = _Wanted(topic, parse_start(begin), tags, sql, key, queue, follow)
    run(lambda: until_stopped(_tail(name_servers, wanted, body, limit, as_json=as_json)), log_level)


@dataclass(frozen=True, slots=True)
class _Wanted:
    topic: str
    start: Ends | float
    tags: str | None
    sql: str | None
    key: str | None
    queue: int | None
    follow: bool


async def _tail(name_servers: str | None, wanted: _Wanted, form: BodyForm, limit: int | None, *, as_json: bool) -> None:
    shown = 0
    async with open_client(name_servers) as mq:
        messages = _messages(mq, wanted)
        try:
            async for message in messages:
                show_message(message, form, as_json=as_json)
                shown += 1
                if shown == limit:
                    break
        finally:
            await messages.aclose()


async def _messages(mq: Any, wanted: _Wanted) -> AsyncGenerator[Any, None]:
    """The messages of all queues, in the order in which they arrive. Ends when all are read, unless it follows."""
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
                    start = wanted.start if first else Ends.FIRST
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
    """The messages that the readers found, until a time, or until all readers have ended."""
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


async def _read(consumer: Any, queue: Any, start: Ends | float, wanted: _Wanted, found: "asyncio.Queue[Any]") -> None:
    import asyncio

    from kourou.protocol.errors import KourouError

    if start is Ends.FIRST:
        offset = await consumer.min_offset(queue)
    elif start is Ends.LAST:
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
