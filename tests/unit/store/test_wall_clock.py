"""The time of day, which may jump, and the store times made of it, which may not go back."""

from hypothesis import example, given, strategies as st

from kourou.store.wall_clock import SLEW, WallClock

HOUR = 3_600_000


def test_without_jumps_all_times_are_the_same() -> None:
    clock = WallClock()
    assert [clock.at(5), clock.stamp(5), clock.at(7), clock.stamp(7)] == [5, 5, 7, 7]


def test_a_jump_ahead_is_followed() -> None:
    clock = WallClock()
    assert clock.stamp(1_000) == 1_000
    clock.skew_ms = HOUR
    assert clock.stamp(1_001) == clock.at(1_001) == HOUR + 1_001


def test_after_a_jump_back_stamps_go_on_until_the_time_of_day_has_caught_up() -> None:
    clock = WallClock()
    now = 10 * HOUR
    assert clock.stamp(now) == now
    clock.skew_ms = -HOUR
    assert clock.stamp(now) == now
    assert clock.stamp(now + 1_600) == now + 1_500
    later = now + SLEW * HOUR
    assert clock.stamp(later) == clock.at(later)
    assert clock.stamp(later + 5) == clock.at(later + 5)


def test_a_log_from_the_future_is_gone_on_from() -> None:
    clock = WallClock()
    clock.start_from(5 * HOUR)
    assert clock.stamp(HOUR) == 5 * HOUR
    assert clock.stamp(HOUR + 1_600) == 5 * HOUR + 1_500


@example([(0, 0), (0, -17)])  # less than the time until the next stamp
@example([(0, 0), (0, -31)])
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(-2 * HOUR, 2 * HOUR)), min_size=1))
def test_stamps_never_go_back_nor_stand_still(moves: list[tuple[int, int]]) -> None:
    clock, now, last = WallClock(), 100 * HOUR, 0
    for passed, jump in moves:
        now += passed
        clock.skew_ms += jump
        stamp = clock.stamp(now)
        assert stamp >= clock.at(now)
        assert stamp >= last
        now += 2 * SLEW
        assert clock.stamp(now) >= stamp + SLEW
        last = clock.stamp(now)
