"""The lane of timers beside the general path: two brokers get the same, and only one of them has the lane.

Logs, queues, timer files and figures are equal to the byte after each event. Most messages are usual, many nearly so;
some properties are those of other brokers, or malformed.
"""

from array import array
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.property.lane_worlds import counts
from tests.unit.broker.asking import messages, request, send

from kourou.broker import lane
from kourou.broker.settings import BrokerSettings
from kourou.broker.timers.lane import TimerLane
from kourou.protocol import headers, properties as _properties
from kourou.protocol.codes import RequestCode
from kourou.store.commit_log import NewMessage
from kourou.store.settings import FlushMode, StoreSettings
from kourou.testing.broker import BEGIN_MS, ROOT, SMALL_STORE, SimulatedBroker
from kourou.testing.disk import SimulatedDisk

pytestmark = pytest.mark.skipif(not lane.IS_COMPILED, reason="the lane is not compiled, or KOUROU_PURE=1")

TIMER = "rmq_sys_wheel_timer"
TOPICS = ("orders", "orders", "orders", "bills", "ordérs")
LARGE = replace(SMALL_STORE, timer_log_file_size=64 * 1024)
STORES = {
    "large": LARGE,
    "small": SMALL_STORE,
    "sync": replace(LARGE, flush_mode=FlushMode.SYNC),
    "precise": replace(LARGE, timer_precision_ms=100),
    "crc": replace(LARGE, record_crc=True),
}


class CountingTimers:
    """The lane of a broker, with a count of the messages that it took."""

    def __init__(self, lane: TimerLane, taken: dict[str, int]) -> None:
        self._lane = lane
        self._taken = taken

    def enter(self, *place: Any, count_max: int, size_max: int) -> int:
        count = self._lane.enter(*place, count_max=count_max, size_max=size_max)
        self._taken["entered"] += count
        return count

    def deliver(self, due: "array[int]", time_ms: int, now_ms: int, *, size_max: int) -> int:
        count = self._lane.deliver(due, time_ms, now_ms, size_max=size_max)
        self._taken["delivered"] += count
        return count


class Pair:
    """Both brokers."""

    def __init__(self, store_settings: StoreSettings = LARGE, **given: Any) -> None:
        self.taken = {"entered": 0, "delivered": 0}
        self.worlds = [
            SimulatedBroker(
                SimulatedDisk(Random(1)), BrokerSettings(**given), store_settings, chance=Random(7), lane=fast
            )
            for fast in (False, True)
        ]
        self._begin()

    def _begin(self) -> None:
        self.clients = [world.connect("127.0.0.1:5000") for world in self.worlds]
        timers = self.worlds[1].machine.timers
        assert self.worlds[0].machine.timers.lane is None
        assert timers.lane is not None
        timers.lane = CountingTimers(timers.lane, self.taken)

    def send(self, *given: dict[str, Any]) -> None:
        for client in self.clients:
            client.send(*(send(**one) for one in given))

    def put(self, properties: bytes, **given: Any) -> None:
        """A message that is in the timer topic already, as another broker may have written it."""
        for world in self.worlds:
            message: dict[str, Any] = {"body": b"put", "born_ms": 5, "born_host": bytes(8)} | given
            world.machine.writer.put([NewMessage(TIMER, 0, properties=properties, **message)], None, world.now_ms)
            world.tick()

    def both(self, action: Callable[[SimulatedBroker], object]) -> None:
        for world in self.worlds:
            action(world)

    def pass_time(self, ms: int) -> None:
        self.both(lambda world: world.pass_time(ms))

    def end(self, how: str) -> None:
        self.worlds = [getattr(world, how)() for world in self.worlds]
        self._begin()

    def compare(self) -> None:
        expected, found = map(state, self.worlds)
        for name, value in expected.items():
            assert found[name] == value, name


