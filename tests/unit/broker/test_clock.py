"""Clocks that jump: what runs by intervals and deadlines takes no notice, what is stored and shown follows."""

from dataclasses import replace

import pytest
from tests.unit.broker.asking import GROUP, TOPIC, heartbeat, ok, pull, request, send

from kourou.broker.events import Run
from kourou.protocol import headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.store.jobs import SyncLog
from kourou.testing.broker import SMALL_STORE, SimulatedBroker

HOUR = 3_600_000
JUMPS = pytest.mark.parametrize("jump_ms", [-HOUR, 24 * HOUR, -24 * HOUR, HOUR])


def world_with_a_message() -> SimulatedBroker:
    world = SimulatedBroker()
    ok(world.connect(), send(b"one"))
    world.pass_time(1_000)
    return world


@JUMPS
def test_the_log_is_synced_after_a_jump(jump_ms: int) -> None:
    world = world_with_a_message()
    world.pass_time(12_000)
    assert world.store.durability.flushed == world.store.log.end
    world.set_clock(jump_ms)
    ok(world.connect(), send(b"two"))
    assert world.store.durability.flushed < world.store.log.end
    world.pass_time(11_000)
    assert world.store.durability.flushed == world.store.log.end


@JUMPS
def test_offsets_are_written_after_a_jump(jump_ms: int) -> None:
    world = world_with_a_message()
    world.set_clock(jump_ms)
    client = world.connect()
    ok(client, heartbeat("c1", group=GROUP))
    header = headers.UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=1)
    ok(client, request(RequestCode.UPDATE_CONSUMER_OFFSET, header))
    world.pass_time(world.settings.offsets_interval_ms + 200)
    again = world.kill()
    assert again.machine.offsets.get(GROUP, TOPIC, 0) == 1


@JUMPS
def test_a_long_poll_ends_when_it_should(jump_ms: int) -> None:
    world = world_with_a_message()
    client = world.connect()
    ok(client, heartbeat("c1", group=GROUP))
    (number,) = client.send(pull(offset=1, wait_ms=15_000))
    world.pass_time(5_000)
    world.set_clock(jump_ms)
    world.pass_time(9_000)
    assert number not in client.answers
    world.pass_time(1_500)
    assert client.answers[number].code == ResponseCode.PULL_NOT_FOUND


@JUMPS
def test_clients_are_not_forgotten(jump_ms: int) -> None:
    world = world_with_a_message()
    client = world.connect()
    ok(client, heartbeat("c1", group=GROUP))
    world.set_clock(jump_ms)
    world.pass_time(20_000)
    assert client.closed is None
    assert world.machine.clients.consumers


def test_store_times_follow_the_time_of_day() -> None:
    world = world_with_a_message()
    world.set_clock(HOUR)
    ok(world.connect(), send(b"two"))
    first, second = (world.store.reader.stored_ms_of(TOPIC, 0, n) for n in range(2))
    assert second == world.now_ms + HOUR
    assert first < second
    world.set_clock(-2 * HOUR)
    ok(world.connect(), send(b"three"))
    assert world.store.reader.stored_ms_of(TOPIC, 0, 2) >= second


def test_a_flush_that_is_late_is_told() -> None:
    world = world_with_a_message()
    world.lazy = True
    assert world.store.flush_late_ms(world.now_ms) == 0
    ok(world.connect(), send(b"two"))
    world.pass_time(9_000)
    assert world.store.flush_late_ms(world.now_ms) == 0
    world.pass_time(60_000)  # no worker runs the job
    assert any(isinstance(work, Run) and isinstance(work.job, SyncLog) for work in world.undone)
    assert world.store.flush_late_ms(world.now_ms) > 50_000
    world.work()
    world.pass_time(1_000)
    world.work()
    assert world.store.flush_late_ms(world.now_ms) == 0


def test_expired_segments_go_when_the_clock_is_set_ahead() -> None:
    hours = ";".join(f"{hour:02}" for hour in range(24))
    world = SimulatedBroker(store_settings=replace(SMALL_STORE, delete_when=hours, reserved_hours=2))
    client = world.connect()
    for _ in range(200):
        ok(client, send(b"x" * 1_000))
    world.pass_time(120_000)
    start = world.store.log.start
    world.set_clock(24 * HOUR)
    world.pass_time(60_000)
    assert world.store.log.start > start
