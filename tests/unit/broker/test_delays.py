"""Delay levels: on time, in slices, once, and nothing lost."""

import errno
import logging
import math
from dataclasses import replace

import pytest
from tests.unit.broker.asking import TOPIC, bodies_of, messages, ok, pull, send

from kourou.broker import delays
from kourou.broker.delays import DELAY_OFFSETS
from kourou.broker.events import Save
from kourou.broker.settings import BrokerSettings, Role
from kourou.protocol.codes import ResponseCode
from kourou.protocol.record import StoredMessage
from kourou.store import entry_layout
from kourou.store.commit_log import NewMessage
from kourou.store.settings import FlushMode, StoreSettings
from kourou.testing.broker import SMALL_STORE, SimulatedBroker, SimulatedClient

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
SYNC = replace(SMALL_STORE, flush_mode=FlushMode.SYNC)
OFTEN = BrokerSettings(delay_offsets_interval_ms=100)


def send_delayed(client: SimulatedClient, body: bytes, level: int = 1, queue_id: int = 0) -> None:
    ok(client, send(body, queue_id=queue_id, properties={"DELAY": str(level)}))


def wait_for(world: SimulatedBroker, count: int) -> list[StoredMessage]:
    """Until so many are delivered, for a minute at most."""
    for _ in range(600):
        found = messages(world)
        if len(found) >= count:
            return found
        world.pass_time(100)
    raise AssertionError(f"{len(messages(world))} of {count} delivered")


# ── On time ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("level", "delay_ms"), [(1, 1_000), (2, 5_000), (5, 60_000)])
def test_delivered_to_the_millisecond(level: int, delay_ms: int) -> None:
    world = SimulatedBroker()
    client = world.connect()
    world.pass_time(37)  # not in step with the ticks
    sent_ms = world.now_ms
    send_delayed(client, b"later", level)
    seen_ms: list[int] = []
    world.pass_time(delay_ms + 500, lambda: seen_ms.append(world.now_ms) if messages(world) else None)
    assert seen_ms[0] == sent_ms + delay_ms
    assert messages(world)[0].stored_ms == sent_ms + delay_ms


def test_a_waiting_consumer_gets_it_in_the_same_step() -> None:
    world = SimulatedBroker()
    client, consumer = world.connect(), world.connect()
    send_delayed(client, b"later")
    (number,) = consumer.send(pull(wait_ms=15_000))
    world.pass_time(999)
    assert number not in consumer.answers
    world.pass_time(1)
    assert consumer.answers[number].code == ResponseCode.SUCCESS
    assert b"later" in consumer.answers[number].body


def test_the_timer_is_set_for_the_next_one() -> None:
    world = SimulatedBroker()
    client = world.connect()
    assert world.machine.delays.due_ms(world.now_ms) is None
    send_delayed(client, b"in ten", 3)
    assert world.machine.delays.due_ms(world.now_ms) == world.now_ms + 10_000
    send_delayed(client, b"in one", 1)
    assert world.machine.delays.due_ms(world.now_ms) == world.now_ms + 1_000


def test_the_copy_keeps_what_the_message_is() -> None:
    world = SimulatedBroker()
    client = world.connect()
    ok(client, send(b"later", queue_id=3, properties={"DELAY": "1", "TAGS": "paid", "KEYS": "k"}, flag=5))
    world.pass_time(1_000)
    (original,), (copy,) = messages(world, SCHEDULE, 0), messages(world, queue_id=3)
    assert copy.properties == original.properties
    assert copy.properties["REAL_TOPIC"] == TOPIC and copy.properties["REAL_QID"] == "3"
    assert (copy.flag, copy.born_ms, copy.born_host) == (5, original.born_ms, original.born_host)
    assert copy.prepared_offset == ~original.physical_offset
    queue = world.store.queues.get(TOPIC, 3)
    assert queue is not None and queue.entry(0)[2] == 3433164, "its tags are found by their hash (of `paid`)"


@pytest.mark.parametrize(("counted", "count"), [(True, 1), (False, 0)])
def test_delivered_messages_count_for_their_topic_if_that_is_wanted(counted: bool, count: int) -> None:
    world = SimulatedBroker(settings=BrokerSettings(count_delayed=counted))
    send_delayed(world.connect(), b"later")
    wait_for(world, 1)
    item = world.machine.stats.topics.get(TOPIC)
    assert (0 if item is None else item.count) == count


