"""Messages: only the parts that the role may see, bodies cut to a size, every string escaped."""

import base64
from collections.abc import Iterable
from typing import Final

import msgspec

from kourou.client import Delivery
from kourou.console.views.values import long, ms
from kourou.printable import printable, printable_lines
from kourou.protocol.errors import BodyError, ProtocolError
from kourou.protocol.properties import Property

SYSTEM_PROPERTIES: Final = frozenset(
    value for name, value in vars(Property).items() if not name.startswith("_") and isinstance(value, str)
)
PROPERTY_SIZE_MAX: Final = 4096
PROPERTIES_MAX: Final = 200
BINARY_SHOWN: Final = 1024
"""Bytes of a binary body that are shown, as hex."""


class Body(msgspec.Struct, frozen=True):
    """A body as text: json, text, binary (hex; base64 in files) or broken (can't be inflated)."""

    kind: str
    text: str
    truncated: bool
    size: str


class Origin(msgspec.Struct, frozen=True):
    """The topic to which a dead letter was first sent."""

    topic: str | None
    id: str | None


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """A message."""

    id: str
    offset_id: str
    topic: str
    broker: str
    queue: int
    offset: str
    tag: str | None
    keys: list[str]
    stored_ms: int | None
    born_ms: int | None
    born_host: str
    size: str
    reconsume: int
    body: Body | None
    properties: dict[str, str]
    system: dict[str, str]
    origin: Origin | None = None
    redriven: str | None = None
    real_topic: str | None = None
    due_ms: int | None = None
    group: str | None = None
    checks: int | None = None
    open: bool | None = None


class MessagePage(msgspec.Struct, frozen=True, kw_only=True):
    """Messages, and where the next page begins."""

    messages: list[MessageView]
    cursor: str | None
    scanned: str
    of: str
    stopped: str
    count: str | None = None
    kinds: list["Kind"] = []


class Kind(msgspec.Struct, frozen=True):
    """The number of dead letters of one topic and tag."""

    topic: str | None
    tag: str | None
    count: int


class OneMessage(msgspec.Struct, frozen=True):
    message: MessageView
    same: list[MessageView]


def body_view(message: Delivery, most: int) -> Body:
    """At most `most` bytes of the body."""
    try:
        body = message.body
    except BodyError as error:
        return Body("broken", printable(str(error)), False, long(len(message.record.body)))
    cut = body[:most]
    text = _decoded(cut, is_cut=len(cut) < len(body))
    if text is None:
        shown = body[: min(BINARY_SHOWN, most)]
        return Body("binary", shown.hex(), len(shown) < len(body), long(len(body)))
    kind = "json" if body[:1] in (b"{", b"[") else "text"
    return Body(kind, printable_lines(text), len(cut) < len(body), long(len(body)))


def _decoded(data: bytes, *, is_cut: bool) -> str | None:
    """The text of UTF-8 bytes, of which the last character may be cut; None for anything else."""
    for less in range(4 if is_cut else 1):
        try:
            text = data[: len(data) - less].decode()
        except UnicodeDecodeError:
            continue
        strange = sum(1 for character in text[:1000] if character < " " and character not in "\t\r\n\x1b")
        return None if strange > max(len(text[:1000]) // 20, 1) else text
    return None


def message_view(message: Delivery, *, with_bodies: bool, most: int) -> MessageView:
    """A message. `with_bodies`: the viewer may see bodies and properties of users."""
    try:
        table = message.properties
    except ProtocolError:
        table = {}
    shown = {printable(key): _value(value) for key, value in list(table.items())[:PROPERTIES_MAX]}
    return MessageView(
        id=printable(message.message_id),
        offset_id=message.offset_id,
        topic=printable(message.topic),
        broker=printable(message.queue.broker_name),
        queue=message.queue_id,
        offset=long(message.queue_offset),
        tag=None if not table.get(Property.TAGS) else printable(table[Property.TAGS]),
        keys=[printable(key) for key in table.get(Property.KEYS, "").split(" ") if key],
        stored_ms=ms(message.stored_ms),
        born_ms=ms(message.born_ms),
        born_host=printable(message.record.born_address),
        size=long(len(message.record.body)),
        reconsume=message.reconsume_times,
        body=body_view(message, most) if with_bodies else None,
        properties={key: value for key, value in shown.items() if key not in SYSTEM_PROPERTIES} if with_bodies else {},
        system={key: value for key, value in shown.items() if key in SYSTEM_PROPERTIES},
    )


def file_view(message: Delivery) -> MessageView:
    """A message for a file: with the whole body, unchanged. The format of the file does the escaping."""
    view = message_view(message, with_bodies=True, most=0)
    try:
        body = message.body
    except BodyError as error:
        return msgspec.structs.replace(view, body=Body("broken", printable(str(error)), True, view.size))
    text = _decoded(body, is_cut=False)
    kind = "json" if body[:1] in (b"{", b"[") else "text"
    whole = Body("base64", base64.b64encode(body).decode(), False, long(len(body)))
    if text is not None:
        whole = Body(kind, text, False, long(len(body)))
    return msgspec.structs.replace(view, body=whole)


def _value(text: str) -> str:
    return printable_lines(text[:PROPERTY_SIZE_MAX])


def kinds_of(messages: Iterable[MessageView]) -> list[Kind]:
    """The number of messages of each topic and tag, the most frequent first."""
    counts: dict[tuple[str | None, str | None], int] = {}
    for one in messages:
        key = (None if one.origin is None else one.origin.topic, one.tag)
        counts[key] = counts.get(key, 0) + 1
    return [Kind(topic, tag, count) for (topic, tag), count in sorted(counts.items(), key=lambda item: -item[1])]


# ── Files ───────────────────────────────────────────────────────────────────────────────────────────────────────────

CSV_COLUMNS: Final = (
    "stored_ms",
    "topic",
    "broker",
    "queue",
    "offset",
    "id",
    "tag",
    "keys",
    "size",
    "reconsume",
    "body",
)
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def csv_line(view: MessageView) -> str:
    """A line of CSV. A cell that a spreadsheet would interpret as a formula begins with an apostrophe; other cells are
    exact, except that control characters are escaped."""
    values = {name: getattr(view, name) for name in CSV_COLUMNS[:-1]}
    values["keys"] = " ".join(view.keys)
    cells = [*values.values(), "" if view.body is None else printable_lines(view.body.text)]
    return ",".join(csv_cell("" if cell is None else str(cell)) for cell in cells) + "\r\n"


def csv_cell(text: str) -> str:
    is_number = text.removeprefix("-").isdigit()
    guarded = f"'{text}" if text.startswith(FORMULA) and not is_number else text
    return '"' + guarded.replace('"', '""') + '"'
