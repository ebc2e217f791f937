"""Parts of Apache's store, most of which have no effect in Kourou's brokers: old data, read-ahead, timers, RocksDB."""

import time
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
    Rows,
    brokers_of,
    command,
    masters_or,
    truth,
)
from kourou.cli.running import CommandError

if TYPE_CHECKING:
    from kourou.client import Client

GroupOption = Annotated[str, typer.Option("--consumerGroup", "-g", help="Consumer group.")]
TABLES = ("topics", "subscriptionGroups", "consumerOffsets")


@command("getColdDataFlowCtrInfo")
async def cold_data(mq: "Client", broker: BrokerAddress = None, cluster: ClusterName = None) -> Output:
    """Show the limits on reading old data."""
    outputs: list[Output] = []
    for address in await brokers_of(mq, broker, cluster):
        found = await mq.admin.brokers.cold_data(address)
        rows = [
            [address, group, limit, found.runtime_table.get(group)]
            for group, limit in sorted(found.config_table.items())
        ]
        summary = {
            "Limit of a group": found.cg_cold_read_threshold,
            "Limit of all": found.global_cold_read_threshold,
            "Read by all": found.global_acc,
        }
        outputs.append(Rows(["#Broker", "#Group", "#Limit", "#Read"], rows, summary))
    return Many(outputs)


@command("updateColdDataFlowCtrGroupConfig")
async def limit_cold_data(
    mq: "Client",
    group: GroupOption,
    limit: Annotated[int, typer.Option("--threshold", "-v", min=0, help="Bytes per second.")],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
) -> Output:
    """Limit how much old data a group may read."""
    masters_or(broker, cluster)
    await mq.admin.brokers.limit_cold_data(group, limit, broker=broker, cluster=cluster)
    return Done(f"group {group} on {broker or cluster}: at most {limit} bytes of old data per second")


@command("removeColdDataFlowCtrGroupConfig")
async def unlimit_cold_data(
    mq: "Client", group: GroupOption, broker: BrokerAddress = None, cluster: ClusterName = None
) -> Output:
    """Remove the limit of a group on reading old data."""
    masters_or(broker, cluster)
    await mq.admin.brokers.unlimit_cold_data(group, broker=broker, cluster=cluster)
    return Done(f"group {group} on {broker or cluster}: no limit of its own")


@command("setCommitLogReadAheadMode")
async def read_ahead(
    mq: "Client",
    mode: Annotated[
        int, typer.Option("--commitLogReadAheadMode", "-m", min=0, max=1, help="0: as usual, 1: do not read ahead.")
    ],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
) -> Output:
    """Set how the kernel reads the commit log ahead."""
    masters_or(broker, cluster)
    await mq.admin.brokers.set_read_ahead(mode, broker=broker, cluster=cluster)
    return Done(f"read-ahead mode {mode} on {broker or cluster}")


@command("switchTimerEngine")
async def switch_timers(
    mq: "Client",
    engine: Annotated[str, typer.Option("--engineType", "-e", help="F: files, R: RocksDB.")],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
) -> Output:
    """Choose where timers are stored."""
    masters_or(broker, cluster)
    if engine not in ("F", "R"):
        raise typer.BadParameter(f"-e {engine}: F (files) or R (RocksDB) is expected")
    await mq.admin.brokers.switch_timers(engine, broker=broker, cluster=cluster)
    return Done(f"timers on {broker or cluster}: engine {engine}")


@command("rocksDBConfigToJson")
async def tables_to_json(
    mq: "Client",
    kinds: Annotated[
        str | None, typer.Option("--configType", "-t", help=f"Tables, separated by semicolons: {', '.join(TABLES)}.")
    ] = None,
    cluster: Cluster = None,
    broker: BrokerAddress = None,
    path: Annotated[str | None, typer.Option("--configPath", "-p", help="Not supported: files of RocksDB.")] = None,
    export: Annotated[str | None, typer.Option("--exportFile", "-e", help="Not supported: see -p.")] = None,
    json_enable: Annotated[str | None, typer.Option("--jsonEnable", "-j", help="Not supported: see -p.")] = None,
) -> Output:
    """Let brokers write tables that they have in RocksDB to JSON files."""
    if path or export or json_enable:
        raise CommandError("files of RocksDB can't be read here: use mqadmin, or ask the broker (-b, or -c)")
    wanted = [word for word in (kinds or "").split(";") if word]
    if unknown := set(wanted) - set(TABLES):
        raise typer.BadParameter(f"-t {', '.join(sorted(unknown))}: {', '.join(TABLES)} are expected")
    addresses = await brokers_of(mq, broker, cluster, with_slaves=True)
    for address in addresses:
        await mq.admin.brokers.export_tables(address, wanted)
    return Done(f"tables written as JSON on {', '.join(addresses)}")


@command("checkRocksdbCqWriteProgress")
async def compare_queues(
    mq: "Client",
    cluster: Annotated[str, typer.Option("--cluster", "-c", help="Cluster.")],
    topic: Annotated[str, typer.Option("--topic", "-t", help="Only this topic.")] = "",
    since: Annotated[int | None, typer.Option("--checkFrom", "-cf", help="Stored after this time, in ms.")] = None,
) -> Output:
    """Let brokers compare their consume queues in files with those in RocksDB."""
    month_ms = 30 * 86_400_000
    since_ms = round(time.time() * 1000) - month_ms if since is None else since
    rows: list[list[object]] = []
    for address, name in (await brokers_of(mq, None, cluster)).items():
        found = await mq.admin.brokers.compare_queues(address, topic, since_ms)
        rows.append([name, found.get("checkStatus"), found.get("checkResult")])
    return Rows(["#Broker Name", "#Status", "#Result"], rows)


@command("exportPopRecord")
async def export_pop_records(
    mq: "Client",
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    dry_run: Annotated[str, typer.Option("--dryRun", "-d", help="true: only list the brokers.")] = "false",
) -> Output:
    """Let brokers move their records of pops from RocksDB to their retry topics."""
    is_dry = bool(truth(dry_run, "-d"))
    addresses = await brokers_of(mq, broker, cluster, with_slaves=True)
    for address in [] if is_dry else addresses:
        await mq.admin.brokers.export_pop_records(address)
    return Many([Facts({"brokerAddr": address, "dryRun": is_dry}) for address in addresses])


@command("exportMetadataInRocksDB")
async def rocksdb_metadata(
    mq: "Client",  # noqa: ARG001
    path: Annotated[str, typer.Option("--path", "-p", help="Folder of the metadata.")],
    kind: Annotated[str, typer.Option("--configType", "-t", help="topics or subscriptionGroups.")],  # noqa: ARG001
    json_enable: Annotated[str, typer.Option("--jsonEnable", "-j", help="true: as JSON.")] = "false",  # noqa: ARG001
) -> Output:
    """Refuse to read files of RocksDB: only mqadmin can."""
    raise CommandError(f"{path}: files of RocksDB can't be read here: use mqadmin, or exportMetadata with the broker")


@command("dumpCompactionLog")
async def compaction_log(
    mq: "Client",  # noqa: ARG001
    file: Annotated[str | None, typer.Option("--file", "-f", help="File of a compacted topic.")] = None,
) -> Output:
    """Refuse to read files of compacted topics: only mqadmin can."""
    raise CommandError(f"{file or '-f'}: files of compacted topics can't be read here: use mqadmin")
