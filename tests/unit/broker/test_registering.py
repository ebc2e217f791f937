"""How a broker tells the name servers of its topics: whole, in parts or compressed, and what happens when it fails."""

import logging

import pytest
from tests.unit.broker.asking import ok

from kourou.broker import registration
from kourou.broker.events import Announced
from kourou.broker.settings import BrokerSettings
from kourou.nameserver.events import Asked, Reply, Turn
from kourou.nameserver.machine import NameServer
from kourou.nameserver.settings import Settings
from kourou.protocol import frame
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.testing.broker import SimulatedBroker

ADDRESS = "127.0.0.1:9876"


class Desk:
    """A broker, and a name server that reads its registrations."""

    def __init__(self, topics: int = 0, **settings: object) -> None:
        self.world = SimulatedBroker(settings=BrokerSettings(**settings))  # type: ignore[arg-type]
        self.name_server = NameServer(Settings(), {}, 0)
        if topics:
            many = [TopicConfig(topic_name=f"topic-{number:06d}") for number in range(topics)]
            self.world.machine.topics.put_all(many, self.world.now_ms)
        self.world.machine.registration.is_on = True
        self.refuse: str | None = None
        self.sent: list[Command] = []

    def register(self) -> None:
        """Time for the next registration, and its answers."""
        self.world.pass_time(30_000)
        commands, self.world.announced = self.world.announced, []
        for command in commands:
            self.sent.append(command)
            answer = self._answer(command)
            self.world.step(Announced(ADDRESS, answer, None, command.code))

    def _answer(self, command: Command) -> Command:
        if self.refuse is not None and command.code == RequestCode.REGISTER_BROKER:
            return command.answer(ResponseCode.SYSTEM_ERROR, self.refuse)
        assert len(frame.encode(command)) <= frame.FRAME_SIZE_MAX
        effects = self.name_server.step([Asked("broker", command)], self.world.now_ms)
        while self.name_server.is_busy:
            effects += self.name_server.step([Turn()], self.world.now_ms)
        self.name_server.check()
        (answer,) = (effect.command for effect in effects if isinstance(effect, Reply))
        return answer

    @property
    def known(self) -> set[str]:
        return {name for name in self.name_server.tables.topics if name.startswith("topic-")}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("split", [False, True])
def test_all_topics_are_known(compressed: bool, split: bool) -> None:
    desk = Desk(2_500, register_compressed=compressed, register_split=split)
    desk.register()
    assert len(desk.known) == 2_500
    parts = sum(command.code == RequestCode.REGISTER_BROKER for command in desk.sent)
    assert parts == (4 if split else 1)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_changed_topic_of_any_part_is_applied(compressed: bool) -> None:
    """A name server takes no notice of a topic that it knows unless the version is a new one."""
    desk = Desk(2_500, register_split=True, register_compressed=compressed)
    desk.register()
    changed = TopicConfig(topic_name="topic-002400", read_queue_nums=3)
    desk.world.machine.topics.put(changed, desk.world.now_ms)
    desk.world.machine.topics.changed.clear()
    desk.register()
    assert desk.name_server.tables.brokers["broker-a"].queues_of("topic-002400").read_queue_nums == 3


def test_a_registration_is_split_before_no_frame_holds_it() -> None:
    desk = Desk(100_000)
    desk.register()
    assert len(desk.known) == 100_000
    assert len([command for command in desk.sent if command.code == RequestCode.REGISTER_BROKER]) > 1


def test_a_registration_is_whole_while_a_frame_holds_it() -> None:
    desk = Desk(20_000)
    desk.register()
    (only,) = desk.sent
    assert len(only.body) < registration.PART_MAX


def test_a_failed_registration_says_why_and_the_last_good_one_stays_alive(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(10)
    desk.register()
    desk.refuse = "more than 1000000 topics, the limit"
    for _ in range(10):  # more than the two minutes after which a silent broker is dropped
        desk.register()
        desk.name_server.step([], desk.world.now_ms)
    assert len(desk.known) == 10
    beats = [command for command in desk.sent if command.code == RequestCode.BROKER_HEARTBEAT]
    assert len(beats) >= 9
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    said = f"registration failed and will be retried name_server={ADDRESS}: code 1: more than 1000000 topics, the limit"
    assert errors == [said], "once for each cause"
    desk.refuse = None
    desk.register()
    assert len(desk.known) == 10


def test_no_answer_is_said_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    desk.world.step(Announced(ADDRESS, None, "a frame of 21000000 bytes; the limit is 16777216"))
    assert "will be retried name_server=127.0.0.1:9876: a frame of 21000000 bytes" in caplog.text


def test_registrations_have_the_permissions_of_the_broker() -> None:
    desk = Desk(10)
    ok(desk.world.connect(), Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4"))
    desk.register()
    assert desk.name_server.tables.brokers["broker-a"].queues_of("topic-000001").perm == 4
