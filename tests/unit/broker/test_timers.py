"""Timers: at the exact time, once, and nothing lost."""

import errno
import math
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.broker.asking import TOPIC, bodies_of, messages, ok, request, send

from kourou.broker.settings import BrokerSettings
from kourou.broker.timers import handles, service
from kourou.protocol import headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.store.settings import FlushMode
from kourou.store.timers.layout import TimerCheckpoint
from kourou.testing.broker import BEGIN_MS, ROOT, SMALL_STORE, SimulatedBroker, SimulatedClient
from kourou.testing.disk_parts import Call

TIMER = "rmq_sys_wheel_timer"
SYNC = replace(SMALL_STORE, flush_mode=FlushMode.SYNC)
WITH_RECALL = BrokerSettings(recall=True)


def at(world: SimulatedBroker, delay_ms: int) -> dict[str, str]:
    return {"TIMER_DELIVER_MS": str(world.now_ms + world.skew_ms + delay_ms)}


def send_timed(client: SimulatedClient, body: bytes, delay_ms: int, **more: str) -> Command:
    return ok(client, send(body, properties={"TIMER_DELAY_MS": str(delay_ms), **more}))


def times(world: SimulatedBroker) -> list[tuple[bytes, int]]:
    return [(bytes(message.body), message.stored_ms - BEGIN_MS) for message in messages(world)]


def wait_for(world: SimulatedBroker, count: int) -> list[bytes]:
    """Until so many are delivered, for a minute at most."""
    for _ in range(600):
        found = bodies_of(world)
        if len(found) >= count:
            return found
        world.pass_time(100)
    raise AssertionError(f"{bodies_of(world)}: {count} are expected")


# ── On time ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("delay_ms", [1, 2, 999, 1_000, 1_001, 1_500, 2_000, 61_234, 3_000_017, 3_600_001, 9_000_000])
@pytest.mark.parametrize("name", ["TIMER_DELIVER_MS", "TIMER_DELAY_MS"])
def test_delivered_to_the_millisecond(name: str, delay_ms: int) -> None:
    world = SimulatedBroker()
    client = world.connect()
    world.pass_time(37)
    given = delay_ms + (world.now_ms if name == "TIMER_DELIVER_MS" else 0)
    ok(client, send(b"later", properties={name: str(given)}))
    world.pass_time(delay_ms - 1)
    assert not messages(world)
    world.pass_time(1)
    assert times(world) == [(b"later", 37 + delay_ms)]
    world.pass_time(5_000)
    assert len(messages(world)) == 1


def test_seconds() -> None:
    world = SimulatedBroker()
    ok(world.connect(), send(b"later", properties={"TIMER_DELAY_SEC": "3", "TIMER_DELAY_MS": "1"}))
    world.pass_time(10_000)
    assert times(world) == [(b"later", 3_000)]


@pytest.mark.parametrize("store", [SMALL_STORE, SYNC])
def test_many_in_any_order(store: object) -> None:
    world = SimulatedBroker(store_settings=store)  # type: ignore[arg-type]
    client = world.connect()
    delays = [(number * 7919) % 5_003 + 10 for number in range(400)]
    for delay_ms in delays:
        send_timed(client, str(delay_ms).encode(), delay_ms)
    world.pass_time(6_000)
    assert times(world) == [(str(delay_ms).encode(), delay_ms) for delay_ms in sorted(delays)]
    assert world.machine.timers.pending == 0
    assert world.machine.timers.counts.waiting[TOPIC].count == 0


def test_messages_of_one_millisecond_keep_their_order() -> None:
    world = SimulatedBroker()
    client = world.connect()
    for number in range(300):
        ok(client, send(b"%d" % number, properties={"TIMER_DELIVER_MS": str(BEGIN_MS + 5_500)}))
        world.pass_time(17)
    world.pass_time(3_000)
    assert bodies_of(world) == [b"%d" % number for number in range(300)]


def test_the_broker_sleeps_while_nothing_waits() -> None:
    world = SimulatedBroker()
    client = world.connect()
    send_timed(client, b"later", 1_500)
    world.pass_time(20_000)
    assert world.machine.timers.due_ms(world.now_ms) is None
    world.pass_time(3 * 3_600_000)  # longer than the wheel
    send_timed(client, b"again", 20)
    world.pass_time(20)
    assert bodies_of(world) == [b"later", b"again"]


