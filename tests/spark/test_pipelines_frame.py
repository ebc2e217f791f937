"""Reports, progress, charts and runs, without Spark."""

import io
import json
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kourou.spark.errors import OptionError
from kourou.spark.pipelines.charts import svg, ticks
from kourou.spark.pipelines.page import page, write_page
from kourou.spark.pipelines.progress import BatchProgress, JsonLines, Lines, Speed
from kourou.spark.pipelines.report import (
    Chart,
    RunReport,
    Table,
    offsets_table,
    size_text,
    span_text,
    table_lines,
    time_text,
)
from kourou.spark.pipelines.running import PipelineError, Run, Runner, Stopping, distance, stopping_on_signals


class Kept:
    """A watch that remembers."""

    def __init__(self) -> None:
        self.batches: list[BatchProgress] = []
        self.notes: list[str] = []
        self.reports: list[RunReport] = []

    def batch(self, progress: BatchProgress) -> None:
        self.batches.append(progress)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def done(self, report: RunReport) -> None:
        self.reports.append(report)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


BATCH = BatchProgress(batch=12, rows=40_000, bytes=41_000_000, seconds=0.8, lag=380_000, age_s=192, eta_s=7.6)


def test_a_batch_is_one_line() -> None:
    assert BATCH.line() == "batch 12  40,000 rows  50,000/s  51.2 MB/s  lag 380,000  age 3m12s  eta 7.6s"
    assert BatchProgress(batch=0, rows=3, seconds=1, written=2).line() == "batch 0  3 rows  3/s  0 B/s  written 2"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0s"), (9.6, "9.6s"), (59, "59s"), (185, "3m05s"), (7800, "2h10m"), (356_400, "4d03h"), (-1, "0.0s")],
)
def test_spans(seconds: float, text: str) -> None:
    assert span_text(seconds) == text


