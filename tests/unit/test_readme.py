"""The commands and the Python program of the README print what the README says."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kourou.cli.main import app
from kourou.embedded import EmbeddedThread

README = (Path(__file__).parents[2] / "README.md").read_text()
VARIES = [
    (r"\b[0-9A-F]{32}\b", "ID"),
    (r"\b\d\d:\d\d:\d\d\.\d{3}\b", "TIME"),
    (r"queue \d", "queue N"),
    (r"a:\d@", "a:N@"),
]


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


def without_what_varies(text: str) -> str:
    for pattern, name in VARIES:
        text = re.sub(pattern, name, text)
    return text


def kourou(namesrv: str, *words: str) -> str:
    result = CliRunner().invoke(app, list(words), env={"NAMESRV_ADDR": namesrv})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_commands() -> None:
    with EmbeddedThread() as broker:
        printed = ""
        for line in block("console").splitlines():
            command = shlex.split(line.removeprefix("$ "))
            if line.startswith("$ kourou"):
                printed += f"{line}\n{kourou(broker.namesrv, *command[1:])}"
            elif line.startswith("$ "):
                assert "export NAMESRV_ADDR=127.0.0.1:9876" in line
                printed += f"{line}\n"
    assert without_what_varies(printed) == without_what_varies(block("console"))


def test_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedThread() as broker:
        exec(compile(block("python").replace("127.0.0.1:9876", broker.namesrv), "README.md", "exec"), {})
    assert capsys.readouterr().out == block("text")