def state(world: SimulatedBroker) -> dict[str, object]:
    store, timers = world.store, world.machine.timers
    segments, files, figures = store.log.segments, store.timers, timers.counts
    if world.machine.lane is not None:
        world.machine.lane.hand_over(world.machine.meters)
    folder = ROOT / "timerlog"
    return {
        "log": [bytes(segments.file(start).buffer) for start in segments.starts],
        "log ends": (store.log.end, store.log.stored_ms, store.dispatched),
        "queues": {name: _entries(world, *name) for name in sorted(store.queues.names())},
        "stats": counts(world.machine.stats),
        "timers": (timers.pending, timers.read_ms, timers.queue_offset, timers.due_ms(world.now_ms)),
        "counts": (figures.waiting, figures.enqueued_of, figures.dequeued_of, figures.enqueued, figures.dequeued),
        "delays": dict(figures.delays),
        "units": (files.log.end, list(files.log.units(0))),
        "unit files": {
            name: world.disk.read_at(folder / name, 0, size) for name, size in world.disk.files(folder).items()
        },
        "wheel": {time_ms: files.wheel.slot(time_ms) for time_ms in files.wheel.times_from(0)},
        "checkpoint": files.checkpoint,
    }


def _entries(world: SimulatedBroker, topic: str, queue_id: int) -> tuple[int, int, bytes]:
    queue = world.store.queues.ensure(topic, queue_id)
    found, at = b"", queue.start
    while at < queue.end:
        piece = bytes(queue.entries(at, queue.end - at))
        found += piece
        at += len(piece) // 20
    return queue.start, queue.end, found


def timed(ms: int, name: str = "TIMER_DELAY_MS", **more: Any) -> dict[str, Any]:
    return {"properties": {"KEYS": "k", name: str(ms), "UNIQ_KEY": f"{ms:032}", "WAIT": "true"}, **more}


# ── Single cases ────────────────────────────────────────────────────────────────────────────────────────────────────


def opened(store_settings: StoreSettings = LARGE, **given: Any) -> Pair:
    """The wheel has a message, and the queues are open."""
    pair = Pair(store_settings, **given)
    pair.send(timed(20_000), {"queue_id": 0}, {"queue_id": 1})
    pair.pass_time(10)
    pair.compare()
    assert pair.taken["entered"] == 0
    return pair


@pytest.mark.parametrize("store_settings", [LARGE, STORES["sync"]], ids=["async", "sync"])
def test_it_takes_what_is_usual(store_settings: StoreSettings) -> None:
    pair = opened(store_settings)
    pair.send(
        *(timed(900 + 17 * number, queue_id=number % 2) for number in range(40)),
        timed(2, "TIMER_DELAY_SEC"),
        timed(BEGIN_MS + 1_010, "TIMER_DELIVER_MS"),
    )
    pair.pass_time(20)
    pair.compare()
    assert pair.taken == {"entered": 42, "delivered": 0}
    for _ in range(40):
        pair.pass_time(100)
        pair.compare()
    assert pair.taken == {"entered": 42, "delivered": 42}


USUAL = (
    b"TIMER_DELIVER_MS\x01%d\x02UNIQ_KEY\x01k\x02TIMER_OUT_MS\x01%d\x02REAL_TOPIC\x01orders\x02REAL_QID\x010\x02"
    % (
        BEGIN_MS + 2_345,
        BEGIN_MS + 2_000,
    )
)


