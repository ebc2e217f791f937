"""The figures of the store and of timed messages for Prometheus.

Java: DefaultStoreMetricsManager.
"""

from collections.abc import Iterator

from kourou.broker.machine import Broker
from kourou.broker.names import TIMER_TOPIC
from kourou.server.figures import COUNTER, HISTOGRAM, Figure, Row

TIMER_BOUNDS_S = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)
"""Upper bounds, in seconds, of the ranges in which timed messages are counted."""

STORAGE = ("storage_medium", "storage_type")
_DISK = ("disk", "local")
_TOPIC = (*STORAGE, "topic")


def store_figures(broker: Broker, now_ms: int) -> Iterator[Figure]:
    store = broker.store
    log = store.log
    try:
        total, free = store.space()
        yield _one("storage_size_bytes", "Bytes in use of the disk with the store.", total - free)
    except OSError:
        pass  # the other figures are still exported
    text = "Bytes of the commit log that are not on disk yet."
    yield _one("storage_flush_behind_bytes", text, log.end - store.durability.flushed)
    text = "Bytes of the commit log that consumers can't see yet."
    yield _one("storage_dispatch_behind_bytes", text, log.end - store.dispatched)
    oldest = store.reader.message_at(log.start) if log.end > log.start else None
    if oldest is not None:
        age_ms = max(store.clock.at(now_ms) - oldest.stored_ms, 0)
        yield _one("storage_message_reserve_time_milliseconds", "Age of the oldest message.", age_ms)
    if broker.settings.timers:
        yield from _timers(broker, now_ms)


def _timers(broker: Broker, now_ms: int) -> Iterator[Figure]:
    timers, store = broker.timers, broker.store
    counts = timers.counts
    end = store.reader.offsets(TIMER_TOPIC, 0)[1]
    first_ms = store.reader.stored_ms_of(TIMER_TOPIC, 0, timers.queue_offset)
    waits_ms = max(store.clock.at(now_ms) - first_ms, 0) if first_ms > 0 else 0
    late_ms = max(timers.time_ms(now_ms) - timers.read_ms, 0) if timers.pending else 0
    yield _one("timer_enqueue_lag", "Timed messages that are not in the wheel yet.", max(end - timers.queue_offset, 0))
    yield _one("timer_enqueue_latency_milliseconds", "Age of the first of them.", waits_ms)
    yield _one("timer_dequeue_lag", "Timed messages in the wheel.", timers.pending)
    yield _one("timer_dequeue_latency_milliseconds", "For how long messages have been due.", late_ms)
    waiting: Iterator[Row] = (((*_DISK, topic), metric.count) for topic, metric in counts.waiting.items())
    yield Figure("rocketmq_timing_messages", "Timed messages that are not yet due.", waiting, _TOPIC)
    entered: Iterator[Row] = (((*_DISK, topic), count) for topic, count in list(counts.enqueued_of.items()))
    yield Figure("rocketmq_timer_enqueue_total", "Timed messages put into the wheel.", entered, _TOPIC, COUNTER)
    left: Iterator[Row] = (((*_DISK, topic), count) for topic, count in list(counts.dequeued_of.items()))
    yield Figure("rocketmq_timer_dequeue_total", "Timed messages delivered.", left, _TOPIC, COUNTER)
    name, text = "rocketmq_timer_message_snapshot", "Timed messages by the time until they are due."
    yield Figure(name, text, _snapshot(broker, now_ms), (*STORAGE, "timer_bound_s"))
    times: Iterator[Row] = (((*_DISK, topic), found) for topic, found in list(counts.delays.items()))
    name, text = "rocketmq_delay_message_latency_seconds", "Requested delays of timed messages."
    yield Figure(name, text, times, _TOPIC, HISTOGRAM)


def _snapshot(broker: Broker, now_ms: int) -> Iterator[Row]:
    timers, wheel = broker.timers, broker.store.timers.wheel
    begin_ms = at_ms = timers.time_ms(now_ms) // wheel.precision_ms * wheel.precision_ms
    for bound in TIMER_BOUNDS_S:
        end_ms, found = begin_ms + bound * 1000, 0
        while at_ms < end_ms and timers.pending:
            at_ms = wheel.next_used(at_ms, end_ms)
            if at_ms < end_ms:
                found += wheel.slot(at_ms).messages
                at_ms += wheel.precision_ms
            yield None
        at_ms = end_ms
        yield (*_DISK, str(bound)), found


def _one(name: str, text: str, value: float) -> Figure:
    return Figure(f"rocketmq_{name}", text, [(_DISK, value)], STORAGE)