def test_a_level_beyond_the_last_is_the_last() -> None:
    world = SimulatedBroker(store_settings=replace(SMALL_STORE, delay_levels="1s 3s"))
    client = world.connect()
    send_delayed(client, b"later", 99)
    world.pass_time(2_999)
    assert not messages(world)
    world.pass_time(1)
    assert messages(world)[0].properties["DELAY"] == "2"


def test_timer_properties_beside_a_level_are_dropped() -> None:
    world = SimulatedBroker()
    ok(world.connect(), send(properties={"DELAY": "1", "TIMER_DELAY_MS": "5", "TIMER_DELIVER_MS": "7"}))
    world.pass_time(1_000)
    assert not [name for name in messages(world)[0].properties if name.startswith("TIMER_")]


def test_under_sync_flush_they_come_when_they_are_safe() -> None:
    world = SimulatedBroker(store_settings=SYNC)
    send_delayed(world.connect(), b"later")
    world.lazy = True
    world.pass_time(1_000)
    assert not messages(world)
    world.work()
    assert bodies_of(world) == [b"later"]


def test_a_slave_does_not_deliver() -> None:
    world = SimulatedBroker()
    send_delayed(world.connect(), b"later")
    world.settings = replace(world.settings, role=Role.SLAVE, broker_id=1)
    world = world.stop()
    world.pass_time(5_000)
    assert not messages(world)
    assert world.machine.delays.due_ms(world.now_ms) is None


# ── Many ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_step_delivers_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "SLICE", 10)
    world = SimulatedBroker()
    client = world.connect()
    client.send(*(send(b"%d" % number, properties={"DELAY": "1"}) for number in range(35)))
    counts = []
    world.tick(1_000)
    while (count := len(messages(world))) < 35:
        counts.append(count)
        due_ms = world.machine.delays.due_ms(world.now_ms)
        assert due_ms is not None and due_ms <= world.now_ms, "the rest is due at once"
        world.tick()
    assert counts == [10, 20, 30]
    assert bodies_of(world) == [b"%d" % number for number in range(35)]


def test_a_slice_has_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "SLICE_BYTES", 5_000)
    monkeypatch.setattr(delays, "BATCH", 1)
    world = SimulatedBroker()
    client = world.connect()
    client.send(*(send(bytes(4_000), properties={"DELAY": "1"}) for _ in range(4)))
    world.tick(1_000)
    assert len(messages(world)) == 2


def test_levels_share_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "SLICE", 10)
    world = SimulatedBroker()
    client = world.connect()
    client.send(*(send(b"many", properties={"DELAY": "1"}) for _ in range(50)))
    client.send(send(b"few", queue_id=1, properties={"DELAY": "2"}))
    world.now_ms += 5_000
    world.tick()
    assert bodies_of(world, queue_id=1) == [b"few"]
    assert 0 < len(messages(world)) < 50


# ── Ends ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("end", ["stop", "kill", "crash"])
@pytest.mark.parametrize("store", [SMALL_STORE, SYNC], ids=["async", "sync"])
def test_delivered_once_whatever_the_end(end: str, store: StoreSettings) -> None:
    world = SimulatedBroker(store_settings=store)
    client = world.connect()
    for number in range(6):
        send_delayed(client, b"%d" % number)
        world.pass_time(100)
    world.pass_time(700)  # some are delivered, some are not
    before = len(messages(world))
    assert 0 < before < 6
    world.store.flush(world.now_ms)
    world = getattr(world, end)()
    wait_for(world, 6)
    world.pass_time(5_000)
    assert bodies_of(world) == [b"%d" % number for number in range(6)]


def test_a_copy_that_a_power_cut_took_is_delivered_again() -> None:
    world = SimulatedBroker(settings=OFTEN)
    world.disk.tears = False
    send_delayed(world.connect(), b"later")
    world.pass_time(900)
    world.store.flush(world.now_ms)  # the original is safe
    world.lazy = True  # and nothing that comes after it
    world.pass_time(200)
    assert bodies_of(world) == [b"later"]
    for save in [work for work in world.undone if isinstance(work, Save)]:
        save.file.write(save.content)
    for _ in range(20):  # whichever of its unsafe sectors it keeps
        again = world.crash()
        wait_for(again, 1)
        again.pass_time(3_000)
        assert bodies_of(again) == [b"later"]


def test_a_power_cut_before_anything_was_kept() -> None:
    world = SimulatedBroker(lazy=True)
    world.connect().send(send(b"later", properties={"DELAY": "1"}))
    world.pass_time(1_000)
    world.store.flush(world.now_ms)
    assert bodies_of(world) == [b"later"]
    assert world.store.metadata(DELAY_OFFSETS).load() is None
    world = world.crash()
    world.lazy = False
    world.pass_time(5_000)
    assert bodies_of(world) == [b"later"]


