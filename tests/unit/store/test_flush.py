"""When syncs are due."""

from kourou.store.flush import PAGE_SIZE, FlushClock
from kourou.store.settings import StoreSettings

SETTINGS = StoreSettings()


def clock(settings: StoreSettings = SETTINGS) -> FlushClock:
    return FlushClock(settings)


def test_nothing_dirty_is_never_due() -> None:
    assert not clock().log_is_due(0, 10**9, at_once=True)
    assert not clock().queues_are_due(0, 10**9)


def test_the_log_is_synced_when_enough_is_dirty_and_some_time_has_passed() -> None:
    enough = 4 * PAGE_SIZE
    assert not clock().log_is_due(enough, 499, at_once=False)
    assert clock().log_is_due(enough, 500, at_once=False)
    assert not clock().log_is_due(enough - 1, 500, at_once=False)


def test_a_little_is_synced_after_ten_seconds() -> None:
    assert not clock().log_is_due(1, 9_999, at_once=False)
    assert clock().log_is_due(1, 10_000, at_once=False)


def test_a_sync_begins_both_intervals_anew() -> None:
    times = clock()
    times.log_was_synced(10_000)
    assert not times.log_is_due(10**6, 10_499, at_once=False)
    assert times.log_is_due(10**6, 10_500, at_once=False)
    assert not times.log_is_due(1, 19_999, at_once=False)


def test_under_sync_flush_no_interval_passes_first() -> None:
    assert clock().log_is_due(1, 0, at_once=True)


def test_queues_follow_at_their_own_pace() -> None:
    times = clock()
    assert not times.queues_are_due(2 * PAGE_SIZE, 999)
    assert times.queues_are_due(2 * PAGE_SIZE, 1_000)
    assert not times.queues_are_due(1, 59_999)
    assert times.queues_are_due(1, 60_000)
    times.queues_were_synced(60_000)
    assert not times.queues_are_due(10**6, 60_999)
