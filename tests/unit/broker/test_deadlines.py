"""When the machine has something to do although nothing happens, by the machine alone."""

from dataclasses import replace
from itertools import pairwise

import pytest
from tests.unit.broker.asking import GROUP, heartbeat, ok, pull, send

from kourou.broker.deadlines import ACTIVE_MS, AFTER_FAULT_MS, ASLEEP_MS, Deadlines, Part
from kourou.store.settings import FlushMode
from kourou.testing.broker import SMALL_STORE, SimulatedBroker, SimulatedClient

MINUTE_MS = 60_000


def ticks_in(world: SimulatedBroker, ms: int) -> list[int]:
    """When the timer fires within so much time, from now on."""
    begin_ms = world.now_ms
    ticks: list[int] = []
    world.pass_time(ms, lambda: ticks.append(world.now_ms - begin_ms))
    return ticks


def idle_consumer(world: SimulatedBroker) -> SimulatedClient:
    consumer = world.connect()
    ok(consumer, heartbeat("c1", group=GROUP))
    consumer.send(pull(offset=1, wait_ms=15_000))
    return consumer


@pytest.mark.parametrize("mode", FlushMode)
def test_an_idle_broker_sleeps(mode: FlushMode) -> None:
    world = SimulatedBroker(store_settings=replace(SMALL_STORE, flush_mode=mode))
    ok(world.connect(), send(b"one"))
    consumer = idle_consumer(world)
    world.pass_time(MINUTE_MS)
    ok(consumer, heartbeat("c1", group=GROUP))
    assert len(ticks_in(world, MINUTE_MS)) < 60 / 5


def test_a_broker_without_clients_wakes_up_for_samples_and_files_alone() -> None:
    world = SimulatedBroker()
    world.pass_time(MINUTE_MS)
    assert len(ticks_in(world, MINUTE_MS)) <= 60 / 10 + 1


def test_parts_that_need_not_be_punctual_share_a_wake_up() -> None:
    world = SimulatedBroker()
    idle_consumer(world)
    world.pass_time(MINUTE_MS)
    ticks = ticks_in(world, MINUTE_MS)
    assert all(later - earlier >= 1_000 for earlier, later in pairwise(ticks)), ticks


def test_what_was_appended_is_flushed_in_time_and_then_nothing_is_due() -> None:
    world = SimulatedBroker(store_settings=replace(SMALL_STORE, flush_least_pages=4))
    client = world.connect()
    world.pass_time(MINUTE_MS)
    client.send(*(send(bytes(1_000)) for _ in range(40)))
    end = world.store.log.end
    world.pass_time(SMALL_STORE.flush_interval_ms + ACTIVE_MS)
    assert world.store.durability.flushed == end
    world.pass_time(MINUTE_MS)
    assert world.store.due_ms() == world.store._cleaner.due_ms(), "nothing is dirty"


def test_a_little_is_flushed_later() -> None:
    world = SimulatedBroker(store_settings=replace(SMALL_STORE, flush_least_pages=4))
    client = world.connect()
    ok(client, send(b"first"))
    world.pass_time(MINUTE_MS)
    ok(client, send(b"second"))  # at once, because the last sync is long ago
    world.pass_time(ACTIVE_MS)
    ok(client, send(b"third"))
    world.pass_time(SMALL_STORE.flush_thorough_ms - 1_000)
    assert world.store.durability.flushed < world.store.log.end
    world.pass_time(1_000 + 2 * ACTIVE_MS)
    assert world.store.durability.flushed == world.store.log.end


def test_seconds_without_a_change_are_added_on_request() -> None:
    world = SimulatedBroker()
    client = world.connect()
    world.pass_time(20_000)
    client.send(*(send(b"one") for _ in range(10)))
    world.pass_time(5_000)
    stats = world.machine.stats
    stats.catch_up(world.now_ms)
    assert stats.rates(lambda second: second.puts)[0] == pytest.approx(1.0, rel=0.05)
    world.pass_time(20_000)
    stats.catch_up(world.now_ms)
    assert stats.rates(lambda second: second.puts)[0] == 0.0