def test_a_time_that_has_passed_is_now() -> None:
    world = SimulatedBroker()
    answer = ok(world.connect(), send(b"now", properties=at(world, 0)))
    assert bodies_of(world) == [b"now"]
    assert "recallHandle" not in (answer.ext or {})
    assert "TIMER_OUT_MS" not in messages(world)[0].properties


def test_what_is_stored_and_delivered() -> None:
    world = SimulatedBroker()
    client = world.connect()
    world.pass_time(300)
    send_timed(client, b"later", 2_000, KEYS="k", UNIQ_KEY="u")
    (waiting,) = messages(world, TIMER)
    assert waiting.properties["TIMER_OUT_MS"] == str(BEGIN_MS + 2_000)
    assert (waiting.properties["REAL_TOPIC"], waiting.properties["REAL_QID"]) == (TOPIC, "0")
    world.pass_time(3_000)
    (delivered,) = messages(world)
    added = {"TIMER_ENQUEUE_MS": str(BEGIN_MS), "TIMER_DEQUEUE_MS": str(BEGIN_MS + 2_300)}
    assert delivered.properties == waiting.properties | added
    assert (delivered.born_ms, delivered.born_host) == (waiting.born_ms, waiting.born_host)


def test_precision_of_the_wheel() -> None:
    world = SimulatedBroker(store_settings=replace(SMALL_STORE, timer_precision_ms=100))
    client = world.connect()
    for delay_ms in (1_250, 100, 99, 101, 1_200, 1_201, 1_300):
        send_timed(client, b"%d" % delay_ms, delay_ms)
    world.pass_time(3_000)
    assert [ms for _, ms in times(world)] == [99, 100, 101, 1_200, 1_201, 1_250, 1_300]
    assert messages(world)[2].properties["TIMER_OUT_MS"] == str(BEGIN_MS + 100)


@pytest.mark.parametrize("delay_s", [120, 130, 150, 200, 1_000, 4_000])
def test_rolling(delay_s: int) -> None:
    world = SimulatedBroker(settings=BrokerSettings(timer_roll_slots=60))
    client = world.connect()
    world.pass_time(123)
    send_timed(client, b"later", delay_s * 1000 + 4)
    world.pass_time(delay_s * 1000 + 3)
    assert not messages(world)
    world = world.crash()
    world.pass_time(1)
    assert times(world) == [(b"later", 123 + delay_s * 1000 + 4)]
    copies = messages(world, TIMER)
    assert [copy.properties.get("TIMER_ROLL_TIMES") for copy in copies][:3] == [None, "1", "2"][: len(copies)]
    assert len(copies) >= delay_s // 60
    world.pass_time(200_000)
    assert len(messages(world)) == 1


def test_the_clock_is_set_back_and_forward() -> None:
    world = SimulatedBroker()
    client = world.connect()
    send_timed(client, b"one", 1_000)
    world.pass_time(1_000)
    world.set_clock(-3_600_000)
    send_timed(client, b"two", 1_000)
    world.pass_time(900)
    assert bodies_of(world) == [b"one"]
    world.pass_time(200)
    assert bodies_of(world) == [b"one", b"two"]
    world.set_clock(2 * 3_600_000)
    send_timed(client, b"three", 10_000)
    world.pass_time(9_999)
    assert bodies_of(world) == [b"one", b"two"]
    world.set_clock(100)
    world.pass_time(1)
    assert bodies_of(world) == [b"one", b"two", b"three"]


