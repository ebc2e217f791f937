"""Brokers, clusters, producers, name servers."""

from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.admin.commands import (
    BrokerAddress,
    Cluster,
    ClusterName,
    Done,
    Facts,
    Many,
    Output,
    Repeated,
    Rows,
    brokers_of,
    command,
    in_cluster,
    number_or_text,
    rates,
    truth,
)
from kourou.cli.running import CommandError

if TYPE_CHECKING:
    from kourou.client import Client

OneBroker = Annotated[str, typer.Option("--brokerAddr", "-b", help="Broker, host:port.")]
BrokerName = Annotated[str, typer.Option("--brokerName", "-b", help="Broker name.")]
Key = Annotated[str, typer.Option("--key", "-k", help="Name of the setting.")]
Value = Annotated[str, typer.Option("--value", "-v", help="Its value.")]
Namespace = Annotated[str, typer.Option("--namespace", "-s", help="Namespace.")]


@command("clusterList")
async def cluster_list(
    mq: "Client",
    cluster: ClusterName = None,
    more: Annotated[
        bool, typer.Option("--moreStats", "-m", help="Show the number of messages of yesterday and today.")
    ] = False,
    interval: Annotated[
        int | None, typer.Option("--interval", "-i", min=1, metavar="SECONDS", help="Repeat at this interval.")
    ] = None,
) -> Output:
    """List clusters and their brokers, with message rates."""
    if interval is None:
        return await _clusters(mq, cluster, more=more)
    return Repeated(interval, lambda: _clusters(mq, cluster, more=more))


async def _clusters(mq: "Client", cluster: str | None, *, more: bool) -> Output:
    await in_cluster(mq, cluster)  # raises for one that does not exist
    info = await mq.admin.brokers.cluster()
    rows = []
    for name, brokers in sorted(info.cluster_addr_table.items()):
        if cluster not in (None, name):
            continue
        for broker in sorted(brokers):
            addresses = info.broker_addr_table[broker].broker_addrs if broker in info.broker_addr_table else {}
            for number, address in sorted(addresses.items()):
                figures = await (_totals if more else _figures)(mq, address)
                rows.append([name, broker, *([] if more else [number, address]), *figures])
    if more:
        return Rows([*_CLUSTER, "#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday"], rows)
    return Rows([*_CLUSTER, "#BID", "#Addr", "#Version", "#InTPS", "#OutTPS"], rows)


_CLUSTER = ("#Cluster Name", "#Broker Name")


async def _figures(mq: "Client", address: str) -> list[object]:
    from kourou.protocol.errors import KourouError

    try:
        runtime = await mq.admin.brokers.runtime(address)
    except KourouError as error:
        return ["", None, f"({error})"]
    newest = [runtime.get(name, "").split(" ")[0] for name in ("putTps", "getTransferredTps")]
    newest[1] = newest[1] or runtime.get("getTransferedTps", "").split(" ")[0]
    return [runtime.get("brokerVersionDesc", ""), *(number_or_text(rate) if rate else None for rate in newest)]


async def _totals(mq: "Client", address: str) -> list[object]:
    from kourou.protocol.errors import KourouError

    try:
        runtime = await mq.admin.brokers.runtime(address)
        puts, gets = ([int(runtime[f"msg{what}Total{when}"]) for when in _WHEN] for what in ("Put", "Get"))
    except (KourouError, KeyError, ValueError):
        return [None, None, None, None]
    return [puts[1] - puts[0], gets[1] - gets[0], puts[2] - puts[1], gets[2] - gets[1]]


_WHEN = ("YesterdayMorning", "TodayMorning", "TodayNow")


@command("brokerStatus")
async def broker_status(mq: "Client", broker: BrokerAddress = None, cluster: ClusterName = None) -> Output:
    """Show the state of a broker, or of all masters of a cluster."""
    outputs: list[Output] = []
    for address, name in (await brokers_of(mq, broker, cluster)).items():
        runtime = await mq.admin.brokers.runtime(address)
        facts = {
            key: rates(value) if key.endswith("Tps") else number_or_text(value)
            for key, value in sorted(runtime.items())
        }
        outputs.append(Facts({"brokerName": name, "brokerAddr": address, **facts} if cluster else facts))
    return Many(outputs)


