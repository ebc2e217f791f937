"""When syncs are due, and who is answered by which."""

from dataclasses import replace

import pytest

from kourou.store.flush import PAGE_SIZE, FlushClock, Waiters
from kourou.store.settings import FlushMode, StoreSettings

SETTINGS = StoreSettings()


def clock(settings: StoreSettings = SETTINGS) -> FlushClock:
    return FlushClock(settings)


def test_nothing_dirty_is_never_due() -> None:
    assert not clock().log_is_due(0, 10**9, awaited=True)
    assert not clock().queues_are_due(0, 10**9)


def test_the_log_is_synced_when_enough_is_dirty_and_some_time_has_passed() -> None:
    enough = 4 * PAGE_SIZE
    assert not clock().log_is_due(enough, 499, awaited=False)
    assert clock().log_is_due(enough, 500, awaited=False)
    assert not clock().log_is_due(enough - 1, 500, awaited=False)


def test_a_little_is_synced_after_ten_seconds() -> None:
    assert not clock().log_is_due(1, 9_999, awaited=False)
    assert clock().log_is_due(1, 10_000, awaited=False)


def test_a_sync_begins_both_intervals_anew() -> None:
    times = clock()
    times.log_was_synced(10_000)
    assert not times.log_is_due(10**6, 10_499, awaited=False)
    assert times.log_is_due(10**6, 10_500, awaited=False)
    assert not times.log_is_due(1, 19_999, awaited=False)


@pytest.mark.parametrize(("mode", "awaited"), [(FlushMode.SYNC, False), (FlushMode.ASYNC, True)])
def test_who_waits_need_not_wait_for_an_interval(mode: FlushMode, awaited: bool) -> None:
    assert clock(replace(SETTINGS, flush_mode=mode)).log_is_due(1, 0, awaited=awaited)


def test_queues_follow_at_their_own_pace() -> None:
    times = clock()
    assert not times.queues_are_due(2 * PAGE_SIZE, 999)
    assert times.queues_are_due(2 * PAGE_SIZE, 1_000)
    assert not times.queues_are_due(1, 59_999)
    assert times.queues_are_due(1, 60_000)
    times.queues_were_synced(60_000)
    assert not times.queues_are_due(10**6, 60_999)


def test_one_sync_answers_all_that_wait_for_it() -> None:
    waiters = Waiters()
    for upto, token in ((10, "a"), (20, "b"), (20, "c"), (30, "d")):
        waiters.add(upto, 5_000, token)
    assert waiters.safe(9) == []
    assert waiters.safe(20) == ["a", "b", "c"]
    assert len(waiters) == 1
    assert waiters.safe(30) == ["d"]


def test_who_waits_too_long_is_named_once() -> None:
    waiters = Waiters()
    assert waiters.next_deadline_ms() is None
    waiters.add(10, 5_000, "a")
    waiters.add(20, 6_000, "b")
    assert waiters.next_deadline_ms() == 5_000
    assert waiters.expired(4_999) == []
    assert waiters.expired(5_000) == ["a"]
    assert waiters.expired(5_000) == []
    assert waiters.safe(20) == ["b"]


def test_what_is_lost_is_never_safe() -> None:
    """Others will be written at the same offsets, and their sync answers nobody but those who wait for them."""
    waiters = Waiters()
    waiters.add(10, 5_000, "kept")
    waiters.add(20, 5_000, "lost")
    waiters.add(30, 5_000, "lost, too")
    waiters.cut(10)
    assert waiters.next_deadline_ms() == 0
    waiters.add(15, 5_000, "later")
    assert waiters.safe(40) == ["kept", "later"]
    assert set(waiters.expired(0)) == {"lost", "lost, too"}
    assert waiters.expired(9_999) == []
    assert waiters.next_deadline_ms() is None


def test_offsets_only_grow() -> None:
    waiters = Waiters()
    waiters.add(10, 5_000, "a")
    with pytest.raises(AssertionError, match="only grow"):
        waiters.add(9, 5_000, "b")
