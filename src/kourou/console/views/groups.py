"""Consumer groups: rows, figures, one group with its queues and members, a member, the preview of a reset."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kourou.client.admin import Progress
from kourou.console.facts import GroupOnBroker
from kourou.console.positions import Positions
from kourou.console.rings import History
from kourou.console.views.values import long, ms
from kourou.printable import printable, printable_lines
from kourou.protocol.bodies import ConsumerConnection, ConsumerRunningInfo
from kourou.protocol.codes import version_name
from kourou.protocol.message import MessageQueue
from kourou.protocol.system_names import RETRY_PREFIX

KINDS: Final = {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull", "CONSUME_POP": "pop"}
STARTS: Final = {
    "CONSUME_FROM_LAST_OFFSET": "last",
    "CONSUME_FROM_FIRST_OFFSET": "first",
    "CONSUME_FROM_TIMESTAMP": "timestamp",
}
STACKS_SIZE_MAX: Final = 256 * 1024


class Waiting(msgspec.Struct, frozen=True):
    """Failed messages of a group that are not due yet; `unread`: waiting messages that were not examined."""

    count: int = 0
    unread: int = 0


class GroupRow(msgspec.Struct, frozen=True):
    """A group in the list."""

    name: str
    consume_enable: bool
    broadcast_enable: bool
    orderly: bool
    retry_max: int
    retry_queues: int
    brokers: list[str]


class GroupPage(msgspec.Struct, frozen=True):
    total: int
    groups: list[GroupRow]


class GroupFigures(msgspec.Struct, frozen=True):
    """The figures of a row."""

    lag: str
    lag_ms: int | None
    members: int
    rate: float | None
    in_flight: str
    dead: str
    topics: list[str]


class GroupFiguresPage(msgspec.Struct, frozen=True):
    figures: dict[str, GroupFigures | None]


class GroupSettings(msgspec.Struct, frozen=True):
    """A group on one broker."""

    broker: str
    address: str
    consume_enable: bool
    broadcast_enable: bool
    orderly: bool
    retry_max: int
    retry_queues: int
    attributes: dict[str, str]


class MemberRow(msgspec.Struct, frozen=True):
    id: str
    address: str
    language: str
    version: str
    queues: int | None


class SubscriptionRow(msgspec.Struct, frozen=True):
    topic: str
    expression: str
    type: str


class ProgressRow(msgspec.Struct, frozen=True):
    """A group in one queue."""

    topic: str
    broker: str
    queue: int
    committed: str
    """Empty if nothing is committed."""
    end: str
    lag: str
    lag_ms: int | None
    in_flight: str
    member: str | None
    last_ms: int | None


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """One group."""

    name: str
    settings: list[GroupSettings]
    kind: str | None
    model: str | None
    from_where: str | None
    members: list[MemberRow]
    subscriptions: list[SubscriptionRow]
    queues: list[ProgressRow]
    lag: str
    lag_ms: int | None
    rate: float | None
    in_flight: str
    dead: str
    retrying: str
    """Failed messages that wait for their next attempt."""
    retrying_is_least: bool
    """There may be more, because not all waiting messages were examined."""
    topics: list[str]
    history: History


class MemberQueue(msgspec.Struct, frozen=True):
    topic: str
    broker: str
    queue: int
    committed: str
    cached: int
    locked: bool
    last_pull_ms: int | None
    last_consume_ms: int | None


class MemberRate(msgspec.Struct, frozen=True):
    topic: str
    pull_ms: float
    pull_rate: float
    consume_ms: float
    ok_rate: float
    failed_rate: float
    failed: str


class MemberSubscription(msgspec.Struct, frozen=True):
    topic: str
    expression: str


class MemberView(msgspec.Struct, frozen=True):
    """The internal state of a member."""

    id: str
    properties: dict[str, str]
    subscriptions: list[MemberSubscription]
    queues: list[MemberQueue]
    rates: list[MemberRate]
    stacks: str | None


class ResetQueue(msgspec.Struct, frozen=True):
    """The effect of a reset on one queue."""

    broker: str
    queue: int
    committed: str
    target: str
    again: str
    skipped: str


class ResetView(msgspec.Struct, frozen=True):
    """The effect of a reset: messages that are delivered again, and messages that are skipped."""

    queues: list[ResetQueue]
    again: str
    skipped: str
    members: int


def group_row(name: str, on: Sequence[GroupOnBroker]) -> GroupRow:
    return GroupRow(
        printable(name),
        all(one.config.consume_enable for one in on),
        all(one.config.consume_broadcast_enable for one in on),
        any(one.config.consume_message_orderly for one in on),
        max(one.config.retry_max_times for one in on),
        max(one.config.retry_queue_nums for one in on),
        [printable(one.broker) for one in on],
    )


def group_page(groups: Mapping[str, Sequence[GroupOnBroker]], words: str, offset: int, limit: int) -> GroupPage:
    names = [name for name in groups if words.lower() in name.lower()]
    return GroupPage(len(names), [group_row(name, groups[name]) for name in names[offset : offset + limit]])


def group_settings(on: Sequence[GroupOnBroker]) -> list[GroupSettings]:
    return [
        GroupSettings(
            printable(one.broker),
            one.address,
            one.config.consume_enable,
            one.config.consume_broadcast_enable,
            one.config.consume_message_orderly,
            one.config.retry_max_times,
            one.config.retry_queue_nums,
            {printable(key): printable(value) for key, value in one.config.attributes.items()},
        )
        for one in on
    ]


def members_of(connections: ConsumerConnection | None, owners: Mapping[MessageQueue, str]) -> list[MemberRow]:
    """The members, with the number of queues that each reports."""
    counts: dict[str, int] = {}
    for owner in owners.values():
        counts[owner] = counts.get(owner, 0) + 1
    members = [] if connections is None else connections.connection_set
    return [
        MemberRow(
            printable(one.client_id or ""),
            printable(one.client_addr or ""),
            printable(one.language or ""),
            version_name(one.version),
            counts.get(one.client_id or "", 0) if owners else None,
        )
        for one in sorted(members, key=lambda one: one.client_id or "")
    ]


def progress_rows(
    positions: Positions, lags_ms: Mapping[MessageQueue, int], owners: Mapping[MessageQueue, str]
) -> list[ProgressRow]:
    rows = []
    for queue, state in positions.progress.queues.items():
        lag = state.broker_offset - state.consumer_offset
        owner = owners.get(queue)
        rows.append(
            ProgressRow(
                printable(queue.topic),
                printable(queue.broker_name),
                queue.queue_id,
                "" if queue in positions.uncommitted else long(state.consumer_offset),
                long(state.broker_offset),
                long(lag),
                lags_ms.get(queue, None if lag > 0 else 0),
                long(max(state.pull_offset - state.consumer_offset, 0)),
                None if owner is None else printable(owner),
                ms(state.last_timestamp),
            )
        )
    return rows


def retry_lag(progress: Progress) -> int:
    """Messages in the retry topic whose next attempt is due. Others wait in the schedule topic (console/retries.py)."""
    return sum(
        max(state.broker_offset - state.consumer_offset, 0)
        for queue, state in progress.queues.items()
        if queue.topic.startswith(RETRY_PREFIX)
    )


def topics_of(progress: Progress) -> list[str]:
    """The topics in which it is known where the group is, without its retry topic."""
    return sorted({printable(queue.topic) for queue in progress.queues if not queue.topic.startswith(RETRY_PREFIX)})


def group_view(
    name: str,
    on: Sequence[GroupOnBroker],
    connections: ConsumerConnection | None,
    positions: Positions,
    lags_ms: Mapping[MessageQueue, int],
    owners: Mapping[MessageQueue, str],
    dead: int,
    waiting: Waiting,
    history: History,
) -> GroupView:
    progress = positions.progress
    subscriptions = {} if connections is None else connections.subscription_table
    lag_ms = max(lags_ms.values(), default=None) if progress.lag > 0 else 0
    return GroupView(
        name=printable(name),
        settings=group_settings(on),
        kind=None if connections is None else KINDS.get(connections.consume_type or ""),
        model=None if connections is None else (connections.message_model or "").lower() or None,
        from_where=None if connections is None else STARTS.get(connections.consume_from_where or ""),
        members=members_of(connections, owners),
        subscriptions=[
            SubscriptionRow(printable(topic), printable(one.sub_string or "*"), printable(one.expression_type))
            for topic, one in sorted(subscriptions.items())
        ],
        queues=progress_rows(positions, lags_ms, owners),
        lag=long(progress.lag),
        lag_ms=lag_ms,
        rate=progress.tps,
        in_flight=long(progress.in_flight),
        dead=long(dead),
        retrying=long(retry_lag(progress) + waiting.count),
        retrying_is_least=waiting.unread > 0,
        topics=sorted(
            {*topics_of(progress), *(printable(name) for name in subscriptions if not name.startswith(RETRY_PREFIX))}
        ),
        history=history,
    )


def member_view(client_id: str, info: ConsumerRunningInfo) -> MemberView:
    return MemberView(
        printable(client_id),
        {printable(key): printable(value) for key, value in sorted(info.properties.items())},
        [
            MemberSubscription(printable(one.topic or ""), printable(one.sub_string or "*"))
            for one in info.subscription_set
        ],
        [
            MemberQueue(
                printable(queue.topic),
                printable(queue.broker_name),
                queue.queue_id,
                long(state.commit_offset),
                state.cached_msg_count,
                state.locked,
                ms(state.last_pull_timestamp),
                ms(state.last_consume_timestamp),
            )
            for queue, state in sorted(info.mq_table.items())
        ],
        [
            MemberRate(
                printable(topic),
                one.pull_rt,
                one.pull_tps,
                one.consume_rt,
                one.consume_ok_tps,
                one.consume_failed_tps,
                long(one.consume_failed_msgs),
            )
            for topic, one in sorted(info.status_table.items())
        ],
        None if info.jstack is None else printable_lines(info.jstack[:STACKS_SIZE_MAX]),
    )


class Target(msgspec.Struct, frozen=True):
    """Where a group continues in a queue."""

    committed: int | None
    position: int | None
    """The next offset it would consume without the reset, committed or not; None if that is not known."""
    offset: int

    @property
    def again(self) -> int:
        return 0 if self.position is None else max(self.position - self.offset, 0)

    @property
    def skipped(self) -> int:
        return 0 if self.position is None else max(self.offset - self.position, 0)


def reset_view(targets: Mapping[MessageQueue, Target], members: int) -> ResetView:
    rows = [
        ResetQueue(
            printable(queue.broker_name),
            queue.queue_id,
            "" if target.committed is None else long(target.committed),
            long(target.offset),
            long(target.again),
            long(target.skipped),
        )
        for queue, target in sorted(targets.items())
    ]
    again = sum(target.again for target in targets.values())
    skipped = sum(target.skipped for target in targets.values())
    return ResetView(rows, long(again), long(skipped), members)