def test_sizes_and_times() -> None:
    assert [size_text(size) for size in (3, 12_000, 1_500_000, 2e12)] == ["3 B", "12.0 kB", "1.5 MB", "2,000.0 GB"]
    assert time_text(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"


def test_an_estimate_follows_the_speed() -> None:
    speed = Speed()
    assert speed.eta_s(BatchProgress(batch=0, rows=100, seconds=1, lag=1000)) == pytest.approx(10)
    assert speed.eta_s(BatchProgress(batch=1, rows=200, seconds=1, lag=1000)) == pytest.approx(1000 / 130)
    assert speed.eta_s(BatchProgress(batch=2, rows=0, seconds=1, lag=130)) == pytest.approx(1)
    assert speed.eta_s(BatchProgress(batch=3, rows=1, seconds=1)) is None


def test_a_table_as_text() -> None:
    table = Table("Queues", ["topic", "rows"], [["orders", 1200], ["a\x1b[2J", 3]])
    assert table_lines(table) == ["Queues", "  topic      rows", "  orders    1,200", "  a\\x1b[2J      3"]
    long = Table("Many", ["n"], [[number] for number in range(50)])
    assert table_lines(long)[-1] == "  … and 30 more"
    assert table_lines(Table("None", ["n"], [])) == ["None", "  n"]


def test_offsets_of_queues_that_moved() -> None:
    table = offsets_table("Q", {"t": {"b": {"0": 5, "1": 2}}}, {"t": {"b": {"0": 9, "1": 2, "2": 1}}})
    assert table.rows == [["t", "b", 0, 5, 9, 4], ["t", "b", 2, 0, 1, 1]]
    assert distance({"t": {"b": {"0": 5}}}, {"t": {"b": {"0": 9, "1": 2}}}) == 6


def test_lines_on_a_terminal_write_over_each_other() -> None:
    shown, kept = Terminal(), io.StringIO()
    lines = Lines(shown, kept)
    lines.batch(BATCH)
    lines.batch(BATCH)
    lines.done(RunReport(pipeline="archive", started="now"))
    assert shown.getvalue() == f"\r\x1b[2K{BATCH.line()}\r\x1b[2K{BATCH.line()}\n"
    assert kept.getvalue().startswith("archive: 0 messages (0 B) read")


def test_lines_elsewhere_are_lines() -> None:
    shown = io.StringIO()
    lines = Lines(shown, io.StringIO())
    lines.batch(BATCH)
    lines.note("a note")
    assert shown.getvalue() == f"{BATCH.line()}\na note\n"


def test_programs_get_objects() -> None:
    out = io.StringIO()
    watch = JsonLines(out)
    watch.batch(BATCH)
    watch.note("not for programs")
    watch.done(RunReport(pipeline="archive", started="now"))
    first, last = (json.loads(line) for line in out.getvalue().splitlines())
    assert first["batch"] == 12 and first["rows_per_s"] == 50_000 and first["lag"] == 380_000
    assert last["pipeline"] == "archive" and last["read"] == {"rows": 0, "bytes": 0}


def test_a_run_adds_up() -> None:
    kept = Kept()
    with Runner(watch=kept).run("test", topics="a", secret=None) as run:
        run.batch(BatchProgress(batch=0, rows=10, bytes=100, seconds=1, lag=10))
        run.batch(BatchProgress(batch=1, rows=5, bytes=50, seconds=1, lag=5, written=3))
        run.report.skip("twice", 2)
        run.report.skip("never", 0)
    report = run.report
    assert kept.reports == [report]
    assert (report.read.rows, report.read.bytes, report.written.rows, report.batches) == (15, 150, 13, 2)
    assert report.skipped == {"twice": 2}
    assert report.settings == {"topics": "a"}
    assert report.stopped == "end"
    assert [chart.title for chart in report.charts] == ["Messages per second", "Lag"]
    assert kept.batches[1].eta_s == pytest.approx(5 / 8.5)
    assert "15 messages (150 B) read, 13 written, 2 batches" in report.text()
    assert "2 skipped: twice" in report.text()


def test_a_failure_is_one_line_and_keeps_the_report() -> None:
    kept = Kept()

    def fail() -> None:
        with Runner(watch=kept).run("test") as run:
            run.batch(BatchProgress(batch=0, rows=10, seconds=1))
            raise OptionError("no such thing")

    with pytest.raises(PipelineError, match="no such thing") as failed:
        fail()
    report = failed.value.report
    assert kept.reports == [report]
    assert report.stopped == "error" and report.errors == ["no such thing"] and report.read.rows == 10


def test_many_batches_make_a_chart_of_bounded_size() -> None:
    with Runner().run("test") as run:
        for number in range(5000):
            run.batch(BatchProgress(batch=number, rows=1, seconds=1, lag=0))
    assert run.report.batches == 5000
    assert 200 <= len(run.report.charts[0].x) <= 501


def test_the_first_signal_asks_and_the_second_ends() -> None:
    kept = Kept()
    before = signal.getsignal(signal.SIGTERM)
    runner = Runner(watch=kept)

    def be_asked_twice() -> None:
        with stopping_on_signals(runner), runner.run("test") as run:
            assert run.wait(0)
            os.kill(os.getpid(), signal.SIGTERM)
            assert not run.wait(60)
            assert run.is_stopping
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        be_asked_twice()
    for thread in threading.enumerate():
        if thread.name == "kourou-stopping":
            thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
    assert kept.reports[0].stopped == "asked"
    assert kept.notes == ["stopping after this batch; interrupt again to stop at once"]


def as_spark_s(query: "Query") -> Any:
    """Spark's own queries can't be made without Spark."""
    return query


class Query:
    """Stands for a streaming query that makes a batch at each look."""

    def __init__(
        self, run: Run, batches: int, *, fails: bool = False, knows_newest: bool = True, tidying: int = 0
    ) -> None:
        self.run, self.batches, self.fails, self.knows_newest = run, batches, fails, knows_newest
        self.tidying = tidying  # batches without rows, at the end
        self.recentProgress: list[Any] = []
        self.is_stopped = False

    def awaitTermination(self, seconds: float) -> bool:
        number = len(self.recentProgress)
        if number == self.batches:
            return True
        try:
            self.run.enter_batch(number)
        except Stopping as error:
            raise ValueError("the query failed") from error
        if self.fails:
            raise ValueError("it broke")
        offsets = {"t": {"b": {"0": 10 * (number + 1)}}}
        newest = offsets if self.knows_newest else None
        document = {
            "batchId": number,
            "numInputRows": 10 if number < self.batches - self.tidying else 0,
            "durationMs": {"addBatch": 5, "triggerExecution": 500},
            "sources": [
                {"startOffset": {"t": {"b": {"0": 10 * number}}}, "endOffset": offsets, "latestOffset": newest}
            ],
        }
        self.recentProgress.append(type("P", (), {"json": json.dumps(document)}))
        return False

    def stop(self) -> None:
        self.is_stopped = True


def test_a_query_is_followed_to_its_end() -> None:
    with Runner().run("test") as run:
        run.follow(as_spark_s(Query(run, 3)), lambda number: {"bytes": 7, "written": number})
    report = run.report
    assert (report.batches, report.read.rows, report.read.bytes, report.written.rows) == (3, 30, 21, 3)
    assert report.from_offsets == {"t": {"b": {"0": 0}}} and report.to_offsets == {"t": {"b": {"0": 30}}}


@pytest.mark.parametrize(("knows_newest", "lag"), [(True, 0), (False, None)])
def test_the_lag_of_a_query(knows_newest: bool, lag: int | None) -> None:
    kept = Kept()
    with Runner(watch=kept).run("test") as run:
        run.follow(as_spark_s(Query(run, 1, knows_newest=knows_newest)))
    assert [batch.lag for batch in kept.batches] == [lag]


def test_batches_without_rows_are_not_told() -> None:
    kept = Kept()
    with Runner(watch=kept).run("test") as run:
        run.follow(as_spark_s(Query(run, 4, tidying=2)))
    assert [batch.batch for batch in kept.batches] == [0, 1]
    assert run.report.to_offsets == {"t": {"b": {"0": 40}}}


def test_a_query_is_stopped_between_batches() -> None:
    stop = threading.Event()

    class Asks(Kept):
        def batch(self, progress: BatchProgress) -> None:
            super().batch(progress)
            if progress.batch == 1:
                stop.set()

    with Runner(stop=stop, watch=Asks()).run("test") as run:
        run.follow(as_spark_s(Query(run, 9)))
    assert run.report.batches == 2
    assert run.report.stopped == "asked" and not run.report.errors


def test_a_query_that_fails() -> None:
    with pytest.raises(PipelineError, match="it broke"), Runner().run("test") as run:
        run.follow(as_spark_s(Query(run, 3, fails=True)))


def test_ticks_are_round() -> None:
    assert ticks(0, 10) == [0, 2, 4, 6, 8, 10]
    assert ticks(0, 0.3) == pytest.approx([0, 0.1, 0.2, 0.3])
    assert ticks(5, 5) == [5]


CHARTS = [
    Chart(title="Lag <b>", kind="lines", x=[0.0, 1000.0, 2000.0], series={"a": [1, None, 3], "b&": [0, 0, 0]}),
    Chart(title="T", kind="lines", x=[1.7e12, 1.8e12], series={"a": [1.5, 2e9]}, is_time=True, unit="rows/s"),
    Chart(
        title="B", kind="bars", x=["one", "a very long name indeed, longer than a bar is wide"], series={"n": [3, 4]}
    ),
    Chart(title="N", kind="bars", x=[str(number) for number in range(100)], series={"n": [-1.0] * 100}),
    Chart(title="One", kind="lines", x=[5.0], series={"n": [5.0]}),
]


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.title)
def test_charts_are_well_formed(chart: Chart) -> None:
    drawn = svg(chart)
    ElementTree.fromstring(f"<div>{drawn}</div>")
    for number in re.findall(r'(?:x|y|cx|cy|x1|y1|x2|y2)="(-?[\d.]+)"', drawn):
        assert -1 <= float(number) <= 721


