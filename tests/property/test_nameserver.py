"""The name server's tables against a naive model, over random lives of a few brokers.

Three see the same events: the machine, which works in slices as small as they come; a twin of it that does all work at
once and reads every registration in full, never comparing it with the one before; and `Model`, which keeps plain rows
and works out each answer from all of them. After every step all three must agree on every answer, and the machine's
invariants hold. Every topic is a piece of its own here, and every piece takes a turn, so that registrations of three
topics go the way of those with thousands.
"""

import json
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from kourou.nameserver import registrar as registrar_module, registration, tables as tables_module
from kourou.nameserver.events import (
    Asked,
    Close,
    Effect,
    Event,
    Gone,
    Kept,
    Reply,
    Saved,
    Tell,
    Tick,
    Turn,
)
from kourou.nameserver.groups import Memory, Registered
from kourou.nameserver.machine import NameServer
from kourou.nameserver.registrar import Registrar
from kourou.nameserver.registration import Reading
from kourou.nameserver.settings import Settings
from kourou.nameserver.tables import Tables
from kourou.protocol import fastjson, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.turns import SLICE_NS, Slices

GROUPS = ["a", "b"]
USUAL = [("C", "a", 0, "h1:1"), ("C", "a", 1, "h2:1"), ("C", "a", 2, "h3:1"), ("C", "b", 0, "h4:1")]
ADDRESSES = ["h1:1", "h2:1", "h3:1", "h4:1"]
TOPICS = ["t1", "t2", "t3"]
CONNECTIONS = ["x", "y", "z"]
READ_WRITE, WRITE = 6, 2


@dataclass(frozen=True)
class Registration:
    """A broker's registration: its data and its topics."""

    cluster: str
    group: str
    broker_id: int
    address: str
    acting: bool | None
    zone: str | None
    timeout_ms: int | None
    state: int
    counter: int
    topics: dict[str, tuple[int, int]]  # name -> queues, permission
    filters: tuple[str, ...]

    def command(self) -> Command:
        ext = {
            "clusterName": self.cluster,
            "brokerName": self.group,
            "brokerId": str(self.broker_id),
            "brokerAddr": self.address,
            "haServerAddr": f"ha-{self.address}",
            "enableActingMaster": None if self.acting is None else str(self.acting).lower(),
            "heartbeatTimeoutMillis": None if self.timeout_ms is None else str(self.timeout_ms),
            "__ZONE_NAME": self.zone,
        }
        table = {
            name: {"topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": perm}
            for name, (queues, perm) in self.topics.items()
        }
        version = {"stateVersion": self.state, "counter": self.counter, "timestamp": 7}
        wrapper = {"dataVersion": version, "topicConfigTable": table}
        body = {"filterServerList": self.filters, "topicConfigSerializeWrapper": wrapper}
        text = json.dumps(body, separators=(",", ":"))
        known = {key: value for key, value in ext.items() if value is not None}
        return Command(RequestCode.REGISTER_BROKER, ext=known, body=text.encode())


# ── The model ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Alive:
    """A row of the brokers that are alive."""

    groups: set[str]
    seen_ms: int
    timeout_ms: int
    version: tuple[int, int]
    connection: Hashable


