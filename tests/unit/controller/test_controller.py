"""Controllers elect masters, agree on it, and forget nothing."""

import json
from collections.abc import Callable
from random import Random

import pytest
from tests.unit.broker.controlled.cluster import CONTROLLER, Cluster, FakeController
from tests.unit.controller.controllers import Controllers

from kourou.controller.machine import SETTLE_MS, Controller
from kourou.controller.member import GROWTH_MAX, BadFileError, Image
from kourou.controller.settings import ControllerSettingError, ControllerSettings
from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers.table import Header

GROUP, CLUSTER = "broker-a", "DefaultCluster"


def ask(
    controllers: Controllers, code: int, header: Header | None = None, body: bytes = b"", to: int | None = None
) -> Command:
    answer = controllers.ask(Command(code, ext=None if header is None else header.encode(), body=body), to=to)
    assert answer is not None
    return answer


def beat(controllers: Controllers, number: int, end: int = 0, epoch: int = 1, name: str = GROUP) -> None:
    header = headers.BrokerHeartbeat(
        cluster_name=CLUSTER,
        broker_addr=f"10.0.0.{number}:10911",
        broker_name=name,
        broker_id=number,
        epoch=epoch,
        max_offset=end,
        heartbeat_timeout_millis=10_000,
    )
    for to, machine in enumerate(controllers.running):
        if machine is not None:
            controllers.ask(Command(RequestCode.BROKER_HEARTBEAT, ext=header.encode()), f"{name}-{number}", to)


def apply(controllers: Controllers, number: int, code: str = "", name: str = GROUP) -> Command:
    header = headers.ApplyBrokerId(
        cluster_name=CLUSTER, broker_name=name, applied_broker_id=number, register_check_code=code or f"code {number}"
    )
    return ask(controllers, RequestCode.CONTROLLER_APPLY_BROKER_ID, header)


def register(controllers: Controllers, number: int, name: str = GROUP) -> Command:
    header = headers.RegisterBrokerToController(
        cluster_name=CLUSTER, broker_name=name, broker_id=number, broker_address=f"10.0.0.{number}:10911"
    )
    return ask(controllers, RequestCode.CONTROLLER_REGISTER_BROKER, header)


def join(controllers: Controllers, number: int, name: str = GROUP) -> None:
    assert apply(controllers, number, name=name).code == 0
    assert register(controllers, number, name).code == 0
    beat(controllers, number, name=name)


def elect(controllers: Controllers, number: int, *, designate: bool = False) -> Command:
    header = headers.ElectMaster(cluster_name=CLUSTER, broker_name=GROUP, broker_id=number, designate_elect=designate)
    return ask(controllers, RequestCode.CONTROLLER_ELECT_MASTER, header)


def master(controllers: Controllers) -> tuple[str | None, str | None, list[int]]:
    """masterBrokerId, masterEpoch and the in-sync set."""
    answer = ask(controllers, RequestCode.CONTROLLER_GET_REPLICA_INFO, headers.GetReplicaInfo(broker_name=GROUP))
    assert answer.code == 0, answer.remark
    ext = answer.ext or {}
    return ext.get("masterBrokerId"), ext.get("masterEpoch"), bodies.SyncStateSet.decode(answer.body).sync_state_set


def alter(controllers: Controllers, members: list[int], *, by: int = 1, epoch: int = 1, set_epoch: int = 1) -> Command:
    header = headers.AlterSyncStateSet(broker_name=GROUP, master_broker_id=by, master_epoch=epoch)
    body = bodies.SyncStateSet(sync_state_set=members, sync_state_set_epoch=set_epoch).encode()
    return ask(controllers, RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, body)


def three_replicas(count: int = 1, controllers: Controllers | None = None) -> Controllers:
    controllers = controllers or Controllers(count)
    controllers.wait_for_leader()
    for number in (1, 2, 3):
        join(controllers, number)
    assert elect(controllers, 1).code == 0
    assert alter(controllers, [1, 2, 3]).code == 0
    return controllers


