"""Long work is done a slice at a time: what happens between the turns, and what is remembered after."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from kourou.nameserver import (
    backlog as backlog_module,
    limits as limits_module,
    registrar as registrar_module,
    registration,
    tables as tables_module,
)
from kourou.nameserver.events import Asked, Effect, Gone, Reply, Tick, Turn
from kourou.nameserver.machine import NameServer
from kourou.nameserver.settings import Settings
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.turns import SLICE_NS, Slices

TOPICS = [f"topic-{n}" for n in range(8)]


@pytest.fixture(autouse=True)
def a_turn_for_each_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "PIECE", 0)
    monkeypatch.setattr(registration, "SMALL", 0)
    monkeypatch.setattr(registration, "SLICE", 1)
    monkeypatch.setattr(tables_module, "IN_SLICE", 1)
    monkeypatch.setattr(registrar_module, "IN_SLICE", 1)


def a_machine(settings: Settings | None = None) -> NameServer:
    """Its clock runs so fast that a turn ends with every yield."""
    return NameServer(settings or Settings(), {}, 0, clock_ns=count(0, SLICE_NS).__next__)


@pytest.fixture
def machine() -> Iterator[NameServer]:
    made = a_machine()
    yield made
    made.check()


def register(
    topics: list[str] = TOPICS, *, queues: int = 4, counter: int = 1, opaque: int = 1, **fields: str
) -> Command:
    table = {name: {"perm": 6, "readQueueNums": queues, "topicName": name} for name in topics}
    wrapper = {"dataVersion": {"counter": counter}, "topicConfigTable": table}
    body = json.dumps({"topicConfigSerializeWrapper": wrapper}, separators=(",", ":")).encode()
    ext = {"clusterName": "C", "brokerName": "a", "brokerId": "0", "brokerAddr": "h:1", "haServerAddr": "h:2"}
    return Command(RequestCode.REGISTER_BROKER, opaque, ext=ext | fields, body=body)


def answers(effects: list[Effect]) -> list[tuple[int, int]]:
    """Opaque and code of all answers."""
    return [(effect.command.opaque, effect.command.code) for effect in effects if isinstance(effect, Reply)]


def finish(machine: NameServer) -> list[Effect]:
    effects: list[Effect] = []
    while machine.is_busy:
        machine.check()
        effects += machine.step([Turn()], 0)
    return effects


def do(machine: NameServer, command: Command, connection: str = "c") -> list[Effect]:
    return machine.step([Asked(connection, command)], 0) + finish(machine)


def route(machine: NameServer, topic: str) -> dict[str, Any] | None:
    query = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, 99, ext={"topic": topic})
    (effect,) = machine.step([Asked("client", query)], 0)
    assert isinstance(effect, Reply)
    if effect.command.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    queues: dict[str, Any] = json.loads(effect.command.body)["queueDatas"][0]
    return queues


def test_queries_are_answered_between_the_turns(machine: NameServer) -> None:
    assert machine.step([Asked("c", register())], 0) == []
    seen = [0]
    while machine.is_busy:
        effects = machine.step([Turn()], 0)
        seen.append(sum(route(machine, topic) is not None for topic in TOPICS))
        machine.check()
    assert seen == sorted(seen) and set(seen) == set(range(len(TOPICS) + 1))  # one topic after the other
    assert answers(effects) == [(1, ResponseCode.SUCCESS)]
    assert machine.step([Turn()], 0) == []  # one too many does no harm


def leave(machine: NameServer, how: str) -> list[Effect]:
    """The first turn in which the broker leaves."""
    if how == "unregistered":
        ext = {"clusterName": "C", "brokerName": "a", "brokerId": "0", "brokerAddr": "h:1"}
        return machine.step([Asked("admin", Command(RequestCode.UNREGISTER_BROKER, ext=ext))], 0)
    if how == "silent":
        return machine.step([Tick()], 120_001)
    return machine.step([Gone("c")], 0)


@pytest.mark.parametrize("how", ["unregistered", "silent", "gone"])
def test_a_broker_that_leaves_is_gone_from_all_routes_at_once(machine: NameServer, how: str) -> None:
    """Its topics are removed in slices, which is visible neither in routes nor in lists."""
    do(machine, register())
    do(machine, register(TOPICS[:4], brokerName="b", brokerAddr="i:1"), "d")
    heartbeat = {"clusterName": "C", "brokerName": "b", "brokerAddr": "i:1"}
    assert answers(machine.step([Asked("d", Command(RequestCode.BROKER_HEARTBEAT, ext=heartbeat))], 9)) == [(0, 0)]
    assert all(route(machine, topic) is not None for topic in TOPICS)  # and kept
    leave(machine, how)
    turns = 0
    while machine.is_busy:
        found = [route(machine, topic) for topic in TOPICS]
        assert [queues and queues["brokerName"] for queues in found] in (["a"] * 8, ["b"] * 4 + [None] * 4)
        machine.check()
        machine.step([Turn()], 9)
        turns += 1
    assert turns > len(TOPICS)
    assert [route(machine, topic) is not None for topic in TOPICS] == [True] * 4 + [False] * 4
    assert machine.tables.topics.keys() == set(TOPICS[:4])


def test_lists_have_no_topics_of_a_broker_that_has_left(machine: NameServer) -> None:
    do(machine, register())
    do(machine, register(TOPICS[:4], brokerName="b", brokerAddr="i:1"), "d")
    leave(machine, "gone")
    while "a" in machine.tables.brokers:
        machine.step([Turn()], 0)
    machine.turns.start("client", at_work())  # so that the list is made between two slices of the change
    codes = (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_UNIT_TOPIC_LIST)
    for code in codes:
        machine.step([Asked("client", Command(code, opaque=code))], 0)
    effects = finish(machine)
    lists = {effect.command.opaque: json.loads(effect.command.body)["topicList"] for effect in effects}  # type: ignore[union-attr]
    assert lists == {codes[0]: TOPICS[:4], codes[1]: []}


def at_work() -> Slices[None]:
    yield 0


def test_a_broker_that_comes_back_waits_until_its_topics_are_removed(machine: NameServer) -> None:
    do(machine, register())
    machine.step([Gone("c")], 0)
    machine.step([Asked("e", register(TOPICS[2:], counter=2, queues=7))], 0)
    assert answers(finish(machine)) == [(1, ResponseCode.SUCCESS)]
    assert [queues and queues["readQueueNums"] for queues in (route(machine, topic) for topic in TOPICS)] == [
        None,
        None,
        *[7] * 6,
    ]


@pytest.mark.parametrize(("code", "before", "after"), [(205, 6, 4), (327, 4, 6)])
def test_permissions_change_for_all_topics_at_once(machine: NameServer, code: int, before: int, after: int) -> None:
    do(machine, register())
    if before == 4:
        do(machine, wipe())
    machine.step([Asked("admin", Command(code, ext={"brokerName": "a"}))], 0)
    states = []
    while machine.is_busy:
        states.append(perms(machine))
        machine.check()
        machine.step([Turn()], 0)
    assert len(states) >= len(TOPICS)
    assert all(state in ([before] * 8, [after] * 8) for state in states) and states == sorted(
        states, reverse=before > after
    )
    assert perms(machine) == [after] * 8


def test_a_group_that_lost_its_master_is_read_only_at_once() -> None:
    machine = a_machine(Settings(support_acting_master=True))
    slave: dict[str, Any] = {"brokerId": "1", "brokerAddr": "s:1", "enableActingMaster": "true"}
    do(machine, register(enableActingMaster="true"))
    do(machine, register(**slave), "s")
    machine.step([Gone("c")], 0)
    while machine.is_busy:
        found = [(queues["perm"], address) for queues, address in map(queues_and_master, [machine] * 8, TOPICS)]
        assert found in ([(6, "h:1")] * 8, [(4, "s:1")] * 8)
        machine.check()
        machine.step([Turn()], 0)
    assert perms(machine) == [4] * 8


def queues_and_master(machine: NameServer, topic: str) -> tuple[dict[str, Any], str]:
    query = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, 99, version=401, ext={"topic": topic})
    (effect,) = machine.step([Asked("client", query)], 0)
    assert isinstance(effect, Reply)
    found = json.loads(effect.command.body)
    return found["queueDatas"][0], found["brokerDatas"][0]["brokerAddrs"]["0"]


def test_requests_that_waited_are_served_in_slices(machine: NameServer) -> None:
    """A connection that asked a lot while its registration was read gets no turn of its own for all of it."""
    queries = [Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, n, ext={"topic": TOPICS[0]}) for n in range(2, 50)]
    machine.step([Asked("c", command) for command in (register(), *queries)], 0)
    counts = []
    while machine.is_busy:
        counts.append(len(machine.step([Turn()], 0)))
    assert sum(counts) == 49 and max(counts) <= 2


def test_brokers_are_read_in_turn(machine: NameServer) -> None:
    machine.step([Asked("long", register(opaque=1))], 0)
    machine.step([Asked("short", register(TOPICS[:3], opaque=2, brokerName="b", brokerAddr="i:1"))], 0)
    assert [opaque for opaque, _ in answers(finish(machine))] == [2, 1]


def test_requests_of_a_connection_keep_their_order(machine: NameServer) -> None:
    gone = {"clusterName": "C", "brokerName": "a", "brokerId": "0", "brokerAddr": "h:1"}
    asked = [
        register(opaque=1),
        register(queues=5, counter=2, opaque=2),
        Command(RequestCode.UNREGISTER_BROKER, 3, ext=gone),
        Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, 4, ext={"topic": TOPICS[0]}),
    ]
    effects = machine.step([Asked("c", command) for command in asked], 0) + finish(machine)
    expected = [(1, 0), (2, 0), (3, 0), (4, int(ResponseCode.TOPIC_NOT_EXIST))]
    assert answers(effects) == expected
    assert not machine.tables.live


def test_a_lost_connection_takes_its_registration_with_it(machine: NameServer) -> None:
    machine.step([Asked("c", register()), Asked("c", register(counter=2)), Asked("d", register(opaque=7))], 0)
    assert machine.step([Gone("c")], 0) == []
    assert answers(finish(machine)) == [(7, ResponseCode.SUCCESS)]
    machine.step([Gone("d")], 0)
    finish(machine)
    assert not machine.tables.live and not machine.tables.topics


def test_a_broken_registration_is_answered_and_leaves_no_trace(machine: NameServer) -> None:
    broken = register()
    broken.body = broken.body.replace(b'"topic-7":{', b'"topic-7":{,')
    effects = machine.step([Asked("c", broken), Asked("c", register(TOPICS[:2], opaque=2))], 0) + finish(machine)
    assert answers(effects) == [(1, ResponseCode.SYSTEM_ERROR), (2, ResponseCode.SUCCESS)]
    assert machine.tables.topics.keys() == set(TOPICS[:2])


def test_what_is_too_much_to_wait_is_refused(machine: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_module, "REQUESTS_MAX", 2)
    effects = machine.step([Asked("c", register(opaque=n)) for n in range(5)], 0)
    assert answers(effects) == [(3, ResponseCode.SYSTEM_BUSY), (4, ResponseCode.SYSTEM_BUSY)]
    assert answers(finish(machine)) == [(0, 0), (1, 0), (2, 0)]
    monkeypatch.setattr(backlog_module, "SIZE_MAX", 3 * len(register().body) // 2)
    effects = machine.step([Asked(f"c{n}", register(opaque=n, queues=5, counter=2)) for n in range(3)], 0)
    assert answers(effects) == [(1, ResponseCode.SYSTEM_BUSY), (2, ResponseCode.SYSTEM_BUSY)]
    assert answers(finish(machine)) == [(0, 0)]
    assert answers(do(machine, register(opaque=5, counter=3))) == [(5, 0)]  # there is room again


# ── What is remembered ──────────────────────────────────────────────────────────────────────────────────────────────


def wipe(name: str = "a") -> Command:
    return Command(RequestCode.WIPE_WRITE_PERM_OF_BROKER, ext={"brokerName": name})


def perms(machine: NameServer) -> list[int]:
    found = [route(machine, topic) for topic in TOPICS]
    return [queues["perm"] for queues in found if queues is not None]


def test_a_topic_that_was_deleted_comes_back_with_the_same_registration(machine: NameServer) -> None:
    do(machine, register())
    do(machine, Command(RequestCode.DELETE_TOPIC_IN_NAMESRV, ext={"topic": "topic-3"}))
    assert route(machine, "topic-3") is None
    do(machine, register())
    assert route(machine, "topic-3") is not None


@pytest.mark.parametrize("repeated", [0, 1, 2])
def test_a_change_restores_all_permissions_that_were_wiped(machine: NameServer, repeated: int) -> None:
    """Repetitions leave them wiped; with a new version all topics count, not only those that are other than before."""
    do(machine, register())
    do(machine, wipe())
    for _ in range(repeated):
        do(machine, register())
    assert perms(machine) == [4] * len(TOPICS)
    do(machine, register([*TOPICS[:-1], "new"], counter=2))
    assert perms(machine) == [6] * (len(TOPICS) - 1) + [4]


def test_wiped_between_the_turns(machine: NameServer) -> None:
    """The part that was read is not enough any more: all of it is read."""
    do(machine, register())
    changed = register([*TOPICS, "x", "y", "z"], counter=2)
    assert machine.step([Asked("c", changed)], 0) == []
    machine.step([Asked("admin", wipe())], 0)
    assert sorted(answers(finish(machine))) == [(0, ResponseCode.SUCCESS), (1, ResponseCode.SUCCESS)]
    assert perms(machine) == [6] * len(TOPICS)


def test_what_another_member_of_the_group_said_is_replaced(machine: NameServer) -> None:
    """A slave that led the group, then a master with other topics; when that has left, the slave's count again."""
    slave: dict[str, Any] = {"brokerId": "1", "brokerAddr": "s:1", "enableActingMaster": "false"}
    leaves = {"clusterName": "C", "brokerName": "a", "brokerId": "0", "brokerAddr": "h:1"}
    do(machine, register(**slave))
    do(machine, register(queues=9, counter=7), "master")
    do(machine, register(**slave))
    do(machine, Command(RequestCode.UNREGISTER_BROKER, ext=leaves))
    do(machine, register([*TOPICS, "new"], counter=2, **slave))
    found = [route(machine, topic) for topic in TOPICS]
    assert [queues["readQueueNums"] for queues in found if queues is not None] == [4] * len(TOPICS)


