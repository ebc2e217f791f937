"""Replicas of brokers, the controllers that choose their masters, and containers of brokers."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.admin.commands import (
    BrokerAddress,
    ClusterName,
    Done,
    Facts,
    Many,
    Output,
    Repeated,
    Rows,
    brokers_of,
    command,
    moment,
    number_or_text,
)
from kourou.cli.running import CommandError

if TYPE_CHECKING:
    from kourou.client import Client

Controller = Annotated[str, typer.Option("--controllerAddress", "-a", help="Controller, host:port.")]
ControllerList = Annotated[
    str, typer.Option("--controllerAddress", "-a", help="Controllers, host:port, separated by semicolons.")
]
Interval = Annotated[
    int | None, typer.Option("--interval", "-i", min=1, metavar="SECONDS", help="Repeat at this interval.")
]
Container = Annotated[str, typer.Option("--brokerContainerAddr", "-c", help="Container, host:port.")]
BrokerName = Annotated[str | None, typer.Option("--brokerName", "-b", help="Broker name.")]


async def _repeat(interval: int | None, ask: Callable[[], Awaitable[Output]]) -> Output:
    return await ask() if interval is None else Repeated(interval, ask)


@command("haStatus")
async def replication(
    mq: "Client", broker: BrokerAddress = None, cluster: ClusterName = None, interval: Interval = None
) -> Output:
    """Show the replication of a broker, or of all masters of a cluster."""
    addresses = list(await brokers_of(mq, broker, cluster))

    async def ask() -> Output:
        return Many([await _replication(mq, address) for address in addresses])

    return await _repeat(interval, ask)


async def _replication(mq: "Client", address: str) -> Output:
    found = await mq.admin.brokers.replication(address)
    if not found.master:
        own = found.ha_client_runtime_info
        return Facts(
            {
                "MasterAddr": own.master_addr,
                "CommitLogMaxOffset": own.max_offset,
                "TransferSpeed(KB/s)": own.transferred_byte_in_second / 1024,
                "LastReadTime": moment(own.last_read_timestamp),
                "LastWriteTime": moment(own.last_write_timestamp),
                "MasterFlushOffset": own.master_flush_offset,
            }
        )
    rows = [
        [
            slave.addr,
            slave.slave_ack_offset,
            slave.diff,
            slave.transferred_byte_in_second / 1024,
            "OK" if slave.in_sync else "Fall Behind",
            slave.transfer_from_where,
        ]
        for slave in found.ha_connection_info
    ]
    summary = {
        "MasterAddr": address,
        "MasterCommitLogMaxOffset": found.master_commit_log_max_offset,
        "SlaveNum": len(rows),
        "InSyncSlaveNum": found.in_sync_slave_nums,
    }
    columns = ["#SlaveAddr", "#SlaveAckOffset", "#Diff", "#TransferSpeed(KB/s)", "#Status", "#TransferFromWhere"]
    return Rows(columns, rows, summary)


@command("getBrokerEpoch")
async def epochs(
    mq: "Client", broker: BrokerName = None, cluster: ClusterName = None, interval: Interval = None
) -> Output:
    """Show which master wrote which part of a broker's log, in controller mode."""
    addresses = await _members(mq, broker, cluster)

    async def ask() -> Output:
        rows: list[list[object]] = []
        for address in addresses:
            found = await mq.admin.brokers.epochs(address)
            for number, one in enumerate(found.epoch_list, 1):
                end = found.max_offset if number == len(found.epoch_list) else one.end_offset
                rows.append([found.broker_name, found.broker_id, address, one.epoch, one.start_offset, end])
        return Rows(["#Broker Name", "#BID", "#Addr", "#Epoch", "#Start Offset", "#End Offset"], rows)

    return await _repeat(interval, ask)


