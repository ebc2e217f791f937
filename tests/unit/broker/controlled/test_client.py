"""What a broker says to its controllers, and what it makes of their answers."""

from collections.abc import Callable
from typing import Any

import pytest

from kourou.broker.controlled.client import (
    RESIGN_PERIODS,
    RETRY_MS,
    ControllerClient,
    ControllerSettings,
    Master,
    Standing,
)
from kourou.broker.controlled.identity import Identity
from kourou.broker.events import AskBroker, Outbox
from kourou.protocol.codes import RequestCode, ResponseCode

ONE, TWO = "10.0.0.1:9878", "10.0.0.2:9878"
KNOWN = Identity("DefaultCluster", "broker-a", 2)


class World:
    """A client, and what it has asked."""

    def __init__(self, identity: Identity | None = KNOWN, addresses: tuple[str, ...] = (ONE, TWO)) -> None:
        self.outbox = Outbox()
        self.kept: list[Identity] = []
        self.masters: list[Master] = []
        self.impossible: set[int] = set()  # epochs in which this broker can't lead
        self.now_ms = 1_000
        self.is_full = False
        self.client = ControllerClient(
            ControllerSettings(addresses=list(addresses)),
            self.outbox,
            self,
            identity,
            lambda: Standing("10.0.0.9:10911", 3, 500, 400),
            self.take_master,
        )

    def take_master(self, master: Master, _now_ms: int) -> bool:
        self.masters.append(master)
        return master.epoch not in self.impossible

    def keep(self, identity: Identity) -> None:
        if self.is_full:
            raise OSError(28, "no space left")
        self.kept.append(identity)

    def step(self, ms: int = 0) -> list[AskBroker]:
        self.now_ms += ms
        self.client.step(self.now_ms)
        return [effect for effect in self.outbox.take() if isinstance(effect, AskBroker)]

    def ask(self, code: RequestCode, ms: int = 0) -> AskBroker:
        """The one request that is made now, heartbeats not counted."""
        (asked,) = [one for one in self.step(ms) if one.command.code != RequestCode.BROKER_HEARTBEAT]
        assert asked.command.code == code
        return asked

    def answer(self, ask: AskBroker, code: int = 0, **ext: str) -> None:
        self.outbox.answered(ask.token, ask.command.answer(code, ext=ext), self.now_ms)

    def fail(self, ask: AskBroker) -> None:
        self.outbox.answered(ask.token, None, self.now_ms)

    def find_leader(self, ms: int = 0, leader: str = ONE) -> None:
        self.answer(self.ask(RequestCode.CONTROLLER_GET_METADATA_INFO, ms), controllerLeaderAddress=leader)

    def register(self) -> None:
        self.find_leader()
        self.answer(
            self.ask(RequestCode.CONTROLLER_REGISTER_BROKER), masterBrokerId="1", masterAddress="m:1", masterEpoch="7"
        )


def test_a_known_broker_registers_and_learns_its_master() -> None:
    world = World()
    world.register()
    assert world.masters == [Master(1, "m:1", 7, frozenset(), 0)]
    beats = world.outbox.take()
    assert sorted(beat.address for beat in beats if isinstance(beat, AskBroker)) == [ONE, TWO]
    ext = beats[0].command.ext or {}  # type: ignore[union-attr]
    assert (ext["brokerId"], ext["maxOffset"], ext["confirmOffset"], ext["epoch"]) == ("2", "500", "400", "3")


def test_the_other_controller_is_asked_if_one_does_not_answer() -> None:
    world = World()
    first = world.ask(RequestCode.CONTROLLER_GET_METADATA_INFO)
    world.fail(first)
    assert world.step() == []
    second = world.ask(RequestCode.CONTROLLER_GET_METADATA_INFO, RETRY_MS)
    assert {first.address, second.address} == {ONE, TWO}


@pytest.mark.parametrize("lose", [World.fail, lambda w, ask: w.answer(ask, ResponseCode.CONTROLLER_NOT_LEADER)])
def test_a_leader_that_is_lost_is_sought_again(lose: Callable[[World, AskBroker], None]) -> None:
    world = World()
    world.find_leader()
    lose(world, world.ask(RequestCode.CONTROLLER_REGISTER_BROKER))
    world.find_leader(RETRY_MS, leader=TWO)
    assert world.ask(RequestCode.CONTROLLER_REGISTER_BROKER).address == TWO


def test_an_id_is_written_before_it_is_applied_for() -> None:
    world = World(identity=None)
    world.find_leader()
    world.is_full = True
    world.answer(world.ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID), nextBrokerId="5")
    world.is_full = False
    world.answer(world.ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, RETRY_MS), nextBrokerId="5")
    (applied,) = world.kept
    assert (applied.broker_id, applied.check_code) == (5, "10.0.0.9:10911;2000")
    world.answer(world.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID))
    assert world.kept[-1] == Identity("DefaultCluster", "broker-a", 5)
    assert world.client.broker_id == 5


