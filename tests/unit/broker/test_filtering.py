"""SQL92 filters in a broker: pulls, long polls, retries, CHECK_CLIENT_CONFIG, restarts, bit maps."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.broker.asking import GROUP, TOPIC, heartbeat, offset_of, ok, pull, request, send, send_back

from kourou.broker import filtering, sql92
from kourou.broker.settings import BrokerSettings
from kourou.protocol import bodies, headers
from kourou.protocol.bodies import SubscriptionData
from kourou.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.record import decode_records
from kourou.store import reading
from kourou.testing.broker import SMALL_STORE, SimulatedBroker, SimulatedClient

RETRY = f"%RETRY%{GROUP}"
WITH_EXTENSIONS = replace(SMALL_STORE, queue_ext_enabled=True, queue_ext_file_size=4096)
SQL = {"expression_type": "SQL92"}


@pytest.fixture
def world() -> SimulatedBroker:
    return SimulatedBroker(settings=BrokerSettings(property_filter=True))


@pytest.fixture
def client(world: SimulatedBroker) -> SimulatedClient:
    """Queue 0 of the topic has messages with n = 0 to 4; 4 has no color."""
    client = world.connect()
    for number in range(5):
        colors = {"color": "red" if number % 2 else "blue"} if number < 4 else {}
        ok(client, send(b"%d" % number, properties={"n": str(number)} | colors))
    return client


def subscription(text: str, version: int = 1, topic: str = TOPIC, kind: str = "SQL92") -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=text, expression_type=kind, sub_version=version)


def beat(text: str, version: int = 1, client_id: str = "me") -> Command:
    every = SubscriptionData(topic=RETRY, sub_string="*", sub_version=version)
    return heartbeat(client_id, group=GROUP, subscriptions=[subscription(text, version), every])


def by_heartbeat(offset: int = 0, version: int = 1, topic: str = TOPIC, wait_ms: int = 0) -> Command:
    flags = int(PullSysFlag.SUSPEND) if wait_ms else 0
    return pull(topic, offset=offset, sys_flag=flags, sub_version=version, suspend_timeout_millis=wait_ms)


def inline(text: str, offset: int = 0, **more: Any) -> Command:
    return pull(offset=offset, subscription=text, **(SQL | more))


def got(answer: Command) -> list[bytes]:
    return [bytes(message.body) for message in decode_records(answer.body)]


def next_offset(answer: Command) -> int:
    assert answer.ext is not None
    return int(answer.ext["nextBeginOffset"])


# ── Pulls ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n > 2", [b"3", b"4"]),
        ("n BETWEEN 1 AND 3 AND color = 'red'", [b"1", b"3"]),
        ("color IS NULL", [b"4"]),
        ("color <> 'red'", [b"0", b"2"]),
        ("'red' <> color", [b"0", b"2", b"4"]),
        ("UNIQ_KEY IS NOT NULL AND n > 7", []),
    ],
)
def test_a_pull_gets_what_matches(client: SimulatedClient, text: str, expected: list[bytes]) -> None:
    ok(client, beat(text))
    for answer in (client.ask(by_heartbeat()), client.ask(inline(text))):
        if expected:
            assert (answer.code, answer.remark, got(answer)) == (0, "FOUND", expected)
        else:
            assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
        assert next_offset(answer) == 5


def test_values_that_can_not_be_compared_do_not_match(client: SimulatedClient) -> None:
    assert got(ok(client, inline("color > 1 OR n = 4"))) == [b"4"], "color of 4 is null, all others are no numbers"


def test_a_group_without_a_filter(client: SimulatedClient) -> None:
    ok(client, beat("n >"))
    answer = client.ask(by_heartbeat())
    assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert (answer.remark or "").startswith(
        "The broker's consumer filter data is not exist!Your expression may be wrong! the end of the expression"
    )


def test_a_broken_expression_replaces_one_that_works(client: SimulatedClient) -> None:
    ok(client, beat("n > 2"))
    ok(client, beat("n > >", 2))
    assert client.ask(by_heartbeat(version=2)).code == ResponseCode.FILTER_DATA_NOT_EXIST


def test_an_old_filter(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, beat("n > 2", 1))
    ok(client, beat("n > 3", 2))
    found = world.machine.filters.get(TOPIC, GROUP)
    assert found is not None
    found.version = 1
    answer = client.ask(by_heartbeat(version=2))
    assert (answer.code, answer.remark) == (
        ResponseCode.FILTER_DATA_NOT_LATEST,
        "the consumer's consumer filter data not latest",
    )


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("n > >", "SQL92", "'>' at character 5: a property"),
        ("n > 1", "SQL99", "unknown expression type 'SQL99': use TAG or SQL92"),
        ("n = 1 " + "or n = 1 " * 1_000, "SQL92", "steps, the limit is 1000 (STEPS_MAX)"),
    ],
)
def test_a_broken_inline_expression_is_refused(client: SimulatedClient, text: str, kind: str, reason: str) -> None:
    """Apache delivers all messages then: see docs/differences.md."""
    answer = client.ask(inline(text, expression_type=kind))
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert (answer.remark or "").startswith("parse the consumer's subscription failed: ")
    assert reason in (answer.remark or "")


def test_an_empty_inline_expression_is_refused(client: SimulatedClient) -> None:
    assert client.ask(inline("")).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


# ── Settings ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", ["n > 2", "n > >"])
def test_by_default_a_broker_filters_by_tag_alone(world: SimulatedBroker, client: SimulatedClient, text: str) -> None:
    ok(client, beat("n > 2"))
    world.settings.property_filter = BrokerSettings().property_filter
    for command in (by_heartbeat(), inline(text), check(text)):
        answer = client.ask(command)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith("The broker does not support consumer to filter message by SQL92")
        assert "enablePropertyFilter=true" in (answer.remark or "")


def check(text: str, kind: str | None = "SQL92") -> Command:
    wanted = SubscriptionData(topic=TOPIC, sub_string=text, expression_type=kind or "TAG")
    body = bodies.CheckClientRequestBody(client_id="me", group=GROUP, subscription_data=wanted)
    return request(RequestCode.CHECK_CLIENT_CONFIG, body=body.encode())


def test_check_client_config(client: SimulatedClient) -> None:
    ok(client, check("n > 2"))
    ok(client, check("n > >", "TAG"))
    answer = client.ask(check("n > >"))
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert answer.remark == "'>' at character 5: a property, a number, a text, TRUE, FALSE or NULL is expected"
    assert client.ask(check("n > 1", "SQL99")).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


# ── How far a pull looks ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pull_stops_after_so_many_steps(client: SimulatedClient) -> None:
    costly = " or ".join(f"n = {number}" for number in range(100, 1_098))
    count = filtering.PULL_STEPS_MAX // (filtering.RECORD_STEPS + sql92.compile_expression(costly).steps)
    for _ in range(count):
        ok(client, send(properties={"n": "0"}))
    ok(client, send(b"last", properties={"n": "100"}))
    offset, answers = 0, []
    while True:
        answer = client.ask(inline(costly, offset))
        answers.append(answer.code)
        if answer.code == 0:
            break
        assert next_offset(answer) == offset + count
        offset = next_offset(answer)
    assert got(answer) == [b"last"]
    assert answers == [ResponseCode.PULL_RETRY_IMMEDIATELY, 0]


def test_in_bulk_a_pull_stops_as_well(client: SimulatedClient) -> None:
    costly = "n >= 0 and (" + " or ".join(f"n = {number}" for number in range(990)) + ")"
    count = filtering.PULL_STEPS_MAX // (filtering.RECORD_STEPS + sql92.compile_expression(costly).steps)
    for _ in range(2 * count):
        ok(client, send(properties={"n": "0"}))
    flags = int(PullSysFlag.SUBSCRIPTION | PullSysFlag.BULK)
    answer = ok(client, inline(costly, sys_flag=flags, max_msg_nums=100_000))
    assert len(got(answer)) == next_offset(answer) == count


def test_records_on_disk_are_fewer(
    world: SimulatedBroker, client: SimulatedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "COLD_RECORDS_MAX", 3)
    assert next_offset(client.ask(inline("n > 7"))) == 5
    world.store.reader.limits.memory_window = 0
    assert next_offset(client.ask(inline("n > 7"))) == 3


# ── Long polling ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_held_pull_waits_for_a_message_that_matches(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, beat("n > 7"))
    held = [client.send(command)[0] for command in (by_heartbeat(5, wait_ms=15_000), inline("n > 7", 5, **HELD))]
    ok(client, send(b"5", properties={"n": "5"}))
    assert not set(held) & client.answers.keys()
    ok(client, send(b"8", properties={"n": "8"}))
    assert [got(client.answers[number]) for number in held] == [[b"8"], [b"8"]]


HELD: dict[str, Any] = {
    "sys_flag": int(PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND),
    "suspend_timeout_millis": 15_000,
}


def test_a_held_pull_whose_messages_do_not_match_says_how_far_it_looked(
    world: SimulatedBroker, client: SimulatedClient
) -> None:
    ok(client, beat("n > 7"))
    (number,) = client.send(by_heartbeat(5, wait_ms=15_000))
    ok(client, send(properties={"n": "5"}))
    world.pass_time(5_000)
    answer = client.answers[number]
    assert (answer.code, next_offset(answer)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 6)


def test_a_held_pull_uses_the_newest_expression(client: SimulatedClient) -> None:
    ok(client, beat("n > 7"))
    (number,) = client.send(by_heartbeat(5, wait_ms=15_000))
    ok(client, beat("n = 6", 2))
    ok(client, send(b"8", properties={"n": "8"}))
    assert number not in client.answers
    ok(client, send(b"6", properties={"n": "6"}))
    assert got(client.answers[number]) == [b"6"]


@pytest.mark.parametrize("by_tag", [False, True])
def test_a_held_pull_sees_again_what_the_former_expression_excluded(client: SimulatedClient, by_tag: bool) -> None:
    ok(client, beat("n > 7"))
    (number,) = client.send(by_heartbeat(5, wait_ms=15_000))
    ok(client, send(b"6", properties={"n": "6"}))
    assert number not in client.answers
    every = SubscriptionData(topic=TOPIC, sub_string="*", sub_version=2)
    ok(client, heartbeat("me", group=GROUP, subscriptions=[every]) if by_tag else beat("n = 6", 2))
    ok(client, send(b"6 again", properties={"n": "6"}))
    assert got(client.answers[number]) == [b"6", b"6 again"]


# ── Retries ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def sent_back(world: SimulatedBroker, client: SimulatedClient) -> None:
    """Two messages come back, with n = 10 and n = 20."""
    for number in (10, 20):
        answer = ok(client, send(b"%d" % number, properties={"n": str(number)}))
        ok(client, send_back(offset_of(answer)))
    world.pass_time(11_000)


def test_retries_are_not_filtered(world: SimulatedBroker, client: SimulatedClient) -> None:
    """Clients subscribe to their retry topic by tag."""
    ok(client, beat("n > 15"))
    sent_back(world, client)
    for world.settings.filter_retries in (False, True):
        assert got(ok(client, by_heartbeat(topic=RETRY))) == [b"10", b"20"]


def test_retries_that_are_subscribed_to_by_expression(world: SimulatedBroker, client: SimulatedClient) -> None:
    wanted = [subscription("n > 15"), subscription("n < 15", topic=RETRY)]
    ok(client, heartbeat("me", group=GROUP, subscriptions=wanted))
    sent_back(world, client)
    assert got(ok(client, by_heartbeat(topic=RETRY))) == [b"10"]
    world.settings.filter_retries = True
    assert got(ok(client, by_heartbeat(topic=RETRY))) == [b"20"], "as in the topic where they come from"


# ── The registry in the broker ────────────────────────────────────────────────────────────────────────────────────────


def test_the_filter_of_a_group_that_has_left_is_dead(world: SimulatedBroker, client: SimulatedClient) -> None:
    consumer = world.connect()
    ok(consumer, beat("n > 2"))
    found = world.machine.filters.get(TOPIC, GROUP)
    assert found is not None
    seen = [found.is_dead]
    consumer.close()
    seen.append(found.is_dead)
    again = world.connect()
    ok(again, beat("n > 2"))
    seen.append(found.is_dead)
    header = headers.UnregisterClient(client_id="me", consumer_group=GROUP)
    ok(again, request(RequestCode.UNREGISTER_CLIENT, header))
    assert [*seen, found.is_dead] == [False, True, False, True]


def test_the_file_of_filters_survives_a_restart(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, beat("n > 2", 7))
    client.close()
    world.pass_time(11_000)
    for restart in (world.crash, world.stop):
        world = restart()
        found = world.machine.filters.get(TOPIC, GROUP)
        assert found is not None and found.is_dead and (found.text, found.version) == ("n > 2", 7)
    consumer = world.connect()
    ok(consumer, beat("n > 2", 8))
    assert got(ok(consumer, by_heartbeat(version=8))) == [b"3", b"4"]


def test_a_heartbeat_with_many_expressions_runs_in_slices() -> None:
    time_ns = 0

    def clock_ns() -> int:
        nonlocal time_ns
        time_ns += 1_000_000
        return time_ns

    world = SimulatedBroker(settings=BrokerSettings(property_filter=True), clock_ns=clock_ns)
    client = world.connect()
    text = " or ".join(f"n = {number}" for number in range(900))
    wanted = [subscription(text, topic=f"topic-{number}") for number in range(20)]
    (number,) = client.send(heartbeat("me", group=GROUP, subscriptions=wanted))
    assert number not in client.answers
    assert world.take_turns() > 2
    assert client.answers[number].code == 0
    assert all(world.machine.filters.get(f"topic-{number}", GROUP) for number in range(20))


# ── Bit maps ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("with_bit_map", [True, False])
@pytest.mark.parametrize("with_lane", [True, False])
def test_pulls_with_extensions_of_queues(with_bit_map: bool, with_lane: bool) -> None:
    settings = BrokerSettings(property_filter=True, filter_bit_map=with_bit_map)
    world = SimulatedBroker(settings=settings, store_settings=WITH_EXTENSIONS, lane=with_lane)
    client = world.connect()
    ok(client, send(b"before", properties={"n": "9"}))
    ok(client, beat("n > 2"))
    world.pass_time(10)
    unique = {"UNIQ_KEY": "0" * 32}
    for number in range(5):
        ok(client, send(b"%d" % number, properties={"n": str(number)} | unique))
    assert got(ok(client, by_heartbeat())) == [b"before", b"3", b"4"]
    read = reads(world, by_heartbeat, client)
    assert read == ([b"9", b"3", b"4"] if with_bit_map else [b"9", b"0", b"1", b"2", b"3", b"4"])
    world = world.kill()
    client = world.connect()
    ok(client, beat("n > 2"))
    assert got(ok(client, by_heartbeat())) == [b"before", b"3", b"4"]


def reads(world: SimulatedBroker, command: Callable[[], Command], client: SimulatedClient) -> list[bytes]:
    """The values of n in the records that a pull evaluates."""
    evaluated = []
    properties_of = filtering._properties

    def note(record: memoryview) -> dict[str, str]:
        found = properties_of(record)
        evaluated.append(found["n"].encode())
        return found

    filtering._properties = note
    try:
        ok(client, command())
    finally:
        filtering._properties = properties_of
    return evaluated


def test_a_unit_is_as_large_as_apaches() -> None:
    settings = BrokerSettings(property_filter=True, filter_bit_map=True)
    world = SimulatedBroker(settings=settings, store_settings=WITH_EXTENSIONS)
    client = world.connect()
    ok(client, send(b"1"))
    ok(client, beat("n > 2"))
    world.pass_time(10)
    ok(client, send(b"2", properties={"n": "3"}))
    queue = world.store.queues.get(TOPIC, 0)
    assert queue is not None
    units = [world.store.queues.extensions.unit(queue, queue.entry(number)[2]) for number in range(2)]
    assert [unit is not None and unit.size for unit in units] == [20, 34]


def test_entries_of_a_queue_show_filters_and_bit_maps() -> None:
    """As Apache's broker was seen to answer, for the same messages and filter."""
    settings = BrokerSettings(property_filter=True, filter_bit_map=True)
    world = SimulatedBroker(settings=settings, store_settings=WITH_EXTENSIONS)
    client = world.connect()
    ok(client, send(properties={"n": "1", "TAGS": "a"}, topic="SqT"))
    wanted = subscription("n > 2", 7, topic="SqT")
    ok(client, heartbeat("me", group="cg_sql", subscriptions=[wanted], message_model="BROADCASTING"))
    born_ms = world.now_ms
    world.pass_time(10)
    ok(client, send(properties={"n": "3", "TAGS": "a"}, topic="SqT"))
    ok(client, send(properties={"n": "1"}, topic="SqT"))
    header = headers.QueryConsumeQueue(topic="SqT", queue_id=0, index=0, count=10, consumer_group="cg_sql")
    answer = ok(client, request(RequestCode.QUERY_CONSUME_QUEUE, header))
    shown = bodies.QueryConsumeQueueResponseBody.decode(answer.body)
    assert (shown.filter_data or "").replace(str(born_ms), "BORN") == (
        '{\n\t"bloomFilterData":{\n\t\t"bitNum":112,\n\t\t"bitPos":[41,4,64]\n\t},\n\t"bornTime":BORN,\n'
        '\t"clientVersion":7,\n\t"consumerGroup":"cg_sql",\n\t"dead":false,\n\t"deadTime":0,\n'
        '\t"expression":"n > 2",\n\t"expressionType":"SQL92",\n\t"topic":"SqT"\n}'
    )
    assert shown.queue_data is not None
    before, passes, other = shown.queue_data
    assert [entry.eval for entry in shown.queue_data] == [True, True, False]
    assert [entry.tags_code for entry in shown.queue_data] == [97, 97, 0]
    assert before.bit_map is None
    assert before.extend_data_json == f'{{"msgStoreTime":{born_ms},"size":20,"tagsCode":97}}'
    assert passes.bit_map == (
        "000000000000000000000000000000000000000000000001\n"
        "0000000000000000000000100000000000000000000000000000000000010000\n"
    )
    assert '"filterBitMap":[16,0,0,0,0,2,0,0,1,0,0,0,0,0],' in (passes.extend_data_json or "")
    assert (other.bit_map or "").strip("0\n") == ""
