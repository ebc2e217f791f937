"""Kourou's brokers under Apache's controller, and the reverse: masters are elected, nothing acknowledged is lost."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_for

from .both import masked
from .mqadmin import MqAdmin
from .servers import CLUSTER, ApacheController, KourouController
from .test_replication import GROUP, PATIENCE_S, Broker, Pair, Start, log_of, span, wait_equal_logs
from .wire import ROUTE, Connection
from .worlds import needed

pytestmark = pytest.mark.interop

SYNC_STATE, EPOCHS, ELECT = 1006, 1007, 1002


class Controlled(Pair):
    """A group whose master a controller elects."""

    def __init__(
        self, home: Path, at_end: ExitStack, kind: type[ApacheController | KourouController] = ApacheController
    ) -> None:
        super().__init__(home, at_end)
        with needed():
            self.controller = kind(home / "controller")
        at_end.callback(self.controller.kill)
        self.at_end = at_end.callback
        self.settings = {
            "enableControllerMode": "true",
            "controllerAddr": self.controller.address,
            "allAckInSyncStateSet": "true",
            "inSyncReplicas": 2,
            "registerNameServerPeriod": 10_000,
        }

    def replicas(self) -> dict[str, Any]:
        """The group as the controller knows it."""
        with Connection(self.controller.address) as connection:
            answer = connection.ask(SYNC_STATE, {}, body=json.dumps([GROUP]).encode())
            found: dict[str, Any] = answer.json()["replicasInfoTable"].get(GROUP, {})
            return found

    def master(self) -> str | None:
        address: str | None = self.replicas().get("masterAddress")
        return address

    def in_sync(self) -> set[str]:
        return {replica["brokerAddress"] for replica in self.replicas().get("inSyncReplicas", [])}

    def wait_in_sync(self, *brokers: Broker) -> None:
        wait_for("the in-sync set", lambda: self.in_sync() == {one.address for one in brokers}, PATIENCE_S)

    def wait_master(self, broker: Broker) -> None:
        """Until the controller and the name server name this broker: clients ask for routes every 30 seconds only."""
        wait_for("the election", lambda: self.master() == broker.address, PATIENCE_S)
        wait_for("its registration", lambda: self._routed() == broker.address, PATIENCE_S)

    def _routed(self) -> str | None:
        with Connection(self.name_server.address) as connection:
            route = connection.ask(ROUTE, {"topic": GROUP}).json()
        addresses: dict[str, str] = route["brokerDatas"][0]["brokerAddrs"] if route else {}
        return addresses.get("0")

    def assert_all_there(self, *brokers: Broker) -> None:
        """Whatever was acknowledged is in the log of each broker."""
        for broker in brokers:
            content = log_of(broker, span(broker)[1])
            missing = [key for key, body in self.sent.items() if body not in content]
            assert not missing, f"{broker.address} lacks {missing[:5]} of {len(missing)}"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Controlled]:
    with ExitStack() as at_end:
        yield Controlled(tmp_path, at_end)


def epochs(broker: Broker) -> list[tuple[int, int]]:
    with Connection(broker.address) as connection:
        return [(one["epoch"], one["startOffset"]) for one in connection.ask(EPOCHS, {}).json()["epochList"]]


def test_two_of_ours_survive_the_loss_of_either(world: Controlled) -> None:
    one = world.ours("one", **world.settings)
    world.wait_master(one)
    two = world.ours("two", **world.settings)
    world.wait_in_sync(one, two)
    world.send(300)
    wait_equal_logs(one, two)
    assert epochs(one) == epochs(two) == [(1, 0)]
    one.kill()
    world.wait_master(two)
    world.send(300)
    one.restart()
    world.wait_in_sync(one, two)
    wait_equal_logs(two, one)
    assert epochs(one) == epochs(two)
    assert [number for number, _ in epochs(one)] == [1, 2]
    two.kill()
    world.wait_master(one)
    world.send(50)
    two.restart()
    world.wait_in_sync(one, two)
    wait_equal_logs(one, two)
    world.assert_all_there(one, two)


@pytest.mark.parametrize("leader", ["ours", "apaches"])
def test_ours_and_apaches_follow_each_other(world: Controlled, leader: str) -> None:
    starts: list[Start] = [partial(world.ours, "ours"), partial(world.apaches, "apaches")]
    first, second = starts if leader == "ours" else reversed(starts)
    one = first(**world.settings)
    world.wait_master(one)
    two = second(**world.settings)
    world.wait_in_sync(one, two)
    world.send(100)
    wait_equal_logs(one, two)
    one.kill()
    world.wait_master(two)
    world.send(100)
    one.restart()
    world.wait_in_sync(one, two)
    wait_equal_logs(two, one)
    world.assert_all_there(one, two)


def test_mqadmin_sees_and_changes_the_group(world: Controlled) -> None:
    one = world.ours("one", **world.settings)
    world.wait_master(one)
    two = world.ours("two", **world.settings)
    world.wait_in_sync(one, two)
    world.send(20)
    with needed():
        admin = MqAdmin(world.home / "mqadmin")
    world.at_end(admin.stop)
    name_server = world.name_server.address
    shown = admin.run(name_server, "getSyncStateSet", "-a", world.controller.address, "-b", GROUP)
    assert one.address in shown
    assert two.address in shown
    shown = admin.run(name_server, "getBrokerEpoch", "-b", GROUP)
    assert "epoch=1, startOffset=0" in shown, shown
    words = ("-a", world.controller.address, "-b", "2", "-bn", GROUP, "-c", CLUSTER)
    admin.run(name_server, "electMaster", *words)
    world.wait_master(two)
    world.send(20)
    world.wait_in_sync(one, two)
    wait_equal_logs(two, one)
    world.assert_all_there(one, two)


@pytest.fixture
def under_ours(tmp_path: Path) -> Iterator[Controlled]:
    with ExitStack() as at_end:
        yield Controlled(tmp_path, at_end, KourouController)


def test_apaches_brokers_under_our_controller(under_ours: Controlled) -> None:
    world = under_ours
    one = world.apaches("one", **world.settings)
    world.wait_master(one)
    two = world.apaches("two", **world.settings)
    world.wait_in_sync(one, two)
    world.send(50)
    world.controller.kill()
    world.controller.restart()
    world.wait_in_sync(one, two)
    one.kill()
    world.wait_master(two)
    world.send(50)
    one.restart()
    world.wait_in_sync(one, two)
    wait_equal_logs(two, one)
    with needed():
        admin = MqAdmin(world.home / "mqadmin")
    world.at_end(admin.stop)
    name_server, controller = world.name_server.address, world.controller.address
    shown = admin.run(name_server, "getControllerMetaData", "-a", controller)
    assert controller in shown and "n0" in shown, shown
    shown = admin.run(name_server, "getSyncStateSet", "-a", controller, "-b", GROUP)
    assert one.address in shown and two.address in shown, shown
    assert "enableElectUncleanMaster" in admin.run(name_server, "getControllerConfig", "-a", controller)
    admin.run(name_server, "electMaster", "-a", controller, "-b", "1", "-bn", GROUP, "-c", CLUSTER)
    world.wait_master(one)
    world.wait_in_sync(one, two)
    world.send(20)
    world.assert_all_there(one, two)


# ── mqadmin ─────────────────────────────────────────────────────────────────────────────────────────────────────────

ON, BROKERS = ("-a", "CONTROLLER"), ("-bn", GROUP, "-c", CLUSTER)
COMMANDS = {
    "getSyncStateSet",
    "getControllerMetaData",
    "getControllerConfig",
    "updateControllerConfig",
    "electMaster",
    "cleanBrokerMetadata",
}
SETTINGS = re.compile(r"^(controllerDLeger(Group|SelfId)|enableElectUncleanMaster|notifyBrokerRoleChanged)")


class Controllers:
    """Apache's controller and ours, each with two of our brokers, and mqadmin."""

    def __init__(self, home: Path, at_end: ExitStack) -> None:
        self.worlds = [Controlled(home / kind.__name__, at_end, kind) for kind in (ApacheController, KourouController)]
        with needed():
            self.admin = MqAdmin(home / "mqadmin")
        at_end.callback(self.admin.stop)
        self.brokers: list[list[Broker]] = []
        for world in self.worlds:
            one = world.ours("one", **world.settings)
            world.wait_master(one)
            self.brokers.append([one, world.ours("two", **world.settings)])
        self.wait_in_sync()

    def wait_in_sync(self) -> None:
        for world, brokers in zip(self.worlds, self.brokers, strict=True):
            world.wait_in_sync(*brokers)

    def texts(self, command: str, *arguments: str) -> list[str]:
        """The output with each controller."""
        found = []
        for world, brokers in zip(self.worlds, self.brokers, strict=True):
            controller = world.controller.address
            words = [word.replace("CONTROLLER", controller) for word in arguments]
            text = self.admin.run(world.name_server.address, command, *words).replace(controller, "CONTROLLER")
            for number, broker in enumerate(brokers, 1):
                text = text.replace(broker.address, f"BROKER-{number}")
            found.append(masked(text))
        return found

    def run(self, command: str, *arguments: str, lines: re.Pattern[str] | None = None) -> str:
        """The output with both controllers."""
        texts = self.texts(command, *arguments)
        if lines is not None:
            texts = ["\n".join(sorted(filter(lines.search, text.splitlines()))) for text in texts]
        assert texts[1] == texts[0], f"{command} prints with Apache's controller:\n{texts[0]}\nwith ours:\n{texts[1]}"
        return texts[0]