@dataclass
class Model:
    """Rows, and questions to all of them. Nothing is kept that can be worked out."""

    acting_supported: bool
    deletes_unnamed: bool
    notifies: bool
    members: dict[tuple[str, int], str] = field(default_factory=dict)  # (group, id) -> address
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    in_cluster: set[tuple[str, str]] = field(default_factory=set)  # (cluster, group)
    queues: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)  # (topic, group) -> queues, permission
    alive: dict[tuple[str, str], Alive] = field(default_factory=dict)  # (cluster, address)
    filters: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def ids(self, group: str) -> list[int]:
        return sorted(broker_id for name, broker_id in self.members if name == group)

    def register(self, said: Registration, connection: Hashable, now_ms: int) -> tuple[bool, dict[str, str], set[Any]]:
        """Was it accepted? The header fields of the answer, and the notices to brokers."""
        key, place = (said.cluster, said.address), (said.group, said.broker_id)
        holder = self.members.get(place)
        if holder is None and len(said.topics) == 1:
            return False, {}, set()
        rival = self.alive.get((said.cluster, holder)) if holder not in (None, said.address) else None
        if rival is not None and rival.version[0] > said.state:
            self.leave([(key, None)])
            return True, {}, set()
        ids_before = self.ids(said.group)
        self.groups.setdefault(said.group, {"cluster": said.cluster})
        self.groups[said.group].update(acting=bool(said.acting), zone=said.zone)
        self.in_cluster.add((said.cluster, said.group))
        for other in [p for p, address in self.members.items() if p[0] == said.group and address == said.address]:
            del self.members[other]
        self.members[place] = said.address
        smallest = self.ids(said.group)[0]
        before = self.alive.get(key)
        if said.broker_id == 0 or (said.acting is not None and said.broker_id == smallest):
            news = holder is None or before is None or before.version != (said.state, said.counter)
            self.apply_topics(said, news)
        self.alive[key] = Alive(
            groups=(before.groups if before else set()) | {said.group},
            seen_ms=now_ms,
            timeout_ms=120_000 if said.timeout_ms is None else said.timeout_ms,
            version=(said.state, said.counter),
            connection=connection,
        )
        self.filters[key] = said.filters
        master = self.members.get((said.group, 0))
        fields = {}
        if said.broker_id != 0 and master is not None and (said.cluster, master) in self.alive:
            fields = {"masterAddr": master, "haServerAddr": f"ha-{master}"}
        told = set()
        if ids_before and said.broker_id < ids_before[0] and self.notifies:
            others = self.ids(said.group)[1:] or [said.broker_id]
            told = {(self.members[said.group, i], said.broker_id, said.address, None) for i in others}
        return True, fields, told

    def apply_topics(self, said: Registration, news: bool) -> None:
        if self.deletes_unnamed:
            for topic, group in list(self.queues):
                if group == said.group and topic not in said.topics:
                    del self.queues[topic, group]
        for topic, (queues, perm) in said.topics.items():
            if news or (topic, said.group) not in self.queues:
                read_only = said.broker_id != 0 and said.acting
                self.queues[topic, said.group] = (queues, perm & ~WRITE if read_only else perm)

    def leave(self, leaving: list[tuple[tuple[str, str], str | None]]) -> set[Any]:
        """Members leave their groups. Returns the notices to brokers."""
        lost: dict[str, str] = {}
        touched = set()
        for key, said in leaving:
            self.filters.pop(key, None)
            row = self.alive.pop(key, None)
            for group in (row.groups if row else set()) | ({said} if said else set()):
                if group == said and group in self.groups:
                    touched.add(group)
                places = [place for place, address in self.members.items() if place[0] == group and address == key[1]]
                for place in places:
                    touched.add(group)
                    if place[1] == self.ids(group)[0]:
                        lost[group] = key[1]
                    del self.members[place]
        told = set()
        for group in touched:
            ids = self.ids(group)
            if not ids:
                del self.groups[group]
                self.in_cluster = {row for row in self.in_cluster if row[1] != group}
                self.queues = {row: queues for row, queues in self.queues.items() if row[1] != group}
            elif self.groups[group]["acting"]:
                if ids[0] > 0:
                    self.change_perms(group, wipe=True)
                if group in lost and self.notifies:
                    told |= {(self.members[group, i], ids[0], self.members[group, ids[0]], lost[group]) for i in ids}
        return told

    def change_perms(self, group: str, *, wipe: bool) -> int:
        rows = [row for row in self.queues if row[1] == group]
        for row in rows:
            queues, perm = self.queues[row]
            self.queues[row] = (queues, perm & ~WRITE if wipe else READ_WRITE)
        return len(rows)

    def route(self, topic: str) -> dict[str, Any] | None:
        rows = {group: row for (name, group), row in self.queues.items() if name == topic}
        if not rows:
            return None
        return {
            "queueDatas": {group: (queues, queues, perm) for group, (queues, perm) in rows.items()},
            "brokerDatas": {group: self.broker_data(group, rows[group][1]) for group in rows},
            "filterServerTable": {
                address: list(self.filters[self.groups[group]["cluster"], address])
                for (group, _), address in self.members.items()
                if group in rows and self.filters.get((self.groups[group]["cluster"], address))
            },
        }

    def broker_data(self, group: str, perm: int = WRITE) -> dict[str, Any]:
        addresses = {str(i): self.members[group, i] for i in self.ids(group)}
        acting = self.groups[group]["acting"]
        if self.acting_supported and acting and "0" not in addresses and not perm & WRITE:
            addresses["0"] = addresses.pop(min(addresses))
        return {"addresses": addresses, "acting": acting, "zone": self.groups[group]["zone"]}


# ── The machine and its twin ────────────────────────────────────────────────────────────────────────────────────────


