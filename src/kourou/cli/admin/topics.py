"""Topics: which there are, where, how far; making, changing and deleting them."""

from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.admin.commands import (
    BrokerAddress,
    ClusterName,
    Done,
    Output,
    Rows,
    TopicName,
    command,
    masters_or,
    moment,
)

if TYPE_CHECKING:
    from kourou.client import Client

PERMISSIONS = {2: "W", 4: "R", 6: "RW"}


@command("topicList")
async def topic_list(mq: "Client", cluster: ClusterName = None) -> Output:
    """All topics, or those of a cluster."""
    return Rows(["#Topic"], [[name] for name in await mq.admin.topics.list(cluster)])


@command("topicClusterList")
async def topic_clusters(mq: "Client", topic: TopicName) -> Output:
    """The clusters that serve a topic."""
    return Rows(["#Cluster"], [[name] for name in await mq.admin.topics.clusters(topic)])


@command("topicRoute")
async def topic_route(mq: "Client", topic: TopicName) -> Output:
    """Where a topic is."""
    route = await mq.admin.topics.route(topic)
    addresses = {broker.broker_name: broker for broker in route.broker_datas}
    rows = []
    for queues in sorted(route.queue_datas, key=lambda one: one.broker_name or ""):
        broker = addresses[queues.broker_name]
        members = ", ".join(f"{number}: {address}" for number, address in sorted(broker.broker_addrs.items()))
        permission = PERMISSIONS.get(queues.perm, str(queues.perm))
        rows.append(
            [
                queues.broker_name,
                broker.cluster,
                members,
                queues.read_queue_nums,
                queues.write_queue_nums,
                permission,
            ]
        )
    return Rows(["#Broker Name", "#Cluster", "#Addresses", "#Read Queues", "#Write Queues", "#Perm"], rows)


@command("topicStatus")
async def topic_status(mq: "Client", topic: TopicName) -> Output:
    """The ends of a topic's queues."""
    stats = await mq.admin.topics.stats(topic)
    rows = [
        [queue.broker_name, queue.queue_id, ends.min_offset, ends.max_offset, moment(ends.last_update_timestamp)]
        for queue, ends in stats.items()
    ]
    return Rows(["#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated"], rows)


@command("updateTopic")
async def update_topic(
    mq: "Client",
    topic: TopicName,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    read_queues: Annotated[int, typer.Option("--readQueueNums", "-r", help="Queues to read from.")] = 8,
    write_queues: Annotated[int, typer.Option("--writeQueueNums", "-w", help="Queues to write to.")] = 8,
    perm: Annotated[int, typer.Option("--perm", "-p", help="2 write, 4 read, 6 both.")] = 6,
    order: Annotated[str, typer.Option("--order", "-o", help="true: the topic is ordered.")] = "false",
    attributes: Annotated[str, typer.Option("--attributes", "-a", help="+key=value,-key")] = "",
) -> Output:
    """Make a topic, or change it."""
    masters_or(broker, cluster)
    await mq.admin.topics.create(
        topic,
        cluster=cluster,
        broker=broker,
        read_queues=read_queues,
        write_queues=write_queues,
        perm=perm,
        order=order.lower() == "true",
        attributes=_attributes(attributes),
    )
    return Done(f"topic {topic} on {broker or cluster}: {read_queues} queues to read, {write_queues} to write, {perm=}")


def _attributes(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word.startswith("-"):
            found[word] = ""
        elif "=" in word:
            key, _, value = word.removeprefix("+").partition("=")
            found[key] = value
        else:
            raise typer.BadParameter(f"-a {word}: +key=value or -key is expected")
    return found


@command("updateTopicPerm")
async def update_topic_perm(
    mq: "Client",
    topic: TopicName,
    perm: Annotated[int, typer.Option("--perm", "-p", help="2 write, 4 read, 6 both.")],
    broker: BrokerAddress = None,
) -> Output:
    """Change what clients may do with a topic."""
    await mq.admin.topics.set_perm(topic, perm, broker=broker)
    return Done(f"topic {topic} on {broker or 'all brokers'}: perm={perm}")


@command("deleteTopic")
async def delete_topic(
    mq: "Client", topic: TopicName, cluster: Annotated[str, typer.Option("--clusterName", "-c", help="Cluster.")]
) -> Output:
    """Delete a topic from a cluster and from the name servers."""
    await mq.admin.topics.delete(topic, cluster=cluster)
    return Done(f"topic {topic} deleted from cluster {cluster} and the name servers")


@command("updateOrderConf")
async def update_order(
    mq: "Client",
    topic: TopicName,
    method: Annotated[str, typer.Option("--method", "-m", help="get, put or delete.")],
    value: Annotated[str, typer.Option("--orderConf", "-v", help="broker:count;broker:count")] = "",
) -> Output:
    """The fixed queues of an ordered topic."""
    topics = mq.admin.topics
    if method == "get":
        return Done(f"{topic}: {await topics.order(topic) or 'not ordered'}")
    if method == "delete":
        await topics.remove_order(topic)
        return Done(f"{topic}: no longer ordered")
    if method != "put" or not value:
        raise typer.BadParameter("-m get, -m delete, or -m put with -v broker:count;… is expected")
    await topics.set_order(topic, value)
    return Done(f"{topic}: {value}")


@command("queryConsumerGroups")
async def topic_groups(mq: "Client", topic: TopicName) -> Output:
    """The groups that consume a topic."""
    return Rows(["#Group"], [[name] for name in await mq.admin.topics.groups(topic)])