@command("brokerConsumeStats")
async def broker_consumption(
    mq: "Client",
    broker: OneBroker,
    timeout_ms: Annotated[int, typer.Option("--timeoutMillis", "-t", min=1, help="Timeout of the request.")] = 50_000,
    level: Annotated[int, typer.Option("--level", "-l", help="Only queues with at least this lag.")] = 0,
    order: Annotated[str, typer.Option("--order", "-o", help="true: only ordered topics.")] = "false",
) -> Output:
    """Show the progress of all groups on one broker."""
    from kourou.client.admin.groups import Groups
    from kourou.client.admin.requests import AdminRequests

    groups = Groups(AdminRequests(mq.session, timeout_ms / 1000))
    found = await groups.broker_progress(broker, orderly=bool(truth(order, "-o")))
    rows = [
        [
            queue.topic,
            group,
            queue.broker_name,
            queue.queue_id,
            state.broker_offset,
            state.consumer_offset,
            state.broker_offset - state.consumer_offset,
        ]
        for groups in found.consume_stats_list
        for group, stats in groups.items()
        for one in stats
        for queue, state in sorted(one.offset_table.items())
        if state.broker_offset - state.consumer_offset >= level
    ]
    columns = ["#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff"]
    return Rows(columns, rows, {"Diff Total": found.total_diff})


@command("producerConnection")
async def producer_connection(
    mq: "Client",
    group: Annotated[str, typer.Option("--producerGroup", "-g")],
    topic: Annotated[str, typer.Option("--topic", "-t")],
) -> Output:
    """List the producers of a group that are connected to a topic's brokers."""
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
async def all_producers(
    mq: "Client", broker: Annotated[str, typer.Option("--broker", "-b", help="Broker, host:port.")]
) -> Output:
    """List all producers that are connected to a broker."""
    table = (await mq.admin.brokers.all_producers(broker)).data
    rows = [
        [group, one.client_id, one.remote_ip, one.language, one.version]
        for group, members in sorted(table.items())
        for one in members
    ]
    return Rows(["#Group", "#Client Id", "#Remote IP", "#Language", "#Version"], rows)


@command("getBrokerConfig")
async def broker_config(mq: "Client", broker: BrokerAddress = None, cluster: ClusterName = None) -> Output:
    """Show the settings of a broker, or of all brokers of a cluster."""
    outputs: list[Output] = []
    for address, name in (await brokers_of(mq, broker, cluster, with_slaves=True)).items():
        config = await mq.admin.brokers.config(address)
        facts: dict[str, object] = dict(sorted(config.items()))
        if cluster is not None:
            facts = {"#brokerName": name, "#brokerAddr": address, **facts}
        outputs.append(Facts(facts, {key.lstrip("#"): typed_setting(key, str(value)) for key, value in facts.items()}))
    return Many(outputs)


def typed_setting(key: str, text: str) -> object:
    """A setting with the type that Apache gives it; an unknown one stays a string."""
    from kourou.broker.known_properties import KNOWN_TEXT

    kind = next((line.split(" ")[0] for line in KNOWN_TEXT.splitlines() if line.split(" ")[1:2] == [key]), "text")
    if kind == "bool" and text in ("true", "false"):
        return text == "true"
    return number_or_text(text) if kind in ("int", "float") else text


@command("updateBrokerConfig")
async def update_broker_config(
    mq: "Client",
    key: Key,
    value: Value,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    with_slaves: Annotated[
        str, typer.Option("--updateAllBroker", "-a", help="true: with -c, change slaves as well.")
    ] = "false",
) -> Output:
    """Change a setting of a broker while it runs."""
    for address in await brokers_of(mq, broker, cluster, with_slaves=bool(truth(with_slaves, "-a"))):
        await mq.admin.brokers.set_config({key: value}, broker=address)
    return Done(f"{key}={value} on {broker or cluster}")


