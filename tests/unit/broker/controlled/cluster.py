"""A group of simulated brokers, a controller that elects as Apache's does, and a name server that knows their ports."""

from dataclasses import replace
from random import Random

from kourou.broker.events import Announced, Answered, AskBroker, Requests
from kourou.broker.settings import BrokerSettings
from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
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
from kourou.store.settings import StoreSettings
from kourou.testing.broker import SMALL_STORE, SimulatedBroker

CONTROLLER = "10.0.0.100:9878"
NAME_SERVER = "10.0.0.101:9876"


class FakeController:
    """One group. `alive` is what the test says."""

    def __init__(self) -> None:
        self.addresses: dict[int, str] = {}
        self.codes: dict[int, str] = {}
        self.alive: dict[int, tuple[int, int]] = {}  # epoch and end of the log, of the last heartbeat
        self.silence: dict[int, int] = {}  # how many milliseconds are left until the next heartbeat is too late
        self.master: int | None = None
        self.epoch = self.set_epoch = 0
        self.members: set[int] = set()
        self.is_away = False

    def answer(self, command: Command) -> Command | None:
        if self.is_away:
            return None
        ext = command.ext or {}
        match command.code:
            case RequestCode.CONTROLLER_GET_METADATA_INFO:
                return command.answer(ext={"controllerLeaderAddress": CONTROLLER, "isLeader": "true"})
            case RequestCode.CONTROLLER_GET_NEXT_BROKER_ID:
                return command.answer(ext={"nextBrokerId": str(max(self.codes, default=0) + 1)})
            case RequestCode.CONTROLLER_APPLY_BROKER_ID:
                broker_id = int(ext["appliedBrokerId"])
                if self.codes.setdefault(broker_id, ext["registerCheckCode"]) != ext["registerCheckCode"]:
                    return command.answer(ResponseCode.CONTROLLER_BROKER_ID_INVALID, "taken")
                return command.answer()
            case RequestCode.CONTROLLER_REGISTER_BROKER:
                if int(ext["brokerId"]) not in self.codes:
                    return command.answer(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "unknown")
                self.addresses[int(ext["brokerId"])] = ext["brokerAddress"]
                return self._tell(command, only_alive=True)
            case RequestCode.BROKER_HEARTBEAT:
                self.alive[int(ext["brokerId"])] = int(ext["epoch"]), int(ext["maxOffset"])
                self.silence[int(ext["brokerId"])] = int(ext["heartbeatTimeoutMills"])
                return command.answer()
            case RequestCode.CONTROLLER_ELECT_MASTER:
                if self.master is not None and self.master in self.alive:
                    return self._tell(command, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
                self.elect(int(ext["brokerId"]))
                return self._tell(
                    command, ResponseCode.SUCCESS if self.master else ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
                )
            case RequestCode.CONTROLLER_GET_REPLICA_INFO:
                return self._tell(command)
            case RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
                return self._alter(command, ext)
        raise AssertionError(command.code)

    def _tell(
        self, command: Command, code: ResponseCode = ResponseCode.SUCCESS, *, only_alive: bool = False
    ) -> Command:
        body = bodies.SyncStateSet(sync_state_set=sorted(self.members), sync_state_set_epoch=self.set_epoch).encode()
        ext = {"masterEpoch": str(self.epoch), "syncStateSetEpoch": str(self.set_epoch)}
        if self.master is not None and (self.master in self.alive or not only_alive):
            ext |= {"masterBrokerId": str(self.master), "masterAddress": self.addresses[self.master]}
        answer = command.answer(code, ext=ext)
        answer.body = body
        return answer

    def _alter(self, command: Command, ext: dict[str, str]) -> Command:
        wanted = bodies.SyncStateSet.decode(command.body)
        members = set(wanted.sync_state_set)
        refused = (
            members == self.members
            or int(ext["masterBrokerId"]) != self.master
            or int(ext["masterEpoch"]) != self.epoch
            or wanted.sync_state_set_epoch != self.set_epoch
            or self.master not in members
            or not members <= self.alive.keys()
        )
        if refused:
            return command.answer(ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "no")
        self.members, self.set_epoch = members, self.set_epoch + 1
        answer = self._tell(command)
        (answer.ext or {})["newSyncStateSetEpoch"] = str(self.set_epoch)
        return answer

    def elect(self, asker: int | None = None) -> None:
        if self.epoch == 0:
            assert asker is not None
            candidates = {asker}
        else:
            candidates = self.members & self.alive.keys()
        self.master = None
        if candidates:
            self.master = max(candidates, key=lambda one: (self.alive.get(one, (0, 0)), -one))
            self.members = {self.master}
            self.epoch += 1
            self.set_epoch += 1

    def dies(self, broker_id: int | None) -> None:
        """Its connection has closed."""
        if broker_id is not None:
            self.alive.pop(broker_id, None)
            if broker_id == self.master:
                self.elect()

    def pass_time(self, ms: int) -> None:
        """Brokers that are silent for too long are dead."""
        for broker_id in list(self.alive):
            self.silence[broker_id] -= ms
            if self.silence[broker_id] < 0:
                self.dies(broker_id)

    def restart(self) -> None:
        """It does not know which brokers are alive, but which one leads."""
        self.alive.clear()


class Cluster:
    """Brokers by number. Bytes between them are delivered by `pump`."""

    def __init__(
        self,
        count: int,
        store_settings: StoreSettings = SMALL_STORE,
        controller: FakeController | None = None,
        **settings: object,
    ) -> None:
        self.controller = controller or FakeController()
        self.store_settings = store_settings
        self.settings = [
            BrokerSettings(
                name="group",
                ip="10.0.0.1",
                ha_ip="10.0.0.1",
                port=10_911 + 10 * number,
                ha_port=10_912 + 10 * number,
                controller_mode=True,
                controllers=CONTROLLER,
                register_interval_ms=10_000,
                **settings,  # type: ignore[arg-type]
            )
            for number in range(count)
        ]
        self.brokers: list[SimulatedBroker | None] = []
        self.stopped: dict[int, SimulatedBroker] = {}
        self.links: dict[Link, tuple[int, Link, int]] = {}  # an end of a connection: who has it, and the other end
        self.registered: dict[int, dict[str, str]] = {}  # at the name server
        for number in range(count):
            self.brokers.append(None)
            self._start(number, SimulatedBroker(settings=replace(self.settings[number]), store_settings=store_settings))

    def _start(self, number: int, broker: SimulatedBroker) -> None:
        self.brokers[number] = broker
        broker.machine.registration.is_on = True

    def broker(self, number: int) -> SimulatedBroker:
        broker = self.brokers[number]
        assert broker is not None, "it does not run"
        return broker

    @property
    def living(self) -> list[int]:
        return [number for number, broker in enumerate(self.brokers) if broker is not None]

    def id_of(self, number: int) -> int | None:
        address = self.settings[number].address
        return next((one for one, at in self.controller.addresses.items() if at == address), None)

    @property
    def master(self) -> int | None:
        """The broker that leads, as the controller says."""
        return next((n for n in range(len(self.settings)) if self.id_of(n) == self.controller.master), None)

    # ── Time and bytes ────────────────────────────────────────────────────────────────────────────────────────────

    def pass_time(self, ms: int, step_ms: int = 100) -> None:
        for _ in range(0, ms, step_ms):
            for number in self.living:
                self.broker(number).tick(step_ms)
            self.controller.pass_time(step_ms)
            self.pump()

    def pump(self, rounds: int = 50, chance: Random | None = None) -> None:
        """Carry what is on its way. With `chance`, only some of it."""
        for _ in range(rounds):
            carried = [self._carry(number, chance) for number in self.living]
            if not any(carried):
                return

    def _carry(self, number: int, chance: Random | None) -> bool:
        broker = self.broker(number)
        broker.work()
        asked, broker.asked = broker.asked, []
        announced, broker.announced = broker.announced, []
        effects, broker.on_links = broker.on_links, []
        if chance is not None and chance.random() < 0.3:  # later
            broker.asked, broker.announced, broker.on_links = asked, announced, effects
            return True
        for ask in asked:
            broker.step(Answered(ask.token, self._answer(ask)))
        for command in announced:
            broker.step(Announced(NAME_SERVER, self._register(number, command), None, command.code))
        for effect in effects:
            self._perform(number, effect)
        return bool(asked or announced or effects)

    def _answer(self, ask: AskBroker) -> Command | None:
        if ask.address == CONTROLLER:
            return self.controller.answer(ask.command)
        for number in self.living:
            if self.settings[number].address == ask.address:
                broker = self.broker(number)
                client = broker.connect()
                broker.step(Requests(client.peer, [ask.command]))
                broker.work()
                return client.answers.get(ask.command.opaque)
        return None

    def _register(self, number: int, command: Command) -> Command:
        if command.code != RequestCode.REGISTER_BROKER:
            return command.answer()
        ext = dict(command.ext or {})
        self.registered[number] = ext
        master = next((one for n, one in self.registered.items() if one["brokerId"] == "0" and n != number), None)
        if ext["brokerId"] == "0":  # the newer claim wins: the epoch is in the version
            for other in list(self.registered):
                if other != number and self.registered[other]["brokerId"] == "0":
                    del self.registered[other]
            master = ext
        found = {} if master is None else {"masterAddr": master["brokerAddr"], "haServerAddr": master["haServerAddr"]}
        return command.answer(ext=headers.RegisterBrokerAnswer.decode(found).encode())

    def _perform(self, number: int, effect: Transfer | HangUp | Connect) -> None:
        match effect:
            case Connect(address):
                self._connect(number, address)
            case Transfer(link, head, data):
                if link in self.links:
                    other_number, other, _ = self.links[link]
                    self.broker(other_number).step(Received(other, head + bytes(data or b"")))
            case HangUp(link):
                self._cut(link)

    def _connect(self, number: int, address: str) -> None:
        for other in self.living:
            if self.settings[other].ha_address == address and other != number:
                ours, theirs = Link(address), Link(f"10.0.0.1:{50_000 + len(self.links)}")
                self.links[ours] = other, theirs, number
                self.links[theirs] = number, ours, other
                self.broker(other).step(Accepted(theirs))
                self.broker(number).step(Connected(ours))
                return
        self.broker(number).step(NotConnected(address, "refused"))

    def _cut(self, link: Link) -> None:
        if link not in self.links:
            return
        other_number, other, owner = self.links.pop(link)
        self.links.pop(other, None)
        if self.brokers[other_number] is not None:
            self.broker(other_number).step(Closed(other))
        if self.brokers[owner] is not None:
            self.broker(owner).step(Closed(link))

    # ── Ends ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def kill(self, number: int) -> None:
        broker, self.brokers[number] = self.broker(number), None
        self.stopped[number] = broker
        self.registered.pop(number, None)
        for link in [link for link, (_, _, owner) in self.links.items() if owner == number]:
            self._cut(link)
        self.controller.dies(self.id_of(number))

    def restart_all(self, *, power_cut: bool = False) -> None:
        """The brokers and the controller start together: no connection was closed."""
        self.controller.restart()
        for number in self.living:
            self.kill(number)
        for number in list(self.stopped):
            self.restart(number, power_cut=power_cut)

    def restart(self, number: int, *, power_cut: bool = False) -> None:
        broker = self.stopped.pop(number)
        broker.now_ms = max([broker.now_ms, *(self.broker(other).now_ms for other in self.living)])
        broker.settings = replace(self.settings[number])
        self._start(number, broker.crash() if power_cut else broker.kill())