class ThoroughRegistrar(Registrar):
    """Remembers nothing of what brokers said before, so that all of it is read and applied again."""

    def memory(self, *_: object) -> Memory:
        return Memory()


class CountingRegistrar(Registrar):
    """Knows in which ways registrations came."""

    def __init__(self, tables: Tables, ways: Counter[str]) -> None:
        super().__init__(tables)
        self._ways = ways

    def renew(self, header: headers.RegisterBroker, connection: Hashable, now_ms: int) -> Registered:
        self._ways["renewed"] += 1
        return super().renew(header, connection, now_ms)

    def register(self, header: headers.RegisterBroker, reading: Reading, **rest: Any) -> Slices[Registered]:
        self._ways["merged" if reading.is_partial else "in full"] += 1
        return super().register(header, reading, **rest)


def shown(route: dict[str, Any]) -> dict[str, Any]:
    """A route as the model has it: the order of brokers has no meaning."""
    return {
        "queueDatas": {
            queue["brokerName"]: (queue["readQueueNums"], queue["writeQueueNums"], queue["perm"])
            for queue in route["queueDatas"]
        },
        "brokerDatas": {
            broker["brokerName"]: {
                "addresses": {str(broker_id): address for broker_id, address in broker["brokerAddrs"].items()},
                "acting": broker["enableActingMaster"],
                "zone": broker.get("zoneName"),
            }
            for broker in route["brokerDatas"]
        },
        "filterServerTable": route["filterServerTable"],
    }


anybody = st.tuples(
    st.sampled_from(["C", "D"]), st.sampled_from(GROUPS), st.sampled_from([0, 1, 2]), st.sampled_from(ADDRESSES)
)
TABLES: list[dict[str, tuple[int, int]]] = [
    {"t1": (4, 6), "t2": (4, 6)},
    {"t1": (4, 6), "t2": (4, 6), "t3": (4, 4)},
    {"t1": (4, 6), "t2": (8, 6), "t3": (4, 4)},
    {"t2": (8, 6), "t3": (8, 6)},
    {"t1": (8, 6)},
    {},
]


@st.composite
def registrations(draw: st.DrawFn) -> Registration:
    """Mostly of the usual members. Few values, so that lives cross each other."""
    cluster, group, broker_id, address = draw(st.one_of(st.sampled_from(USUAL), st.sampled_from(USUAL), anybody))
    return Registration(
        cluster=cluster,
        group=group,
        broker_id=broker_id,
        address=address,
        acting=draw(st.sampled_from([True, True, None, False])),
        zone=draw(st.sampled_from([None, None, "east"])),
        timeout_ms=draw(st.sampled_from([None, None, 50_000])),
        state=draw(st.sampled_from([0, 0, 1])),
        counter=draw(st.integers(0, 1)),
        topics=draw(st.sampled_from(TABLES)),
        filters=draw(st.sampled_from([(), (), (), ("f:1",)])),
    )


CHANGES: list[dict[str, Any]] = [
    {"broker_id": 0},
    {"broker_id": 1, "address": "h2:1"},
    {"broker_id": 2, "address": "h3:1"},
    {"zone": "east"},
    {"acting": False},
    {"counter": 1},
    {"topics": TABLES[1]},
    {"counter": 2, "topics": TABLES[1]},
    {"counter": 3, "topics": TABLES[2]},
]

rarely = st.sampled_from([False, False, False, True])


def to_its_end(machine: NameServer, event: Event, now_ms: int) -> list[Effect]:
    """All that follows from an event, in all turns that it takes."""
    effects = machine.step([event], now_ms)
    while machine.is_busy:
        machine.check()
        effects += machine.step([Turn()], now_ms)
    return effects


WAYS: Counter[str] = Counter()


