"""Brokers, clusters, producers, name servers."""

from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.admin.commands import (
    BrokerAddress,
    ClusterName,
    Done,
    Facts,
    Output,
    Rows,
    command,
    masters_or,
)

if TYPE_CHECKING:
    from kourou.client import Client

OneBroker = Annotated[str, typer.Option("--brokerAddr", "-b", help="Broker, host:port.")]
BrokerName = Annotated[str, typer.Option("--brokerName", "-b", help="Broker name.")]
Key = Annotated[str, typer.Option("--key", "-k", help="Name of the setting.")]
Value = Annotated[str, typer.Option("--value", "-v", help="Its value.")]
Namespace = Annotated[str, typer.Option("--namespace", "-s", help="Namespace.")]


@command("clusterList")
async def cluster_list(mq: "Client", cluster: ClusterName = None) -> Output:
    """Clusters, their brokers, and how busy these are."""
    info = await mq.admin.brokers.cluster()
    rows = []
    for name, brokers in sorted(info.cluster_addr_table.items()):
        if cluster not in (None, name):
            continue
        for broker in sorted(brokers):
            for number, address in sorted(info.broker_addr_table[broker].broker_addrs.items()):
                rows.append([name, broker, number, address, *await _figures(mq, address)])
    return Rows(["#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version", "#InTPS", "#OutTPS"], rows)


async def _figures(mq: "Client", address: str) -> list[str]:
    from kourou.protocol.errors import KourouError

    try:
        runtime = await mq.admin.brokers.runtime(address)
    except KourouError as error:
        return ["", "", f"({error})"]
    rates = [runtime.get(name, "").split(" ")[0] for name in ("putTps", "getTransferredTps")]
    rates[1] = rates[1] or runtime.get("getTransferedTps", "").split(" ")[0]
    return [runtime.get("brokerVersionDesc", ""), *rates]


@command("brokerStatus")
async def broker_status(mq: "Client", broker: OneBroker) -> Output:
    """A broker's figures."""
    return Facts(dict(sorted((await mq.admin.brokers.runtime(broker)).items())))


