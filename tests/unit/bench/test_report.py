"""The report of a benchmark."""

import json
from pathlib import Path

import pytest
from benchmarks.report import Bar, Result, middle, quantile, table, where, write_json


@pytest.mark.parametrize(("measured", "cleared"), [(1.9, True), (2.0, True), (2.01, False), (None, False)])
def test_a_bar_is_cleared_by_a_figure_within_its_limit(measured: float | None, cleared: bool) -> None:
    bar = Bar("decode", measured, 2.0, "µs")
    assert bar.cleared is cleared
    assert str(bar).startswith("PASS" if cleared else "FAIL")


def test_a_result_is_cleared_when_all_its_bars_are() -> None:
    low, high = Bar("low", 1, 2, "ms"), Bar("high", 3, 2, "ms")
    assert Result("without bars").cleared
    assert Result("one", bars=[low]).cleared
    assert not Result("both", bars=[low, high]).cleared


def test_without_a_verdict_nothing_passes_and_nothing_fails(capsys: pytest.CaptureFixture[str]) -> None:
    result = Result("quick", bars=[Bar("low", 1, 2, "ms"), Bar("high", 3, 2, "ms")], no_verdict="too short")
    assert result.cleared
    result.print()
    said = capsys.readouterr().out
    assert "No verdict: too short" in said and "high: 3.00 ms" in said
    assert "PASS" not in said and "FAIL" not in said


def test_a_table_has_names_to_the_left_and_figures_to_the_right() -> None:
    assert table(["load", "µs"], [["query", "9.5"], ["registration", "120"]]).splitlines() == [
        "load           µs",
        "------------  ---",
        "query         9.5",
        "registration  120",
    ]


def test_quantiles() -> None:
    values = list(range(1000, 0, -1))
    assert quantile(values, 0.5) == 501
    assert quantile(values, 0.999) == 1000
    assert quantile([7], 0.999) == 7
    assert middle([3, 1, 2]) == 2
    assert middle([]) != middle([])  # not a number


def test_the_json_file_has_everything(tmp_path: Path) -> None:
    facts = where()
    assert set(facts) == {"machine", "load", "commit", "python", "backend", "command"}
    write_json(tmp_path / "out.json", facts, [Result("codec", bars=[Bar("both", 1.5, 2, "µs")], data={"send": 1.5})])
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["where"] == facts
    assert written["results"] == {"codec": {"send": 1.5}}
    assert written["no_verdict"] == {}
    assert written["bars"] == [{"name": "both", "measured": 1.5, "limit": 2, "unit": "µs", "cleared": True}]
