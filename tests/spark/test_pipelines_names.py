"""A verb of `kourou pipeline` and its Python function have the same names, defaults and units."""

import importlib
import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import typer

from kourou.cli.pipelines_commands import app
from kourou.spans import is_span, seconds_of
from kourou.spark.errors import OptionError
from kourou.spark.pipelines.choice import choice, size_bytes, span_s
from kourou.spark.pipelines.dedup import dedup
from kourou.spark.pipelines.running import PipelineError
from kourou.spark.pipelines.streams import flow
from kourou.spark.pipelines.transform import transform

FUNCTIONS = {
    "archive": "archive.archive",
    "archive-store": "archive_store.archive_store",
    "replay": "replay.replay",
    "dlq triage": "dlq.triage",
    "dlq redrive": "dlq.redrive",
    "transform": "transform.transform",
    "dedup": "dedup.dedup",
    "stats traffic": "stats.traffic",
    "stats lag": "stats.lag",
    "trace latency": "trace.latency",
    "compact": "compact.compact",
}
OF_THE_COMMAND_LINE = {"option", "master", "conf", "as_json", "html", "sql_file"}
"""How Spark is started and what is printed; `option` is `options`, and Python reads files by itself."""
OF_PYTHON = {"options", "runner", "clock"}


def verbs() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, command in typer.main.get_group(app).commands.items():
        inner = getattr(command, "commands", None)
        found |= {name: command} if inner is None else {f"{name} {one}": inner[one] for one in inner}
    return found


def function_of(verb: str) -> Any:
    module, name = FUNCTIONS[verb].split(".")
    return getattr(importlib.import_module(f"kourou.spark.pipelines.{module}"), name)


def test_every_verb_has_a_function() -> None:
    assert set(verbs()) >= set(FUNCTIONS)


@pytest.mark.parametrize("verb", sorted(FUNCTIONS))
def test_names_are_the_same(verb: str) -> None:
    options = {option.name: option for option in verbs()[verb].params if option.name != "help"}
    arguments = inspect.signature(function_of(verb)).parameters
    assert set(options) - OF_THE_COMMAND_LINE == set(arguments) - OF_PYTHON
    for name, option in options.items():
        if option.param_type_name == "option" and name not in OF_THE_COMMAND_LINE | {"namesrv"}:
            assert f"--{name.replace('_', '-')}" in option.opts


@pytest.mark.parametrize("verb", sorted(FUNCTIONS))
def test_defaults_and_units_are_the_same(verb: str) -> None:
    arguments = inspect.signature(function_of(verb)).parameters
    for option in verbs()[verb].params:
        name = option.name
        if name in OF_THE_COMMAND_LINE | {"namesrv", "help", "sql"} or option.required:
            continue
        default = arguments[name].default
        assert (option.default or None) == (default or None), name
        if name in ("every", "window"):
            assert is_span(str(default)), name
        if name.endswith("_size"):
            assert size_bytes(default, name), name


def test_positions_are_the_same() -> None:
    for verb in FUNCTIONS:
        given = [option.name for option in verbs()[verb].params if option.param_type_name == "argument"]
        taken = [
            name
            for name, one in inspect.signature(function_of(verb)).parameters.items()
            if one.kind is one.POSITIONAL_OR_KEYWORD
        ]
        assert taken[: len(given)] == given, verb


@pytest.mark.parametrize(
    ("span", "seconds"),
    [("500ms", 0.5), ("10s", 10), ("10 seconds", 10), ("1h30m", 5400), ("1 hour 30 minutes", 5400), ("2d", 172800),
     (2.5, 2.5), (timedelta(minutes=1), 60)],
)  # fmt: skip
def test_spans_are_text_seconds_or_a_timedelta(span: Any, seconds: float) -> None:
    assert seconds_of(span) == seconds


@pytest.mark.parametrize("text", ["", "10", "s", "ten s", "10 parsecs", "10s and more", "-1s"])
def test_other_text_is_refused(text: str) -> None:
    assert not is_span(text)
    with pytest.raises(OptionError, match=rf"every {text}: a time such as"):
        span_s(text, "every")


@pytest.mark.parametrize(("size", "count"), [("64m", 64 << 20), ("1g", 1 << 30), ("12 kb", 12 << 10), (5, 5)])
def test_sizes_are_text_or_bytes(size: Any, count: int) -> None:
    assert size_bytes(size, "target_size") == count


@pytest.mark.parametrize("size", ["128", "", "many", "-1m"])
def test_other_sizes_are_refused(size: str) -> None:
    with pytest.raises(OptionError, match="target_size"):
        size_bytes(size, "target_size")


def test_times_are_text_or_a_datetime() -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert choice(since=moment, key="a") == choice(since="2026-01-31T12:00:00Z", key=["a"])


@pytest.mark.parametrize(
    ("job", "wrong"),
    [(transform, {"every": "often"}), (dedup, {"every": "often"}), (dedup, {"window": "long"})],
)
def test_wrong_spans_fail_the_run_before_spark_starts(job: Any, wrong: dict[str, str]) -> None:
    more = {"sql": "SELECT body FROM messages"} if job is transform else {}
    with pytest.raises(PipelineError, match="a time such as 500ms") as caught:
        job("orders", "copies", checkpoint="/nowhere", namesrv="127.0.0.1:1", **more, **wrong)
    assert caught.value.report.stopped == "error"


def test_options_of_a_stream_are_known_in_any_case() -> None:
    options = {"STARTINGTIMESTAMP": "1", "maxoffsetspertrigger": "5", "Group": "lags"}
    wanted = flow(
        topics="orders", target="copies", checkpoint="c", namesrv=None, once=True, every="10s", options=options, job={}
    )
    assert wanted.source() == {
        "startingTimestamp": "1",
        "maxOffsetsPerTrigger": "5",
        "group": "lags",
        "topics": "orders",
    }
    assert wanted.options["group"] == "lags"  # whose offsets are committed at the end