def test_an_empty_chart() -> None:
    assert "nothing to show" in svg(Chart(title="E", kind="bars", x=[], series={}))
    assert "nothing to show" in svg(Chart(title="E", kind="lines", x=[1.0], series={"a": [None]}))


def test_one_moment_is_a_bar_and_no_dot() -> None:
    lags = Chart(title="Lag", kind="lines", x=[1.7e12], series={"a": [3.0], "b": [None]}, is_time=True)
    drawn = svg(lags)
    assert "<rect" in drawn and "<circle" not in drawn and "<polyline" not in drawn
    assert ">a</text>" in drawn


def test_labels_that_do_not_fit_say_what_is_different() -> None:
    names = [f"orders broker-a {number}" for number in range(16)]
    drawn = svg(Chart(title="Q", kind="bars", x=names, series={"lag": [1.0] * 16}))
    assert [label for label in re.findall(r">(\d+)</text>", drawn) if label in map(str, range(16))][-16:] == [
        str(number) for number in range(16)
    ]
    names = [f"{topic} broker-a {number}" for topic in ("orders", "payments") for number in range(8)]
    drawn = svg(Chart(title="Q", kind="bars", x=names, series={"lag": [1.0] * 16}))
    assert drawn.count("-a 7</text>") == 2  # the beginnings are alike, the ends are not
    many = svg(Chart(title="Q", kind="bars", x=[f"q {number}" for number in range(50)], series={"lag": [1.0] * 50}))
    assert "the first 40 of 50" in many


def test_wide_tables_are_not_clipped() -> None:
    """Text breaks where there is no room, so that all columns are on the page, and numbers stay whole."""
    columns = ["group", "topic", "broker", "queue", "committed", "end", "lag", "oldest waits", "lost"]
    row: list[Any] = [
        "a-group-with-a-long-name" * 4,
        "topic" * 20,
        "broker" * 10,
        3,
        None,
        12_345_678,
        5,
        "3m05s",
        None,
    ]
    report = RunReport(pipeline="p", started="now", tables=[Table("Queues", columns, [row])])
    text = page(report)
    style = text[text.index("<style>") : text.index("</style>")]
    assert "overflow-x" not in style and "overflow-wrap:anywhere" in style
    assert '<td class="n">12,345,678</td>' in text
    assert '<th class="n">committed</th>' in text


def test_a_page_loads_nothing_and_escapes_everything(tmp_path: Path) -> None:
    report = RunReport(
        pipeline="archive",
        started="now",
        charts=CHARTS,
        tables=[Table("T <i>", ["name"], [["<script>alert(1)</script>"], [None]])],
        errors=["<oops>"],
        settings={"lake": "<lake>"},
    )
    text = page(report)
    assert not re.search(r"https?://|<script|<link|@import|url\(", text)
    assert text.count("<svg") == len(CHARTS)
    assert "&lt;script&gt;" in text and "&lt;oops&gt;" in text
    write_page(report, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == text
