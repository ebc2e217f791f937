"""One function writes to the terminal: no other module of the command line or of the pipelines does."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "kourou"
WRITERS = {SOURCE / "cli" / "output.py"}
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
CALLS = {"print", "echo", "secho", "style", "Console"}
ALLOWED = {
    ("cli/running.py", "stderr"),  # the log, whose formatter escapes
    ("cli/verifying.py", "stderr"),  # a progress bar of fixed words, if it is a terminal
    ("cli/verifying.py", "Console"),
    ("cli/pipelines.py", "stdout"),  # is flushed
    ("spark/pipelines/progress.py", "stdout"),  # every line is escaped: tests/spark
    ("spark/pipelines/progress.py", "stderr"),
}


def writes(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in CALLS:
                found.add(name)
        if isinstance(node, ast.Attribute) and node.attr in STREAMS and getattr(node.value, "id", "") == "sys":
            found.add(node.attr)
    return found


@pytest.mark.parametrize("folder", ["cli", "spark/pipelines"])
def test_only_one_module_writes_to_the_terminal(folder: str) -> None:
    found = {
        (str(path.relative_to(SOURCE)), what)
        for path in sorted((SOURCE / folder).rglob("*.py"))
        if path not in WRITERS
        for what in writes(path)
    }
    assert found <= ALLOWED, f"these write past kourou.cli.output: {sorted(found - ALLOWED)}"


def test_a_write_is_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("import sys\nprint('x')\nsys.stdout.write('y')\n")
    assert writes(module) == {"print", "stdout"}