class Life(RuleBasedStateMachine):
    """Random events, told to all three."""

    said = Bundle("said")

    @initialize(acting=st.booleans(), deletes=rarely, notifies=st.booleans())
    def start(self, acting: bool, deletes: bool, notifies: bool) -> None:
        settings = Settings(
            support_acting_master=acting,
            delete_topic_with_broker_registration=deletes,
            notify_min_broker_id_changed=notifies,
        )
        self.now_ms = 0
        self.machine = NameServer(settings, {}, 0, clock_ns=count(0, SLICE_NS).__next__)  # a turn for each yield
        self.twin = NameServer(settings, {}, 0)
        self.machine.brokers.registrar = CountingRegistrar(self.machine.tables, WAYS)
        self.twin.brokers.registrar = ThoroughRegistrar(self.twin.tables)
        self.model = Model(acting, deletes, notifies)

    def step(self, event: Event) -> list[Effect]:
        effects = to_its_end(self.machine, event, self.now_ms)
        assert to_its_end(self.twin, event, self.now_ms) == effects
        return effects

    def ask(self, command: Command, connection: str = "client") -> tuple[Command, set[Any]]:
        """The answer, and the notices to brokers."""
        *others, last = self.step(Asked(connection, command))
        assert isinstance(last, Reply) and last.connection == connection
        return last.command, told(others)

    # ── Brokers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def tell(self, what: Registration, connection: str) -> Registration:
        accepted, fields, expected = self.model.register(what, connection, self.now_ms)
        answer, messages = self.ask(what.command(), connection)
        assert answer.code == (ResponseCode.SUCCESS if accepted else ResponseCode.SYSTEM_ERROR)
        assert (answer.ext or {}) == fields
        assert messages == expected
        return what

    @rule(target=said, what=registrations(), connection=st.sampled_from(CONNECTIONS))
    def register(self, what: Registration, connection: str) -> Registration:
        return self.tell(what, connection)

    @rule(what=said, connection=st.sampled_from(CONNECTIONS))
    def repeat(self, what: Registration, connection: str) -> None:
        self.tell(what, connection)

    @rule(target=said, what=said, change=st.sampled_from(CHANGES), connection=st.sampled_from(CONNECTIONS))
    def register_a_little_differently(
        self, what: Registration, change: dict[str, Any], connection: str
    ) -> Registration:
        return self.tell(replace(what, **change), connection)

    @rule(first=said, second=said, connection=st.sampled_from(CONNECTIONS))
    def repeat_in_turn(self, first: Registration, second: Registration, connection: str) -> None:
        """As brokers do every 30 seconds: a change by one must not be treated as unchanged for the other."""
        for what in (first, second, first):
            self.tell(what, connection)
            self.all_agree()

    @rule(
        what=said,
        work=st.lists(st.tuples(st.sampled_from(TABLES[:4]), st.integers(0, 3), rarely), min_size=2, max_size=4),
    )
    def change_topics(self, what: Registration, work: list[tuple[Any, int, bool]]) -> None:
        """As a broker does whose topics are created and changed; sometimes its permissions are wiped."""
        for topics, counter, wiped in work:
            self.tell(replace(what, topics=topics, counter=counter), "x")
            self.all_agree()
            if wiped:
                self.change_perms(what.group, wipe=True)

    @rule(what=said, group=st.sampled_from([None, *GROUPS]))
    def unregister(self, what: Registration, group: str | None) -> None:
        ext = {"clusterName": what.cluster, "brokerName": group or what.group, "brokerId": "0"}
        expected = self.model.leave([((what.cluster, what.address), group or what.group)])
        _, messages = self.ask(Command(RequestCode.UNREGISTER_BROKER, ext={**ext, "brokerAddr": what.address}))
        assert messages == expected

    @rule(what=said)
    def heartbeat(self, what: Registration) -> None:
        row = self.model.alive.get((what.cluster, what.address))
        if row is not None:
            row.seen_ms = self.now_ms
        ext = {"clusterName": what.cluster, "brokerName": what.group, "brokerAddr": what.address}
        self.ask(Command(RequestCode.BROKER_HEARTBEAT, ext=ext))

    @rule(connection=st.sampled_from(CONNECTIONS))
    def close(self, connection: str) -> None:
        gone = [(key, None) for key, row in self.model.alive.items() if row.connection == connection]
        expected = self.model.leave([*gone])
        assert told(self.step(Gone(connection))) == expected

    @rule(seconds=st.sampled_from([1, 30, 51, 121]))
    def time_passes(self, seconds: int) -> None:
        self.now_ms += seconds * 1000
        silent = [(key, row) for key, row in self.model.alive.items() if row.seen_ms + row.timeout_ms < self.now_ms]
        expected = self.model.leave([(key, None) for key, _ in silent])
        effects = self.step(Tick())
        closed = [effect.connection for effect in effects if isinstance(effect, Close)]
        assert closed == [row.connection for _, row in silent]
        assert told(effects[len(closed) :]) == expected

    # ── Administration ────────────────────────────────────────────────────────────────────────────────────────────

    @rule(group=st.sampled_from(GROUPS), wipe=st.booleans())
    def change_perms(self, group: str, wipe: bool) -> None:
        code = RequestCode.WIPE_WRITE_PERM_OF_BROKER if wipe else RequestCode.ADD_WRITE_PERM_OF_BROKER
        answer, _ = self.ask(Command(code, ext={"brokerName": group}))
        (count,) = (answer.ext or {}).values()
        assert int(count) == self.model.change_perms(group, wipe=wipe)

    @rule(topic=st.sampled_from(TOPICS), cluster=st.sampled_from([None, "C", "D"]))
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        for row in list(self.model.queues):
            if row[0] == topic and (cluster is None or (cluster, row[1]) in self.model.in_cluster):
                del self.model.queues[row]
        ext = {"topic": topic} if cluster is None else {"topic": topic, "clusterName": cluster}
        self.ask(Command(RequestCode.DELETE_TOPIC_IN_NAMESRV, ext=ext))

    @rule(topic=st.sampled_from(TOPICS), groups=st.lists(st.sampled_from(GROUPS), unique=True), perm=st.integers(0, 7))
    def add_topic(self, topic: str, groups: list[str], perm: int) -> None:
        if all(group in self.model.groups for group in groups):
            self.model.queues.update({(topic, group): (9, perm) for group in groups})
        queues = [{"brokerName": name, "readQueueNums": 9, "writeQueueNums": 9, "perm": perm} for name in groups]
        body = json.dumps({"queueDatas": queues}).encode()
        self.ask(Command(RequestCode.REGISTER_TOPIC_IN_NAMESRV, ext={"topic": topic}, body=body))

    @rule(deletes=rarely, acting=st.booleans())
    def change_settings(self, deletes: bool, acting: bool) -> None:
        self.model.deletes_unnamed, self.model.acting_supported = deletes, acting
        text = f"deleteTopicWithBrokerRegistration={deletes}\nsupportActingMaster={acting}".encode()
        effects = self.step(Asked("admin", Command(RequestCode.UPDATE_NAMESRV_CONFIG, body=text)))
        for effect in effects:
            if not isinstance(effect, Reply):
                self.step(Saved(Kept.SETTINGS, effect.version))  # type: ignore[union-attr]

    # ── What holds ────────────────────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def all_agree(self) -> None:
        for topic in TOPICS:
            expected = self.model.route(topic)
            for version in (400, 401):
                command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, version=version, ext={"topic": topic})
                answer, _ = self.ask(command)
                if expected is None:
                    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
                else:
                    assert shown(fastjson.loads(answer.body)) == expected
        answer, _ = self.ask(Command(RequestCode.GET_BROKER_CLUSTER_INFO))
        info = fastjson.loads(answer.body)
        assert {(cluster, name) for cluster, names in info["clusterAddrTable"].items() for name in names} == (
            self.model.in_cluster
        )
        assert {name: broker["cluster"] for name, broker in info["brokerAddrTable"].items()} == {
            name: group["cluster"] for name, group in self.model.groups.items()
        }
        assert {
            (name, broker_id): address
            for name, broker in info["brokerAddrTable"].items()
            for broker_id, address in broker["brokerAddrs"].items()
        } == self.model.members
        assert {tuple(member): live.version.counter for member, live in self.machine.tables.live.items()} == {
            member: row.version[1] for member, row in self.model.alive.items()
        }
        self.machine.check()


def told(effects: list[Effect]) -> set[Any]:
    """Of notices to brokers: the receiver, the smallest id, its address, and the member that left."""
    found = set()
    for effect in effects:
        assert isinstance(effect, Tell)
        ext = effect.command.ext or {}
        message = int(ext["minBrokerId"]), ext["minBrokerAddr"], ext.get("offlineBrokerAddr")
        assert (effect.address, *message) not in found
        found.add((effect.address, *message))
    return found


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "PIECE", 0)
    monkeypatch.setattr(registration, "SMALL", 0)
    monkeypatch.setattr(registration, "SLICE", 128)
    monkeypatch.setattr(tables_module, "IN_SLICE", 1)
    monkeypatch.setattr(registrar_module, "IN_SLICE", 1)


@pytest.mark.slow
def test_all_three_agree_over_random_lives() -> None:
    WAYS.clear()
    settings = hypothesis_settings(max_examples=150, stateful_step_count=30, deadline=None)
    run_state_machine_as_test(Life, settings=settings)
    assert min(WAYS["renewed"], WAYS["merged"], WAYS["in full"]) > 5, WAYS  # none of the ways was left out
