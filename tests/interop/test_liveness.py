"""Brokers and name servers start and stop; the others continue."""

import re
from functools import partial

import pytest
from tests.waiting import wait_for

from .clients import Kind
from .mqadmin import MqAdmin
from .servers import CLUSTER, ApacheBroker, NameServer
from .worlds import StartBroker, StartClient, StartNameServer, World

pytestmark = pytest.mark.interop

COUNT = 5


def test_killed_broker_is_gone_at_once(world: World, start_broker: StartBroker) -> None:
    broker = start_broker("broker-k", world.name_server.address)
    world.wait_for_broker(broker)
    assert broker.address in world.run("clusterList")
    broker.kill()
    wait_for("the route to go", lambda: "CODE: 17" in world.run("topicRoute", "-t", "broker-k"))
    listed = world.run("clusterList")
    assert broker.address not in listed
    assert world.broker.address in listed


def test_broker_that_stops_unregisters(world: World, start_broker: StartBroker) -> None:
    broker = start_broker("broker-t", world.name_server.address)
    world.wait_for_broker(broker)
    broker.terminate()
    wait_for("the route to go", lambda: "CODE: 17" in world.run("topicRoute", "-t", "broker-t"))
    # It takes long to end, and has gone from the name server before: it said so itself.
    assert broker.process.running
    assert broker.address not in world.run("clusterList")


def test_slave_learns_its_master(world: World, start_broker: StartBroker) -> None:
    slave = start_broker("broker-a", world.name_server.address, brokerId=1, brokerRole="SLAVE")
    world.wait_for_broker(slave)
    rows = [line.split()[:4] for line in world.run("clusterList").splitlines() if line.startswith(CLUSTER)]
    assert [CLUSTER, "broker-a", "0", world.broker.address] in rows
    assert [CLUSTER, "broker-a", "1", slave.address] in rows
    route = world.run("topicRoute", "-t", "broker-a")
    assert f'0:"{world.broker.address}"' in route
    assert f'1:"{slave.address}"' in route

    def slaves() -> int:
        """How many slaves have come to the master. Its address for them they know from the name server only."""
        counted = re.search(r"#SlaveNum\s+(\d+)", world.run("haStatus", "-b", world.broker.address))
        assert counted is not None
        return int(counted[1])

    wait_for("the slave's connection", lambda: slaves() == 1, 40)
    slave.kill()
    wait_for("the slave to go", lambda: slave.address not in world.run("topicRoute", "-t", "broker-a"))
    assert f'0:"{world.broker.address}"' in world.run("topicRoute", "-t", "broker-a")


def test_one_of_two_name_servers_dies(
    start_name_server: StartNameServer,
    start_broker: StartBroker,
    mqadmin: MqAdmin,
    start_client: StartClient,
) -> None:
    first, second = start_name_server("first"), start_name_server("second")
    addresses = f"{first.address};{second.address}"
    broker = start_broker("broker-two", addresses)
    for server in (first, second):
        broker.wait_registered(server.address)
        assert broker.address in mqadmin.run(server.address, "clusterList")
    clients = {kind.name: start_client(kind, addresses) for kind in (Kind.JAVA, Kind.GO)}
    for name, client in clients.items():
        client.send(f"old-{name}", "before", COUNT)
        client.subscribe(f"old-{name}", name)
        assert sorted(client.receive(name, COUNT)) == [f"before-{n}" for n in range(COUNT)]
    first.kill()
    for name, client in clients.items():
        client.send(f"new-{name}", "after", COUNT)  # a route which the client must still ask for
        client.send(f"old-{name}", "after", COUNT)
        assert sorted(client.receive(name, COUNT)) == [f"after-{n}" for n in range(COUNT)]
        wait_for("the route", partial(_has_route, mqadmin, second, f"new-{name}", broker))
    # The dead one comes back knowing nothing, and the broker tells it all.
    first.restart()
    wait_for("the broker's return", partial(_has_route, mqadmin, first, "new-GO", broker), 60)


def _has_route(admin: MqAdmin, server: NameServer, topic: str, broker: ApacheBroker) -> bool:
    return broker.address in admin.run(server.address, "topicRoute", "-t", topic)


def test_settings_outlive_a_killed_name_server(start_name_server: StartNameServer, mqadmin: MqAdmin) -> None:
    server = start_name_server("kept")
    assert "success" in mqadmin.run(server.address, "updateOrderConf", "-t", "订单", "-m", "put", "-v", "broker-a:4")
    server.kill()
    server.restart()
    assert "orderConf=[broker-a:4]" in mqadmin.run(server.address, "updateOrderConf", "-t", "订单", "-m", "get")
