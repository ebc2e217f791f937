"""`kourou tail`: shows messages as they arrive.

It joins no group: it pulls from all queues and commits nothing, so it does not affect any consumer.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.message_form import BodyForm, show_message
from kourou.cli.profiles import open_client
from kourou.cli.running import CommandError, JsonOutput, LogLevel, NameServers, run, until_stopped
from kourou.cli.times import Ends, parse_start

if TYPE_CHECKING:
    from kourou.client.tailing import TailStart


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
    from kourou.client.tailing import NoSuchQueueError, Tail
    from kourou.protocol.system_names import TOOLS_GROUP

    shown = 0
    async with open_client(name_servers) as mq:
        tailed = Tail(
            mq.pull(group=TOOLS_GROUP),
            wanted.topic,
            start=_start(wanted.start),
            tags=wanted.tags,
            sql=wanted.sql,
            queue=wanted.queue,
            follow=wanted.follow,
        )
        messages = tailed.messages()
        try:
            async for message in messages:
                if wanted.key is not None and wanted.key not in message.keys:
                    continue
                show_message(message, form, as_json=as_json)
                shown += 1
                if shown == limit:
                    break
        except NoSuchQueueError:
            raise CommandError(f"--queue {wanted.queue}: {wanted.topic} has no such queue") from None
        finally:
            await messages.aclose()


def _start(wanted: Ends | float) -> "TailStart":
    if isinstance(wanted, Ends):
        return "first" if wanted is Ends.FIRST else "last"
    return wanted