def test_a_copy_after_a_power_cut_is_found_whatever_the_log_had_before() -> None:
    """The file named the place of an unsafe copy, after the durable end; the next copy was stored before that place."""
    world = SimulatedBroker(settings=OFTEN)
    world.disk.tears = False
    client = world.connect()
    send_delayed(client, b"later")
    world.pass_time(900)
    world.store.flush(world.now_ms)
    world.lazy = True
    client.send(*(send(b"lost" * 100, queue_id=1) for _ in range(5)))  # between the durable end and the copy
    world.pass_time(200)
    assert bodies_of(world) == [b"later"]
    kept = world.machine.delays.wrapper()
    assert kept.delivered_to is not None and kept.delivered_to <= world.store.durability.flushed
    for save in [work for work in world.undone if isinstance(work, Save)]:
        save.file.write(save.content)
    for _ in range(20):  # with each part of what was not durable
        again = world.crash()
        again.lazy = True  # the file is not written again before the kill
        again.pass_time(3_000)
        assert bodies_of(again) == [b"later"]
        again = again.kill()
        again.pass_time(3_000)
        assert bodies_of(again) == [b"later"]


def test_what_came_due_while_the_broker_was_down_is_delivered_at_the_start() -> None:
    world = SimulatedBroker()
    send_delayed(world.connect(), b"later")
    world.store.flush(world.now_ms)
    world.now_ms += 3_600_000
    world = world.stop()
    world.tick()
    assert bodies_of(world) == [b"later"]


def test_the_file_says_no_more_than_the_disk_has() -> None:
    world = SimulatedBroker(settings=OFTEN)
    send_delayed(world.connect(), b"later")
    world.pass_time(900)
    world.lazy = True
    world.pass_time(100)
    assert bodies_of(world) == [b"later"]
    kept = world.machine.delays.wrapper()
    assert kept.offset_table == {}
    assert kept.delivered_to is not None and kept.delivered_to <= messages(world)[0].physical_offset
    world.work()
    world.pass_time(1_000)
    world.work()
    assert world.machine.delays.wrapper().offset_table == {1: 1}


def test_after_a_clean_stop_the_file_says_it_all() -> None:
    world = SimulatedBroker()
    send_delayed(world.connect(), b"later")
    world.pass_time(1_000)
    world = world.stop()
    kept = world.store.metadata(DELAY_OFFSETS).load()
    assert kept is not None and kept.offset_table == {1: 1}


def test_a_file_of_another_broker_has_offsets_alone() -> None:
    world = SimulatedBroker()
    client = world.connect()
    send_delayed(client, b"delivered")
    world.pass_time(1_000)
    send_delayed(client, b"not yet")
    world = world.stop()
    world.disk.install(world.store.metadata(DELAY_OFFSETS).path, b'{"offsetTable":{1:1}}')
    world = world.kill()
    wait_for(world, 2)
    assert bodies_of(world) == [b"delivered", b"not yet"]


def test_offsets_outside_of_the_queue(caplog: pytest.LogCaptureFixture) -> None:
    world = SimulatedBroker()
    send_delayed(world.connect(), b"later")
    world = world.stop()
    world.disk.install(world.store.metadata(DELAY_OFFSETS).path, b'{"offsetTable":{1:77}}')
    world = world.kill()
    assert "delay level 1 continues at offset 1, not 77" in caplog.text
    send_delayed(world.connect(), b"one more")
    wait_for(world, 1)
    assert bodies_of(world) == [b"one more"]


def test_a_level_that_is_not_configured_any_more_is_still_delivered() -> None:
    world = SimulatedBroker()
    send_delayed(world.connect(), b"later", 2)
    world.store_settings = replace(world.store_settings, delay_levels="1s")
    world = world.stop()
    world.pass_time(5_000)
    assert bodies_of(world) == [b"later"]


# ── Trouble ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_failing_disk_stops_delivery_and_it_resumes(caplog: pytest.LogCaptureFixture) -> None:
    world = SimulatedBroker()
    client = world.connect()
    send_delayed(client, b"later")
    world.disk.fail("sync", errno.EIO, times=math.inf, where="*commitlog*")
    world.disk.fail("create", errno.EIO, times=math.inf, where="*commitlog*")
    world.pass_time(3_000)
    assert not messages(world)
    assert client.ask(pull()).code == ResponseCode.PULL_NOT_FOUND, "reading goes on"
    assert caplog.text.count("delivery of delayed messages is paused") == 1
    world.disk.heal()
    wait_for(world, 1)
    world.pass_time(5_000)
    assert bodies_of(world) == [b"later"]