async def _members(mq: "Client", name: str | None, cluster: str | None) -> list[str]:
    """The addresses of a broker group, or of all of a cluster."""
    if name is None:
        return list(await brokers_of(mq, None, cluster, with_slaves=True))
    info = await mq.admin.brokers.cluster()
    data = info.broker_addr_table.get(name)
    if data is None:
        raise CommandError(f"there is no broker {name!r}; there are: {', '.join(sorted(info.broker_addr_table))}")
    return [address for _, address in sorted(data.broker_addrs.items())]


@command("resetMasterFlushOffset")
async def reset_flush_offset(
    mq: "Client",
    broker: BrokerAddress = None,
    offset: Annotated[int | None, typer.Option("--offset", "-o", help="The offset.")] = None,
) -> Output:
    """Tell a slave how far its master's log is on disk."""
    if broker is None or offset is None:
        raise typer.BadParameter("give a broker (-b) and an offset (-o)")
    await mq.admin.brokers.set_master_flush_offset(broker, offset)
    return Done(f"{broker}: the master's log is on disk up to {offset}")


Force = Annotated[bool, typer.Option("--force", help="Even if messages may be lost.")]


@command("promote")
async def promote(mq: "Client", broker: BrokerAddress = None, force: Force = False) -> Output:
    """Make a slave the master of its group. Kourou's brokers only."""
    if broker is None:
        raise typer.BadParameter("give a broker (-b)")
    return Done(f"{broker}: {await mq.admin.brokers.promote(broker, force=force)}")


@command("demote")
async def demote(
    mq: "Client",
    broker: BrokerAddress = None,
    broker_id: Annotated[int | None, typer.Option("--brokerId", "-i", min=1, help="Its brokerId as a slave.")] = None,
    force: Force = False,
) -> Output:
    """Make a master a slave, once another slave has all of its messages. Kourou's brokers only."""
    if broker is None:
        raise typer.BadParameter("give a broker (-b)")
    remark = await mq.admin.brokers.demote(broker, broker_id=broker_id, force=force)
    return Done(f"{broker}: {remark or 'it is a slave now'}")


# ── Controllers ─────────────────────────────────────────────────────────────────────────────────────────────────────


@command("getSyncStateSet")
async def sync_states(
    mq: "Client",
    controller: Controller,
    broker: BrokerName = None,
    cluster: ClusterName = None,
    interval: Interval = None,
) -> Output:
    """Show which replicas are in sync, as a controller knows it."""
    names = [broker] if broker is not None else sorted(set((await brokers_of(mq, None, cluster)).values()))

    async def ask() -> Output:
        rows: list[list[object]] = []
        for name, info in sorted((await mq.admin.controllers.replicas(controller, names)).replicas_info_table.items()):
            for is_in_sync, replicas in ((True, info.in_sync_replicas), (False, info.not_in_sync_replicas)):
                for one in replicas:
                    is_master = one.broker_id == info.master_broker_id
                    rows.append([name, one.broker_id, one.broker_address, is_master, is_in_sync, one.alive])
        return Rows(["#Broker Name", "#BID", "#Addr", "#Master", "#In Sync", "#Alive"], rows)

    return await _repeat(interval, ask)


@command("getControllerMetaData")
async def controller_metadata(mq: "Client", controller: Controller) -> Output:
    """Show the controllers of a group, and which of them leads."""
    found = await mq.admin.controllers.metadata(controller)
    return Facts(
        {
            "ControllerGroup": found.group,
            "ControllerLeaderId": found.controller_leader_id,
            "ControllerLeaderAddress": found.controller_leader_address,
            "Peers": [peer for peer in (found.peers or "").split(";") if peer],
        }
    )


@command("getControllerConfig")
async def controller_config(mq: "Client", controllers: ControllerList) -> Output:
    """Show the settings of controllers."""
    rows = [
        [address, key, number_or_text(value)]
        for address in filter(None, controllers.split(";"))
        for key, value in sorted((await mq.admin.controllers.config(address)).items())
    ]
    return Rows(["#Controller", "#Key", "#Value"], rows)