@command("brokerConsumeStats")
async def broker_consumption(mq: "Client", broker: OneBroker) -> Output:
    """How far all groups are on one broker."""
    found = await mq.admin.groups.broker_progress(broker)
    rows = [
        [
            queue.topic,
            group,
            queue.queue_id,
            state.broker_offset,
            state.consumer_offset,
            state.broker_offset - state.consumer_offset,
        ]
        for groups in found.consume_stats_list
        for group, stats in groups.items()
        for one in stats
        for queue, state in sorted(one.offset_table.items())
    ]
    columns = ["#Topic", "#Group", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff"]
    return Rows(columns, rows, f"Diff Total: {found.total_diff}")


@command("producerConnection")
async def producer_connection(
    mq: "Client",
    group: Annotated[str, typer.Option("--producerGroup", "-g")],
    topic: Annotated[str, typer.Option("--topic", "-t")],
) -> Output:
    """The producers of a group that are connected to a topic's brokers."""
    route = await mq.admin.topics.route(topic)
    found: dict[str | None, list[object]] = {}
    for broker in route.broker_datas:
        address = broker.broker_addrs.get(0)
        if address is None:
            continue
        for one in (await mq.admin.brokers.producers(group, address)).connection_set:
            found[one.client_id] = [one.client_id, one.client_addr, one.language, one.version]
    return Rows(["#Client Id", "#Client Addr", "#Language", "#Version"], list(found.values()))


@command("producer")
async def all_producers(mq: "Client", broker: OneBroker) -> Output:
    """All producers that are connected to a broker."""
    table = (await mq.admin.brokers.all_producers(broker)).data
    rows = [
        [group, one.client_id, one.remote_ip, one.language, one.version]
        for group, members in sorted(table.items())
        for one in members
    ]
    return Rows(["#Group", "#Client Id", "#Remote IP", "#Language", "#Version"], rows)


@command("getBrokerConfig")
async def broker_config(mq: "Client", broker: OneBroker) -> Output:
    """A broker's settings."""
    return Facts(dict(sorted((await mq.admin.brokers.config(broker)).items())))


@command("updateBrokerConfig")
async def update_broker_config(
    mq: "Client", key: Key, value: Value, broker: BrokerAddress = None, cluster: ClusterName = None
) -> Output:
    """Change a setting of a broker while it runs."""
    masters_or(broker, cluster)
    await mq.admin.brokers.set_config({key: value}, broker=broker, cluster=cluster)
    return Done(f"{key}={value} on {broker or cluster}")


@command("statsAll")
async def stats_all(
    mq: "Client", topic: Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")] = None
) -> Output:
    """Rates of topics, and of the groups that consume them."""
    rows: list[list[object]] = []
    for name in [topic] if topic is not None else await mq.admin.topics.list():
        if topic is None and name.startswith(("%RETRY%", "%DLQ%")):
            continue
        rows += await _rates(mq, name)
    return Rows(["#Topic", "#Group", "#In TPS", "#Out TPS", "#In Msg 24h", "#Out Msg 24h"], rows)


async def _rates(mq: "Client", topic: str) -> list[list[object]]:
    brokers = [
        data.broker_addrs[0] for data in (await mq.admin.topics.route(topic)).broker_datas if 0 in data.broker_addrs
    ]
    in_tps, in_day = await _sum(mq, brokers, "TOPIC_PUT_NUMS", topic)
    groups = await mq.admin.topics.groups(topic)
    if not groups:
        return [[topic, "", f"{in_tps:.2f}", "", in_day, ""]]
    rows: list[list[object]] = []
    for group in groups:
        out_tps, out_day = await _sum(mq, brokers, "GROUP_GET_NUMS", f"{topic}@{group}")
        rows.append([topic, group, f"{in_tps:.2f}", f"{out_tps:.2f}", in_day, out_day])
    return rows


async def _sum(mq: "Client", brokers: list[str], name: str, key: str) -> tuple[float, int]:
    from kourou.protocol.errors import RefusedError

    tps, day = 0.0, 0
    for address in brokers:
        try:
            stats = await mq.admin.brokers.stats(address, name, key)
        except RefusedError:
            continue
        if stats.stats_minute is not None:
            tps += stats.stats_minute.tps
        if stats.stats_day is not None:
            day += stats.stats_day.sum
    return tps, day


@command("cleanExpiredCQ")
async def clean_queues(mq: "Client", broker: BrokerAddress = None, cluster: ClusterName = None) -> Output:
    """Delete consume queues whose messages are gone."""
    await mq.admin.brokers.clean_expired_queues(broker=broker, cluster=cluster)
    return Done("expired consume queues are deleted")


@command("cleanUnusedTopic")
async def clean_topics(mq: "Client", broker: BrokerAddress = None, cluster: ClusterName = None) -> Output:
    """Delete the queues of topics that are no more."""
    await mq.admin.brokers.clean_unused_topics(broker=broker, cluster=cluster)
    return Done("queues of unused topics are deleted")


@command("deleteExpiredCommitLog")
async def clean_log(mq: "Client", broker: BrokerAddress = None, cluster: ClusterName = None) -> Output:
    """Delete old files of the commit log now."""
    await mq.admin.brokers.delete_expired_log(broker=broker, cluster=cluster)
    return Done("expired files of the commit log are being deleted")


@command("wipeWritePerm")
async def wipe_write_perm(mq: "Client", broker: BrokerName) -> Output:
    """Let no more messages come to a broker."""
    counts = await mq.admin.brokers.wipe_write_perm(broker)
    return Rows(["#Name Server", "#Topics"], list(counts.items()))


@command("addWritePerm")
async def add_write_perm(mq: "Client", broker: BrokerName) -> Output:
    """Let messages come to a broker again."""
    counts = await mq.admin.brokers.add_write_perm(broker)
    return Rows(["#Name Server", "#Topics"], list(counts.items()))


@command("getNamesrvConfig")
async def name_server_config(mq: "Client") -> Output:
    """The settings of the name servers."""
    tables = await mq.admin.brokers.name_server_config()
    rows = [[address, key, value] for address, table in tables.items() for key, value in sorted(table.items())]
    return Rows(["#Name Server", "#Key", "#Value"], rows)


@command("updateNamesrvConfig")
async def update_name_server_config(mq: "Client", key: Key, value: Value) -> Output:
    """Change a setting of the name servers."""
    await mq.admin.brokers.set_name_server_config({key: value})
    return Done(f"{key}={value} on the name servers")


@command("updateKvConfig")
async def put_value(mq: "Client", namespace: Namespace, key: Key, value: Value) -> Output:
    """Set a value that name servers keep."""
    await mq.admin.brokers.put_value(namespace, key, value)
    return Done(f"{namespace}: {key}={value}")


@command("deleteKvConfig")
async def delete_value(mq: "Client", namespace: Namespace, key: Key) -> Output:
    """Delete a value that name servers keep."""
    await mq.admin.brokers.delete_value(namespace, key)
    return Done(f"{namespace}: {key} is deleted")
