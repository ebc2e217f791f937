"""User code passes mypy --strict and pyright; each mistake in it is found by both."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RIGHT = HERE / "client_usage.py"
WRONG = HERE / "client_mistakes.py"

Found = dict[tuple[str, int], str]
"""The messages about a line, by file name and line."""


def mypy(folder: Path) -> Found:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", RIGHT.name, WRONG.name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    lines = re.findall(r"^(\S+\.py):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    assert lines, done.stdout + done.stderr
    return {(Path(name).name, int(number)): text for name, number, text in lines}


def pyright(folder: Path) -> Found:
    settings = {"typeCheckingMode": "strict", "reportUnusedExpression": False, "pythonVersion": "3.11"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, RIGHT.name, WRONG.name]
    quiet = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # it looks for no newer version of itself
    done = subprocess.run(command, cwd=folder, env=quiet, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    told = json.loads(done.stdout)["generalDiagnostics"]
    return {
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1): one["message"]
        for one in told
        if one["severity"] == "error"
    }


@pytest.mark.slow
@pytest.mark.parametrize("check", [mypy, pyright])
def test_user_code_passes_and_every_mistake_is_found(check: object, tmp_path: Path) -> None:
    assert callable(check)
    for file in (RIGHT, WRONG):
        (tmp_path / file.name).write_text(file.read_text())
    found: Found = check(tmp_path)
    right = {place: text for place, text in found.items() if place[0] == RIGHT.name}
    assert not right
    lines = WRONG.read_text().splitlines()
    marked = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert len(marked) > 60
    told = {number for name, number in found if name == WRONG.name}
    missed = [f"{number}: {lines[number - 1].strip()}" for number in sorted(marked - told)]
    assert not missed, "taken in silence"
    others = {number: found[WRONG.name, number] for number in sorted(told - marked)}
    assert not others, "lines that are right"
