"""What `kourou` says of itself."""

import os
import re
import subprocess
import sys
import time

import pytest
import typer
from typer.testing import CliRunner

from kourou._version import __version__
from kourou.cli.lazy_commands import LazyGroup
from kourou.cli.main import app


def kourou(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kourou", *words]
    plain = {**os.environ, "TERM": "dumb", "COLUMNS": "100", **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=plain)


def test_the_version_names_the_backend() -> None:
    done = kourou("--version", KOUROU_PURE="0")
    assert done.returncode == 0
    assert re.match(rf"kourou {re.escape(__version__)} \((compiled|plain), Python 3\.\d+\.\d+\)$", done.stdout)
    done = kourou("--version", KOUROU_PURE="1")
    assert done.stdout.startswith(f"kourou {__version__} (plain (KOUROU_PURE=1), Python 3.")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--help"], ["namesrv", "run"]),
        ([], ["namesrv", "run"]),
        (["namesrv", "--help"], ["--port", "-p", "--config", "-c", "--host", "--set", "--ready-file"]),
        (["run", "--help"], ["--namesrv-port", "--store", "--host", "--set", "--ready-file"]),
    ],
)
def test_help_lists_commands_and_options(words: list[str], expected: list[str]) -> None:
    done = kourou(*words)
    assert done.returncode in (0, 2)  # without words it is help, and a mistake
    for word in expected:
        assert word in done.stdout + done.stderr


def test_help_is_quick() -> None:
    """What serving needs is not imported for it."""
    code = "import sys, kourou.cli.main; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    imported = set(done.stdout.splitlines())
    assert "kourou.cli.main" in imported
    assert imported.isdisjoint(
        {"uvloop", "msgspec", "cryptography", "kourou.server", "kourou.nameserver", "kourou.net"}
    )
    times = os.times()
    start, began = times.children_user + times.children_system, time.monotonic()
    kourou("--help")
    times = os.times()
    used, took = times.children_user + times.children_system - start, time.monotonic() - began
    print(f"--help: {used:.2f} s of processor time, {took:.2f} s")
    assert used < 1.5


@pytest.mark.parametrize("words", [["nonsense"], ["namesrv", "--nonsense"], ["namesrv", "--log-level", "loud"]])
def test_mistakes_are_told_with_the_usage(words: list[str]) -> None:
    done = kourou(*words)
    assert done.returncode == 2
    assert "Usage" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", sorted(LazyGroup.promised))
def test_promised_commands_are_what_they_were_said_to_be(name: str) -> None:
    """The list of commands has a text of its own, for it does not load them; the command must say the same."""
    listed = typer.main.get_group(app).commands[name]
    done = CliRunner().invoke(app, [name, "--help"])
    assert done.exit_code == 0
    assert listed.help is not None
    assert " ".join(listed.help.split()) in " ".join(done.stdout.replace("│", " ").split())


def test_completion_knows_the_options_of_promised_commands() -> None:
    words = {"_KOUROU_COMPLETE": "complete_bash", "COMP_WORDS": "kourou admin topicL", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", "from kourou.cli.main import app; app(prog_name='kourou')"],
        capture_output=True,
        text=True,
        env={**os.environ, **words},
    )
    assert "topicList" in done.stdout, done