# ── Refusals ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELIVER_MS": "soon"},
        {"TIMER_DELIVER_MS": str(2**63)},
        {"TIMER_DELIVER_MS": str(10**30)},
        {"TIMER_DELIVER_MS": "9" * 5_000},
        {"TIMER_DELIVER_MS": f"{BEGIN_MS}.5"},
        {"TIMER_DELIVER_MS": "1_800_000_000_000"},
        {"TIMER_DELAY_MS": " 5 "},
        {"TIMER_DELAY_MS": "+5"},
        {"TIMER_DELAY_MS": "\u0665"},
        {"TIMER_DELAY_SEC": str(2**62)},
        {"TIMER_DELAY_MS": "1s"},
        {"TIMER_DELAY_SEC": "259201"},
        {"TIMER_DELAY_MS": "259200001"},
        {"TIMER_DELIVER_MS": str(BEGIN_MS + 259_200_001)},
        {"TIMER_DELIVER_MS": str(BEGIN_MS), "TIMER_DEL_UNIQKEY": "k"},
    ],
)
def test_illegal(properties: dict[str, str]) -> None:
    world = SimulatedBroker()
    assert world.connect().ask(send(properties=properties)).code == ResponseCode.MESSAGE_ILLEGAL
    assert not messages(world)
    assert not messages(world, TIMER)


@pytest.mark.parametrize("time", ["0", "-1", str(-(2**63)), str(BEGIN_MS), str(BEGIN_MS - 1)])
def test_times_at_the_edge_of_the_past(time: str) -> None:
    """Now and before: delivered at once."""
    world = SimulatedBroker()
    ok(world.connect(), send(b"now", properties={"TIMER_DELIVER_MS": time}))
    assert bodies_of(world) == [b"now"]
    assert not messages(world, TIMER)


def test_clients_may_not_write_the_timer_topic() -> None:
    """Its messages say where and when they are delivered."""
    world = SimulatedBroker()
    client = world.connect()
    send_timed(client, b"later", 1_000)
    forged = {"TIMER_OUT_MS": str(BEGIN_MS), "REAL_TOPIC": "secrets", "REAL_QID": "0"}
    for properties in ({}, forged, {"TIMER_DELAY_MS": "5"}):
        assert client.ask(send(topic=TIMER, properties=properties)).code == ResponseCode.NO_PERMISSION
    assert len(messages(world, TIMER)) == 1


def test_a_topic_that_is_deleted_while_messages_for_it_wait() -> None:
    world = SimulatedBroker()
    client = world.connect()
    ok(client, send(b"here", topic="doomed"))
    ok(client, send(b"later", topic="doomed", properties={"TIMER_DELAY_MS": "2000"}))
    send_timed(client, b"other", 2_500)
    ok(client, request(RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopicInBroker(topic="doomed")))
    world.pass_time(5_000)
    assert bodies_of(world) == [b"other"]
    assert world.machine.timers.pending == 0
    assert world.machine.faults == 0
    world = world.kill()
    world.pass_time(5_000)
    assert bodies_of(world) == [b"other"]
    assert world.machine.faults == 0


def test_the_longest_delay() -> None:
    world = SimulatedBroker()
    ok(world.connect(), send(properties={"TIMER_DELAY_SEC": "259200"}))
    assert len(messages(world, TIMER)) == 1


def test_turned_off() -> None:
    world = SimulatedBroker(settings=BrokerSettings(timers=False))
    answer = world.connect().ask(send(properties={"TIMER_DELAY_MS": "1000"}))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "timer message is not enabled" in (answer.remark or "")


def test_flow_control() -> None:
    world = SimulatedBroker(settings=BrokerSettings(timer_slot_max=5))
    client = world.connect()
    codes = []
    for _ in range(200):
        codes.append(client.ask(send(properties={"TIMER_DELIVER_MS": str(BEGIN_MS + 5_500)})).code)
        world.pass_time(1)
    stored = codes.count(ResponseCode.SUCCESS)
    assert codes[:6] == [ResponseCode.SUCCESS] * 6
    assert 6 <= stored <= 10
    assert set(codes) == {ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR}
    ok(client, send(properties=at(world, 7_500)))


def test_stopped_and_started_again() -> None:
    world = SimulatedBroker()
    client = world.connect()
    world.settings.timer_stop_enqueue = True
    send_timed(client, b"one", 500)
    world.pass_time(2_000)
    assert not messages(world)
    world.settings.timer_stop_enqueue, world.settings.timer_stop_dequeue = False, True
    world.tick()
    world.pass_time(2_000)
    send_timed(client, b"two", 500)
    world.pass_time(2_000)
    assert not bodies_of(world)[1:]
    world.settings.timer_stop_dequeue = False
    world.tick()
    world.pass_time(2_000)
    assert sorted(bodies_of(world)) == [b"one", b"two"]


