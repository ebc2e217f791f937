"""The cache of fetched and built files: made once, again when the sources change, and never in part."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from . import toolchain
from .toolchain import MissingToolError


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(toolchain, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(toolchain, "_failed", {})
    source = tmp_path / "source"
    source.write_text("one")
    return source


def test_many_at_once_make_it_once(source: Path) -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "product").write_text(source.read_text())

    with ThreadPoolExecutor(8) as threads:
        places = list(threads.map(lambda _: toolchain.made("thing", [source], make), range(8)))
    assert len(made) == 1
    assert len(set(places)) == 1
    assert (places[0] / "product").read_text() == "one"


def test_changed_source_builds_it_again(source: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "product").write_text(source.read_text())

    before = toolchain.made("thing", [source], make)
    source.write_text("two")
    after = toolchain.made("thing", [source], make)
    assert (before / "product").read_text() == "one"
    assert (after / "product").read_text() == "two"


def test_failure_leaves_nothing_and_is_not_tried_again(source: Path) -> None:
    tries: list[Path] = []

    def fail(folder: Path) -> None:
        tries.append(folder)
        (folder / "half").write_text("half")
        raise MissingToolError("no network")

    for _ in range(2):
        with pytest.raises(MissingToolError, match="no network"):
            toolchain.made("thing", [source], fail)
    assert len(tries) == 1
    assert [path.name for path in toolchain.CACHE.iterdir()] == ["thing.lock"]


def test_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingToolError, match="no-such-tool is not on the path"):
        toolchain.tool("no-such-tool")
