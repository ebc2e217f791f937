"""Several brokers, with slaves, inside one process."""

import time
from pathlib import Path

import pytest
from tests.waiting import answered, eventually

import kourou
from kourou.client.results import SendStatus
from kourou.embedded import Embedded, EmbeddedBroker, EmbeddedThread
from kourou.server.conf import ConfError

COUNT = 16
UP_S_MAX = 5.0


def log_end(broker: EmbeddedBroker) -> int:
    return broker.process.machine.store.dispatched


async def is_copied(master: EmbeddedBroker, slave: EmbeddedBroker) -> None:
    await eventually(lambda: log_end(master) == log_end(slave) > 0)


async def send_all(mq: kourou.Client, topic: str) -> dict[str, int]:
    """Sends COUNT messages: how many of them each broker got."""
    counts: dict[str, int] = {}
    for number in range(COUNT):
        sent = await mq.send(topic, b"%d" % number)
        counts[sent.queue.broker_name] = counts.get(sent.queue.broker_name, 0) + 1
    return counts


async def consumed(mq: kourou.Client, topic: str, group: str) -> set[bytes]:
    found: set[bytes] = set()
    async with mq.consume(topic, group=group, start="first") as consumer:
        while len(found) < COUNT:
            message = await consumer.next(timeout=30)
            assert message is not None
            async with message.process():
                found.add(message.body)
    return found


ALL = {b"%d" % number for number in range(COUNT)}


async def test_two_masters_with_a_slave_each_share_a_topic(tmp_path: Path) -> None:
    async with Embedded(brokers=2, slaves=1, store=tmp_path) as cluster:
        assert [(one.name, one.broker_id) for one in cluster.brokers] == [
            ("broker-a", 0),
            ("broker-b", 0),
            ("broker-a", 1),
            ("broker-b", 1),
        ]
        assert len({one.address for one in cluster.brokers}) == 4
        async with kourou.connect(cluster.namesrv) as mq:
            await mq.admin.topics.create("orders", cluster="DefaultCluster")
            counts = await send_all(mq, "orders")
            assert set(counts) == {"broker-a", "broker-b"}
            assert await consumed(mq, "orders", "test") == ALL
        for name in counts:
            master, slave = cluster.broker(name), cluster.broker(name, 1)
            await is_copied(master, slave)
    folders = sorted(path.name for path in tmp_path.iterdir())
    assert folders == ["broker-a", "broker-a-slave-1", "broker-b", "broker-b-slave-1"]


async def test_consumers_read_from_the_slave_when_the_master_is_stopped() -> None:
    async with Embedded(slaves=1) as cluster:
        master, slave = cluster.broker("broker-a"), cluster.broker("broker-a", 1)
        async with kourou.connect(cluster.namesrv) as mq:
            await send_all(mq, "orders")
            await eventually(lambda: log_end(slave) == log_end(master))
            await eventually(lambda: "orders" in slave.process.machine.topics.table)
            await master.stop()
            assert not master.is_running
            assert slave.is_running
        async with kourou.connect(cluster.namesrv) as mq:
            assert await consumed(mq, "orders", "late") == ALL
            with pytest.raises(kourou.KourouError):
                await mq.send("orders", b"no master")
        await master.start()
        await eventually(lambda: master.follower_count == 1)
        async with kourou.connect(cluster.namesrv) as mq:

            async def is_taken() -> bool:
                try:
                    await mq.send("orders", b"again")
                except kourou.KourouError:
                    return False
                return True

            assert await answered(is_taken)
        await eventually(lambda: log_end(slave) == log_end(master))


async def test_a_synchronous_master_needs_its_slave() -> None:
    async with Embedded(slaves=1, sync=True, properties={"slaveTimeout": 300}) as cluster:
        master, slave = cluster.brokers
        async with kourou.connect(cluster.namesrv) as mq:
            await send_all(mq, "orders")
            assert slave.process.machine.store.log.end == master.process.machine.store.log.end
            await slave.stop()
            await eventually(lambda: master.follower_count == 0)
            assert (await mq.send("orders", b"alone")).status == SendStatus.FLUSH_SLAVE_TIMEOUT


def test_a_cluster_in_a_thread() -> None:
    started = time.monotonic()
    with EmbeddedThread(brokers=2, slaves=1) as cluster:
        assert time.monotonic() - started < UP_S_MAX
        cluster.stop_broker("broker-b")
        assert [one.is_running for one in cluster.brokers] == [True, False, True, True]
        address = cluster.brokers[1].address
        cluster.start_broker("broker-b")
        assert cluster.brokers[1].is_running
        assert cluster.brokers[1].address == address
        with pytest.raises(KeyError, match="broker-c"):
            cluster.stop_broker("broker-c")


def test_what_can_not_be_a_cluster_says_why() -> None:
    with pytest.raises(ConfError, match="needs at least one slave"):
        Embedded(brokers=2, sync=True)
    with pytest.raises(ConfError, match="0 brokers: a number from 1 to 26"):
        Embedded(brokers=0)
    with pytest.raises(ConfError, match="10 slaves: a number from 0 to 9"):
        Embedded(slaves=10)
    with pytest.raises(ConfError, match="brokerRole: the cluster sets this"):
        Embedded(slaves=1, properties={"brokerRole": "SLAVE"})
    with pytest.raises(ConfError, match="port=10911: the brokers of a cluster have free ports"):
        Embedded(slaves=1, port=10911)