@command("updateControllerConfig")
async def update_controller_config(
    mq: "Client",
    controllers: ControllerList,
    key: Annotated[str, typer.Option("--key", "-k", help="Name of the setting.")],
    value: Annotated[str, typer.Option("--value", "-v", help="Its value.")],
) -> Output:
    """Change a setting of controllers."""
    for address in filter(None, controllers.split(";")):
        await mq.admin.controllers.set_config({key: value}, address)
    return Done(f"{key}={value} on {controllers}")


@command("electMaster")
async def elect_master(
    mq: "Client",
    controller: Controller,
    broker_id: Annotated[int, typer.Option("--brokerId", "-b", help="Id of the replica that becomes the master.")],
    broker_name: Annotated[str, typer.Option("--brokerName", "-bn", help="Name of the broker group.")],
    cluster: Annotated[str, typer.Option("--clusterName", "-c", help="Cluster.")],
) -> Output:
    """Make a replica the master of its broker group."""
    master, members = await mq.admin.controllers.elect_master(controller, cluster, broker_name, broker_id)
    group = members.broker_member_group
    return Facts(
        {
            "ClusterName": cluster,
            "BrokerName": broker_name,
            "BrokerMasterAddr": master.master_address,
            "MasterEpoch": master.master_epoch,
            "SyncStateSetEpoch": master.sync_state_set_epoch,
            "Members": {} if group is None else {str(number): one for number, one in group.broker_addrs.items()},
        }
    )


@command("cleanBrokerMetadata")
async def forget_replicas(
    mq: "Client",
    controller: Controller,
    broker_name: Annotated[str, typer.Option("--brokerName", "-bn", help="Name of the broker group.")],
    broker_ids: Annotated[
        str | None, typer.Option("--brokerControllerIdsToClean", "-b", help="Only these ids, separated by semicolons.")
    ] = None,
    cluster: Annotated[str | None, typer.Option("--clusterName", "-c", help="Cluster.")] = None,
    living: Annotated[bool, typer.Option("--cleanLivingBroker", "-l", help="Also brokers that are alive.")] = False,
) -> Output:
    """Remove replicas from a controller."""
    words = None if broker_ids is None else [word for word in broker_ids.split(";") if word]
    if words is not None and not all(word.isdecimal() for word in words):
        raise typer.BadParameter(f"-b {broker_ids}: numbers such as 1;2;3 are expected")
    if not living and cluster is None:
        raise typer.BadParameter("-c is missing: only with -l, the cluster is not necessary")
    ids = None if words is None else [int(word) for word in words]
    await mq.admin.controllers.forget_replicas(controller, broker_name, cluster=cluster, broker_ids=ids, living=living)
    return Done(f"replicas of {broker_name} removed from {controller}")


# ── Containers ──────────────────────────────────────────────────────────────────────────────────────────────────────


@command("addBroker")
async def add_broker(
    mq: "Client",
    container: Container,
    path: Annotated[str, typer.Option("--brokerConfigPath", "-b", help="Settings file, on the container's machine.")],
) -> Output:
    """Start a broker in a container of brokers."""
    await mq.admin.controllers.add_broker(container, path)
    return Done(f"a broker with {path} started in {container}")


@command("removeBroker")
async def remove_broker(
    mq: "Client",
    container: Container,
    identity: Annotated[str, typer.Option("--brokerIdentity", "-b", help="cluster:name:id of the broker.")],
) -> Output:
    """Stop a broker in a container of brokers."""
    words = identity.split(":")
    if len(words) != 3 or not words[2].isdecimal():
        raise typer.BadParameter(f"-b {identity}: cluster:name:id is expected, such as DefaultCluster:broker-a:0")
    await mq.admin.controllers.remove_broker(container, words[0], words[1], int(words[2]))
    return Done(f"{identity} stopped in {container}")