def test_a_record_that_is_damaged_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    world = SimulatedBroker()
    client = world.connect()
    for body in (b"first", b"second", b"third"):
        send_delayed(client, body)
    second = messages(world, SCHEDULE)[1]
    world = world.stop()
    path = next(iter(world.disk.files(world.store.log.segments.path(0).parent)))
    world.disk.flip(world.store.log.segments.path(0).parent / path, second.physical_offset + 88, 0)
    world.pass_time(3_000)
    assert bodies_of(world) == [b"first", b"third"]
    assert "skipped delayed messages 1 to 1 of level 1" in caplog.text


def test_a_message_that_does_not_say_where_to(caplog: pytest.LogCaptureFixture) -> None:
    world = SimulatedBroker()
    client = world.connect()
    send_delayed(client, b"first")
    for broken in (b"DELAY\x011\x02", b"DELAY\x011\x02REAL_TOPIC\x01orders\x02REAL_QID\x01x\x02"):
        world.store.append([_new(SCHEDULE, broken)], world.now_ms)
    world.store.dispatch()
    send_delayed(client, b"last")
    world.pass_time(1_000)
    assert bodies_of(world) == [b"first", b"last"]
    assert caplog.text.count("have no valid topic and queue") == 2


def _new(topic: str, properties: bytes) -> NewMessage:
    return NewMessage(topic, 0, b"lost", properties, 0, bytes(8))


@pytest.mark.parametrize("back_ms", [3, 3_600_000, 86_400_000])
def test_delays_take_their_time_when_the_clock_is_set_back(back_ms: int) -> None:
    world = SimulatedBroker()
    client = world.connect()
    send_delayed(client, b"before")
    world.set_clock(-back_ms)
    world.pass_time(500)
    send_delayed(client, b"after")
    world.pass_time(490)
    assert not messages(world)
    world.pass_time(1_000 // 15 + 12)  # stamps run a little more slowly until the time of day has caught up
    assert bodies_of(world) == [b"before"]
    world.pass_time(400)
    assert bodies_of(world) == [b"before"]
    world.pass_time(200)
    assert bodies_of(world) == [b"before", b"after"]


def test_delays_take_their_time_when_the_clock_was_set_back_before_a_start() -> None:
    world = SimulatedBroker()
    send_delayed(world.connect(), b"later")
    world.set_clock(-3_600_000)
    world = world.stop()
    world.pass_time(900)
    assert not messages(world)
    world.pass_time(200)
    assert bodies_of(world) == [b"later"]


def test_delays_are_due_when_the_clock_is_set_forward() -> None:
    world = SimulatedBroker()
    send_delayed(world.connect(), b"later")
    world.set_clock(3_600_000)
    world.pass_time(100)
    assert bodies_of(world) == [b"later"]


def test_an_entry_that_is_due_later_than_it_can_be_is_due_at_once() -> None:
    """Another broker, whose clock was ahead, has written it."""
    world = SimulatedBroker()
    world.store.queues.ensure("SCHEDULE_TOPIC_XXXX", 0)
    send_delayed(world.connect(), b"later")
    queue = world.store.queues.ensure("SCHEDULE_TOPIC_XXXX", 0)
    offset, size, due_ms = queue.entry(0)
    entry_layout.put_entry(queue.entries(0, 1), 0, offset, size, due_ms + 3_600_000)
    world = world.stop()
    world.pass_time(100)
    assert bodies_of(world) == [b"later"]


def test_what_is_lost_with_the_log_is_delivered_again(caplog: pytest.LogCaptureFixture) -> None:
    """A sync fails, and what was to be mended turns out never to have been written."""
    caplog.set_level(logging.CRITICAL)
    world = SimulatedBroker()
    client = world.connect()
    send_delayed(client, b"later")
    world.pass_time(900)
    world.store.flush(world.now_ms)
    world.lazy = True
    world.pass_time(100)
    assert bodies_of(world) == [b"later"]
    world.disk.fail("sync", errno.EIO, where="*commitlog*")
    world.pass_time(600)
    world.work()
    world.disk.evict()
    world.lazy = False
    world.pass_time(5_000)
    assert bodies_of(world) == [b"later"]