# ── Recall ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def recall(handle: str, topic: str = TOPIC) -> Command:
    header = headers.RecallMessage(topic=topic, recall_handle=handle, producer_group="producers")
    return request(RequestCode.RECALL_MESSAGE, header)


def handle_of(answer: Command) -> str:
    assert answer.ext is not None
    return answer.ext["recallHandle"]


@pytest.mark.parametrize("by_topic", [False, True])
@pytest.mark.parametrize("how", ["stay", "stop", "crash"])
@pytest.mark.parametrize("roll", [60, 172_800])
def test_recalled(by_topic: bool, how: str, roll: int) -> None:
    settings = BrokerSettings(recall=True, recall_by_topic=by_topic, timer_roll_slots=roll)
    world = SimulatedBroker(settings=settings)
    client = world.connect()
    handle = handle_of(send_timed(client, b"no", 200_500, UNIQ_KEY="id-1"))
    send_timed(client, b"yes", 200_500, UNIQ_KEY="id-2")
    decoded = handles.decode(handle)
    assert decoded == handles.Handle(TOPIC, "broker-a", str(BEGIN_MS + 200_001), "id-1")
    world.pass_time(90_000)
    answer = ok(client, recall(handle))
    assert answer.ext is not None and answer.ext["msgId"] == "id-1"
    if how != "stay":
        world.store.flush(world.now_ms)
        world = world.stop() if how == "stop" else world.crash()
    world.pass_time(110_499)
    assert not messages(world)
    world.pass_time(1)
    assert times(world) == [(b"yes", 200_500)]
    world.pass_time(100_000)
    assert times(world) == [(b"yes", 200_500)]


@pytest.mark.parametrize("key", ["id", f"{TOPIC}+id"])
def test_a_recall_is_of_its_own_topic(key: str) -> None:
    """A handle is not secret: users must not recall messages of topics on which they have no right."""
    world = SimulatedBroker(settings=WITH_RECALL)
    client = world.connect()
    handle = handle_of(send_timed(client, b"stays", 2_500, UNIQ_KEY="id"))
    time = handles.decode(handle)
    assert time is not None
    ok(client, send(topic="another"))
    ok(client, recall(handles.Handle("another", "broker-a", time.time, key).encode(), "another"))
    world.pass_time(5_000)
    assert bodies_of(world) == [b"stays"]


@pytest.mark.parametrize("store", [SMALL_STORE, SYNC])
def test_the_last_moment_of_a_recall(store: object) -> None:
    world = SimulatedBroker(settings=WITH_RECALL, store_settings=store)  # type: ignore[arg-type]
    client = world.connect()
    handle = handle_of(send_timed(client, b"no", 3_001))
    world.pass_time(3_000)
    ok(client, recall(handle))
    world.pass_time(2_000)
    assert not messages(world)
    answer = client.ask(recall(handle))
    assert (answer.code, answer.remark) == (604, "recall failed: the message is due, or beyond timerMaxDelaySec")