def test_another_message_of_the_timer_topic() -> None:
    pair = opened()
    pair.put(USUAL)
    pair.pass_time(4_000)
    pair.compare()
    assert pair.taken == {"entered": 1, "delivered": 1}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"REAL_QID\x010\x02", b"REAL_QID\x010"),
        (b"REAL_QID\x010\x02", b"REAL_QID\x0100\x02"),
        (b"REAL_QID\x010\x02", b"REAL_QID\x01-1\x02"),
        (b"REAL_QID\x010\x02", b"REAL_QID\x017\x02"),
        (b"REAL_QID\x010\x02", b"REAL_QID\x01\x02"),
        (b"REAL_QID\x010\x02", b""),
        (b"REAL_QID\x010\x02", b"REAL_QID\x010\x02REAL_QID\x011\x02"),
        (b"REAL_TOPIC\x01orders", b"REAL_TOPIC\x01"),
        (b"REAL_TOPIC\x01orders", b"REAL_TOPIC\x01" + TIMER.encode()),
        (b"REAL_TOPIC\x01orders", b"REAL_TOPIC\x01\xff\xfe"),
        (b"REAL_TOPIC\x01orders", b"REAL_TOPIC\x01" + b"t" * 200),
        (b"REAL_TOPIC\x01orders\x02", b""),
        (b"UNIQ_KEY", b"TIMER_DEL_UNIQKEY"),
        (b"UNIQ_KEY\x01k", b"TIMER_ROLL_TIMES\x011"),
        (b"UNIQ_KEY\x01k", b"TIMER_ENQUEUE_MS\x011"),
        (b"UNIQ_KEY\x01k", b"xTIMER_ENQUEUE_MS\x011"),
        (b"UNIQ_KEY\x01k", b"x\x01TIMER_ENQUEUE_MS\x011"),
        (b"UNIQ_KEY\x01k", b"TIMER_DELAY_MS\x012345"),
        (b"UNIQ_KEY\x01k", b"TIMER_DELAY_SEC\x012"),
        (b"UNIQ_KEY\x01k", b"TIMER_DELAY_SEC\x01x"),
        (b"UNIQ_KEY\x01k", b"x\x01\x00"),
        (b"UNIQ_KEY\x01k", b"x"),
        (b"UNIQ_KEY\x01k", b""),
        (b"UNIQ_KEY\x01k", b"__CRC32#\x011234567890"),
        (b"REAL_QID\x010\x02", b"REAL_QID\x010\x02__CRC32#\x011234567890\x02"),
        (b"UNIQ_KEY\x01k", b"k\x01" + b"x" * (32_767 - len(USUAL) - 1)),
        (b"UNIQ_KEY\x01k", b"k\x01" + b"x" * 32_000),
        (b"DELIVER_MS\x01", b"DELIVER_MS\x01+"),
        (b"DELIVER_MS\x01", b"DELIVER_MS\x01 "),
        (b"DELIVER_MS\x01", b"DELIVER_MS\x019"),
        (b"OUT_MS\x01", b"OUT_MS\x019"),
        (b"OUT_MS\x01", b"OUT_MS\x01_"),
        (b"TIMER_DELIVER_MS\x01%d" % (BEGIN_MS + 2_345), b"TIMER_DELAY_MS\x011000"),
        (b"TIMER_DELIVER_MS\x01%d" % (BEGIN_MS + 2_345), b"x\x01y"),
    ],
)
def test_messages_of_the_timer_topic_that_are_unusual(old: bytes, new: bytes) -> None:
    pair = opened()
    assert old in USUAL
    pair.put(USUAL)
    pair.put(USUAL.replace(old, new))
    pair.put(USUAL)
    pair.pass_time(1_000)
    pair.compare()
    pair.pass_time(9_000)
    pair.compare()
    pair.pass_time(20_000)
    pair.compare()


@pytest.mark.parametrize("sys_flag", [4, 8, 12, 0x10, 0x21])
def test_flags(sys_flag: int) -> None:
    pair = opened()
    pair.put(USUAL, sys_flag=sys_flag, flag=-3, reconsume_times=2, born_host=bytes(20 if sys_flag & 0x10 else 8))
    pair.put(USUAL)
    pair.pass_time(4_000)
    pair.compare()


def test_a_body_that_is_longer_than_the_limit_has_become() -> None:
    pair = opened()
    pair.send(timed(2_000, body=bytes(5_000)), timed(2_000))
    pair.pass_time(100)
    pair.both(lambda world: setattr(world.store.log, "max_body_size", 1_000))
    pair.pass_time(4_000)
    pair.compare()
    assert pair.taken == {"entered": 2, "delivered": 1}


