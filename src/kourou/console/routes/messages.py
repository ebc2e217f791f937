"""Messages: pages of a search, one by its id, its body, files, sending."""

import asyncio
import base64
import binascii
import shlex
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from starlette.responses import Response, StreamingResponse

from kourou.client import Message
from kourou.console.calls import Call, Done, Preview, Way
from kourou.console.errors import ConsoleError, of_failure
from kourou.console.filters import Filter, parse
from kourou.console.finding import by_id, cursor_of
from kourou.console.limits import (
    DETAIL_BODY_SIZE,
    EXPORT_MAX,
    EXPORT_SECONDS_MAX,
    LIST_BODY_SIZE,
    PAGE_MESSAGES_MAX,
    PRODUCE_SIZE_MAX,
)
from kourou.console.routes.topics import command, known_topic
from kourou.console.scanning import Cursor, Page, Scan
from kourou.console.sessions import Role
from kourou.console.views.messages import (
    CSV_COLUMNS,
    MessagePage,
    OneMessage,
    csv_cell,
    csv_line,
    file_view,
    message_view,
)
from kourou.console.views.values import long
from kourou.printable import printable, printable_json
from kourou.protocol.errors import BodyError
from kourou.protocol.message import MessageQueue

BY_KEY_MAX: Final = 64
COMMAND_BODY_MAX: Final = 4096
"""Characters of a body that is shown in a command."""


async def scanned(call: Call, topic: str, wanted: Filter, *, newest: bool, limit: int) -> Page:
    """One page of a search, within the console's limit of searches."""
    async with call.console.scan_gate:
        cursor = await cursor_of(call.look, topic, call.text("cursor"), call.text("from"), call.text("to"))
        return await Scan(call.look.mq, topic, wanted, cursor, newest=newest, limit=limit).page()


def filter_of(call: Call) -> Filter:
    """The filter in `q`; only viewers that may see bodies may search them. Raises ConsoleError."""
    wanted = parse(call.text("q"))
    if not call.sees_bodies and any(term.name not in OPEN_TERMS for term in wanted.terms):
        raise ConsoleError("forbidden", "searching bodies and properties needs the role bodies")
    return wanted


OPEN_TERMS: Final = frozenset(("tag", "key", "id", "broker", "topic", "queue", "offset", "retries", "size", "stored"))
"""The terms for viewers that may not see bodies, since a search would reveal their contents."""


async def page(call: Call) -> MessagePage:
    topic = await known_topic(call.look, call.path["topic"])
    wanted = filter_of(call)
    newest = call.choice("order", "newest", "oldest") == "newest"
    limit = call.number("limit", 50, 1, PAGE_MESSAGES_MAX)
    if key := call.text("key"):
        messages = await call.look.mq.admin.messages.by_key(topic, key, count=BY_KEY_MAX)
        found = [one for one in messages if wanted.matches(one)][:limit]
        views = [message_view(one, with_bodies=call.sees_bodies, most=LIST_BODY_SIZE) for one in found]
        return MessagePage(
            messages=views, cursor=None, scanned=long(len(messages)), of=long(len(messages)), stopped="end"
        )
    result = await scanned(call, topic, wanted, newest=newest, limit=limit)
    return MessagePage(
        messages=[message_view(one, with_bodies=call.sees_bodies, most=LIST_BODY_SIZE) for one in result.messages],
        cursor=None if result.cursor is None else result.cursor.encode(),
        scanned=long(result.scanned),
        of=long(result.of),
        stopped=result.stopped,
    )


async def check_filter(call: Call) -> Any:
    parse(call.text("q"))
    return {"ok": True}


async def one(call: Call) -> OneMessage:
    found = await by_id(call.look, call.path["id"], call.text("topic") or None)
    if not found:
        raise ConsoleError("not_found", f"there is no message {call.path['id'][:100]}", "it may have expired")
    first, *others = found
    return OneMessage(
        message_view(first, with_bodies=call.sees_bodies, most=DETAIL_BODY_SIZE),
        [message_view(other, with_bodies=False, most=0) for other in others],
    )