# ── The rules ───────────────────────────────────────────────────────────────────────────────────────────────────────


def no_fault(part: str, error: Exception) -> None:
    raise AssertionError(part) from error


def at(due_ms: int | None, *, is_punctual: bool = False) -> Part:
    return Part(lambda _: due_ms, lambda _: None, is_punctual)


@pytest.mark.parametrize(
    ("parts", "wake_ms"),
    [
        ([], 1_000 + ASLEEP_MS),
        ([at(None)], 1_000 + ASLEEP_MS),
        ([at(1_234, is_punctual=True), at(5_000)], 1_234),
        ([at(1_234)], 1_300),
        ([at(1_300)], 1_300),
        ([at(1_234), at(1_250, is_punctual=True)], 1_250),
        ([at(1_250, is_punctual=True), at(1_234)], 1_250),
        ([at(0)], 1_001),
    ],
)
def test_the_earliest_time(parts: list[Part], wake_ms: int) -> None:
    deadlines = Deadlines(parts, no_fault)
    deadlines.look(1_000)
    assert deadlines.wake_ms == wake_ms


def near(due_ms: int | None) -> Part:
    return Part(lambda _: due_ms, lambda _: None, is_punctual=True, is_near=True)


@pytest.mark.parametrize(
    ("parts", "wake_ms"),
    [
        ([], 1_000 + ACTIVE_MS),
        ([near(None)], 1_000 + ACTIVE_MS),
        ([near(50_000)], 1_000 + ACTIVE_MS),
        ([at(1_020), near(50_000)], 1_000 + ACTIVE_MS),
        ([near(1_020)], 1_020),
        ([near(0)], 1_001),
    ],
)
def test_what_happens_keeps_it_awake(parts: list[Part], wake_ms: int) -> None:
    deadlines = Deadlines(parts, no_fault)
    deadlines.wake_ms = 60_000
    deadlines.stay_awake(1_000)
    assert deadlines.wake_ms == wake_ms
    deadlines.stay_awake(1_000)
    assert deadlines.wake_ms == wake_ms


def test_a_part_that_fails_rests() -> None:
    def fail(_: int) -> None:
        raise ValueError("a fault of a part")

    called: list[int] = []
    faults: list[str] = []
    deadlines = Deadlines(
        [Part(lambda _: 0, fail), Part(lambda _: 0, called.append, is_punctual=True)],
        lambda part, _: faults.append(part),
    )
    deadlines.step(1_000, appends=False)
    assert called == [1_000]
    deadlines.look(1_000)
    assert deadlines.wake_ms == 1_001, "the other part is not delayed"
    assert faults == ["test_a_part_that_fails_rests.<locals>.fail"]


def test_a_part_rests_for_some_time() -> None:
    calls: list[int] = []

    def fail(now_ms: int) -> None:
        calls.append(now_ms)
        raise ValueError("a fault of a part")

    alone = Deadlines([Part(lambda _: 0, fail)], lambda *_: None)
    for now_ms in (1_000, 1_050, 1_099):
        alone.step(now_ms, appends=False)
        alone.look(now_ms)
        assert alone.wake_ms == 1_000 + AFTER_FAULT_MS
    alone.step(1_100, appends=False)
    assert calls == [1_000, 1_100]


def test_a_part_that_cannot_say_when_it_is_due_does_not_stop_the_others() -> None:
    def fail(_: int) -> int:
        raise RuntimeError("a fault of a part")

    called: list[int] = []
    deadlines = Deadlines([Part(fail, lambda _: None), Part(lambda _: 0, called.append)], lambda *_: None)
    deadlines.look(1_000)
    assert deadlines.wake_ms == 1_001
    deadlines.step(1_001, appends=False)
    assert called == [1_001]
    alone = Deadlines([Part(fail, lambda _: None)], lambda *_: None)
    alone.look(1_000)
    assert alone.wake_ms == 1_000 + AFTER_FAULT_MS