@pytest.mark.parametrize("count", [1, 3])
def test_ids_registration_election_and_sets(count: int) -> None:
    controllers = Controllers(count)
    controllers.wait_for_leader()
    wanted = headers.GetNextBrokerId(cluster_name=CLUSTER, broker_name=GROUP)
    assert (ask(controllers, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, wanted).ext or {})["nextBrokerId"] == "1"
    assert apply(controllers, 2).code == ResponseCode.CONTROLLER_BROKER_ID_INVALID  # of a group that is not known
    assert apply(controllers, 1).code == 0
    assert apply(controllers, 1).code == 0  # the same broker again
    assert apply(controllers, 1, "another").code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
    assert (ask(controllers, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, wanted).ext or {})["nextBrokerId"] == "2"
    assert register(controllers, 2).code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    answer = register(controllers, 1)
    assert "masterAddress" not in (answer.ext or {})
    beat(controllers, 1)
    answer = elect(controllers, 1)
    assert answer.code == 0
    assert (answer.ext or {}) == {
        "masterBrokerId": "1",
        "masterAddress": "10.0.0.1:10911",
        "masterEpoch": "1",
        "syncStateSetEpoch": "1",
    }
    assert elect(controllers, 1).code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    assert (register(controllers, 1).ext or {})["masterEpoch"] == "1"
    join(controllers, 2)
    assert alter(controllers, [1]).code == ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    assert alter(controllers, [1, 2], by=2).code == ResponseCode.CONTROLLER_INVALID_MASTER
    assert alter(controllers, [1, 2], epoch=2).code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
    assert alter(controllers, [1, 2], set_epoch=7).code == ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    assert alter(controllers, [1, 9]).code == ResponseCode.CONTROLLER_INVALID_REPLICAS
    assert apply(controllers, 3).code == 0
    assert alter(controllers, [1, 3]).code == ResponseCode.CONTROLLER_BROKER_NOT_ALIVE
    assert alter(controllers, [2]).code == ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    answer = alter(controllers, [1, 2])
    assert (answer.code, (answer.ext or {})["newSyncStateSetEpoch"]) == (0, "2")
    assert master(controllers) == ("1", "1", [1, 2])
    body = json.dumps([GROUP, "nobody"]).encode()
    table = ask(controllers, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=body).body
    found = bodies.BrokerReplicasInfo.decode(table).replicas_info_table
    assert [one.broker_id for one in found[GROUP].in_sync_replicas] == [1, 2]
    assert [(one.broker_id, one.alive) for one in found[GROUP].not_in_sync_replicas] == [(3, False)]
    assert list(found) == [GROUP]


def test_a_dead_master_is_replaced_by_the_replica_that_is_furthest() -> None:
    controllers = three_replicas()
    controllers.pass_time(SETTLE_MS)
    for number, end in ((1, 900), (2, 500), (3, 700)):
        beat(controllers, number, end)
    controllers.told.clear()
    controllers.gone(f"{GROUP}-1")
    assert master(controllers) == ("3", "2", [3])
    assert sorted(one.address for one in controllers.told) == ["10.0.0.2:10911", "10.0.0.3:10911"]
    told = headers.NotifyBrokerRoleChanged.decode(controllers.told[0].command.ext)
    assert (told.master_broker_id, told.master_epoch, told.sync_state_set_epoch) == (3, 2, 3)
    controllers.gone(f"{GROUP}-3")  # nobody else is in the set: 2 may lack messages
    assert master(controllers)[0] is None
    assert elect(controllers, 2).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    beat(controllers, 3)
    assert elect(controllers, 2).code == 0
    assert master(controllers) == ("3", "4", [3])


