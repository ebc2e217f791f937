"""Master and slave with real sockets and files."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.asking import pull, request, send
from tests.unit.net.peers import eventually
from tests.unit.server.groups import broker, name_server

from kourou.broker.settings import Role
from kourou.net.client import connect
from kourou.net.connection import Connection
from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.record import decode_records
from kourou.server.broker import BrokerProcess
from kourou.server.nameserver import NameServerProcess

PATIENCE = 30.0
SLAVE: dict[str, Any] = {"brokerRole": "SLAVE", "brokerId": 1}


@pytest.fixture
async def names(tmp_path: Path) -> AsyncIterator[NameServerProcess]:
    async with name_server(tmp_path / "namesrv") as process:
        yield process


async def asked(process: BrokerProcess, *commands: Command) -> list[Command]:
    connection: Connection = await connect("127.0.0.1", process.listener.port)
    try:
        return [await connection.request(command, PATIENCE) for command in commands]
    finally:
        connection.close()


async def sent(process: BrokerProcess, count: int, size: int = 100) -> None:
    connection: Connection = await connect("127.0.0.1", process.listener.port)
    try:
        answers = await asyncio.gather(
            *(connection.request(send(number.to_bytes(4) * (size // 4)), PATIENCE) for number in range(count))
        )
        assert {answer.code for answer in answers} == {0}
    finally:
        connection.close()


def is_equal(master: BrokerProcess, slave: BrokerProcess) -> Callable[[], bool]:
    one, other = master.machine.store, slave.machine.store
    return lambda: one.log.end == other.log.end == other.dispatched > 0


def log_of(process: BrokerProcess) -> bytes:
    log, found = process.machine.store.log, b""
    while log.start + len(found) < log.end:
        at = log.start + len(found)
        found += bytes(log.read(at, min(log.end - at, log.segments.file_size - at % log.segments.file_size)))
    return found


async def test_a_slave_has_what_its_master_has(names: NameServerProcess, tmp_path: Path) -> None:
    async with broker(tmp_path / "m", [names.address]) as master:
        await sent(master, 200, 4_000)  # before there is a slave
        async with broker(tmp_path / "s", [names.address], **SLAVE) as slave:
            await eventually(is_equal(master, slave))
            await sent(master, 200)
            await eventually(is_equal(master, slave))
            assert log_of(master) == log_of(slave)
            await eventually(lambda: "orders" in slave.machine.topics.table)
            (status,) = await asked(master, request(RequestCode.GET_BROKER_HA_STATUS))
            info = bodies.HARuntimeInfo.decode(status.body)
            assert info.master
            (one,) = info.ha_connection_info
            assert one.in_sync
            assert one.slave_ack_offset == master.machine.store.log.end
            (status,) = await asked(slave, request(RequestCode.GET_BROKER_HA_STATUS))
            assert (
                bodies.HARuntimeInfo.decode(status.body).ha_client_runtime_info.max_offset
                == slave.machine.store.log.end
            )


async def test_consumers_read_from_the_slave_when_the_master_is_gone(names: NameServerProcess, tmp_path: Path) -> None:
    async with broker(tmp_path / "s", [names.address], **SLAVE) as slave:
        async with broker(tmp_path / "m", [names.address]) as master:
            await sent(master, 10)
            await eventually(is_equal(master, slave))
            await eventually(lambda: "orders" in slave.machine.topics.table)
            (refused,) = await asked(slave, pull())
            assert refused.code == ResponseCode.SYSTEM_BUSY
            assert "slaveReadEnable" in (refused.remark or "")
        await eventually(lambda: slave.machine.replication.may_be_read)
        (found,) = await asked(slave, pull())
        assert found.code == ResponseCode.SUCCESS
        assert len(decode_records(found.body)) == 10
        assert (found.ext or {})["suggestWhichBrokerId"] == "0"


async def test_a_slave_refuses_messages_and_changes(names: NameServerProcess, tmp_path: Path) -> None:
    async with broker(tmp_path / "s", [names.address], **SLAVE) as slave:
        topic = headers.CreateTopic(
            topic="new",
            default_topic="TBW102",
            read_queue_nums=1,
            write_queue_nums=1,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            order=False,
        )
        answers = await asked(
            slave,
            send(),
            request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic),
            request(RequestCode.END_TRANSACTION),
        )
        assert [answer.code for answer in answers[:2]] == [ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR]
        assert "from slave broker" in (answers[1].remark or "")


async def test_a_sync_master_answers_when_its_slave_has_the_message(names: NameServerProcess, tmp_path: Path) -> None:
    sync: dict[str, Any] = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "slaveTimeout": 500}
    async with broker(tmp_path / "m", [names.address], **sync) as master:
        (late,) = await asked(master, send())
        assert late.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        (nothing,) = await asked(master, pull())
        assert nothing.code == ResponseCode.PULL_NOT_FOUND, "nobody sees what only one broker has"
        async with broker(tmp_path / "s", [names.address], **SLAVE) as slave:
            await eventually(lambda: master.machine.store.dispatched == master.machine.store.log.end)
            await sent(master, 100)
            assert slave.machine.store.log.end == master.machine.store.log.end
            (found,) = await asked(master, pull())
            assert len(decode_records(found.body)) == 32


async def test_min_in_sync_replicas_refuses_early(
    names: NameServerProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sync: dict[str, Any] = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "minInSyncReplicas": 2}
    async with broker(tmp_path / "m", [names.address], **sync) as master:
        (refused,) = await asked(master, send())
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "in-sync replicas not enough" in (refused.remark or "")
        assert master.machine.store.log.end == 0
        async with broker(tmp_path / "s", [names.address], **SLAVE):
            await eventually(lambda: master.machine.replication.in_sync == 2)
            await sent(master, 10)
        await eventually(lambda: master.machine.replication.in_sync == 1)
        (refused,) = await asked(master, send())
        assert refused.code == ResponseCode.SYSTEM_ERROR


async def test_enable_auto_in_sync_replicas_waits_for_those_that_are_there(
    names: NameServerProcess, tmp_path: Path
) -> None:
    sync: dict[str, Any] = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "enableAutoInSyncReplicas": "true"}
    async with broker(tmp_path / "m", [names.address], **sync) as master:
        await sent(master, 10)
        async with broker(tmp_path / "s", [names.address], **SLAVE) as slave:
            await eventually(lambda: master.machine.replication.needed == 2)
            await sent(master, 10)
            assert slave.machine.store.log.end == master.machine.store.log.end
        await eventually(lambda: master.machine.replication.needed == 1)
        await sent(master, 10)


async def test_a_sync_master_that_waits_for_nobody_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with broker(tmp_path / "m", [], brokerRole="SYNC_MASTER"):
        pass
    assert "WITHOUT waiting for a slave" in caplog.text
    assert "inSyncReplicas=2" in caplog.text


async def test_ha_master_address_is_enough(tmp_path: Path) -> None:
    async with broker(tmp_path / "m", []) as master:
        await sent(master, 10)
        address = master.settings.ha_address
        async with broker(tmp_path / "s", [], haMasterAddress=address, **SLAVE) as slave:
            await eventually(is_equal(master, slave))


async def test_tables_of_the_master_reach_the_slave(names: NameServerProcess, tmp_path: Path) -> None:
    async with (
        broker(tmp_path / "m", [names.address]) as master,
        broker(tmp_path / "s", [names.address], **SLAVE) as slave,
    ):
        await sent(master, 10)
        commit = headers.UpdateConsumerOffset(consumer_group="billing", topic="orders", queue_id=0, commit_offset=7)
        await asked(master, pull(), request(RequestCode.UPDATE_CONSUMER_OFFSET, commit))
        one, other = master.machine, slave.machine
        await eventually(lambda: other.offsets.get("billing", "orders", 0) == 7)
        await eventually(lambda: one.topics.version == other.topics.version)
        await eventually(lambda: one.groups.version == other.groups.version)
        assert one.topics.table == other.topics.table
        assert one.groups.table == other.groups.table
        master.machine.topics.remove("orders", 0)
        await eventually(lambda: "orders" not in other.topics.table)
    async with broker(tmp_path / "s", [], **SLAVE) as slave:  # they were kept
        assert slave.machine.offsets.get("billing", "orders", 0) == 7
        assert "billing" in slave.machine.groups.table


async def test_both_are_in_the_route(names: NameServerProcess, tmp_path: Path) -> None:
    async with (
        broker(tmp_path / "m", [names.address]) as master,
        broker(tmp_path / "s", [names.address], **SLAVE) as slave,
    ):
        await sent(master, 1)
        host, _, port = names.address.rpartition(":")
        connection = await connect(host, int(port))
        header = headers.GetRouteInfo(topic="orders")

        async def addresses() -> dict[int, str]:
            answer = await connection.request(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header), PATIENCE)
            if answer.code:
                return {}
            (data,) = bodies.TopicRouteData.decode(answer.body).broker_datas
            return dict(data.broker_addrs)

        for _ in range(200):
            found = await addresses()
            if found == {0: master.address, 1: slave.address}:
                break
            await asyncio.sleep(0.05)
        assert found == {0: master.address, 1: slave.address}
        connection.close()


async def test_a_slave_that_was_stopped_or_killed_goes_on(names: NameServerProcess, tmp_path: Path) -> None:
    async with broker(tmp_path / "m", [names.address]) as master:
        for _ in range(3):
            async with broker(tmp_path / "s", [names.address], **SLAVE) as slave:
                await sent(master, 50, 4_000)
                await eventually(is_equal(master, slave))
            await sent(master, 50, 4_000)
        async with broker(tmp_path / "s", [names.address], **SLAVE) as slave:
            await eventually(is_equal(master, slave))
            assert log_of(master) == log_of(slave)
            assert _queue_ends(master) == _queue_ends(slave)


def _queue_ends(process: BrokerProcess) -> dict[tuple[str, int], int]:
    store = process.machine.store
    return {name: store.reader.offsets(*name)[1] for name in store.queues.names()}


async def test_strangers_on_the_ha_port_acknowledge_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    sync: dict[str, Any] = {
        "brokerRole": "SYNC_MASTER",
        "inSyncReplicas": 2,
        "slaveTimeout": 300,
        "maxHaConnections": 8,
    }
    async with broker(tmp_path / "m", [], **sync) as master:
        port = master.settings.ha_port
        writers = []
        for number in range(100):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"random bytes, and more" if number % 2 else (2**62).to_bytes(8))
            writers.append((reader, writer))
        (late,) = await asked(master, send())
        assert late.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        for reader, writer in writers:
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
            writer.close()
        await eventually(lambda: not master.machine.replication.master.slaves)  # type: ignore[union-attr]
    assert "refused a connection to the HA port" in caplog.text


async def test_only_allowed_peers_may_connect(tmp_path: Path) -> None:
    async with broker(tmp_path / "m", [], haAllowedPeers="10.0.0.0/8;::1") as master:
        reader, writer = await asyncio.open_connection("127.0.0.1", master.settings.ha_port)
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        writer.close()
    async with broker(tmp_path / "m", [], haAllowedPeers="10.0.0.0/8;127.0.0.1") as master:
        reader, writer = await asyncio.open_connection("127.0.0.1", master.settings.ha_port)
        await eventually(lambda: len(master.machine.replication.master.slaves) == 1)  # type: ignore[union-attr]
        writer.close()


async def promoted(process: BrokerProcess) -> None:
    (answer,) = await asked(process, request(RequestCode.PROMOTE_BROKER, headers.PromoteBroker()))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_a_slave_is_promoted_and_the_old_master_follows_it(names: NameServerProcess, tmp_path: Path) -> None:
    """The old master comes back with its old settings, and messages that no slave has."""
    slave = broker(tmp_path / "s", [names.address], **SLAVE)
    async with broker(tmp_path / "m", [names.address]) as master:
        await slave.start()
        try:
            await sent(master, 50)
            await eventually(is_equal(master, slave))
            await eventually(lambda: "orders" in slave.machine.topics.table)
        except BaseException:
            await slave.stop()
            raise
    try:
        async with broker(tmp_path / "m", []) as alone:
            await sent(alone, 3)
        await eventually(lambda: not slave.machine.replication.has_master)
        await promoted(slave)
        await sent(slave, 20)
        async with broker(tmp_path / "m", [names.address]) as back:
            await eventually(lambda: back.settings.role is Role.SLAVE)
            await eventually(is_equal(slave, back))
            assert log_of(slave) == log_of(back)
            assert back.settings.broker_id == 1
            (cut,) = (tmp_path / "m" / "kourou-cut").iterdir()
            assert "-" in cut.name
        async with broker(tmp_path / "m", [names.address]) as back:  # it is still a slave
            assert back.settings.role is Role.SLAVE
            await sent(slave, 5)
            await eventually(is_equal(slave, back))
    finally:
        await slave.stop()


async def test_a_planned_change_of_the_master_loses_nothing(names: NameServerProcess, tmp_path: Path) -> None:
    async with (
        broker(tmp_path / "m", [names.address]) as master,
        broker(tmp_path / "s", [names.address], **SLAVE) as slave,
    ):
        await sent(master, 50)
        await eventually(is_equal(master, slave))
        await eventually(lambda: "orders" in slave.machine.topics.table)
        end = master.machine.store.log.end
        (answer,) = await asked(master, request(RequestCode.DEMOTE_BROKER, headers.DemoteBroker(broker_id=2)))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        await eventually(lambda: not slave.machine.replication.has_master)
        await promoted(slave)
        await sent(slave, 20)
        await eventually(is_equal(slave, master))
        assert slave.machine.store.log.end > end
        assert log_of(slave) == log_of(master)
        assert not (tmp_path / "m" / "kourou-cut").exists()