@command("statsAll")
async def stats_all(
    mq: "Client",
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")] = None,
    active: Annotated[bool, typer.Option("--activeTopic", "-a", help="Only topics with messages in 24 hours.")] = False,
) -> Output:
    """Show the message rates of topics and of the groups that consume them."""
    rows: list[list[object]] = []
    for name in [topic] if topic is not None else await mq.admin.topics.list():
        if topic is None and name.startswith(("%RETRY%", "%DLQ%")):
            continue
        rows += [row for row in await _rates(mq, name) if not active or row[-1] or row[-2]]
    return Rows(["#Topic", "#Group", "#In TPS", "#Out TPS", "#In Msg 24h", "#Out Msg 24h"], rows)


async def _rates(mq: "Client", topic: str) -> list[list[object]]:
    brokers = [
        data.broker_addrs[0] for data in (await mq.admin.topics.route(topic)).broker_datas if 0 in data.broker_addrs
    ]
    in_tps, in_day = await _sum(mq, brokers, "TOPIC_PUT_NUMS", topic)
    groups = await mq.admin.topics.groups(topic)
    if not groups:
        return [[topic, None, in_tps, None, in_day, None]]
    rows: list[list[object]] = []
    for group in groups:
        out_tps, out_day = await _sum(mq, brokers, "GROUP_GET_NUMS", f"{topic}@{group}")
        rows.append([topic, group, in_tps, out_tps, in_day, out_day])
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
async def clean_queues(mq: "Client", broker: BrokerAddress = None, cluster: Cluster = None) -> Output:
    """Delete consume queues whose messages have expired."""
    await mq.admin.brokers.clean_expired_queues(broker=broker, cluster=cluster)
    return Done("expired consume queues are deleted")


@command("cleanUnusedTopic")
async def clean_topics(mq: "Client", broker: BrokerAddress = None, cluster: Cluster = None) -> Output:
    """Delete the queues of topics that no longer exist."""
    await mq.admin.brokers.clean_unused_topics(broker=broker, cluster=cluster)
    return Done("queues of unused topics are deleted")


@command("deleteExpiredCommitLog")
async def clean_log(mq: "Client", broker: BrokerAddress = None, cluster: Cluster = None) -> Output:
    """Delete expired files of the commit log now."""
    await mq.admin.brokers.delete_expired_log(broker=broker, cluster=cluster)
    return Done("expired files of the commit log are being deleted")


@command("wipeWritePerm")
async def wipe_write_perm(mq: "Client", broker: BrokerName) -> Output:
    """Stop clients from sending to a broker."""
    return _changed(await mq.admin.brokers.wipe_write_perm(broker), broker)


@command("addWritePerm")
async def add_write_perm(mq: "Client", broker: BrokerName) -> Output:
    """Allow clients to send to a broker again."""
    return _changed(await mq.admin.brokers.add_write_perm(broker), broker)


def _changed(counts: dict[str, int], broker: str) -> Output:
    if not any(counts.values()):
        raise CommandError(f"no topic was changed: no name server has topics of a broker {broker!r}")
    return Rows(["#Name Server", "#Topics"], [list(row) for row in counts.items()])


@command("getNamesrvConfig")
async def name_server_config(mq: "Client") -> Output:
    """Show the settings of the name servers."""
    tables = await mq.admin.brokers.name_server_config()
    rows = [
        [address, key, value == "true" if value in ("true", "false") else number_or_text(value)]
        for address, table in tables.items()
        for key, value in sorted(table.items())
    ]
    return Rows(["#Name Server", "#Key", "#Value"], rows)


@command("updateNamesrvConfig")
async def update_name_server_config(mq: "Client", key: Key, value: Value) -> Output:
    """Change a setting of the name servers."""
    await mq.admin.brokers.set_name_server_config({key: value})
    return Done(f"{key}={value} on the name servers")


@command("updateKvConfig")
async def put_value(mq: "Client", namespace: Namespace, key: Key, value: Value) -> Output:
    """Set a value in the KV settings of the name servers."""
    await mq.admin.brokers.put_value(namespace, key, value)
    return Done(f"{namespace}: {key}={value}")


@command("deleteKvConfig")
async def delete_value(mq: "Client", namespace: Namespace, key: Key) -> Output:
    """Delete a value from the KV settings of the name servers."""
    await mq.admin.brokers.delete_value(namespace, key)
    return Done(f"{namespace}: {key} is deleted")
