"""Topics: rows of the list, figures of rows, one topic."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kourou.console.facts import TopicOnBroker, kind_of_topic
from kourou.console.rings import History
from kourou.console.views.values import long, ms, perm_text
from kourou.printable import printable
from kourou.protocol.bodies import TopicOffset
from kourou.protocol.message import MessageQueue

TYPE_ATTRIBUTE: Final = "message.type"


class TopicRow(msgspec.Struct, frozen=True):
    """A topic in the list."""

    name: str
    kind: str
    type: str
    queues: int
    read_queues: int
    perm: str
    order: bool
    brokers: list[str]


class TopicPage(msgspec.Struct, frozen=True):
    total: int
    topics: list[TopicRow]


class TopicFigures(msgspec.Struct, frozen=True):
    """The figures of a row."""

    messages: str
    rate: float | None
    last_ms: int | None
    groups: int | None


class FiguresPage(msgspec.Struct, frozen=True):
    figures: dict[str, TopicFigures | None]


class TopicSettings(msgspec.Struct, frozen=True):
    """A topic on one broker."""

    broker: str
    address: str
    read_queues: int
    write_queues: int
    perm: str
    order: bool
    attributes: dict[str, str]


class QueueRow(msgspec.Struct, frozen=True):
    broker: str
    queue: int
    min: str
    end: str
    messages: str
    last_ms: int | None


class TopicView(msgspec.Struct, frozen=True):
    """One topic."""

    name: str
    kind: str
    type: str
    perm: str
    order: bool
    attributes: dict[str, str]
    settings: list[TopicSettings]
    queues: list[QueueRow]
    messages: str
    rate: float | None
    groups: list[str]
    keeps_ms: int | None
    history: History


def topic_row(name: str, on: Sequence[TopicOnBroker], system: frozenset[str]) -> TopicRow:
    return TopicRow(
        name=printable(name),
        kind=kind_of_topic(name, system),
        type=type_of(on),
        queues=sum(one.config.write_queue_nums for one in on),
        read_queues=sum(one.config.read_queue_nums for one in on),
        perm=perm_text(_perm(on)),
        order=any(one.config.order for one in on),
        brokers=[printable(one.broker) for one in on],
    )


def _perm(on: Sequence[TopicOnBroker]) -> int:
    found = 0
    for one in on:
        found |= one.config.perm
    return found


def type_of(on: Sequence[TopicOnBroker]) -> str:
    """The message type of the topic; brokers before 5.0 have no types."""
    for one in on:
        attributes = one.config.attributes
        found = attributes.get(TYPE_ATTRIBUTE) or attributes.get(f"+{TYPE_ATTRIBUTE}")
        if found:
            return printable(found[:40]).upper()
    return "UNSPECIFIED"


def topic_page(
    topics: Mapping[str, Sequence[TopicOnBroker]],
    system: frozenset[str],
    words: str,
    kind: str,
    offset: int,
    limit: int,
) -> TopicPage:
    """A page of the topics of a kind whose names contain a text."""
    wanted = words.lower()
    names = [
        name for name in topics if wanted in name.lower() and (kind == "all" or kind_of_topic(name, system) == kind)
    ]
    return TopicPage(len(names), [topic_row(name, topics[name], system) for name in names[offset : offset + limit]])


def topic_figures(
    ends: Mapping[MessageQueue, TopicOffset], rate: float | None, groups: int | None = None
) -> TopicFigures:
    count = sum(end.max_offset - end.min_offset for end in ends.values())
    last = max((end.last_update_timestamp for end in ends.values()), default=None)
    return TopicFigures(long(count), rate, ms(last), groups)


def topic_view(
    name: str,
    on: Sequence[TopicOnBroker],
    system: frozenset[str],
    ends: Mapping[MessageQueue, TopicOffset],
    groups: Sequence[str],
    rate: float | None,
    keeps_ms: int | None,
    history: History,
) -> TopicView:
    row = topic_row(name, on, system)
    return TopicView(
        name=row.name,
        kind=row.kind,
        type=row.type,
        perm=row.perm,
        order=row.order,
        attributes=_attributes(on[0].config.attributes) if on else {},
        settings=[
            TopicSettings(
                printable(one.broker),
                one.address,
                one.config.read_queue_nums,
                one.config.write_queue_nums,
                perm_text(one.config.perm),
                one.config.order,
                _attributes(one.config.attributes),
            )
            for one in on
        ],
        queues=[
            QueueRow(
                printable(queue.broker_name),
                queue.queue_id,
                long(end.min_offset),
                long(end.max_offset),
                long(end.max_offset - end.min_offset),
                ms(end.last_update_timestamp),
            )
            for queue, end in ends.items()
        ],
        messages=long(sum(end.max_offset - end.min_offset for end in ends.values())),
        rate=rate,
        groups=[printable(group) for group in groups],
        keeps_ms=keeps_ms,
        history=history,
    )


def _attributes(table: Mapping[str, str]) -> dict[str, str]:
    return {printable(key.removeprefix("+")): printable(value) for key, value in table.items()}