@pytest.mark.parametrize(
    ("handle", "topic", "code"),
    [
        ("", TOPIC, 604),
        ("!!", TOPIC, 604),
        ("djIgYSBiIGMgZA==", TOPIC, 604),
        (handles.Handle("other", "broker-a", "1", "k").encode(), TOPIC, 604),
        (handles.Handle(TOPIC, "broker-b", "1", "k").encode(), TOPIC, 604),
        (handles.Handle(TOPIC, "broker-a", "x", "k").encode(), TOPIC, 604),
        (handles.Handle(TOPIC, "broker-a", f"{BEGIN_MS + 5_000:_}", "k").encode(), TOPIC, 604),
        (handles.Handle(TOPIC, "broker-a", str(2**70), "k").encode(), TOPIC, 604),
        (handles.Handle(TOPIC, "broker-a", str(BEGIN_MS + 5_000), "k\x02REAL_TOPIC\x01secrets").encode(), TOPIC, 1),
        (handles.Handle(TIMER, "broker-a", str(BEGIN_MS + 5_000), "k").encode(), TIMER, 604),
        (handles.Handle(TOPIC, "broker-a", str(BEGIN_MS + 259_200_001), "k").encode(), TOPIC, 604),
        (handles.Handle("nowhere", "broker-a", "1", "k").encode(), "nowhere", 17),
    ],
)
def test_recalls_that_are_refused(handle: str, topic: str, code: int) -> None:
    world = SimulatedBroker(settings=replace(WITH_RECALL))
    client = world.connect()
    ok(client, send())
    send_timed(client, b"makes the timer topic", 1)
    assert client.ask(recall(handle, topic)).code == code
    world.settings.permission = 4
    world.settings.recall_if_read_only = False
    assert client.ask(recall(handle, topic)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    world.settings.recall = False
    assert client.ask(recall(handle, topic)).code == ResponseCode.NO_PERMISSION


# ── Stops and crashes ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["stop", "kill", "crash"])
def test_in_the_middle_of_a_second(how: str) -> None:
    world = SimulatedBroker(store_settings=SYNC)
    client = world.connect()
    for delay_ms in range(2_100, 4_000, 100):
        send_timed(client, b"%d" % delay_ms, delay_ms)
    for _ in range(16):
        world.pass_time(250)
        world = getattr(world, how)()
    world.pass_time(3_000)
    assert bodies_of(world) == [b"%d" % delay_ms for delay_ms in range(2_100, 4_000, 100)]


def test_after_a_clean_stop_nothing_is_searched_and_java_would_deliver_nothing_twice() -> None:
    world = SimulatedBroker()
    client = world.connect()
    for delay_ms in (2_100, 2_200, 2_800, 3_500):
        send_timed(client, b"%d" % delay_ms, delay_ms)
    world.pass_time(2_500)
    world = world.stop()
    files = world.store.timers
    assert files.checkpoint.read_ms == BEGIN_MS + 2_000
    assert files.checkpoint.delivered_from == world.store.log.end
    slot = files.wheel.slot(BEGIN_MS + 2_000)
    assert slot.first == slot.last
    assert slot.messages == 1
    world.pass_time(3_000)
    assert bodies_of(world) == [b"2100", b"2200", b"2800", b"3500"]


def test_what_came_due_while_the_broker_was_down() -> None:
    world = SimulatedBroker()
    client = world.connect()
    for delay_ms in (2_000, 5_000, 9_000):
        send_timed(client, b"%d" % delay_ms, delay_ms)
    world.pass_time(1_500)
    world.now_ms += 6_000
    world = world.stop()
    world.pass_time(10)
    assert bodies_of(world) == [b"2000", b"5000"]
    world.pass_time(2_000)
    assert bodies_of(world) == [b"2000", b"5000", b"9000"]


def test_a_message_that_could_not_be_entered_before_its_time() -> None:
    world = SimulatedBroker(store_settings=SYNC)
    client = world.connect()
    send_timed(client, b"on time", 7_000)
    world.pass_time(100)
    world.settings.timer_stop_enqueue = True
    send_timed(client, b"late", 500)
    world.pass_time(5_000)
    world.settings.timer_stop_enqueue = False
    world.tick()
    assert bodies_of(world) == [b"late"]
    assert messages(world)[0].properties["TIMER_ENQUEUE_MS"] == str(2**63 - 1)
    for _ in range(3):
        world = world.crash()
        world.pass_time(10)
    world.pass_time(2_000)
    assert bodies_of(world) == [b"late", b"on time"]


@pytest.mark.parametrize("flush_end", [0, 52, 3 * 52])
@pytest.mark.parametrize("behind", [0, 2])
def test_a_checkpoint_of_a_java_broker_that_was_killed(flush_end: int, behind: int) -> None:
    """It says less of the timer log than of the queue, and nothing of copies."""
    world = SimulatedBroker()
    client = world.connect()
    for delay_ms in (2_100, 2_200, 30_000, 40_000):
        send_timed(client, b"%d" % delay_ms, delay_ms)
    world.pass_time(1_500)
    check = TimerCheckpoint(BEGIN_MS + 1_000, flush_end, 4 - behind, 4 - behind)
    world.disk.install(ROOT / "config" / "timercheck", check.encode())
    world = world.kill()
    assert world.machine.timers.pending == 4
    world.pass_time(50_000)
    assert bodies_of(world) == [b"2100", b"2200", b"30000", b"40000"]
    assert world.machine.timers.pending == 0


@pytest.mark.parametrize("delays", [(1,), (1, 2, 401)])
def test_a_wheel_that_is_lost_after_a_clean_stop_in_the_middle_of_a_second(delays: tuple[int, ...]) -> None:
    world = SimulatedBroker()
    client = world.connect()
    for delay_ms in delays:
        send_timed(client, b"%d" % delay_ms, delay_ms)
    world.pass_time(100)
    world = world.stop()
    world.disk.remove(ROOT / "timerwheel")
    world = world.kill()
    world.pass_time(3_000)
    assert bodies_of(world) == [b"%d" % delay_ms for delay_ms in delays]
    assert world.machine.timers.pending == 0


@pytest.mark.parametrize("lost", ["timerwheel", "timerlog", "config/timercheck", "all", "short wheel", "short log"])
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_files_that_are_lost_are_made_again(lost: str, how: str, caplog: pytest.LogCaptureFixture) -> None:
    settings = BrokerSettings(recall=True, timer_roll_slots=60)
    world = SimulatedBroker(settings=settings)
    client = world.connect()
    for delay_ms in (500, 2_500, 2_600, 40_000, 90_000, 150_000):
        send_timed(client, b"%d" % delay_ms, delay_ms)
    ok(client, recall(handle_of(send_timed(client, b"never", 2_700))))
    ok(client, recall(handle_of(send_timed(client, b"never", 80_000))))
    world.pass_time(60_000)
    world = getattr(world, how)()
    paths = {"all": ["timerwheel", "timerlog", "config/timercheck"], "short wheel": [], "short log": []}
    world.store.flush(world.now_ms)
    for name in paths.get(lost, [lost]):
        _remove(world, ROOT / name)
    if lost == "short wheel":
        world.disk.install(ROOT / "timerwheel", bytes(4096))
    if lost == "short log":
        (name,) = world.disk.files(ROOT / "timerlog")
        world.disk.install(ROOT / "timerlog" / name, bytes(512))
    world = world.kill()
    world.pass_time(150_000)
    assert bodies_of(world) == [b"500", b"2500", b"2600", b"40000", b"90000", b"150000"]
    assert "rebuilt" in caplog.text
    world = world.stop()
    world.pass_time(10_000)
    assert len(messages(world)) == 6


def _remove(world: SimulatedBroker, path: Path) -> None:
    if path.name == "timerlog":
        world.disk.remove_folder(path)
    else:
        world.disk.remove(path)


def test_a_slot_that_refers_to_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = SimulatedBroker()
    client = world.connect()
    for delay_ms in (3_100, 3_200):
        send_timed(client, b"%d" % delay_ms, delay_ms)
    world.pass_time(1_500)
    (name,) = world.disk.files(ROOT / "timerlog")
    world = world.stop()
    world.disk.flip(ROOT / "timerlog" / name, 55, 3)
    world.pass_time(3_000)
    assert bodies_of(world) == [b"3100", b"3200"]
    assert "the timer log is damaged" in caplog.text


def test_another_precision() -> None:
    world = SimulatedBroker()
    send_timed(world.connect(), b"later", 3_210)
    world.pass_time(2_000)
    world.store_settings = replace(SMALL_STORE, timer_precision_ms=200)
    world = world.stop()
    world.pass_time(1_209)
    assert not messages(world)
    world.pass_time(1)
    assert bodies_of(world) == [b"later"]


# ── Failing disks ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("where", ["*commitlog*", "*timerlog*", "*timerwheel*", "*timercheck*", "*"])
@pytest.mark.parametrize("what", ["sync", "create", "reserve", "replace"])
def test_a_failing_disk(what: Call, where: str) -> None:
    world = SimulatedBroker()
    client = world.connect()
    send_timed(client, b"one", 2_500)
    world.pass_time(500)
    world.disk.fail(what, errno.EIO, times=math.inf, where=where)
    client.send(send(b"two", properties={"TIMER_DELAY_MS": "5000"}))
    world.pass_time(3_000)
    world.disk.evict()
    world.disk.heal()
    world.pass_time(20_000)
    found = bodies_of(world)
    assert found.count(b"one") == 1
    assert found.count(b"two") <= 1
    world = world.crash()
    world.pass_time(20_000)
    assert bodies_of(world) == found


def test_units_that_could_not_be_synced_are_written_again() -> None:
    world = SimulatedBroker(store_settings=SYNC)
    client = world.connect()
    send_timed(client, b"one", 10_000)
    world.disk.fail("sync", errno.EIO, times=3, where="*timerlog*")
    world.pass_time(2_000)
    world.disk.evict()
    world.pass_time(3_000)
    world = world.crash()
    world.pass_time(10_000)
    assert bodies_of(world) == [b"one"]


# ── Under load ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def slow_entering(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step enters 16 messages."""
    monkeypatch.setattr(service, "SLICE", 16)
    monkeypatch.setattr(service, "SLICE_NS", 0)
    monkeypatch.setattr(service, "BEHIND_NS", 0)


LARGE_STORE = replace(SMALL_STORE, commit_log_file_size=16 * 1024 * 1024, queue_file_entries=100_000)


@pytest.mark.usefixtures("slow_entering")
@pytest.mark.parametrize(("each_turn", "late_max_ms"), [(12, 0), (20, 0), (38, 1_000)])
def test_a_flow_of_timed_messages_delays_no_other_one(each_turn: int, late_max_ms: int) -> None:
    """What is stored after a slot began can wait, what was stored before it can't."""
    world = SimulatedBroker(store_settings=LARGE_STORE)
    client = world.connect()
    for delay_ms in (50, 1_500):
        send_timed(client, b"%d" % delay_ms, delay_ms)
    far = [send(b"far", "others", properties={"TIMER_DELAY_MS": "3000000"}) for _ in range(each_turn)]
    while world.now_ms < BEGIN_MS + 1_500 + late_max_ms:
        client.send(*far)
        world.tick(10)
    assert [body for body, _ in times(world)] == [b"50", b"1500"]
    assert all(stored_ms <= int(body) + late_max_ms for body, stored_ms in times(world))
    behind = int(world.machine.timers.figures(world.now_ms)["timerOffsetBehind"])
    assert (behind > 500) is (each_turn > 16)


@pytest.mark.usefixtures("slow_entering")
def test_a_recall_in_a_backlog_counts() -> None:
    world = SimulatedBroker(settings=WITH_RECALL, store_settings=LARGE_STORE)
    client = world.connect()
    handle = handle_of(send_timed(client, b"recalled", 5_500, UNIQ_KEY="u"))
    send_timed(client, b"on time", 5_500)
    world.pass_time(4_990)
    far = [send(b"far", "others", properties={"TIMER_DELAY_MS": "3000000"}) for _ in range(200)]
    client.send(*far)
    ok(client, recall(handle))
    for _ in range(100):
        client.send(*far[:20])
        world.tick(10)
    assert bodies_of(world) == [b"on time"]


# ── Requests about timers ───────────────────────────────────────────────────────────────────────────────────────────


def test_checkpoint_and_metrics() -> None:
    world = SimulatedBroker()
    client = world.connect()
    for delay_ms in (2_000, 50_000, 60_000):
        send_timed(client, b"x", delay_ms)
    world.pass_time(10_000)
    body = ok(client, request(RequestCode.GET_TIMER_CHECK_POINT)).body
    assert len(body) == 56
    check = TimerCheckpoint.decode(body)
    assert check is not None
    assert (check.queue_offset, check.master_queue_offset) == (3, 3)
    assert check.read_ms >= BEGIN_MS + 2_000
    body = ok(client, request(RequestCode.GET_TIMER_METRICS)).body
    assert b'"timingCount":{"orders":{"count":2,' in body
    info = ok(client, request(RequestCode.GET_BROKER_RUNTIME_INFO)).body
    assert b'"timerCongestNum":"2"' in info
    assert b'"timerOffsetBehind":"0"' in info
