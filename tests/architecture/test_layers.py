"""Imports point down only, as ARCHITECTURE.md draws it. Cython's cimports count as well."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.architecture.sources import PACKAGE, ROOT, Source, sources

BESIDE = {"__init__", "__main__", "_version", "_backend"}
"""Modules of the package itself, which are not layers."""

CORE = {"protocol", "replication", "raft", "nameserver", "controller", "broker", "turns"}
OUTSIDE = {"asyncio", "socket", "ssl", "threading", "time", "os", "pathlib", "uvloop"}
"""Sockets, threads, files and clocks, which the core does not know."""


def drawn() -> list[list[str]]:
    """The layers of the drawing, from above."""
    text = (ROOT / "ARCHITECTURE.md").read_text().partition("\n## Layers\n")[2].partition("\n## ")[0]
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    return [[name.strip() for name in re.split(r"\s{2,}", line)[0].split("│")] for line in lines]


def reaches_up(source: Source, layers: list[list[str]]) -> Iterator[str]:
    """Imports of layers that are not below."""
    height = {name: number for number, layer in enumerate(layers) for name in layer}
    for module in source.imports:
        parts = module.split(".")
        if parts[0] != "kourou" or len(parts) == 1:
            continue
        other = parts[1] if (PACKAGE / parts[1]).is_dir() or (PACKAGE / f"{parts[1]}.py").exists() else "__init__"
        if other in BESIDE or other == source.package or source.package in BESIDE:
            continue
        if height[other] <= height[source.package]:
            yield f"{source.name} imports {module}"


def test_imports_point_down_only() -> None:
    layers = drawn()
    assert [found for source in sources() for found in reaches_up(source, layers)] == []


def test_every_part_is_drawn() -> None:
    names = [name for layer in drawn() for name in layer]
    assert len(names) == len(set(names))
    assert set(names) == {source.package for source in sources()} - BESIDE


def test_the_compiled_core_knows_no_sockets_threads_files_or_clocks() -> None:
    """Of the plain sources, import-linter holds this (test_imports.py)."""
    compiled = [source for source in sources() if not source.is_plain and source.package in CORE]
    assert compiled
    found = {source.name: sorted({name.split(".")[0] for name in source.imports} & OUTSIDE) for source in compiled}
    assert not {name: modules for name, modules in found.items() if modules}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("store/x.py", "from kourou.net import connection"),
        ("store/x.py", "from ..net.connection import Connection"),
        ("net/x.py", "import kourou.broker.machine"),
        ("store/x.pyx", "from kourou.broker._lane cimport Lane"),
        ("store/x.pxd", "cimport kourou.client.client"),
    ],
)
def test_a_breach_is_found(name: str, line: str) -> None:
    source = Source(PACKAGE / Path(name))
    source.__dict__["text"] = f"def f():\n    {line}\n"
    assert list(reaches_up(source, drawn()))
