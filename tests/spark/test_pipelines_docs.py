"""The walk-through works, and prints the output below its blocks."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kourou.spark.pipelines.running import Runner

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "spark" / "walk-through.md"
PIPELINES = ROOT / "docs" / "spark" / "pipelines.md"


def steps(page: Path) -> list[tuple[str, str | None]]:
    """Each block of Python, and its output."""
    found = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", page.read_text(), re.DOTALL)
    return [(code, printed or None) for code, printed in found]


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_the_walk_through(spark: SparkSession) -> None:
    names: dict[str, Any] = {}
    for number, (code, printed) in enumerate(steps(PAGE)):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, f"{PAGE.name}, block {number}", "exec"), names)
        assert out.getvalue() == (printed or ""), f"block {number}:\n{code}"
    assert names["spark"] is spark or names["spark"].sparkContext is spark.sparkContext
    assert "<h1>kourou replay</h1>" in (Path(names["folder"]) / "report.html").read_text()


def test_the_page_names_what_there_is() -> None:
    """Functions and options of the page about pipelines."""
    import importlib

    from typer.main import get_group
    from typer.testing import CliRunner

    from kourou.cli.pipelines_commands import app

    text = PIPELINES.read_text()
    for module, function in re.findall(r"`(pipelines\.\w+)\.(\w+)`", text):
        assert callable(getattr(importlib.import_module(f"kourou.spark.{module}"), function))
    names = set(get_group(app).commands)
    assert {"archive", "archive-store", "compact", "replay", "dlq", "transform", "dedup"} <= names
    verbs = ["archive", "archive-store", "compact", "replay", "transform", "dedup", "dlq triage", "dlq redrive"]
    screen = {"COLUMNS": "200", "TERM": "dumb"}
    helped = "".join(CliRunner().invoke(app, [*verb.split(), "--help"], env=screen).output for verb in verbs)
    for option in set(re.findall(r"(--[a-z][a-z-]+)", text)):
        assert option in helped, option


def test_the_example_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an archive that only checks its arguments."""
    from kourou.spark.pipelines import archive

    given: dict[str, Any] = {}
    monkeypatch.setattr(archive, "archive", lambda *words, **names: given.update(names, words=words))
    [(code, _)] = steps(PIPELINES)
    exec(compile(code, PIPELINES.name, "exec"), {})
    assert given["words"] == ("orders", "/data/lake") and isinstance(given["runner"], Runner)