def test_an_administrator_allows_unclean_elections() -> None:
    """Until the controller stops: its file has the last word."""
    controllers = three_replicas()
    controllers.pass_time(SETTLE_MS)
    for number in (1, 2, 3):
        beat(controllers, number)
    assert alter(controllers, [1, 3], set_epoch=2).code == 0
    for number in (1, 3):
        controllers.gone(f"{GROUP}-{number}")
    assert elect(controllers, 2).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    assert ask(controllers, RequestCode.UPDATE_CONTROLLER_CONFIG, body=b"enableElectUncleanMaster=true\n").code == 0
    assert b"enableElectUncleanMaster=true" in ask(controllers, RequestCode.GET_CONTROLLER_CONFIG).body
    assert elect(controllers, 2).code == 0
    assert master(controllers)[0] == "2"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"controllerStorePath=/elsewhere\n", "controllerStorePath: requests change enableElectUncleanMaster and"),
        (b"enableElectUncleanMaster=true\nunknown=1\n", "unknown: requests change"),
        (b"enableElectUncleanMaster=perhaps\n", "enableElectUncleanMaster=perhaps: true or false is expected"),
        (b"enableElectUncleanMaster=\xff\n", "utf-8"),
        (b"#" * 5_000_000, "the limit is"),
    ],
    ids=["path", "unknown", "nonsense", "bytes", "long"],
)
def test_changes_of_settings_that_are_refused(body: bytes, said: str) -> None:
    controllers = three_replicas()
    answer = ask(controllers, RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert said in (answer.remark or "")
    assert b"enableElectUncleanMaster=false" in ask(controllers, RequestCode.GET_CONTROLLER_CONFIG).body


def test_a_master_that_falls_silent_is_replaced() -> None:
    controllers = three_replicas()
    for _ in range(25):
        beat(controllers, 2)
        beat(controllers, 3)
        controllers.pass_time(500)
    assert master(controllers)[0] == "2"


def test_an_administrator_designates_a_master() -> None:
    controllers = three_replicas()
    answer = elect(controllers, 2, designate=True)
    assert answer.code == 0
    members = json.loads(answer.body)["brokerMemberGroup"]  # in plain JSON
    assert members["brokerAddrs"] == {str(number): f"10.0.0.{number}:10911" for number in (1, 2, 3)}
    assert master(controllers) == ("2", "2", [2])
    assert elect(controllers, 3, designate=True).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED


def test_what_was_answered_survives_the_loss_of_the_leader_and_a_restart_of_all() -> None:
    controllers = three_replicas(3)
    first = controllers.leader
    assert first is not None
    refused = ask(
        controllers,
        RequestCode.CONTROLLER_GET_REPLICA_INFO,
        headers.GetReplicaInfo(broker_name=GROUP),
        to=(first + 1) % 3,
    )
    assert refused.code == ResponseCode.CONTROLLER_NOT_LEADER
    controllers.kill(first)
    second = controllers.wait_for_leader()
    assert second != first
    beat(controllers, 1)
    assert master(controllers) == ("1", "1", [1, 2, 3])
    assert alter(controllers, [1, 2], set_epoch=2).code == 0
    controllers.start(first)
    controllers.pass_time(2_000)
    for number in range(3):
        controllers.kill(number)
    for number in range(3):
        controllers.start(number)
    controllers.wait_for_leader()
    assert master(controllers) == ("1", "1", [1, 2])
    controllers.pass_time(SETTLE_MS)  # nobody has a heartbeat by now
    assert master(controllers) == (None, "2", [1, 2]), "a newer epoch lets Apache's brokers ask for an election"
    beat(controllers, 2)
    assert elect(controllers, 2).code == 0
    assert master(controllers) == ("2", "3", [2])


def test_a_controller_that_has_just_started_takes_no_master_for_dead() -> None:
    controllers = three_replicas()
    controllers.kill(0)
    controllers.start(0)
    controllers.wait_for_leader()
    beat(controllers, 2)
    assert elect(controllers, 2).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    beat(controllers, 1)
    controllers.pass_time(SETTLE_MS)
    beat(controllers, 2)
    assert elect(controllers, 2).code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST


def test_a_leader_that_is_cut_off_answers_nothing_that_is_not_committed() -> None:
    controllers = three_replicas(3)
    first = controllers.leader
    assert first is not None
    controllers.cut_off = {first}
    header = headers.ElectMaster(cluster_name=CLUSTER, broker_name=GROUP, broker_id=2, designate_elect=True)
    assert controllers.ask(Command(RequestCode.CONTROLLER_ELECT_MASTER, ext=header.encode()), to=first) is None
    controllers.pass_time(5_000)
    assert list(controllers.answers.values())[-1].code == ResponseCode.CONTROLLER_NOT_LEADER
    assert controllers.leader != first
    controllers.cut_off = set()
    controllers.pass_time(3_000)
    for number in (1, 2, 3):
        beat(controllers, number)
    assert master(controllers) == ("1", "1", [1, 2, 3])
    assert controllers.machine(first).member.table == controllers.machine(controllers.wait_for_leader()).member.table


def test_the_log_begins_with_a_snapshot_when_it_has_grown() -> None:
    controllers = three_replicas(3)
    lost = (controllers.wait_for_leader() + 1) % 3
    controllers.kill(lost)
    set_epoch = 2
    while controllers.machine(controllers.wait_for_leader()).member.raft.node.log.start == 0:
        assert alter(controllers, [1, 2] if set_epoch % 2 == 0 else [1, 2, 3], set_epoch=set_epoch).code == 0
        set_epoch += 1
        assert set_epoch < 10_000
    assert len(controllers.files[controllers.wait_for_leader()] or b"") < GROWTH_MAX
    controllers.start(lost)
    controllers.pass_time(3_000)
    tables = [controllers.machine(number).member.table for number in range(3)]
    assert tables[0] == tables[1] == tables[2]
    assert tables[0][GROUP].set_epoch == set_epoch


def clean(controllers: Controllers, ids: str | None = None, *, living: bool = False) -> Command:
    header = headers.CleanControllerBrokerData(
        broker_name=GROUP, cluster_name=CLUSTER, broker_controller_ids_to_clean=ids, is_clean_living_broker=living
    )
    return ask(controllers, RequestCode.CLEAN_BROKER_DATA, header)


def test_replicas_are_removed() -> None:
    controllers = three_replicas()
    assert clean(controllers, "3").code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert clean(controllers).code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert clean(controllers, "x").code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert clean(controllers, "3", living=True).code == 0
    assert master(controllers) == ("1", "1", [1, 2])
    assert clean(controllers, living=True).code == 0
    answer = ask(controllers, RequestCode.CONTROLLER_GET_REPLICA_INFO, headers.GetReplicaInfo(broker_name=GROUP))
    assert answer.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST


def test_nonsense_is_refused() -> None:
    controllers = three_replicas()
    for code in (
        *(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, RequestCode.CONTROLLER_ELECT_MASTER),
        *(
            RequestCode.CONTROLLER_REGISTER_BROKER,
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            RequestCode.CLEAN_BROKER_DATA,
        ),
        *(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, RequestCode.BROKER_HEARTBEAT, RequestCode.SEND_MESSAGE),
    ):
        answer = controllers.ask(Command(code, ext={"brokerId": "x"}, body=b"{"))
        assert answer is not None and answer.code != 0 and answer.remark, code
    assert master(controllers) == ("1", "1", [1, 2, 3])


def test_the_file_of_other_controllers_and_a_broken_one_are_refused() -> None:
    controllers = three_replicas(3)
    content = controllers.files[0]
    assert content is not None
    with pytest.raises(BadFileError, match="checksum"):
        Image.decode(content[:-1] + b"\x00")
    with pytest.raises(BadFileError, match="correct controllerDLegerPeers"):
        Controller(ControllerSettings(peers="n0-10.0.1.1:9877"), Image.decode(content), Random(1), 0)


@pytest.mark.parametrize(
    "given",
    [
        {"controllerDLegerPeers": "n0"},
        {"controllerDLegerPeers": "n0-a:1;n0-b:1"},
        {"controllerDLegerPeers": "n0-a:1", "controllerDLegerSelfId": "n1"},
        {"controllerType": "jRaft"},
        {"enableElectUncleanMaster": "perhaps"},
        {"controllerElectionTimeout": "1"},
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(ControllerSettingError):
        ControllerSettings().with_properties(given)


class OurController(FakeController):
    """A controller of ours, where the tests of brokers expect one that is made up."""

    def __init__(self) -> None:
        super().__init__()
        self.controllers = Controllers()
        self.controllers.peers = f"n0-{CONTROLLER}"
        self.controllers.start(0)
        self.controllers.wait_for_leader()

    def dies(self, broker_id: int | None) -> None:
        if self.controllers.running[0] is not None:
            self.controllers.gone(str(broker_id))

    def pass_time(self, ms: int) -> None:
        self.controllers.pass_time(ms)

    def restart(self) -> None:
        self.controllers.kill(0)
        self.controllers.start(0)
        self.controllers.wait_for_leader()

    def answer(self, command: Command) -> Command | None:
        self.controllers.pass_time(50)
        opaque = command.opaque
        answer = self.controllers.ask(command, connection=(command.ext or {}).get("brokerId"))
        group = self.controllers.machine(0).member.table.get("group")
        if group is not None:
            self.master, self.epoch, self.set_epoch = group.master, group.epoch, group.set_epoch
            self.members = set(group.in_sync)
            self.addresses = {number: replica.address for number, replica in group.replicas.items()}
        if answer is not None:
            answer.opaque = opaque
        return answer


def wait_for(cluster: Cluster, is_so: Callable[[], bool]) -> None:
    for _ in range(300):
        if is_so():
            return
        cluster.pass_time(100)
    raise AssertionError("it does not come about")


def test_our_brokers_under_our_controller() -> None:
    ours = OurController()
    cluster = Cluster(2, controller=ours, all_in_sync=True)
    wait_for(cluster, lambda: ours.members == {1, 2})
    first = cluster.master
    assert first is not None
    cluster.pass_time(4_000)
    number = cluster.id_of(first)
    cluster.kill(first)
    wait_for(cluster, lambda: ours.master not in (None, number) and cluster.master != first)
    second = cluster.master
    assert second is not None
    wait_for(cluster, lambda: cluster.broker(second).machine.settings.broker_id == 0)
    assert ours.epoch == 2


@pytest.mark.parametrize("count", [1, 2])
def test_our_brokers_and_our_controller_start_together(count: int) -> None:
    ours = OurController()
    cluster = Cluster(count, controller=ours, all_in_sync=True)
    everybody = set(range(1, count + 1))
    wait_for(cluster, lambda: ours.members == everybody)
    cluster.restart_all()
    wait_for(cluster, lambda: ours.epoch > 1 and ours.master is not None and ours.members == everybody)
    assert cluster.master is not None
    assert cluster.broker(cluster.master).settings.broker_id == 0
