"""Waiting messages: at delay levels, in the timer, half messages. Also the search of the palette."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kourou.client import Delivery
from kourou.console.calls import Call, Way
from kourou.console.errors import ConsoleError
from kourou.console.facts import LONG, Look, Member, now_ms
from kourou.console.filters import ALL
from kourou.console.halves import open_halves, place_of
from kourou.console.journey import DEFAULT_DELAYS
from kourou.console.limits import LIST_BODY_SIZE, PAGE_MESSAGES_MAX
from kourou.console.retries import waiting_spans
from kourou.console.routes.messages import scanned
from kourou.console.routes.overview import if_known
from kourou.console.views.journey import delays_of
from kourou.console.views.messages import MessagePage, MessageView, message_view
from kourou.console.views.values import long, long_in
from kourou.printable import printable
from kourou.protocol.errors import KourouError
from kourou.protocol.ids import IPV4_ID_LENGTH, IPV6_ID_LENGTH
from kourou.protocol.message import MessageQueue
from kourou.protocol.properties import Property
from kourou.protocol.system_names import DEAD_LETTER_PREFIX, HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, TOOLS_GROUP

LEVELS_MAX: Final = 100
TOPICS_MAX: Final = 20
HITS_MAX: Final = 20


class Level(msgspec.Struct, frozen=True):
    broker: str
    level: int
    delay: str
    waiting: str
    next_ms: int | None = None


class Timed(msgspec.Struct, frozen=True):
    broker: str
    count: str
    topics: dict[str, str]
    supported: bool
    reason: str


class DelayedView(msgspec.Struct, frozen=True):
    levels: list[Level]
    timed: list[Timed]


async def delayed(call: Call) -> DelayedView:
    levels: list[Level] = []
    timed: list[Timed] = []
    try:
        ends = await call.look.topic_ends(SCHEDULE_TOPIC)
    except (KourouError, ConsoleError):
        ends = {}
    for master in await call.look.masters():
        try:
            runtime = await call.look.runtime(master.address)
            delays = (await _delays(call.look, master.address)).split()
        except KourouError as error:
            timed.append(Timed(master.name, "0", {}, False, printable(str(error))))
            continue
        levels += [
            await _level(call.look, *span, delays) for span in waiting_spans(master.name, runtime, ends)[:LEVELS_MAX]
        ]
        timed.append(await _timed(call.look, master, runtime))
    return DelayedView(sorted(levels, key=lambda one: (one.broker, one.level)), timed)


async def _level(look: Look, queue: MessageQueue, begin: int, end: int, delays: Sequence[str]) -> Level:
    """A delay level with messages that wait. The first of them is due next."""
    level = queue.queue_id + 1
    delay = delays[level - 1] if level <= len(delays) else ""

    async def first() -> int | None:
        batch = await look.mq.pull(group=TOOLS_GROUP).pull(queue, begin, count=1)
        return batch.messages[0].stored_ms if batch.messages else None

    stored_ms = await if_known(look.fact(("first delayed", queue, begin), LONG, first))
    delay_ms = delays_of(delay)
    next_ms = stored_ms + delay_ms[0] if delay_ms and stored_ms is not None else None
    return Level(printable(queue.broker_name), level, printable(delay), long(end - begin), next_ms)


async def _timed(look: Look, master: Member, runtime: Mapping[str, str]) -> Timed:
    count = long_in(runtime.get("timerCongestNum"))
    if count is None:
        return Timed(master.name, "0", {}, False, "this broker does not report timers")
    counts = await if_known(look.timers(master.address)) or {}
    most = sorted(((name, waiting) for name, waiting in counts.items() if waiting > 0), key=lambda one: -one[1])
    topics = {printable(name): long(waiting) for name, waiting in most[:TOPICS_MAX]}
    return Timed(master.name, long(count), topics, True, "")


async def _delays(look: Look, address: str) -> str:
    return (await look.config(address)).get("messageDelayLevel") or DEFAULT_DELAYS


async def delayed_messages(call: Call) -> MessagePage:
    """The newest records of delay levels; `level`: only of this one. Some of them may have been delivered already."""
    level = call.number("level", 0, 0, LEVELS_MAX)
    masters = await call.look.masters()
    delays = delays_of(await _delays(call.look, masters[0].address)) if masters else []
    result = await scanned(call, SCHEDULE_TOPIC, ALL, newest=True, limit=call.number("limit", 50, 1, PAGE_MESSAGES_MAX))
    views = []
    for one in result.messages:
        own = one.queue_id + 1
        if level in (0, own):
            due = one.stored_ms + delays[own - 1] if own <= len(delays) else None
            views.append(_waiting(call, one, due))
    return MessagePage(
        messages=views,
        cursor=None if result.cursor is None else result.cursor.encode(),
        scanned=long(result.scanned),
        of=long(result.of),
        stopped=result.stopped,
    )


async def timed_messages(call: Call) -> MessagePage:
    """The newest timed messages that are not due yet, as they were stored: one that was recalled is among them."""
    limit = call.number("limit", 50, 1, PAGE_MESSAGES_MAX)
    if TIMER_TOPIC not in await call.look.topics():
        return MessagePage(messages=[], cursor=None, scanned="0", of="0", stopped="end")
    result = await scanned(call, TIMER_TOPIC, ALL, newest=True, limit=limit)
    now, views = now_ms(), []
    for one in result.messages:
        due = long_in(one.properties.get(Property.TIMER_OUT_MS))
        if due is not None and due > now:
            views.append(_waiting(call, one, due))
    return MessagePage(
        messages=views,
        cursor=None if result.cursor is None else result.cursor.encode(),
        scanned=long(result.scanned),
        of=long(result.of),
        stopped=result.stopped,
    )


def _waiting(call: Call, message: Delivery, due_ms: int | None) -> MessageView:
    view = message_view(message, with_bodies=call.sees_bodies, most=LIST_BODY_SIZE)
    real = message.properties.get(Property.REAL_TOPIC)
    return msgspec.structs.replace(view, real_topic=None if real is None else printable(real), due_ms=due_ms)


async def half(call: Call) -> MessagePage:
    """The newest half messages. `open`: it was not committed, rolled back or stored again."""
    limit = call.number("limit", 50, 1, PAGE_MESSAGES_MAX)
    if HALF_TOPIC not in await call.look.topics():
        return MessagePage(messages=[], cursor=None, scanned="0", of="0", stopped="end")
    result = await scanned(call, HALF_TOPIC, ALL, newest=True, limit=limit)
    states = await open_halves(call.look, result.messages)
    views = []
    for one in result.messages:
        view = _waiting(call, one, None)
        group = one.properties.get(Property.PRODUCER_GROUP)
        views.append(
            msgspec.structs.replace(
                view,
                group=None if group is None else printable(group),
                checks=long_in(one.properties.get(Property.TRANSACTION_CHECK_TIMES)) or 0,
                open=states[place_of(one)],
            )
        )
    return MessagePage(
        messages=views,
        cursor=None if result.cursor is None else result.cursor.encode(),
        scanned=long(result.scanned),
        of=long(result.of),
        stopped=result.stopped,
    )


# ── The palette ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Hit(msgspec.Struct, frozen=True):
    kind: str
    name: str
    link: str


class Hits(msgspec.Struct, frozen=True):
    hits: list[Hit]


async def search(call: Call) -> Hits:
    words = call.text("q").strip()
    if not words:
        raise ConsoleError("bad_request", "q: a part of a name, or an id, is expected")
    lower = words.lower()
    hits: list[Hit] = []
    if len(words) in (IPV4_ID_LENGTH, IPV6_ID_LENGTH) and all(one in "0123456789abcdefABCDEF" for one in words):
        hits.append(Hit("message", words.upper(), f"/journey/{words.upper()}"))
    topics = await call.look.topics()
    names = sorted(
        (name for name in topics if lower in name.lower()), key=lambda name: (not name.lower().startswith(lower), name)
    )
    for name in names[: HITS_MAX * 2]:
        if name.startswith(DEAD_LETTER_PREFIX):
            group = name.removeprefix(DEAD_LETTER_PREFIX)
            hits.append(Hit("dead", printable(group), f"/dead/{printable(group)}"))
        elif not name.startswith("%"):
            hits.append(Hit("topic", printable(name), f"/topics/{printable(name)}"))
    groups = [printable(name) for name in await call.look.groups() if lower in name.lower()]
    hits += [Hit("group", name, f"/groups/{name}") for name in groups]
    members = [one for one in await call.look.members() if lower in one.name.lower() or lower in one.address]
    hits += [Hit("broker", f"{printable(one.name)} {one.address}", f"/brokers/{one.address}") for one in members]
    return Hits(hits[:HITS_MAX])


WAYS: Final = (
    Way("GET", "/api/delayed", delayed),
    Way("GET", "/api/delayed/messages", delayed_messages),
    Way("GET", "/api/delayed/timed", timed_messages),
    Way("GET", "/api/half", half),
    Way("GET", "/api/search", search),
)