def test_mqadmin_prints_the_same_of_both_controllers(tmp_path: Path) -> None:
    with ExitStack() as at_end:
        both = Controllers(tmp_path, at_end)
        assert "n0" in both.run("getControllerMetaData", *ON)
        assert "BROKER-2" in both.run("getSyncStateSet", *ON, "-b", GROUP)
        assert "enableElectUncleanMaster" in both.run("getControllerConfig", *ON, lines=SETTINGS)
        changed = both.run("updateControllerConfig", *ON, "-k", "enableElectUncleanMaster", "-v", "true")
        assert "success" in changed
        assert both.run("getControllerConfig", *ON, lines=SETTINGS).count("true") == 2
        apaches, ours = both.texts("electMaster", *ON, "-b", "2", *BROKERS)
        assert "not support unquoted name" in apaches, "Apache's controller answers with what mqadmin does not read"
        assert "#BrokerMasterAddr BROKER-2" in ours
        for world, (_, two) in zip(both.worlds, both.brokers, strict=True):
            world.wait_master(two)
        both.wait_in_sync()
        both.run("getSyncStateSet", *ON, "-b", GROUP)
        for world, (one, two) in zip(both.worlds, both.brokers, strict=True):
            one.kill()
            world.wait_in_sync(two)
        wait_for("the death of the first", lambda: "success" in _cleaned(both), PATIENCE_S)
        assert "BROKER-1" not in both.run("getSyncStateSet", *ON, "-b", GROUP)


def _cleaned(both: Controllers) -> str:
    """A controller that hears of a dead broker by its silence refuses to forget it until then."""
    texts = both.texts("cleanBrokerMetadata", *ON, "-b", "1", *BROKERS)
    return texts[0] if texts[0] == texts[1] else ""
