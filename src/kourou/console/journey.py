"""Collects the journey of a message (views/journey.py) with the indexes of the brokers."""

import asyncio
from contextlib import suppress
from typing import Final

from kourou.client import Delivery
from kourou.client.admin.dead_letters import origin_topic
from kourou.client.errors import NoRouteError
from kourou.console.errors import ConsoleError
from kourou.console.facts import Look
from kourou.console.finding import by_id
from kourou.console.halves import open_halves
from kourou.console.limits import DETAIL_BODY_SIZE
from kourou.console.positions import positions_of
from kourou.console.views.journey import (
    GroupEvidence,
    GroupJourney,
    Held,
    JourneyView,
    delays_of,
    group_journey,
    group_of,
    retry_topics,
    sent_view,
    trace_link,
)
from kourou.console.views.messages import message_view
from kourou.console.views.values import long_in
from kourou.protocol.errors import BodyError, KourouError
from kourou.protocol.message import MessageQueue
from kourou.protocol.properties import Property
from kourou.protocol.system_names import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
)
from kourou.protocol.traces import Trace, decode_traces

GROUPS_MAX: Final = 50
WAITING: Final = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC))
DEFAULT_DELAYS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
RETRY_MAX_DEFAULT: Final = 16


async def journey(
    look: Look, message_id: str, topic: str | None, *, with_bodies: bool, trace_url: str | None = None
) -> JourneyView:
    """The journey of a message. Raises ConsoleError if nothing is known about it."""
    found: list[Delivery] = []
    failure: ConsoleError | None = None
    try:
        found = await by_id(look, message_id, topic)
    except ConsoleError as error:
        failure = error
    message = next((one for one in found if "REDRIVE_ID" not in one.properties), found[0] if found else None)
    key = message.message_id if message is not None else message_id
    name = message.topic if message is not None else topic
    if message is not None and (own := _own_topic(message)) != message.record.topic:
        # The id belongs to a copy: the message itself is in its own topic, or not there yet.
        name = own
        copy, message = message, next(iter(await _by_key(look, own, key)), None)
        if message is None and copy.record.topic not in WAITING:
            message = copy
    waiting = await _by_key(look, SCHEDULE_TOPIC, key)
    held, original = (None, None) if message is not None else await _held(look, key, waiting)
    if original is not None:
        name = original.properties.get(Property.REAL_TOPIC, name)
    if message is None and original is None and not waiting:
        raise failure or ConsoleError("not_found", f"there is no message {message_id[:100]}", "it may have expired")
    traces, hosts = await _traces(look, key)
    shown = message if message is not None else original
    groups = [] if name is None else await _groups(look, message, key, name, waiting, traces, hosts)
    return JourneyView(
        None if shown is None else message_view(shown, with_bodies=with_bodies, most=DETAIL_BODY_SIZE),
        bool(traces),
        sent_view(shown, traces, hosts),
        held,
        groups,
        trace_link(trace_url, shown),
    )


def _own_topic(message: Delivery) -> str:
    """The topic that it was sent to: not that of a retry, a dead letter, or one where it waits."""
    if message.record.topic.startswith(DEAD_LETTER_PREFIX):
        return origin_topic(message.properties) or message.record.topic
    if message.record.topic in WAITING:
        real = message.properties.get(Property.REAL_TOPIC, message.topic)
        return message.properties.get(Property.RETRY_TOPIC, real) if real.startswith("%") else real
    return message.topic


async def _by_key(look: Look, topic: str, key: str) -> list[Delivery]:
    try:
        return await look.mq.admin.messages.by_unique_key(topic, key)
    except (NoRouteError, KourouError):
        return []


async def _held(look: Look, key: str, waiting: list[Delivery]) -> tuple[Held | None, Delivery | None]:
    """A message that consumers can't see yet."""
    delayed = [one for one in waiting if group_of(one) is None]
    if delayed:
        level = long_in(delayed[0].properties.get(Property.DELAY_LEVEL)) or 0
        delays = await _delays(look)
        due = delayed[0].stored_ms + delays[level - 1] if 0 < level <= len(delays) else None
        return Held("delayed", due), delayed[0]
    for topic, kind in ((TIMER_TOPIC, "timed"), (HALF_TOPIC, "half")):
        found = await _by_key(look, topic, key)
        if found:
            if kind == "timed":
                return Held(kind, long_in(found[0].properties.get(Property.TIMER_OUT_MS))), found[0]
            is_open = any(state is not False for state in (await open_halves(look, found)).values())
            return Held(kind if is_open else "ended", None), found[0]
    return None, None


