"""Consumer groups: the list, figures of rows, one group, a member, resetting offsets, settings."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kourou.client.naming import is_system_group
from kourou.console.calls import Call, Done, Preview, Way
from kourou.console.doctor import examine
from kourou.console.errors import ConsoleError
from kourou.console.facts import GroupOnBroker, Look
from kourou.console.lags import group_lag_ms, queue_lags_ms
from kourou.console.limits import GROUP_FIGURES_MAX, ROWS_MAX
from kourou.console.positions import positions_of
from kourou.console.retries import waiting_retries
from kourou.console.routes.topics import command, known_topic
from kourou.console.sessions import Role
from kourou.console.state import Console
from kourou.console.views.doctor import DoctorView
from kourou.console.views.groups import (
    GroupFigures,
    GroupFiguresPage,
    GroupPage,
    GroupView,
    MemberView,
    Target,
    group_page,
    group_view,
    member_view,
    reset_view,
    topics_of,
)
from kourou.console.views.values import long
from kourou.printable import printable
from kourou.protocol.bodies import ConsumerConnection, SubscriptionGroupConfig, TopicOffset
from kourou.protocol.errors import KourouError
from kourou.protocol.message import MessageQueue
from kourou.protocol.system_names import TOOLS_GROUP

OWNERS_MAX: Final = 50
"""How many members of a group are asked for their queues."""
RETRIES_MAX: Final = 1000


async def listing(call: Call) -> GroupPage:
    offset, limit = call.number("offset", 0, 0, 10**6), call.number("limit", 100, 1, ROWS_MAX)
    groups = await call.look.groups()
    if call.choice("kind", "normal", "all") == "normal":
        groups = {name: on for name, on in groups.items() if not is_system_group(name)}
    return group_page(groups, call.text("q"), offset, limit)


async def figures(call: Call) -> GroupFiguresPage:
    return GroupFiguresPage(await figures_of(call.look, call.names("names", GROUP_FIGURES_MAX)))


async def figures_of(look: Look, names: list[str]) -> dict[str, GroupFigures | None]:
    """The figures of the groups on the screen, one after another."""
    found: dict[str, GroupFigures | None] = {}
    for name in names:
        try:
            positions = await positions_of(look, name, 8.0)
            progress = positions.progress
            connections = await look.connections(name, 8.0)
            dead, _ = await look.dead_count(name, 8.0)
            lag_ms = await group_lag_ms(look, name, positions)
        except (KourouError, ConsoleError):
            found[name] = None
            continue
        found[name] = GroupFigures(
            long(progress.lag),
            lag_ms,
            0 if connections is None else len(connections.connection_set),
            progress.tps,
            long(progress.in_flight),
            long(dead),
            topics_of(progress),
        )
    return found


async def known_group(look: Look, name: str) -> list[GroupOnBroker]:
    """Raises ConsoleError if no broker has settings for the group."""
    found = (await look.groups()).get(name)
    if found is None:
        look.check_complete()
        raise ConsoleError(
            "not_found", f"no broker knows the group {name!r}", "a group is known after its first member"
        )
    return found


async def owners_of(look: Look, group: str, connections: ConsumerConnection | None) -> dict[MessageQueue, str]:
    """The member to which each queue is assigned, according to the members."""
    ids = [one.client_id or "" for one in (connections.connection_set if connections is not None else [])]

    async def ask(client_id: str) -> dict[MessageQueue, str]:
        try:
            info = await look.running(group, client_id)
        except (KourouError, ConsoleError):
            return {}
        return dict.fromkeys((*info.mq_table, *info.mq_pop_table), client_id)

    found: dict[MessageQueue, str] = {}
    for table in await asyncio.gather(*(ask(client_id) for client_id in sorted(ids)[:OWNERS_MAX])):
        found |= table
    return found


async def group(console: Console, look: Look, name: str) -> GroupView:
    on = await known_group(look, name)
    console.rings.want(f"group:{name}", console.clock())
    positions, connections = await asyncio.gather(positions_of(look, name), look.connections(name))
    lags_ms = await queue_lags_ms(look, name, positions)
    owners = await owners_of(look, name, connections)
    dead, _ = await look.dead_count(name)
    waiting = await waiting_retries(look, name)
    history = console.rings.history(f"group:{name}", ("lag", "lag_ms", "rate"))
    return group_view(name, on, connections, positions, lags_ms, owners, dead, waiting, history)


async def show(call: Call) -> GroupView:
    return await group(call.console, call.look, call.path["group"])


async def member(call: Call) -> MemberView:
    name, wanted = call.path["group"], call.path["client"]
    connections = await call.look.connections(name)
    ids = [one.client_id or "" for one in (connections.connection_set if connections is not None else [])]
    client_id = next((one for one in ids if printable(one) == wanted), None)
    if client_id is None:
        raise ConsoleError("not_found", f"group {name!r} has no member {wanted!r} now")
    with_stacks = call.choice("stacks", "0", "1") == "1"
    return member_view(client_id, await call.look.running(name, client_id, with_stacks=with_stacks))


async def doctor(call: Call) -> DoctorView:
    name = call.path["group"]
    return await examine(call.look, name, await known_group(call.look, name))


# ── Resetting ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Reset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    to: str = "end"
    time_ms: int | None = None
    broker: str | None = None
    queue: int | None = None
    offset: str | int | None = None
    preview: bool = False
    confirm: str | None = None


async def reset(call: Call) -> Any:
    return await _reset(call, call.read(Reset), "reset offsets")


async def skip(call: Call) -> Any:
    given = call.read(Reset)
    if given.to != "end" or given.offset is not None:
        raise ConsoleError("bad_request", "skipping is a reset to the end")
    return await _reset(call, given, "skip messages")


async def _reset(call: Call, given: Reset, action: str) -> Any:
    name = call.path["group"]
    await known_group(call.look, name)
    await known_topic(call.look, given.topic)
    offsets = await targets(call.look, name, given)
    connections = await call.look.connections(name)
    members = 0 if connections is None else len(connections.connection_set)
    view = reset_view(offsets, members)
    cli = await reset_command(call.look, name, given, offsets)
    if given.preview:
        return Preview(view, cli, name)
    call.confirm(given.confirm, name)
    done = await perform(call.look, name, given, offsets)
    call.console.facts.forget("progress", "spans")
    call.note(action, f"{name} in {given.topic}", text=f"{view.again} again, {view.skipped} skipped", cli=cli)
    return Done(reset_view(done, members), cli)


async def targets(look: Look, name: str, given: Reset) -> dict[MessageQueue, Target]:
    """Where the group continues in each queue of the topic. Raises ConsoleError."""
    wrapped = look.mq.session.wrap(given.topic)
    positions = await positions_of(look, name, 0.5)
    connections = await look.connections(name)
    at = {queue: state for queue, state in positions.progress.queues.items() if queue.topic == wrapped}
    ends: dict[MessageQueue, TopicOffset] = {}
    if at or (connections is not None and wrapped in connections.subscription_table):
        ends = await look.topic_ends(given.topic, 0.5)
    queues = [
        queue
        for queue in sorted({*at, *ends})
        if given.queue is None or (queue.queue_id == given.queue and given.broker in (None, queue.broker_name))
    ]
    if not queues:
        text = f"group {name!r} has no offsets in topic {given.topic!r}, or not in this queue"
        raise ConsoleError("not_found", text, "it has not consumed from there yet")
    look.check_complete()
    found: dict[MessageQueue, Target] = {}
    for queue in queues:
        state, bounds = at.get(queue), ends.get(queue)
        low, high = (0, at[queue].broker_offset) if bounds is None else (bounds.min_offset, bounds.max_offset)
        position = None if state is None else state.consumer_offset
        committed = None if queue in positions.uncommitted else position
        found[queue] = Target(committed, position, await _target(look, given, queue, low, high))
    return found


async def _target(look: Look, given: Reset, queue: MessageQueue, low: int, high: int) -> int:
    match given.to:
        case "end":
            return high
        case "first":
            return low
        case "time" if given.time_ms is not None and 0 <= given.time_ms < 2**53:
            return await look.mq.pull(group=TOOLS_GROUP).search_offset(queue, given.time_ms / 1000)
        case "offset" if given.queue is not None and given.offset is not None:
            return _offset(given.offset, low, high)
        case _:
            raise ConsoleError(
                "bad_request", "to: end, first, time with time_ms, or offset with queue and offset is expected"
            )


def _offset(given: str | int, low: int, high: int) -> int:
    text = str(given)
    if not (text.isascii() and text.isdigit() and len(text) <= 19) or not low <= int(text) <= high:
        raise ConsoleError("bad_request", f"offset {text[:30]}: a number from {low} to {high} is expected")
    return int(text)


async def perform(
    look: Look, name: str, given: Reset, offsets: Mapping[MessageQueue, Target]
) -> dict[MessageQueue, Target]:
    """Resets the offsets of the preview. Returns them with the offsets that brokers report."""
    groups = look.mq.admin.groups
    if given.to in ("end", "time") and given.queue is None:
        when = None if given.to == "end" or given.time_ms is None else given.time_ms / 1000
        told = await groups.reset_to_time(name, given.topic, when)
        unknown = Target(None, None, 0)
        return {
            queue: msgspec.structs.replace(offsets.get(queue, unknown), offset=offset) for queue, offset in told.items()
        }
    for queue, target in offsets.items():
        await groups.reset_queue(name, queue, target.offset)
    return dict(offsets)


async def reset_command(look: Look, name: str, given: Reset, offsets: Mapping[MessageQueue, Target]) -> str:
    if given.to in ("end", "time") and given.queue is None:
        when = "-1" if given.to == "end" else str(given.time_ms)
        return command("resetOffsetByTime", "-g", name, "-t", given.topic, "-s", when)
    masters = {master.name: master.address for master in await look.masters()}
    return "; ".join(
        command(
            "resetOffsetByTime",
            "-g",
            name,
            "-t",
            given.topic,
            "-s",
            "-1",
            "-b",
            masters.get(queue.broker_name, queue.broker_name),
            "-q",
            str(queue.queue_id),
            "-o",
            str(target.offset),
        )
        for queue, target in offsets.items()
    )


# ── Settings ────────────────────────────────────────────────────────────────────────────────────────────────────────


class GroupChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str | None = None
    retry_max: int | None = None
    consume_enable: bool | None = None
    orderly: bool | None = None
    broadcast_enable: bool | None = None
    preview: bool = False
    confirm: str | None = None

    def apply(self, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """Raises ConsoleError."""
        if self.retry_max is not None and not -1 <= self.retry_max <= RETRIES_MAX:
            raise ConsoleError("bad_request", f"retry_max: a number from -1 to {RETRIES_MAX} is expected")
        given = {
            "retry_max_times": self.retry_max,
            "consume_enable": self.consume_enable,
            "consume_message_orderly": self.orderly,
            "consume_broadcast_enable": self.broadcast_enable,
        }
        return msgspec.structs.replace(config, **{key: value for key, value in given.items() if value is not None})

    def words(self) -> list[str]:
        flags = {"-s": self.consume_enable, "-o": self.orderly, "-d": self.broadcast_enable}
        words = [] if self.retry_max is None else ["-r", str(self.retry_max)]
        return words + [
            word for flag, value in flags.items() if value is not None for word in (flag, str(value).lower())
        ]


async def create(call: Call) -> Any:
    given = call.read(GroupChange)
    name = given.name or ""
    config = given.apply(SubscriptionGroupConfig())
    clusters = sorted((await call.look.cluster()).cluster_addr_table)
    cli = "; ".join(command("updateSubGroup", "-c", cluster, "-g", name, *given.words()) for cluster in clusters)
    if name in await call.look.groups():
        raise ConsoleError("conflict", f"a group {name!r} already exists", "change it, or choose another name")
    if given.preview:
        return Preview({"brokers": [member.name for member in await call.look.masters()]}, cli)
    await call.look.mq.admin.groups.create(name, config=config)
    call.console.facts.forget("groups")
    call.note("create group", name, cli=cli)
    return Done({"name": name}, cli)


async def change(call: Call) -> Any:
    given = call.read(GroupChange)
    name = call.path["group"]
    on = await known_group(call.look, name)
    call.look.check_complete()
    cli = "; ".join(command("updateSubGroup", "-b", one.address, "-g", name, *given.words()) for one in on)
    changed = [(one, given.apply(one.config)) for one in on]
    if given.preview:
        return Preview({"brokers": [one.broker for one in on]}, cli)
    for one, config in changed:
        await call.look.mq.admin.groups.create(name, broker=one.address, config=config)
    call.console.facts.forget("groups")
    call.note("change group", name, cli=cli)
    return Done({"name": name}, cli)


class GroupDeletion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    confirm: str | None = None
    offsets: bool = False
    preview: bool = False


async def delete(call: Call) -> Any:
    given = call.read(GroupDeletion)
    name = call.path["group"]
    on = await known_group(call.look, name)
    call.look.check_complete()
    words = ("-g", name, *(("-r", "true") if given.offsets else ()))
    cli = "; ".join(command("deleteSubGroup", "-b", one.address, *words) for one in on)
    connections = await call.look.connections(name)
    members = 0 if connections is None else len(connections.connection_set)
    if given.preview:
        progress = (await positions_of(call.look, name)).progress
        return Preview({"members": members, "topics": topics_of(progress), "lag": long(progress.lag)}, cli, name)
    call.confirm(given.confirm, name)
    for one in on:
        await call.look.mq.admin.groups.delete(name, broker=one.address, with_offsets=given.offsets)
    call.console.facts.forget("groups", "progress")
    call.note("delete group", name, cli=cli)
    return Done({"name": name}, cli)


WAYS: Final = (
    Way("GET", "/api/groups", listing),
    Way("GET", "/api/groups/figures", figures),
    Way("GET", "/api/groups/{group}", show),
    Way("GET", "/api/groups/{group}/members/{client:path}", member),
    Way("GET", "/api/groups/{group}/doctor", doctor),
    Way("POST", "/api/groups/{group}/reset", reset, Role.OPERATE),
    Way("POST", "/api/groups/{group}/skip", skip, Role.OPERATE),
    Way("POST", "/api/groups", create, Role.ADMINISTER),
    Way("PATCH", "/api/groups/{group}", change, Role.ADMINISTER),
    Way("DELETE", "/api/groups/{group}", delete, Role.ADMINISTER),
)
