"""Consumer groups: settings, progress, members, offsets."""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.admin.commands import (
    BrokerAddress,
    ClusterName,
    Done,
    GroupName,
    Output,
    Rows,
    TopicName,
    command,
    masters_or,
    moment,
    parse_time,
    truth,
)

if TYPE_CHECKING:
    from kourou.client import Client
    from kourou.protocol.message import MessageQueue

OptionalTopic = Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")]


@command("updateSubGroup")
async def update_group(
    mq: "Client",
    group: GroupName,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    consume: Annotated[str | None, typer.Option("--consumeEnable", "-s", help="true: it may consume.")] = None,
    from_min: Annotated[str | None, typer.Option("--consumeFromMinEnable", "-m", help="true: from the start.")] = None,
    broadcast: Annotated[str | None, typer.Option("--consumeBroadcastEnable", "-d", help="true: to all.")] = None,
    retry_queues: Annotated[int | None, typer.Option("--retryQueueNums", "-q", help="Queues for retries.")] = None,
    retries: Annotated[int | None, typer.Option("--retryMaxTimes", "-r", help="Tries before the dead letters.")] = None,
) -> Output:
    """Make a group, or change it: what is not given stays as it is."""
    import msgspec

    from kourou.protocol.bodies import SubscriptionGroupConfig
    from kourou.protocol.errors import RefusedError

    masters_or(broker, cluster)
    given = {
        "consume_enable": truth(consume, "-s"),
        "consume_from_min_enable": truth(from_min, "-m"),
        "consume_broadcast_enable": truth(broadcast, "-d"),
        "retry_queue_nums": retry_queues,
        "retry_max_times": retries,
    }
    config = SubscriptionGroupConfig()
    if broker is not None:
        with suppress(RefusedError):  # a new one is made
            config = await mq.admin.groups.config(group, broker)
    config = msgspec.structs.replace(config, **{name: value for name, value in given.items() if value is not None})
    await mq.admin.groups.create(group, broker=broker, cluster=cluster, config=config)
    return Done(f"group {group} on {broker or cluster}: {retry_text(config.retry_max_times)}")


def retry_text(retries: int) -> str:
    return f"{retries} tries before the dead letters"


@command("deleteSubGroup")
async def delete_group(
    mq: "Client",
    group: GroupName,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    offsets: Annotated[str, typer.Option("--removeOffset", "-r", help="true: forget how far it is, too.")] = "false",
) -> Output:
    """Delete a group."""
    masters_or(broker, cluster)
    await mq.admin.groups.delete(group, broker=broker, cluster=cluster, with_offsets=bool(truth(offsets, "-r")))
    return Done(f"group {group} deleted from {broker or cluster}")


@command("getConsumerConfig")
async def group_config(mq: "Client", group: GroupName) -> Output:
    """A group's settings on each broker."""
    from kourou.protocol.errors import RefusedError

    rows = []
    for name, data in sorted((await mq.admin.brokers.cluster()).broker_addr_table.items()):
        address = data.broker_addrs.get(0)
        if address is None:
            continue
        try:
            config = await mq.admin.groups.config(group, address)
        except RefusedError:
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
    return Rows(["#Broker Name", "#Consume", "#Broadcast", "#Retry Queues", "#Retry Max"], rows)


@command("consumerProgress")
async def progress(
    mq: "Client",
    group: Annotated[str | None, typer.Option("--groupName", "-g", help="One group, queue by queue.")] = None,
    topic: OptionalTopic = None,
) -> Output:
    """How far groups are."""
    groups = mq.admin.groups
    if group is not None:
        found = await groups.progress(group, topic)
        rows = [
            [
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                state.broker_offset,
                state.consumer_offset,
                state.broker_offset - state.consumer_offset,
                moment(state.last_timestamp),
            ]
            for queue, state in found.queues.items()
        ]
        columns = ["#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff", "#Last Time"]
        return Rows(columns, rows, f"Consume TPS: {found.tps:.2f}\nConsume Diff Total: {found.lag}")
    rows = []
    for name in await groups.list():
        found = await groups.progress(name)
        members = await _member_count(mq, name)
        if found.queues or members:
            rows.append([name, members, f"{found.tps:.2f}", found.lag])
    return Rows(["#Group", "#Count", "#TPS", "#Diff Total"], rows)


async def _member_count(mq: "Client", group: str) -> int:
    from kourou.protocol.errors import RefusedError

    try:
        return len((await mq.admin.groups.connections(group)).connection_set)
    except RefusedError:
        return 0


@command("consumerConnection")
async def connections(mq: "Client", group: GroupName) -> Output:
    """The members of a group, and what it subscribes to."""
    found = await mq.admin.groups.connections(group)
    rows = [
        [one.client_id, one.client_addr, one.language, one.version]
        for one in sorted(found.connection_set, key=lambda one: one.client_id or "")
    ]
    subscriptions = ", ".join(
        f"{topic} ({subscription.sub_string})" for topic, subscription in sorted(found.subscription_table.items())
    )
    note = f"Subscription: {subscriptions}\nMessageModel: {found.message_model}\nConsumeType: {found.consume_type}"
    return Rows(["#Client Id", "#Client Addr", "#Language", "#Version"], rows, note)


@command("resetOffsetByTime")
async def reset_offset(
    mq: "Client",
    group: GroupName,
    topic: TopicName,
    when: Annotated[str, typer.Option("--timestamp", "-s", help="now, -1 (the end), ms, or 2026-01-31#12:00:00:000.")],
    force: Annotated[str, typer.Option("--force", "-f", help="false: no queue goes back.")] = "true",
) -> Output:
    """Let a group go on from a time."""
    force_it = truth(force, "-f") is not False
    return _offsets(await mq.admin.groups.reset_to_time(group, topic, parse_time(when), force=force_it))


@command("skipAccumulatedMessage")
async def skip(mq: "Client", group: GroupName, topic: TopicName) -> Output:
    """Forget everything that a group has not consumed yet."""
    return _offsets(await mq.admin.groups.skip_accumulated(group, topic))


def _offsets(found: "dict[MessageQueue, int]") -> Output:
    rows = [[queue.broker_name, queue.queue_id, offset] for queue, offset in sorted(found.items())]
    return Rows(["#Broker Name", "#QID", "#Offset"], rows)


@command("cloneGroupOffset")
async def clone_offsets(
    mq: "Client",
    source: Annotated[str, typer.Option("--srcGroup", "-s", help="The group that is followed.")],
    target: Annotated[str, typer.Option("--destGroup", "-d", help="The group that follows.")],
    topic: TopicName,
) -> Output:
    """Let a group be as far in a topic as another one is."""
    await mq.admin.groups.clone_offsets(source, target, topic)
    return Done(f"group {target} is as far in {topic} as {source}")
