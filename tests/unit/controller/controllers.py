"""Controllers in memory: their messages arrive at once, their files are written when `work` is called."""

from collections.abc import Hashable
from random import Random

from kourou.controller.access import AccessSettings
from kourou.controller.events import Asked, Event, Gone, PeerLink, Reply, Save, Saved, Tell, Tick
from kourou.controller.machine import Controller
from kourou.controller.member import Image, raft_address
from kourou.controller.settings import ControllerSettings
from kourou.protocol.command import Command
from kourou.protocol.signing import Credentials
from kourou.replication.links import (
    Accepted,
    Closed,
    Connect,
    Connected,
    HangUp,
    Link,
    NotConnected,
    Received,
    Transfer,
)

STEP_MS = 50


class Controllers:
    """A group of controllers."""

    def __init__(self, count: int = 1, seed: int = 1, access: AccessSettings | None = None) -> None:
        self.random = Random(seed)
        self.access = access
        self.signs_as: Credentials | None = None
        self.peers = ";".join(f"n{number}-10.0.1.{number + 1}:9877" for number in range(count))
        self.files: list[bytes | None] = [None] * count
        self.running: list[Controller | None] = [None] * count
        self.links: dict[Link, tuple[int, Link]] = {}  # who has the other end, and that end
        self.cut_off: set[int] = set()
        self.told: list[Tell] = []
        self.answers: dict[int, Command] = {}
        self.now_ms = 1_000
        self._number = 0
        for number in range(count):
            self.start(number)

    def settings(self, number: int) -> ControllerSettings:
        return ControllerSettings(peers=self.peers, self_id=f"n{number}")

    def start(self, number: int) -> None:
        content = self.files[number]
        image = None if content is None else Image.decode(content)
        self.running[number] = Controller(self.settings(number), image, self.random, self.now_ms, self.access)

    def kill(self, number: int) -> None:
        """A file that is being written is lost."""
        self.running[number] = None
        for link, (_, end) in list(self.links.items()):
            if link in self.links and self._owner(link) == number:
                other = self.links[link][0]
                del self.links[link], self.links[end]
                self.step(other, PeerLink(Closed(end)))

    def _owner(self, link: Link) -> int:
        _, end = self.links[link]
        return self.links[end][0]

    def machine(self, number: int) -> Controller:
        machine = self.running[number]
        assert machine is not None, "it does not run"
        return machine

    @property
    def leader(self) -> int | None:
        return next((n for n, one in enumerate(self.running) if one is not None and one.member.is_leading), None)

    def step(self, number: int, *events: Event) -> None:
        machine = self.running[number]
        if machine is None:
            return
        for effect in machine.step(list(events), self.now_ms):
            match effect:
                case Reply(_, command):
                    self.answers[command.opaque] = command
                case Save(content):
                    self.files[number] = content
                    self.step(number, Saved())
                case Tell():
                    self.told.append(effect)
                case Connect(address):
                    self._connect(number, address)
                case Transfer(link, head, data):
                    if link in self.links and not self.cut_off & {number, self.links[link][0]}:
                        other, end = self.links[link]
                        self.step(other, PeerLink(Received(end, head + bytes(data or b""))))
                case HangUp(link):
                    if link in self.links:
                        other, end = self.links.pop(link)
                        self.links.pop(end, None)
                        self.step(other, PeerLink(Closed(end)))

    def _connect(self, number: int, address: str) -> None:
        for other, machine in enumerate(self.running):
            own = self.settings(other).members()[f"n{other}"]
            if raft_address(own) == address and machine is not None and not self.cut_off & {number, other}:
                ours, theirs = Link(address), Link(f"10.0.1.{number + 1}:{50_000 + len(self.links)}")
                self.links[ours], self.links[theirs] = (other, theirs), (number, ours)
                self.step(other, PeerLink(Accepted(theirs)))
                self.step(number, PeerLink(Connected(ours)))
                return
        self.step(number, PeerLink(NotConnected(address, "nobody is there")))

    def pass_time(self, ms: int) -> None:
        for _ in range(0, ms, STEP_MS):
            self.now_ms += STEP_MS
            for number in range(len(self.running)):
                self.step(number, Tick())

    def wait_for_leader(self) -> int:
        for _ in range(400):
            if self.leader is not None:
                return self.leader
            self.pass_time(STEP_MS)
        raise AssertionError("no leader")

    def ask(self, command: Command, connection: Hashable = "somebody", to: int | None = None) -> Command | None:
        """The answer of the leader, or of another controller; None: there is none."""
        self._number += 1
        command.opaque = self._number
        if self.signs_as is not None:
            self.signs_as.sign(command)
        number = self.leader if to is None else to
        if number is None:
            return None
        self.step(number, Asked(connection, command, "10.0.0.9:5"))
        return self.answers.pop(command.opaque, None)

    def gone(self, connection: Hashable) -> None:
        for number in range(len(self.running)):
            self.step(number, Gone(connection))
