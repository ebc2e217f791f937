"""Collects the evidence for the doctor of a group (views/doctor.py)."""

import asyncio
from collections.abc import Sequence
from typing import Final

from kourou.console.errors import ConsoleError
from kourou.console.facts import GroupOnBroker, Look, now_ms
from kourou.console.lags import group_lag_ms
from kourou.console.positions import positions_of
from kourou.console.retries import waiting_retries
from kourou.console.views.doctor import DoctorView, Evidence, diagnosis
from kourou.protocol.bodies import ConsumerRunningInfo, TopicOffset
from kourou.protocol.errors import KourouError
from kourou.protocol.message import MessageQueue
from kourou.protocol.system_names import TOOLS_GROUP

MEMBERS_MAX: Final = 50
TOPICS_MAX: Final = 16
SAMPLE: Final = 8
"""Newest messages of a topic whose tags are compared."""


async def examine(look: Look, group: str, on: Sequence[GroupOnBroker]) -> DoctorView:
    connections, positions = await asyncio.gather(look.connections(group), positions_of(look, group))
    progress = positions.progress
    ids = [one.client_id or "" for one in (connections.connection_set if connections is not None else [])]
    infos: dict[str, ConsumerRunningInfo] = {}
    for client_id in sorted(set(ids))[:MEMBERS_MAX]:
        try:
            infos[client_id] = await look.running(group, client_id)
        except (KourouError, ConsoleError):
            continue  # the member has left, or does not answer
    subscriptions = {} if connections is None else connections.subscription_table
    unwrap = look.mq.session.unwrap
    topics = sorted({*subscriptions, *(queue.topic for queue in progress.queues)})[:TOPICS_MAX]
    ends: dict[MessageQueue, TopicOffset] = {}
    perms: dict[str, int] = {}
    tags: dict[str, Sequence[str | None]] = {}
    settings = await look.topics()
    for topic in topics:
        for one in settings.get(topic, ()):
            perms[topic] = perms.get(topic, 0) | one.config.perm
        try:
            found = await look.topic_ends(unwrap(topic))
        except (KourouError, ConsoleError):
            continue
        ends.update(found)
        if topic in subscriptions and subscriptions[topic].tags_set:
            tags[topic] = await newest_tags(look, found)
    dead, _ = await look.dead_count(group)
    return diagnosis(
        Evidence(
            group=group,
            on=on,
            connections=connections,
            infos=infos,
            progress=progress,
            ends=ends,
            perms=perms,
            tags=tags,
            dead=dead,
            waiting=await waiting_retries(look, group),
            lag_ms=await group_lag_ms(look, group, positions),
            now_ms=now_ms(),
        )
    )


async def newest_tags(look: Look, ends: dict[MessageQueue, TopicOffset]) -> list[str | None]:
    """The tags of the newest messages of the queue that was written to last."""
    if not ends:
        return []
    queue, end = max(ends.items(), key=lambda item: item[1].last_update_timestamp)
    begin = max(end.min_offset, end.max_offset - SAMPLE)
    if begin >= end.max_offset:
        return []
    try:
        batch = await look.mq.pull(group=TOOLS_GROUP).pull(queue, begin, count=SAMPLE)
    except KourouError:
        return []
    return [message.tag for message in batch.messages]
