"""`kourou consume`: a member of a consumer group.

The group shares the queues of its topics, so several of these commands, and programs in any language, divide the
messages among themselves. A message is acknowledged once it is written to the standard output, or once the command of
--exec has ended with exit code 0. A failed message is delivered again, and becomes a dead letter after too many
attempts.
"""

import os
import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kourou.cli.message_form import BodyForm, show_message
from kourou.cli.output import show
from kourou.cli.profiles import open_client
from kourou.cli.running import CommandError, JsonOutput, LogLevel, NameServers, run, until_stopped
from kourou.cli.times import Ends, parse_span, parse_start

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from kourou.client import Consumer, Delivery


def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics.")],
    group: Annotated[str, typer.Option("--group", "-g", help="The consumer group to join.")],
    name_servers: NameServers = None,
    begin: Annotated[
        str,
        typer.Option(
            "--from", help="Where a new group starts: last, first, a time ago (5m), or a time (2026-01-31T12:00)."
        ),
    ] = "last",
    tags: Annotated[str | None, typer.Option(help="Only these tags: 'paid || new'.")] = None,
    sql: Annotated[
        str | None, typer.Option(help="Only messages that this SQL92 expression accepts, if the broker supports it.")
    ] = None,
    orderly: Annotated[bool, typer.Option("--orderly", help="Consume each queue in order.")] = False,
    broadcast: Annotated[bool, typer.Option("--broadcast", help="Every member gets every message.")] = False,
    execute: Annotated[
        str | None,
        typer.Option(
            "--exec", metavar="COMMAND", help="Run this for each message, with the body as its standard input."
        ),
    ] = None,
    body: Annotated[BodyForm, typer.Option(help="How to show bodies.")] = BodyForm.TEXT,
    limit: Annotated[int | None, typer.Option("--limit", "-l", min=1, help="Stop after this many messages.")] = None,
    idle: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop when no message has come for this time: 10s.")
    ] = None,
    as_json: JsonOutput = False,
    log_level: LogLevel = "warning",
) -> None:
    """Consume messages as a member of a group."""
    start = parse_start(begin)
    options: dict[str, Any] = {"orderly": orderly, "broadcast": broadcast, "batch_size": 1}
    options |= {"start": start.value} if isinstance(start, Ends) else {"start": "timestamp", "start_at": start}
    if tags is not None and sql is not None:
        raise typer.BadParameter("give either --tags or --sql, not both")
    handler = _Handler(shlex.split(execute) if execute is not None else None, body, as_json=as_json)
    idle_s = None if idle is None else parse_span(idle, "--idle")

    async def work() -> None:
        async with open_client(name_servers) as mq:
            consumer = mq.consume(topics, group=group, tags=tags, sql=sql, **options)
            try:
                await _consume(consumer, handler, limit, idle_s)
            finally:
                await consumer.close()

    run(lambda: until_stopped(work()), log_level)


async def _consume(consumer: "Consumer", handler: "_Handler", limit: int | None, idle_s: float | None) -> None:
    """A message that could not be shown stays unsettled, and is delivered to the next member that gets its queue."""
    done = 0
    while (limit is None or done < limit) and (message := await consumer.next(idle_s)) is not None:
        try:
            await handler.handle(message)
        except _FailedError:
            await message.retry()
        else:
            await message.ack()
        done += 1


class _FailedError(Exception):
    """The command of --exec failed, or could not get the body: the message is delivered again."""


class _Handler:
    """Shows a message, or runs the command of --exec with it."""

    def __init__(self, command: list[str] | None, form: BodyForm, *, as_json: bool) -> None:
        if command is not None and not command:
            raise typer.BadParameter("--exec: a command is expected")
        self._command = command
        self._form = form
        self._as_json = as_json

    async def handle(self, message: "Delivery") -> None:
        """When this returns, the message is acknowledged."""
        if self._command is None:
            show_message(message, self._form, as_json=self._as_json)
        else:
            await self._execute(self._command, message)

    async def _execute(self, command: list[str], message: "Delivery") -> None:
        import asyncio

        from kourou.protocol.errors import BodyError

        try:
            body = message.body
        except BodyError as error:
            show(f"{error}; it will be delivered again", error=True)
            raise _FailedError from None
        about = {
            "KOUROU_TOPIC": message.topic,
            "KOUROU_MSG_ID": message.message_id,
            "KOUROU_TAG": message.tag or "",
            "KOUROU_KEYS": " ".join(message.keys),
            "KOUROU_RECONSUME_TIMES": str(message.reconsume_times),
        }
        environment = {**os.environ, **{name: value.replace("\0", "") for name, value in about.items()}}
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, env=environment, start_new_session=True
            )
        except OSError as error:
            raise CommandError(f"--exec {command[0]}: {error.strerror or error}") from None
        try:
            await _feed(process, body)
        except BaseException:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            raise
        if process.returncode != 0:
            show(
                f"{message.message_id}: {command[0]} ended with {process.returncode}; it will be delivered again",
                error=True,
            )
            raise _FailedError


async def _feed(process: "Process", body: bytes) -> None:
    """Gives the command its input, which it need not read, and waits for its end."""
    assert process.stdin is not None
    with suppress(OSError, RuntimeError):  # the command has ended: uvloop raises RuntimeError then
        process.stdin.write(body)
        await process.stdin.drain()
    process.stdin.close()
    await process.wait()


__all__ = ["consume"]
