"""Settings, tables and figures of a cluster, in JSON files."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kourou.cli.admin.commands import BrokerAddress, ClusterName, Done, Output, brokers_of, command, number_or_text

if TYPE_CHECKING:
    from kourou.client import Client
    from kourou.protocol.bodies import SubscriptionGroupConfig, TopicConfig

FOLDER = "/tmp/rocketmq/export"

OneCluster = Annotated[str, typer.Option("--clusterName", "-c", help="Cluster.")]
Folder = Annotated[str, typer.Option("--filePath", "-f", help="Folder of the file.")]

EXPORTED = (
    "brokerClusterName",
    "brokerId",
    "brokerName",
    "brokerRole",
    "fileReservedTime",
    "filterServerNums",
    "flushDiskType",
    "maxMessageSize",
    "messageDelayLevel",
    "msgTraceTopicName",
    "slaveReadEnable",
    "traceOn",
    "traceTopicEnable",
    "useTLS",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
)
"""Settings that clients notice. Java: ExportConfigsCommand."""


def _write(folder: str, name: str, content: dict[str, Any]) -> Output:
    """Raises OSError."""
    import msgspec

    path = Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2))
    return Done(f"written: {path}")


@command("exportMetadata")
async def export_metadata(
    mq: "Client",
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    folder: Folder = FOLDER,
    only_topics: Annotated[bool, typer.Option("--topic", "-t", help="Only topics.")] = False,
    only_groups: Annotated[bool, typer.Option("--subscriptionGroup", "-g", help="Only groups.")] = False,
    special: Annotated[bool, typer.Option("--specialTopic", "-s", help="With retries and dead letters.")] = False,
) -> Output:
    """Write the topics and groups of a broker or a cluster to a JSON file."""
    from kourou.client.naming import is_system_group

    topics: dict[str, TopicConfig] = {}
    groups: dict[str, SubscriptionGroupConfig] = {}
    own = set(await mq.admin.topics.system())
    for address in await brokers_of(mq, broker, cluster):
        for name, topic in (await mq.admin.topics.all_configs(address)).topic_config_table.items():
            if name not in own and (special or not name.startswith(("%RETRY%", "%DLQ%"))):
                _add(topics, name, topic, "read_queue_nums", "write_queue_nums")
        for name, group in (await mq.admin.groups.configs(address)).subscription_group_table.items():
            if not is_system_group(name):
                _add(groups, name, group, "retry_queue_nums")
    content: dict[str, Any] = {"exportTime": round(time.time() * 1000)}
    if not only_groups:
        content["topicConfigTable"] = topics
    if not only_topics:
        content["subscriptionGroupTable"] = groups
    name = "topic.json" if only_topics else "subscriptionGroup.json" if only_groups else "metadata.json"
    return _write(folder, name, content)


def _add(table: dict[str, Any], name: str, config: Any, *counts: str) -> None:
    """A topic or group of several brokers: the numbers of its queues are added up."""
    import msgspec

    before = table.get(name)
    sums = {} if before is None else {count: getattr(before, count) + getattr(config, count) for count in counts}
    table[name] = msgspec.structs.replace(config, **sums)


@command("exportConfigs")
async def export_configs(mq: "Client", cluster: OneCluster, folder: Folder = FOLDER) -> Output:
    """Write settings of the brokers of a cluster to a JSON file."""
    configs: dict[str, Any] = {}
    counts = {"masterBrokerSize": 0, "slaveBrokerSize": 0}
    masters = await brokers_of(mq, None, cluster)
    for address, name in (await brokers_of(mq, None, cluster, with_slaves=True)).items():
        counts["masterBrokerSize" if address in masters else "slaveBrokerSize"] += 1
        if address in masters:
            found = await mq.admin.brokers.config(address)
            configs[name] = {key: found[key] for key in EXPORTED if key in found}
    scale = {"namesrvSize": len(mq.session.name_servers.addresses), **counts}
    return _write(folder, "configs.json", {"brokerConfigs": configs, "clusterScale": scale})


@command("exportMetrics")
async def export_metrics(mq: "Client", cluster: OneCluster, folder: Folder = FOLDER) -> Output:
    """Write figures of the brokers of a cluster to a JSON file."""
    brokers: dict[str, Any] = {}
    totals = {"totalTps": 0.0, "totalOneDayNum": 0, "totalTopicNum": 0, "totalGroupNum": 0}
    for address, name in (await brokers_of(mq, None, cluster)).items():
        runtime = await mq.admin.brokers.runtime(address)
        topics = len((await mq.admin.topics.all_configs(address)).topic_config_table)
        groups = len((await mq.admin.groups.configs(address)).subscription_group_table)
        brokers[name] = {
            "runtimeEnv": {key: runtime.get(key, "") for key in ("cpuNum", "totalMemKBytes", "brokerVersionDesc")},
            "runtimeQuota": {
                "inTps": _first(runtime, "putTps"),
                "outTps": _first(runtime, "getTransferredTps"),
                "messageAverageSize": number_or_text(runtime.get("putMessageAverageSize", "")),
                "diskRatio": {key: runtime.get(key, "") for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
                "topicSize": topics,
                "groupSize": groups,
            },
        }
        totals["totalTps"] += _first(runtime, "putTps")
        totals["totalOneDayNum"] += _day(runtime)
        totals["totalTopicNum"] += topics
        totals["totalGroupNum"] += groups
    return _write(folder, "metrics.json", {"evaluateReport": brokers, "totalData": totals})


def _first(runtime: dict[str, str], key: str) -> float:
    found = number_or_text(runtime.get(key, "").split(" ")[0])
    return 0.0 if isinstance(found, str) else float(found)


def _day(runtime: dict[str, str]) -> int:
    """Messages stored today."""
    now, morning = (runtime.get(f"msgPutTotal{when}", "0") for when in ("TodayNow", "TodayMorning"))
    return int(now) - int(morning) if now.isdecimal() and morning.isdecimal() else 0