async def _delays(look: Look) -> list[int]:
    try:
        (first, *_) = await look.masters()
        text = (await look.config(first.address)).get("messageDelayLevel") or DEFAULT_DELAYS
    except (ValueError, KourouError, ConsoleError):
        text = DEFAULT_DELAYS
    return delays_of(text)


async def _traces(look: Look, key: str) -> tuple[list[Trace], list[str]]:
    """The trace records of a message, and the host that sent each."""
    traces: list[Trace] = []
    hosts: list[str] = []
    try:
        messages = await look.mq.admin.messages.by_key(TRACE_TOPIC, key)
    except KourouError:
        return [], []
    for one in messages:
        try:
            records = decode_traces(one.body)
        except BodyError:
            continue
        for record in records:
            if key in record.message_id.split(","):
                traces.append(record)
                hosts.append(one.record.born_address.rpartition(":")[0])
    return traces, hosts


async def _groups(
    look: Look,
    message: Delivery | None,
    key: str,
    topic: str,
    waiting: list[Delivery],
    traces: list[Trace],
    hosts: list[str],
) -> list[GroupJourney]:
    names = {group for one in waiting if (group := group_of(one)) is not None}
    names |= {trace.group for trace in traces if trace.group and trace.kind == "SubBefore"}
    with suppress(KourouError, ConsoleError):
        names |= set(await look.topic_groups(topic))
    delays = await _delays(look)
    chosen = sorted(names)[:GROUPS_MAX]
    evidence = await asyncio.gather(*(_evidence(look, group, message, key, topic, waiting) for group in chosen))
    return [group_journey(message, one, delays, traces, hosts) for one in evidence]


async def _evidence(
    look: Look, group: str, message: Delivery | None, key: str, topic: str, waiting: list[Delivery]
) -> GroupEvidence:
    topics = await look.topics()
    settings = (await look.groups()).get(group)
    failed = [one for one in waiting if group_of(one) == group]
    again: list[Delivery] = []
    for name in retry_topics(group, topic):
        if name in topics:
            again += await _by_key(look, name, key)
    dead = await _by_key(look, DEAD_LETTER_PREFIX + group, key) if DEAD_LETTER_PREFIX + group in topics else []
    progress = (await positions_of(look, group)).progress
    committed = None
    consumed_again: dict[str, bool] = {}
    for queue, state in progress.queues.items():
        if message is not None and _is_at(message, queue):
            committed = state.consumer_offset
        for one in again:
            if (queue.topic, queue.queue_id) == (one.record.topic, one.queue_id):
                consumed_again[one.offset_id] = one.queue_offset < state.consumer_offset
    return GroupEvidence(
        group=group,
        committed=committed,
        wants=await _wants(look, group, topic, message),
        retry_max=max((one.config.retry_max_times for one in settings or ()), default=RETRY_MAX_DEFAULT),
        failed=failed,
        again=again,
        consumed_again=consumed_again,
        dead=dead,
    )


async def _wants(look: Look, group: str, topic: str, message: Delivery | None) -> bool | None:
    """Whether the group's subscription accepts the tag."""
    try:
        connections = await look.connections(group)
    except (KourouError, ConsoleError):
        return None
    if connections is None or message is None:
        return None
    subscription = connections.subscription_table.get(look.mq.session.wrap(topic))
    if subscription is None or subscription.expression_type != "TAG":
        return None
    return not subscription.tags_set or (message.tag or "") in subscription.tags_set


def _is_at(message: Delivery, queue: MessageQueue) -> bool:
    """Whether the message is in this queue. A message found by its offset id has no broker name."""
    is_there = (queue.topic, queue.queue_id) == (message.record.topic, message.queue_id)
    return is_there and message.queue.broker_name in ("", queue.broker_name)