def test_what_was_applied_for_writing_is_applied_again_read_only(machine: NameServer) -> None:
    """While no slave may stand in, its topics are applied as they are; when one may, for reading only."""
    one: dict[str, Any] = {"brokerId": "1", "brokerAddr": "s:1"}
    other: dict[str, Any] = {"brokerId": "2", "brokerAddr": "t:1", "enableActingMaster": "true"}
    do(machine, register(**one, enableActingMaster="false"))
    assert perms(machine) == [6] * len(TOPICS)
    do(machine, register(**other))
    do(machine, register([*TOPICS, "new"], counter=2, **one, enableActingMaster="true"))
    assert perms(machine) == [4] * len(TOPICS)


def test_what_is_kept_of_registrations_is_bounded(machine: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_module, "SAID_SIZE_MAX", 3 * len(register().body) // 2)
    for name in "abc":
        do(machine, register(brokerName=name, brokerAddr=f"{name}:1"))
    said = [live.said is not None for live in machine.tables.live.values()]
    assert said == [True, False, False]
    do(machine, register(queues=7, counter=2, brokerName="c", brokerAddr="c:1"))
    group = machine.tables.brokers["c"]
    assert [group.queues_of(topic).read_queue_nums for topic in TOPICS] == [7] * len(TOPICS)


def test_registrations_that_would_take_long_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "TOPICS_MAX", 5)
    for limit in ("WHOLE_MAX", "LOOSE_MAX", "DIALECT_MAX"):
        monkeypatch.setattr(registration, limit, 300)
    machine = a_machine()
    many, odd, late = register(), register(TOPICS[:5]), register(TOPICS[:5])
    odd.body = odd.body.replace(b'"topicConfigTable":{', b'"topicConfigTable": {').replace(b'"perm":6', b'"perm":"6"')
    late.body = late.body.replace(b'"topicConfigTable"', b'"x":{"$ref":"$"},"topicConfigTable"')
    for command, reason in ((many, "more than 5 topics"), (odd, "the limit is 300"), (late, "the limit is 300")):
        (effect,) = do(machine, command)
        assert isinstance(effect, Reply) and effect.command.code == ResponseCode.SYSTEM_ERROR
        assert reason in (effect.command.remark or "")
    quoted = register(TOPICS[:5])
    quoted.body = quoted.body.replace(b'"perm":6', b'"perm":"6"')  # a slow piece each, none of them too long
    assert answers(do(machine, quoted)) == [(1, ResponseCode.SUCCESS)]
