"""Consumer groups: settings, progress, members, offsets."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.admin.commands import (
    BrokerAddress,
    Cluster,
    ClusterName,
    Done,
    Facts,
    GroupName,
    Many,
    Output,
    Repeated,
    Rows,
    TopicName,
    brokers_of,
    command,
    in_cluster,
    moment,
    parse_attributes,
    parse_time,
    read_list,
    truth,
)
from kourou.cli.running import CommandError

if TYPE_CHECKING:
    from kourou.client import Client
    from kourou.client.admin import Progress
    from kourou.protocol.message import MessageQueue

Group = Annotated[str, typer.Option("--group", "-g", help="Consumer group.")]
Force = Annotated[str, typer.Option("--force", "-f", help="false: do not move any queue backwards.")]


@command("updateSubGroup")
async def update_group(
    mq: "Client",
    group: GroupName,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    consume: Annotated[str | None, typer.Option("--consumeEnable", "-s", help="true: the group may consume.")] = None,
    from_min: Annotated[
        str | None, typer.Option("--consumeFromMinEnable", "-m", help="true: a new group starts at the first message.")
    ] = None,
    broadcast: Annotated[
        str | None, typer.Option("--consumeBroadcastEnable", "-d", help="true: broadcast consumption is allowed.")
    ] = None,
    retry_queues: Annotated[int | None, typer.Option("--retryQueueNums", "-q", help="Number of retry queues.")] = None,
    retries: Annotated[
        int | None, typer.Option("--retryMaxTimes", "-r", help="Retries before a message becomes a dead letter.")
    ] = None,
    orderly: Annotated[
        str | None, typer.Option("--consumeMessageOrderly", "-o", help="true: consume in order.")
    ] = None,
    policy: Annotated[str | None, typer.Option("--groupRetryPolicy", "-p", help="The retry policy, as JSON.")] = None,
    broker_id: Annotated[int | None, typer.Option("--brokerId", "-i", help="Broker id to consume from.")] = None,
    slow_id: Annotated[
        int | None,
        typer.Option("--whichBrokerWhenConsumeSlowly", "-w", help="Broker id to consume from when the group is slow."),
    ] = None,
    notify: Annotated[
        str | None,
        typer.Option("--notifyConsumerIdsChanged", "-a", help="true: notify members when the group changes."),
    ] = None,
    attributes: Annotated[str, typer.Option("--attributes", help="+key=value,-key")] = "",
) -> Output:
    """Create a group, or change it. Settings that are not given stay unchanged."""
    import msgspec

    from kourou.protocol.bodies import SubscriptionGroupConfig
    from kourou.protocol.errors import RefusedError

    given = {
        "consume_enable": truth(consume, "-s"),
        "consume_from_min_enable": truth(from_min, "-m"),
        "consume_broadcast_enable": truth(broadcast, "-d"),
        "consume_message_orderly": truth(orderly, "-o"),
        "retry_queue_nums": retry_queues,
        "retry_max_times": retries,
        "group_retry_policy": _retry_policy(policy),
        "broker_id": broker_id,
        "which_broker_when_consume_slowly": slow_id,
        "notify_consumer_ids_changed_enable": truth(notify, "-a"),
    }
    changes = {name: value for name, value in given.items() if value is not None}
    words = parse_attributes(attributes).items()
    signed = {key if key.startswith("-") else f"+{key}": value for key, value in words}
    config = SubscriptionGroupConfig()
    for address in await brokers_of(mq, broker, cluster):
        config = SubscriptionGroupConfig()
        with suppress(RefusedError):  # the group does not exist: create it
            config = await mq.admin.groups.config(group, address)
        config = msgspec.structs.replace(config, **changes, attributes=signed)
        await mq.admin.groups.create(group, broker=address, config=config)
    return Done(f"group {group} on {broker or cluster}: {retry_text(config.retry_max_times)}")


def _retry_policy(text: str | None) -> object:
    from kourou.protocol.bodies.groups import GroupRetryPolicy
    from kourou.protocol.errors import BodyError

    try:
        return None if text is None else GroupRetryPolicy.decode(text.encode())
    except BodyError as error:
        raise typer.BadParameter(f"-p {text}: {error}") from None


def retry_text(retries: int) -> str:
    return f"{retries} retries before a message becomes a dead letter"


@command("updateSubGroupList")
async def update_groups(
    mq: "Client",
    file: Annotated[str, typer.Option("--filename", "-f", help="JSON file with a list of groups.")],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
) -> Output:
    """Create or change the groups of a JSON file."""
    from kourou.protocol.bodies import SubscriptionGroupConfig

    await brokers_of(mq, broker, cluster)
    groups = read_list(file, SubscriptionGroupConfig)
    await mq.admin.groups.create_all(groups, broker=broker, cluster=cluster)
    return Done(f"{len(groups)} groups on {broker or cluster}")


@command("setConsumeMode")
async def set_mode(
    mq: "Client",
    topic: Annotated[str, typer.Option("--topicName", "-t", help="Topic.")],
    group: GroupName,
    mode: Annotated[str, typer.Option("--mode", "-m", help="PULL or POP.")],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    share: Annotated[int, typer.Option("--popShareQueueNum", "-q", help="With POP: members that share a queue.")] = 0,
) -> Output:
    """Choose whether a group pulls or pops from a topic."""
    if mode.upper() not in ("PULL", "POP"):
        raise typer.BadParameter(f"-m {mode}: PULL or POP is expected")
    await brokers_of(mq, broker, cluster)
    await mq.admin.groups.set_mode(group, topic, mode.upper(), share=share, broker=broker, cluster=cluster)
    return Done(f"group {group} in {topic} on {broker or cluster}: {mode.upper()}")


@command("consumerStatus")
async def member_states(
    mq: "Client",
    group: Annotated[str, typer.Option("--consumerGroup", "-g", help="Consumer group.")],
    client_id: Annotated[str | None, typer.Option("--clientId", "-i", help="Only this member, with details.")] = None,
    broker: BrokerAddress = None,  # noqa: ARG001
    stacks: Annotated[bool, typer.Option("--jstack", "-s", help="With the stacks of its threads.")] = False,
) -> Output:
    """Show the internal state of the members of a group."""
    if client_id is not None:
        info = await mq.admin.groups.running_info(group, client_id, with_stacks=stacks)
        queues = [
            [queue.topic, queue.broker_name, queue.queue_id, state.commit_offset, state.cached_msg_count, state.locked]
            for queue, state in sorted(info.mq_table.items())
        ]
        columns = ["#Topic", "#Broker Name", "#QID", "#Consumer Offset", "#Cached", "#Locked"]
        subscriptions = {one.topic or "": one.sub_string for one in info.subscription_set}
        details = {"Subscription": subscriptions, **({"Stacks": info.jstack} if stacks else {})}
        return Many([Facts(dict(sorted(info.properties.items()))), Rows(columns, queues), Facts(details)])
    rows: list[list[object]] = []
    wanted: set[frozenset[tuple[str | None, str | None]]] = set()
    for member in (await mq.admin.groups.connections(group)).connection_set:
        info = await mq.admin.groups.running_info(group, member.client_id or "", with_stacks=stacks)
        wanted.add(frozenset((one.topic, one.sub_string) for one in info.subscription_set))
        rows.append([member.client_id, member.version, len(info.mq_table), info.properties.get("PROP_CONSUME_TYPE")])
    same = "all members subscribe alike" if len(wanted) <= 1 else "members subscribe to different things"
    return Rows(["#Client Id", "#Version", "#Queues", "#Type"], rows, {"Subscriptions": same})


@command("startMonitoring")
async def monitor(mq: "Client") -> Output:
    """Show the groups that are behind, once a minute, until the command is stopped."""

    async def ask() -> Output:
        rows: list[list[object]] = []
        for name in await mq.admin.groups.list():
            found = await mq.admin.groups.progress(name)
            if found.lag > 0:
                rows.append([name, await _member_count(mq, name), found.lag])
        return Rows(["#Group", "#Count", "#Diff Total"], rows)

    return Repeated(60, ask)


@command("deleteSubGroup")
async def delete_group(
    mq: "Client",
    group: GroupName,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    offsets: Annotated[str, typer.Option("--removeOffset", "-r", help="true: delete its offsets as well.")] = "false",
) -> Output:
    """Delete a group."""
    await brokers_of(mq, broker, cluster)
    await mq.admin.groups.delete(group, broker=broker, cluster=cluster, with_offsets=bool(truth(offsets, "-r")))
    return Done(f"group {group} deleted from {broker or cluster}")


@command("getConsumerConfig")
async def group_config(mq: "Client", group: GroupName) -> Output:
    """Show a group's settings on each broker.

    Reads the settings of all groups: brokers create a group that does not exist when they are asked for it alone.
    """
    rows = []
    for name, data in sorted((await mq.admin.brokers.cluster()).broker_addr_table.items()):
        address = data.broker_addrs.get(0)
        if address is None:
            continue
        config = (await mq.admin.groups.configs(address)).subscription_group_table.get(mq.session.wrap(group))
        if config is None:
            continue
        rows.append(
            [
                name,
                config.consume_enable,
                config.consume_broadcast_enable,
                config.retry_queue_nums,
                config.retry_max_times,
            ]
        )
    if not rows:
        raise CommandError(f"no broker has settings for group {group!r}")
    return Rows(["#Broker Name", "#Consume", "#Broadcast", "#Retry Queues", "#Retry Max"], rows)


@command("consumerProgress")
async def progress(
    mq: "Client",
    group: Annotated[str | None, typer.Option("--groupName", "-g", help="Show one group, queue by queue.")] = None,
    topic: Annotated[str | None, typer.Option("--topicName", "--topic", "-t", help="Only this topic.")] = None,
    show_clients: Annotated[
        str, typer.Option("--showClientIP", "-s", help="true: show the member that each queue is assigned to.")
    ] = "false",
    cluster: Cluster = None,
) -> Output:
    """Show the progress of consumer groups."""
    groups = mq.admin.groups
    is_wanted = await in_cluster(mq, cluster)
    if group is not None:
        found = await groups.progress(group, topic)
        if not found.queues:
            where = "" if topic is None else f" in topic {topic!r}"
            raise CommandError(f"no broker has offsets of group {group!r}{where}: it has not consumed anything")
        owners = await _owners(mq, group) if truth(show_clients, "-s") else None
        return _queues(found, owners, is_wanted)
    rows: list[list[object]] = []
    for name in await groups.list(cluster):
        found = await groups.progress(name)
        members = await _member_count(mq, name)
        if found.queues or members:
            rows.append([name, members, found.tps, found.lag])
    return Rows(["#Group", "#Count", "#TPS", "#Diff Total"], rows)


def _queues(
    found: "Progress", owners: "dict[MessageQueue, str] | None", is_wanted: "Callable[[str | None], bool]"
) -> Rows:
    rows = [
        [
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            state.broker_offset,
            state.consumer_offset,
            *([] if owners is None else [owners.get(queue, "")]),
            state.broker_offset - state.consumer_offset,
            moment(state.last_timestamp),
        ]
        for queue, state in found.queues.items()
        if is_wanted(queue.broker_name)
    ]
    columns = ["#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset"]
    columns += [*([] if owners is None else ["#Client IP"]), "#Diff", "#Last Time"]
    return Rows(columns, rows, {"Consume TPS": found.tps, "Consume Diff Total": found.lag})


async def _owners(mq: "Client", group: str) -> "dict[MessageQueue, str]":
    """The member that each queue is assigned to, according to the members."""
    from kourou.protocol.errors import KourouError, RefusedError

    owners: dict[MessageQueue, str] = {}
    try:
        members = (await mq.admin.groups.connections(group)).connection_set
    except RefusedError:
        return owners
    for member in members:
        try:
            info = await mq.admin.groups.running_info(group, member.client_id or "")
        except KourouError:
            continue  # it has left meanwhile
        owners |= dict.fromkeys(info.mq_table, (member.client_addr or "").rpartition(":")[0])
    return owners


async def _member_count(mq: "Client", group: str) -> int:
    from kourou.protocol.errors import RefusedError

    try:
        return len((await mq.admin.groups.connections(group)).connection_set)
    except RefusedError:
        return 0


@command("consumerConnection")
async def connections(
    mq: "Client",
    group: Annotated[str, typer.Option("--consumerGroup", "-g", help="Consumer group.")],
    broker: BrokerAddress = None,
) -> Output:
    """Show the members of a group and its subscriptions."""
    from kourou.client.admin.requests import AdminRequests
    from kourou.protocol.bodies import ConsumerConnection
    from kourou.protocol.codes import RequestCode
    from kourou.protocol.headers import GetConsumerConnectionList

    if broker is None:
        found = await mq.admin.groups.connections(group)
    else:
        header = GetConsumerConnectionList(consumer_group=mq.session.wrap(group))
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        found = await AdminRequests(mq.session).body(ConsumerConnection, broker, code, header)
    rows = [
        [one.client_id, one.client_addr, one.language, one.version]
        for one in sorted(found.connection_set, key=lambda one: one.client_id or "")
    ]
    subscriptions = [
        f"{topic} ({subscription.sub_string})" for topic, subscription in sorted(found.subscription_table.items())
    ]
    summary = {
        "Subscription": subscriptions,
        "Message Model": found.message_model,
        "Consume Type": found.consume_type,
        "Consume From Where": found.consume_from_where,
    }
    return Rows(["#Client Id", "#Client Addr", "#Language", "#Version"], rows, summary)


@command("resetOffsetByTime")
async def reset_offset(
    mq: "Client",
    group: Group,
    topic: TopicName,
    when: Annotated[str, typer.Option("--timestamp", "-s", help="now, -1 (the end), ms, or 2026-01-31#12:00:00:000.")],
    force: Force = "true",
    broker: Annotated[str | None, typer.Option("--broker", "-b", help="With -q: one broker, host:port.")] = None,
    queue_id: Annotated[int | None, typer.Option("--queue", "-q", help="With -b: one queue.")] = None,
    offset: Annotated[int | None, typer.Option("--offset", "-o", help="With -q: to this offset.")] = None,
    cluster: Cluster = None,
) -> Output:
    """Reset a group to a time."""
    force_it = truth(force, "-f") is not False
    await in_cluster(mq, cluster)  # raises for one that does not exist
    if (broker is None) != (queue_id is None) or (offset is not None and queue_id is None):
        raise typer.BadParameter(
            "to reset one queue give -b and -q, and optionally -o; without them all queues are reset"
        )
    if broker is not None and queue_id is not None:
        return await _reset_queue(mq, group, topic, broker, queue_id, parse_time(when), offset)
    return _offsets(await mq.admin.groups.reset_to_time(group, topic, parse_time(when), force=force_it), group, topic)


async def _reset_queue(
    mq: "Client", group: str, topic: str, broker: str, queue_id: int, when: float | None, offset: int | None
) -> Output:
    """Resets one queue: the broker stores the offset and tells the members. Java: resetOffsetByQueueId."""
    from kourou.client.admin.requests import AdminRequests
    from kourou.protocol.bodies import ResetOffsetBody
    from kourou.protocol.codes import RequestCode
    from kourou.protocol.headers import GetMaxOffset, InvokeBrokerToResetOffset, OffsetAnswer, SearchOffset

    requests = AdminRequests(mq.session)
    wrapped = mq.session.wrap(topic)
    if offset is None and when is None:
        answer = await requests.broker(
            broker, RequestCode.GET_MAX_OFFSET, GetMaxOffset(topic=wrapped, queue_id=queue_id)
        )
        offset = OffsetAnswer.decode(answer.ext).offset
    elif offset is None and when is not None:
        search = SearchOffset(topic=wrapped, queue_id=queue_id, timestamp=round(when * 1000))
        answer = await requests.broker(broker, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search)
        offset = OffsetAnswer.decode(answer.ext).offset
    header = InvokeBrokerToResetOffset(
        group=mq.session.wrap(group), topic=wrapped, queue_id=queue_id, offset=offset, timestamp=-1, is_force=True
    )
    found = await requests.body(ResetOffsetBody, broker, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    return _offsets(found.offset_table, group, topic)


@command("skipAccumulatedMessage")
async def skip(mq: "Client", group: Group, topic: TopicName, force: Force = "true", cluster: Cluster = None) -> Output:
    """Skip all messages that a group has not consumed yet."""
    await in_cluster(mq, cluster)  # raises for one that does not exist
    force_it = truth(force, "-f") is not False
    return _offsets(await mq.admin.groups.reset_to_time(group, topic, None, force=force_it), group, topic)


def _offsets(found: "dict[MessageQueue, int]", group: str, topic: str) -> Output:
    if not found:
        raise CommandError(f"nothing was reset: no broker has offsets of group {group!r} in topic {topic!r}")
    rows = [[queue.broker_name, queue.queue_id, offset] for queue, offset in sorted(found.items())]
    return Rows(["#Broker Name", "#QID", "#Offset"], rows)


@command("cloneGroupOffset")
async def clone_offsets(
    mq: "Client",
    source: Annotated[str, typer.Option("--srcGroup", "-s", help="The group to copy offsets from.")],
    target: Annotated[str, typer.Option("--destGroup", "-d", help="The group to copy offsets to.")],
    topic: TopicName,
    offline: Annotated[
        str, typer.Option("--offline", "-o", help="true: also if no member of the target group is connected.")
    ] = "true",
) -> Output:
    """Copy the offsets of a group in a topic to another group."""
    is_offline = truth(offline, "-o") is not False
    await mq.admin.groups.clone_offsets(source, target, topic, offline=is_offline)
    return Done(f"copied the offsets of group {source} in {topic} to group {target}")
