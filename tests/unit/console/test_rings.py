"""An hour of figures, rates, and what views make of values that brokers send."""

import pytest

from kourou.console.limits import LOOKED_AT_SECONDS, RING_FIGURES_MAX, RING_POINTS
from kourou.console.rings import Rates, Rings
from kourou.console.views.journey import delays_of
from kourou.console.views.messages import csv_cell
from kourou.console.views.overview import first_rate, span
from kourou.console.views.values import long_in, ms, number_in, perm_of, perm_text, size_in


def test_an_hour_of_points() -> None:
    rings = Rings()
    for second in range(RING_POINTS + 10):
        rings.add("a", second, {"in": float(second), "out": None})
    found = rings.history("a", ("in", "out", "other"))
    assert len(found.times) == RING_POINTS
    assert (found.times[0], found.series["in"][0]) == (10, 10.0)
    assert set(found.series["out"]) == set(found.series["other"]) == {None}
    assert rings.history("b", ("in",)).times == []


def test_a_figure_that_comes_later() -> None:
    rings = Rings()
    rings.add("a", 1, {"in": 1.0})
    rings.add("a", 2, {"out": 2.0})
    assert rings.history("a", ("in", "out")).series == {"in": [1.0, None], "out": [None, 2.0]}


def test_there_is_a_limit_of_figures() -> None:
    rings = Rings()
    for number in range(RING_FIGURES_MAX + 5):
        rings.add(str(number), 1, {"in": 1.0})
    assert rings.history("0", ("in",)).times == []
    assert rings.history(str(RING_FIGURES_MAX), ("in",)).times == [1]


def test_subjects_that_are_not_displayed_are_dropped() -> None:
    rings = Rings()
    rings.want("group:a", 0.0)
    rings.want("topic:a", LOOKED_AT_SECONDS)
    assert rings.wanted("group", 1.0) == ["a"]
    assert rings.wanted("group", LOOKED_AT_SECONDS + 1) == []
    assert rings.wanted("topic", LOOKED_AT_SECONDS + 1) == ["a"]


def test_rates() -> None:
    rates = Rates()
    assert rates.rate("a", 0.0, 100) is None
    assert rates.rate("a", 10.0, 200) == 10.0
    assert rates.rate("a", 10.5, 900) == 10.0  # too soon for a new one
    assert rates.rate("a", 20.0, 50) is None  # the topic is a new one


def test_values_of_brokers() -> None:
    assert [size_in(text) for text in ("4.9 KiB", "0 B", "1 MiB", "x", "1.2.3 B")] == [5018, 0, 1048576, None, None]
    assert [number_in(text) for text in ("1.5", "", None, "nan", "inf", "x")] == [1.5, None, None, None, None, None]
    assert [long_in(text) for text in ("-1", "9" * 19, "9" * 20, "1.0", None)] == [-1, int("9" * 19), None, None, None]
    assert [ms(value) for value in (0, -1, 5, 2**60, None)] == [None, None, 5, None, None]
    assert [first_rate(text) for text in ("1.5 2 3", "", None, "x", "-1")] == [1.5, None, None, None, None]
    assert delays_of("1s 10m 2h x 1w 99999999999s") == [1000, 600_000, 7_200_000]
    assert [span(seconds) for seconds in (1, 119, 121, 7201, 200_000)] == ["1 s", "119 s", "2 min", "2 h", "2 days"]


@pytest.mark.parametrize("text", ["rw", "r", "w", "-"])
def test_permissions(text: str) -> None:
    assert perm_text(perm_of(text)) == text


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", '"\'=1+1"'),
        ("@x", '"\'@x"'),
        ("-5", '"-5"'),
        ("-x", '"\'-x"'),
        ('a"b', '"a""b"'),
        ("\tx", '"\'\tx"'),
        ("", '""'),
    ],
)
def test_cells_of_csv(text: str, cell: str) -> None:
    assert csv_cell(text) == cell
