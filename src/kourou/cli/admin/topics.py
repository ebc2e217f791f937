"""Topics: listing, creating, changing and deleting them; their routes and offsets."""

from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.admin.commands import (
    BrokerAddress,
    Cluster,
    ClusterName,
    Done,
    Facts,
    Output,
    Rows,
    TopicName,
    brokers_of,
    command,
    in_cluster,
    masters_or,
    moment,
    parse_attributes,
    read_list,
    truth,
)
from kourou.cli.running import CommandError

if TYPE_CHECKING:
    from kourou.client import Client

PERMISSIONS = {2: "W", 4: "R", 6: "RW"}
UNIT, UNIT_SUB = 1, 2
"""Bits of a topic's system flag. Java: TopicSysFlag."""


@command("topicList")
async def topic_list(
    mq: "Client",
    by_cluster: Annotated[
        bool, typer.Option("--clusterModel", "-c", help="Show the cluster and the consumer groups of each.")
    ] = False,
    cluster: Annotated[str | None, typer.Option("--clusterName", help="Only topics of this cluster.")] = None,
) -> Output:
    """List all topics, or those of a cluster."""
    await in_cluster(mq, cluster)  # raises for one that does not exist
    names = await mq.admin.topics.list(cluster)
    if not by_cluster:
        return Rows(["#Topic"], [[name] for name in names])
    rows = []
    for name in names:
        if not name.startswith(("%RETRY%", "%DLQ%")):
            rows += await _clusters_and_groups(mq, name)
    return Rows(["#Cluster Name", "#Topic", "#Consumer Group"], rows)


async def _clusters_and_groups(mq: "Client", topic: str) -> list[list[object]]:
    from kourou.protocol.errors import KourouError

    try:
        clusters = await mq.admin.topics.clusters(topic)
        groups = await mq.admin.topics.groups(topic)
    except KourouError:
        clusters, groups = [], []  # no broker serves it now
    return [[" ".join(clusters), topic, group] for group in groups or [""]]


@command("topicClusterList")
async def topic_clusters(mq: "Client", topic: TopicName) -> Output:
    """List the clusters that serve a topic."""
    return Rows(["#Cluster"], [[name] for name in await mq.admin.topics.clusters(topic)])


@command("topicRoute")
async def topic_route(
    mq: "Client",
    topic: TopicName,
    as_list: Annotated[bool, typer.Option("--list", "-l", help="Accepted as in mqadmin.")] = False,  # noqa: ARG001
) -> Output:
    """Show the brokers and queues of a topic."""
    route = await mq.admin.topics.route(topic)
    addresses = {broker.broker_name: broker for broker in route.broker_datas}
    rows = []
    for queues in sorted(route.queue_datas, key=lambda one: one.broker_name or ""):
        broker = addresses.get(queues.broker_name)
        if broker is None:
            continue  # queues of a broker that is not registered
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
async def topic_status(mq: "Client", topic: TopicName, cluster: Cluster = None) -> Output:
    """Show the first and next offset of each queue of a topic."""
    is_wanted = await in_cluster(mq, cluster)
    stats = await mq.admin.topics.stats(topic)
    rows = [
        [queue.broker_name, queue.queue_id, ends.min_offset, ends.max_offset, moment(ends.last_update_timestamp)]
        for queue, ends in stats.items()
        if is_wanted(queue.broker_name)
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
    unit: Annotated[str, typer.Option("--unit", "-u", help="true: the topic belongs to a unit.")] = "false",
    unit_sub: Annotated[
        str, typer.Option("--hasUnitSub", "-s", help="true: the topic has subscriptions of a unit.")
    ] = "false",
) -> Output:
    """Create a topic, or change it."""
    masters_or(broker, cluster)
    _check_perm(perm)
    is_ordered = bool(truth(order, "-o"))
    flags = UNIT * bool(truth(unit, "-u")) | UNIT_SUB * bool(truth(unit_sub, "-s"))
    await brokers_of(mq, broker, cluster)
    await mq.admin.topics.create(
        topic,
        cluster=cluster,
        broker=broker,
        read_queues=read_queues,
        write_queues=write_queues,
        perm=perm,
        order=is_ordered,
        attributes=parse_attributes(attributes),
    )
    if flags:
        await _set_flags(mq, topic, list(await brokers_of(mq, broker, cluster)), flags)
    return Done(f"topic {topic} on {broker or cluster}: {read_queues} queues to read, {write_queues} to write, {perm=}")