def test_an_id_that_another_broker_got_is_given_up() -> None:
    world = World(identity=KNOWN._replace(check_code="x;1"))
    world.find_leader()
    world.answer(world.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID), ResponseCode.CONTROLLER_BROKER_ID_INVALID)
    world.ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, RETRY_MS)


def test_a_controller_that_has_forgotten_the_broker_is_told_of_it_again() -> None:
    world = World()
    world.find_leader()
    ask = world.ask(RequestCode.CONTROLLER_REGISTER_BROKER)
    world.answer(ask, ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED)
    again = world.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, RETRY_MS)
    assert (again.command.ext or {})["appliedBrokerId"] == "2"


def test_an_election_is_asked_for_only_while_there_is_no_master() -> None:
    world = World()
    world.find_leader()
    world.answer(world.ask(RequestCode.CONTROLLER_REGISTER_BROKER))
    elect = world.ask(RequestCode.CONTROLLER_ELECT_MASTER, RETRY_MS)
    world.answer(
        elect, ResponseCode.CONTROLLER_MASTER_STILL_EXIST, masterBrokerId="1", masterAddress="m:1", masterEpoch="7"
    )
    assert len(world.masters) == 1
    assert world.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, 5_000)


def test_a_notice_makes_it_ask_at_once() -> None:
    world = World()
    world.register()
    world.step()
    world.client.master_changed(world.now_ms)
    world.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO)


def test_a_controller_that_is_silent_gets_no_second_heartbeat() -> None:
    world = World()
    world.register()
    beats = [one for one in world.outbox.take() if isinstance(one, AskBroker)]
    world.fail(next(beat for beat in beats if beat.address == ONE))
    for _ in range(3):
        again = [one for one in world.step(1_000) if one.command.code == RequestCode.BROKER_HEARTBEAT]
        assert [one.address for one in again] in ([ONE], [])
        for beat in again:
            world.fail(beat)


@pytest.mark.parametrize("ext", [{"masterEpoch": "seven"}, {"masterBrokerId": "x", "masterAddress": "m:1"}])
def test_an_answer_that_makes_no_sense_is_asked_for_again(ext: dict[str, str]) -> None:
    world = World()
    world.find_leader()
    world.answer(world.ask(RequestCode.CONTROLLER_REGISTER_BROKER), 0, **ext)
    assert world.masters == []
    world.ask(RequestCode.CONTROLLER_REGISTER_BROKER, RETRY_MS)


@pytest.mark.parametrize("content", [b"", b"a#b", b"a#b#c", b"a#b#0", b"a#b#1#c#d", b"\xff#b#1"])
def test_identities_that_make_no_sense(content: bytes) -> None:
    with pytest.raises(ValueError):
        Identity.decode(content)


def test_identities_are_those_of_apache() -> None:
    assert KNOWN.encode() == b"DefaultCluster#broker-a#2"
    applied = KNOWN._replace(check_code="10.0.0.9:10911;17")
    assert Identity.decode(applied.encode()) == applied


def test_a_broker_that_resigns_is_silent_until_the_controllers_have_noticed() -> None:
    world = World()
    world.impossible = {7}
    world.register()
    beats = world.step()
    assert [(one.command.ext or {})["heartbeatTimeoutMills"] for one in beats] == ["10000", "10000", "1", "1"]
    for beat in beats:
        world.answer(beat)
    me: dict[str, Any] = {"masterBrokerId": "2", "masterAddress": "m:1"}
    for _ in range(5):
        world.answer(world.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, RETRY_MS), masterEpoch="7", **me)
        assert world.step() == []
    world.answer(world.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, RETRY_MS))
    beats = world.step()
    assert [(one.command.ext or {})["heartbeatTimeoutMills"] for one in beats] == ["10000", "10000"]
    for beat in beats:
        world.answer(beat)
    world.answer(world.ask(RequestCode.CONTROLLER_ELECT_MASTER, RETRY_MS), masterEpoch="8", **me)
    assert world.masters[-1].epoch == 8


def test_a_broker_whose_resignation_is_not_noticed_registers_again() -> None:
    world = World()
    world.impossible = {7}
    world.register()
    world.step()
    alive_ms = ControllerSettings().alive_ms
    asked: list[int] = []
    for _ in range(RESIGN_PERIODS * alive_ms // RETRY_MS + 2):
        for one in world.step(RETRY_MS):
            asked.append(one.command.code)
            me: dict[str, Any] = {"masterBrokerId": "2", "masterAddress": "m:1", "masterEpoch": "7"}
            world.answer(one, controllerLeaderAddress=ONE, **me)
    assert asked.index(RequestCode.CONTROLLER_REGISTER_BROKER) < len(asked)
    before = asked[: asked.index(RequestCode.CONTROLLER_REGISTER_BROKER)]
    assert RequestCode.CONTROLLER_GET_REPLICA_INFO in before
    assert RequestCode.BROKER_HEARTBEAT not in before