async def body(call: Call) -> Response:
    found = await by_id(call.look, call.path["id"], call.text("topic") or None)
    if not found:
        raise ConsoleError("not_found", f"there is no message {call.path['id'][:100]}", "it may have expired")
    try:
        data = found[0].body
    except BodyError as error:
        raise ConsoleError("refused", str(error), "the stored bytes can be read with `kourou store inspect`") from None
    call.note("download body", call.path["id"])
    return attachment(data, f"{found[0].offset_id}.bin", "application/octet-stream")


def attachment(data: bytes, name: str, kind: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{safe_name(name)}"'}
    return Response(data, media_type=kind, headers=headers)


def safe_name(text: str) -> str:
    """A name for a file, of letters and digits."""
    return "".join(
        character if character.isascii() and character.isalnum() else "_" for character in text[:100]
    ).replace("_bin", ".bin")


class Cut(msgspec.Struct, frozen=True):
    """The last line of an incomplete file: why it is incomplete, and where the next file begins."""

    reason: str
    scanned: str
    of: str
    cursor: str | None = None


class CutLine(msgspec.Struct, frozen=True):
    cut: Cut


async def export(call: Call) -> Response:
    """All messages of a search as a file, the oldest first. An incomplete file ends with a `Cut`."""
    topic = await known_topic(call.look, call.path["topic"])
    wanted = filter_of(call)
    form = call.choice("format", "jsonl", "csv")
    call.note("export", topic, text=call.text("q"))
    cursor = await cursor_of(call.look, topic, call.text("cursor"), call.text("from"), call.text("to"))
    scan = Scan(call.look.mq, topic, wanted, cursor, newest=False, limit=PAGE_MESSAGES_MAX)
    lines = export_lines(scan, cursor, call.console.scan_gate, call.console.clock, is_csv=form == "csv")
    headers = {"content-disposition": f'attachment; filename="{safe_name(topic)}.{form}"'}
    kind = "text/csv; charset=utf-8" if form == "csv" else "application/x-ndjson"
    return StreamingResponse(lines, media_type=kind, headers=headers)


async def export_lines(
    scan: Scan, cursor: Cursor, gate: asyncio.Semaphore, clock: Callable[[], float], *, is_csv: bool
) -> AsyncGenerator[bytes, None]:
    """The lines of the file. The gate is acquired for each page only, so that a slow reader does not block searches."""
    if is_csv:
        yield (",".join(csv_cell(name) for name in CSV_COLUMNS) + "\r\n").encode()
    began = clock()
    rest: Cursor | None = cursor
    scanned = already = cursor.of - cursor.left
    while True:
        try:
            async with gate:
                result = await scan.page()
        except Exception as error:
            failure = of_failure(error)
            if failure is None:
                raise
            yield _cut_line(failure.text, scanned, cursor.of, rest, is_csv=is_csv)
            return
        for message in result.messages:
            view = file_view(message)
            yield (csv_line(view) if is_csv else printable_json(msgspec.json.encode(view).decode()) + "\n").encode()
        rest, scanned = result.cursor, result.scanned
        if rest is None:
            return
        if scanned - already >= EXPORT_MAX or clock() - began >= EXPORT_SECONDS_MAX:
            reason = f"a file ends after {EXPORT_MAX:,} messages or {EXPORT_SECONDS_MAX:g} s"
            yield _cut_line(reason, scanned, cursor.of, rest, is_csv=is_csv)
            return


def _cut_line(reason: str, scanned: int, of: int, rest: Cursor | None, *, is_csv: bool) -> bytes:
    cut = Cut(printable(reason), long(scanned), long(of), None if rest is None else rest.encode())
    if not is_csv:
        return msgspec.json.encode(CutLine(cut)) + b"\n"
    text = f"# cut: {cut.reason}; {cut.scanned} of {cut.of} messages were read; cursor={cut.cursor}"
    return (csv_cell(text) + "\r\n").encode()


# ── Sending ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class NewMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    body: str = ""
    encoding: str = "text"
    tag: str | None = None
    keys: list[str] = []
    properties: dict[str, str] = {}
    ordering_key: str | None = None
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    broker: str | None = None
    queue: int | None = None
    preview: bool = False
    confirm: str | None = None


def body_bytes(given: NewMessage) -> bytes:
    """Raises ConsoleError."""
    if given.encoding == "text":
        return given.body.encode("utf-8", "replace")
    if given.encoding != "base64":
        raise ConsoleError("bad_request", "encoding: text or base64 is expected")
    try:
        return base64.b64decode(given.body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConsoleError("bad_request", f"the body is not base64: {error}") from None


async def send(call: Call) -> Any:
    given = call.read(NewMessage)
    topic = await known_topic(call.look, call.path["topic"])
    data = body_bytes(given)
    cli = send_command(topic, given)
    if given.preview:
        return Preview({"size": long(len(data))}, cli)
    queue = None
    if given.broker is not None and given.queue is not None:
        queue = MessageQueue(topic, given.broker, given.queue)
    deliver_at = None
    if given.deliver_at_ms is not None:
        if not 0 < given.deliver_at_ms < 10**14:
            raise ConsoleError("bad_request", "deliver_at_ms is not a time")
        deliver_at = datetime.fromtimestamp(given.deliver_at_ms / 1000, UTC)
    if given.delay_ms is not None and not 0 < given.delay_ms < 10**12:
        raise ConsoleError("bad_request", "delay_ms is not a delay")
    result = await call.look.mq.send(
        topic,
        Message(
            body=data,
            tag=given.tag,
            keys=given.keys,
            properties=given.properties,
            delay=None if given.delay_ms is None else timedelta(milliseconds=given.delay_ms),
            deliver_at=deliver_at,
        ),
        ordering_key=given.ordering_key,
        queue=queue,
    )
    call.console.facts.forget("ends")
    call.note("produce", topic, text=result.message_id, cli=cli if len(cli) < 500 else "")
    done = {
        "id": result.message_id,
        "offset_id": result.offset_id,
        "broker": result.queue.broker_name,
        "queue": result.queue.queue_id,
        "offset": long(result.queue_offset),
    }
    return Done(done, cli)


def send_command(topic: str, given: NewMessage) -> str:
    """The command that sends the same message; empty if there is none."""
    if len(given.body) > COMMAND_BODY_MAX or given.deliver_at_ms is not None:
        return ""
    if given.broker is not None and given.queue is not None:
        is_plain = not (given.properties or given.delay_ms or given.ordering_key) and given.encoding == "text"
        if not is_plain or not given.body or any(" " in key for key in given.keys):
            return ""
        words = ["-t", topic, "-p", given.body, "-b", given.broker, "-i", str(given.queue)]
        words += [*(("-c", given.tag) if given.tag else ()), *(("-k", " ".join(given.keys)) if given.keys else ())]
        return command("sendMessage", *words)
    words = ["kourou", "send"]
    words += [*(("--tag", given.tag) if given.tag else ()), *(word for key in given.keys for word in ("--key", key))]
    words += [word for name, value in given.properties.items() for word in ("--property", f"{name}={value}")]
    words += ["--ordering-key", given.ordering_key] if given.ordering_key else []
    words += ["--delay", f"{given.delay_ms}ms"] if given.delay_ms else []
    if given.encoding != "text":
        return f"echo {shlex.quote(given.body)} | base64 -d | {shlex.join((*words, topic))}"
    words += ["--"] if given.body.startswith("-") or topic.startswith("-") else []
    return shlex.join((*words, topic, given.body))


WAYS: Final = (
    Way("GET", "/api/topics/{topic}/messages", page),
    Way("POST", "/api/topics/{topic}/messages", send, Role.OPERATE, PRODUCE_SIZE_MAX),
    Way("GET", "/api/topics/{topic}/export", export, Role.BODIES),
    Way("GET", "/api/filter", check_filter),
    Way("GET", "/api/messages/{id}", one),
    Way("GET", "/api/messages/{id}/body", body, Role.BODIES),
)