async def _set_flags(mq: "Client", topic: str, addresses: list[str], flags: int) -> None:
    """Sets the system flags of a topic and leaves its other settings unchanged."""
    from kourou.client.admin.requests import AdminRequests
    from kourou.client.naming import DEFAULT_TOPIC
    from kourou.protocol.codes import RequestCode
    from kourou.protocol.headers import CreateTopic

    requests = AdminRequests(mq.session)
    for address in addresses:
        config = await mq.admin.topics.config(topic, address)
        header = CreateTopic(
            topic=mq.session.wrap(topic),
            default_topic=DEFAULT_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=flags,
            order=config.order,
        )
        await requests.broker(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def _check_perm(perm: int) -> None:
    if perm not in PERMISSIONS:
        raise typer.BadParameter(f"-p {perm}: 2 (write), 4 (read) or 6 (both) is expected")


@command("updateTopicList")
async def update_topics(
    mq: "Client",
    file: Annotated[str, typer.Option("--filename", "-f", help="JSON file with a list of topics.")],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
) -> Output:
    """Create or change the topics of a JSON file."""
    from kourou.protocol.bodies import TopicConfig

    await brokers_of(mq, broker, cluster)
    topics = read_list(file, TopicConfig)
    await mq.admin.topics.create_all(topics, broker=broker, cluster=cluster)
    return Done(f"{len(topics)} topics on {broker or cluster}")


@command("allocateMQ")
async def allocate_queues(
    mq: "Client",
    topic: TopicName,
    members: Annotated[str, typer.Option("--ipList", "-i", help="Members of a group, separated by commas.")],
) -> Output:
    """Show how the members of a group would share the queues of a topic."""
    from kourou.client.balance import Averagely

    names = sorted(word.strip() for word in members.split(",") if word.strip())
    queues = sorted(await mq.admin.topics.stats(topic))
    rows = [
        [name, queue.broker_name, queue.queue_id]
        for name in names
        for queue in Averagely().allocate(name, queues, names)
    ]
    return Rows(["#Member", "#Broker Name", "#QID"], rows)


@command("updateTopicPerm")
async def update_topic_perm(
    mq: "Client",
    topic: TopicName,
    perm: Annotated[int, typer.Option("--perm", "-p", help="2 write, 4 read, 6 both.")],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
) -> Output:
    """Change the permissions of a topic: on one broker, in a cluster, or everywhere."""
    _check_perm(perm)
    if broker is not None and cluster is not None:
        raise typer.BadParameter("give either a broker (-b) or a cluster (-c), not both")
    is_wanted = await in_cluster(mq, cluster)
    changed = []
    for data in (await mq.admin.topics.route(topic)).broker_datas:
        address = data.broker_addrs.get(0)
        if address is not None and broker in (None, address) and is_wanted(data.broker_name):
            await mq.admin.topics.set_perm(topic, perm, broker=address)
            changed.append(address)
    if not changed:
        raise CommandError(f"no master at {broker or cluster} serves topic {topic!r}")
    return Done(f"topic {topic} on {', '.join(changed)}: perm={perm}")


@command("deleteTopic")
async def delete_topic(
    mq: "Client", topic: TopicName, cluster: Annotated[str, typer.Option("--clusterName", "-c", help="Cluster.")]
) -> Output:
    """Delete a topic from a cluster and from the name servers."""
    await in_cluster(mq, cluster)  # raises for one that does not exist
    await mq.admin.topics.delete(topic, cluster=cluster)
    return Done(f"topic {topic} deleted from cluster {cluster} and the name servers")


@command("updateOrderConf")
async def update_order(
    mq: "Client",
    topic: TopicName,
    method: Annotated[str, typer.Option("--method", "-m", help="get, put or delete.")],
    value: Annotated[str, typer.Option("--orderConf", "-v", help="broker:count;broker:count")] = "",
) -> Output:
    """Show or change the fixed queues of an ordered topic."""
    topics = mq.admin.topics
    if method == "get":
        return Facts({"topic": topic, "orderConf": await topics.order(topic)})
    if method == "delete":
        await topics.remove_order(topic)
        return Done(f"{topic}: no longer ordered")
    if method != "put" or not value:
        raise typer.BadParameter("-m get, -m delete, or -m put with -v broker:count;… is expected")
    await topics.set_order(topic, value)
    return Done(f"{topic}: {value}")


@command("queryConsumerGroups")
async def topic_groups(mq: "Client", topic: TopicName) -> Output:
    """List the groups that consume a topic."""
    return Rows(["#Group"], [[name] for name in await mq.admin.topics.groups(topic)])