def test_a_full_disk_refuses_the_copies() -> None:
    pair = opened()
    pair.send(*(timed(2_000) for _ in range(5)))
    pair.pass_time(100)
    cleaners = [world.store._cleaner for world in pair.worlds]
    for cleaner in cleaners:
        cleaner.refusal = "full"
    pair.both(lambda world: world.machine.timers.step(world.now_ms))
    pair.both(lambda world: world.tick(2_500))
    pair.compare()
    for cleaner in cleaners:
        cleaner.refusal = None
    pair.pass_time(4_000)
    pair.compare()
    assert len(messages(pair.worlds[1])) == 6


def test_a_file_of_the_timer_log_that_cannot_be_read_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were delivered before the error are not delivered again."""
    pair = opened(SMALL_STORE)
    pair.send(*(timed(BEGIN_MS + 2_000, "TIMER_DELIVER_MS") for _ in range(100)))  # their units are in two files
    pair.pass_time(100)
    log = pair.worlds[1].store.timers.log
    file_at, asked = log.file_at, []

    def fail_once(position: int) -> tuple[int, memoryview] | None:
        asked.append(position)
        if len(asked) == 2:
            raise OSError(5, "Input/output error")
        return file_at(position)

    monkeypatch.setattr(log, "file_at", fail_once)
    pair.pass_time(4_000)
    assert len(asked) > 2
    assert len(messages(pair.worlds[1])) == len(messages(pair.worlds[0])) == 101
    assert pair.worlds[1].machine.timers.pending == 1


def test_two_slots_with_the_same_place_in_the_wheel() -> None:
    """The clock was set forward by more than the wheel has, and the first slot is not delivered yet."""
    pair = opened(timer_stop_dequeue=True)
    wheels_ms = 12 * LARGE.timer_slots * 1_000
    pair.both(lambda world: setattr(world.settings, "timer_stop_enqueue", True))
    pair.send(timed(BEGIN_MS + 2_500, "TIMER_DELIVER_MS"))
    pair.both(lambda world: world.set_clock(wheels_ms))
    pair.send(timed(BEGIN_MS + wheels_ms + 2_500, "TIMER_DELIVER_MS"))
    pair.both(lambda world: setattr(world.settings, "timer_stop_enqueue", False))
    pair.pass_time(100)
    pair.compare()
    assert pair.taken["entered"] == 1
    pair.both(lambda world: setattr(world.settings, "timer_stop_dequeue", False))
    pair.pass_time(5_000)
    pair.compare()
    assert len(messages(pair.worlds[1])) == 4


def test_a_slot_with_a_recalled_message() -> None:
    pair = opened(recall=True)
    pair.send(*(timed(2_000 + number) for number in range(5)))
    pair.pass_time(100)
    handles = [client.answers[max(client.answers)].ext for client in pair.clients]
    assert handles[0] == handles[1]
    assert handles[0] is not None
    header = headers.RecallMessage(topic="orders", recall_handle=handles[0]["recallHandle"])
    for client in pair.clients:
        client.ask(request(RequestCode.RECALL_MESSAGE, header))
    pair.pass_time(5_000)
    pair.compare()
    assert len(messages(pair.worlds[1])) == 1 + 4


# ── Whatever comes ──────────────────────────────────────────────────────────────────────────────────────────────────


def draw_timed(rnd: Random, now_ms: int) -> dict[str, Any]:
    ms = rnd.choice((rnd.randint(1, 3_000), rnd.randint(900, 2_100), 1_000, rnd.randint(1, 15_000), 1))
    name = rnd.choice(("TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DELIVER_MS"))
    if rnd.random() < 0.1:
        name, ms = "TIMER_DELAY_SEC", rnd.randint(1, 9)
    given = timed(now_ms + ms if name == "TIMER_DELIVER_MS" else ms, name, topic=rnd.choice(TOPICS))
    if rnd.random() < 0.1:
        given["properties"] |= rnd.choice(({"TAGS": "a"}, {"x": "\0"}, {"__SHARDINGKEY": "1"}, {"y": "é" * 3_000}))
    return {"queue_id": rnd.randrange(4), "body": bytes(rnd.choice((1, 128, 1_500))), **given}


def draw_put(rnd: Random, now_ms: int) -> bytes:
    due_ms = now_ms + rnd.randint(-3_000, 6_000)
    table = {
        "TIMER_DELIVER_MS": str(due_ms),
        "UNIQ_KEY": str(rnd.randrange(5)),
        "TIMER_OUT_MS": str((due_ms - 1) // 1_000 * 1_000),
        "REAL_TOPIC": rnd.choice(TOPICS),
        "REAL_QID": str(rnd.randrange(3)),
    }
    if rnd.random() < 0.5:
        table |= rnd.choice(
            (
                {"TIMER_DEL_UNIQKEY": str(rnd.randrange(5))},
                {"TIMER_ROLL_TIMES": "2"},
                {"TIMER_OUT_MS": str(due_ms)},
                {"TIMER_DELAY_MS": "1500"},
                {"REAL_QID": "x"},
                {"TIMER_ENQUEUE_MS": "7"},
            )
        )
    data = bytearray(_properties.encode(table).encode())
    if rnd.random() < 0.2:
        data[rnd.randrange(len(data))] = rnd.choice(b"\x00\x01\x02019T_")
    return bytes(data)


def drive(pair: Pair, rnd: Random, events: int) -> None:
    for _ in range(events):
        now_ms, dice = pair.worlds[0].stamp_ms, rnd.random()
        assert pair.worlds[1].stamp_ms == now_ms
        if dice < 0.45:
            pair.send(*(draw_timed(rnd, now_ms) for _ in range(rnd.choice((1, 1, 5, 40, 200)))))
        elif dice < 0.55:
            for _ in range(rnd.choice((1, 3))):
                pair.put(draw_put(rnd, now_ms))
        elif dice < 0.85:
            pair.pass_time(rnd.choice((1, 10, 250, 999, 1_000, 3_000)))
        elif dice < 0.9:
            late_ms = rnd.choice((1, 700, 5_000))
            pair.both(lambda world, ms=late_ms: world.tick(ms))  # type: ignore[misc]
        elif dice < 0.94:
            pair.end(rnd.choice(("stop", "kill")))
        elif dice < 0.96:
            jump_ms = rnd.choice((-2_000, 1_500, 86_400_000))
            pair.both(lambda world, ms=jump_ms: world.set_clock(ms))  # type: ignore[misc]
        else:
            change = rnd.choice(CHANGES)
            pair.both(change)
        pair.compare()
    pair.both(lambda world: setattr(world.settings, "timer_stop_dequeue", False))
    pair.both(lambda world: setattr(world.settings, "timer_stop_enqueue", False))
    pair.pass_time(30_000)
    pair.compare()


def _set(name: str, value: object) -> Callable[[SimulatedBroker], None]:
    return lambda world: setattr(world.settings, name, value)


def _delete(topic: str) -> Callable[[SimulatedBroker], object]:
    return lambda world: world.connect("127.0.0.1:6000").send(
        request(RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopicInBroker(topic=topic))
    )


CHANGES: tuple[Callable[[SimulatedBroker], object], ...] = (
    _set("timer_stop_dequeue", True),
    _set("timer_stop_dequeue", False),
    _set("timer_stop_enqueue", True),
    _set("timer_stop_enqueue", False),
    _set("timer_roll_slots", 4),
    _set("timer_roll_slots", 1_000),
    _set("count_delayed", False),
    _set("count_delayed", True),
    _set("timer_slot_max", 30),
    _delete("bills"),
)


@pytest.mark.parametrize("store", STORES)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(rnd=st.randoms(use_true_random=False))
def test_the_same_events_have_the_same_effect(store: str, rnd: Random) -> None:
    drive(Pair(STORES[store]), rnd, 8)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("store", STORES)
def test_the_same_over_a_longer_time(store: str, seed: int) -> None:
    """Segments end, and files of the timer log."""
    pair = Pair(STORES[store])
    drive(pair, Random(seed), 80)
    if store != "crc":  # a CRC makes records unusual
        assert min(pair.taken.values()) > 10, pair.taken
