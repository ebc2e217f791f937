"""Answers that show large tables: built entry by entry, in slices, and never larger than a frame.

A body is a shell with an empty table in it, and the entries of the table:

    {"offsetTable":{},"consumeTps":0.5}        {…}:{…},{…}:{…}
"""

from collections.abc import Collection, Iterable, Mapping
from heapq import merge
from itertools import islice
from typing import Any, Final

import msgspec

from kourou.broker.events import Large, Refused
from kourou.protocol import fastjson
from kourou.protocol.bodies.base import Body
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.frame import FRAME_SIZE_MAX
from kourou.store.metadata import NUMBERS_IN_SLICE, OffsetTable, numbers
from kourou.turns import Slices

ANSWER_MAX: Final = FRAME_SIZE_MAX - 64 * 1024
"""The largest body in bytes: no client reads a larger frame."""

ENTRIES_IN_SLICE: Final = 128
"""Entries that are written before others have their turn: less than a millisecond."""


NAMES_SORTED: Final = 2_000
NAMES_MERGED: Final = 500
"""Names that are sorted, or merged, before others have their turn."""


class Entries:
    """The text of entries, with commas between them."""

    def __init__(self) -> None:
        self.text = bytearray()

    def add(self, *parts: bytes | bytearray) -> None:
        """One entry, or several, in parts. Raises Refused when they exceed the largest answer."""
        if self.text:
            self.text += b","
        for part in parts:
            self.text += part
        if len(self.text) > ANSWER_MAX:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the answer would exceed {ANSWER_MAX} bytes, the largest frame "
                "(com.rocketmq.remoting.frameMaxLength): ask for a part of it",
            )

    def add_pair(self, key: Any, value: Any) -> None:
        """An entry of an object."""
        self.add(fastjson.encode({key: value})[1:-1])

    def add_all(self, table: Mapping[Any, Any]) -> None:
        """Entries of an object."""
        if table:
            self.add(fastjson.encode(table)[1:-1])

    def answer(self, request: Command, shell: Body, name: str, ext: dict[str, str] | None = None) -> Large:
        """The answer: a body whose member `name` is empty, with the entries in it."""
        return answer(request, shell, {name: self}, ext)


def answer(request: Command, shell: Body, members: Mapping[str, Entries], ext: dict[str, str] | None = None) -> Large:
    """The answer: a body with empty members, and the entries of each, in the order of the members."""
    return Large(request.answer(ext=ext), parts(shell, members))


def parts(shell: Body, members: Mapping[str, Entries]) -> list[bytes | bytearray]:
    """The text of such a body."""
    text = shell.encode()
    found: list[bytes | bytearray] = []
    begin = 0
    for name, entries in members.items():
        end = text.index(f'"{name}":'.encode(), begin) + len(name) + 4  # after the bracket
        found += (text[begin:end], entries.text)
        begin = end
    found.append(text[begin:])
    return found


def whole_table(table: Mapping[str, Any]) -> Slices[Entries]:
    """All entries of a table of values that do not change, as they are now."""
    entries = Entries()
    keys, values = list(table), list(table.values())
    for at in range(0, len(keys), ENTRIES_IN_SLICE):
        end = at + ENTRIES_IN_SLICE
        entries.add_all(dict(zip(keys[at:end], values[at:end], strict=True)))
        yield len(entries.text)
    return entries


def whole_list(values: Iterable[str]) -> Slices[Entries]:
    """All of a list of names."""
    entries = Entries()
    names = iter(values)
    while chunk := list(islice(names, 32 * ENTRIES_IN_SLICE)):
        entries.add(msgspec.json.encode(chunk)[1:-1])
        yield len(entries.text)
    return entries


def in_order(names: Collection[str]) -> Slices[list[str]]:
    """Sorted. One call that sorts very many names takes too long, so parts are sorted, and then merged."""
    if len(names) <= NAMES_SORTED:
        return sorted(names)
    rest = iter(names)
    parts: list[list[str]] = []
    while part := sorted(islice(rest, NAMES_SORTED)):
        parts.append(part)
        yield 100 * len(names)
    merged: list[str] = []
    for name in merge(*parts):
        merged.append(name)
        if len(merged) % NAMES_MERGED == 0:
            yield 100 * len(names)
    return merged


def offset_table(table: OffsetTable) -> Slices[Entries]:
    """All entries of a table of offsets: `"topic@group":{0:11,1:10}`."""
    entries = Entries()
    for number, name in enumerate(list(table), 1):
        queues = table.get(name)
        if queues is not None:
            inner = Entries()
            yield from add_offsets(inner, queues)
            entries.add(fastjson.encode(name), b":{", inner.text, b"}")
        if number % ENTRIES_IN_SLICE == 0:
            yield len(entries.text)
    return entries


def add_offsets(entries: Entries, queues: Mapping[int, int]) -> Slices[None]:
    """Offsets by queue."""
    for text in numbers(queues):
        entries.add(text)
        if len(queues) > NUMBERS_IN_SLICE:
            yield len(entries.text)
