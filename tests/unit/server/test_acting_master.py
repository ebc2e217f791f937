"""A slave that stands in for its lost master in the routes (`enableSlaveActingMaster`)."""

from pathlib import Path

from tests.unit.broker.asking import TOPIC, pull, request, send
from tests.unit.net.peers import eventually
from tests.unit.server.groups import broker, name_server

from kourou.broker.registration import ACTING_TIMEOUT_MS
from kourou.net.client import connect
from kourou.protocol import bodies, headers
from kourou.protocol.codes import Perm, RequestCode, ResponseCode
from kourou.protocol.command import Command

SLAVE = {"brokerRole": "SLAVE", "brokerId": 1}
ACTING = {"enableSlaveActingMaster": "true"}


PATIENCE = 30.0


async def ask(address: str, command: Command) -> Command:
    host, _, port = address.rpartition(":")
    connection = await connect(host, int(port))
    try:
        return await connection.request(command, PATIENCE)
    finally:
        connection.close()


async def route(names: str) -> tuple[dict[int, str], set[bool]]:
    """The addresses of the group by id, and whether its queues may be written."""
    query = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, headers.GetRouteInfo(topic=TOPIC))
    found = bodies.TopicRouteData.decode((await ask(names, query)).body)
    (group,) = found.broker_datas
    return group.broker_addrs, {bool(queues.perm & Perm.WRITE) for queues in found.queue_datas}


async def test_consumers_go_on_with_a_slave_that_acts_as_master(tmp_path: Path) -> None:
    async with (
        name_server(tmp_path / "namesrv", support_acting_master=True) as names,
        broker(tmp_path / "s", [names.address], **SLAVE, **ACTING) as slave,
    ):
        async with broker(tmp_path / "m", [names.address], **ACTING) as master:
            ours, theirs = slave.machine.settings.address, master.machine.settings.address
            assert (await ask(theirs, send())).code == ResponseCode.SUCCESS
            await eventually(lambda: TOPIC in slave.machine.topics.table)
            await eventually(lambda: slave.machine.store.log.end == master.machine.store.log.end)
            assert await route(names.address) == ({0: theirs, 1: ours}, {True})
        # The slave is shown as the master, and its queues are for reading.
        assert await route(names.address) == ({0: ours}, {False})
        await eventually(lambda: slave.machine.replication.may_be_read)
        assert (await ask(ours, pull())).code == ResponseCode.SUCCESS


async def test_brokers_of_such_a_group_send_heartbeats(tmp_path: Path) -> None:
    async with (
        name_server(tmp_path / "namesrv", support_acting_master=True) as names,
        broker(tmp_path / "m", [names.address], **ACTING),
    ):
        (member,) = names.machine.tables.live.values()
        assert member.timeout_ms == ACTING_TIMEOUT_MS
        before = member.seen_ms
        await eventually(lambda: next(iter(names.machine.tables.live.values())).seen_ms > before)
