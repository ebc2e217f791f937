"""Commands that the documents show exist, and have the options that are shown."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from tests.architecture.sources import ROOT
from typer.main import get_command

from kourou.cli.main import app

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
OPTION = re.compile(r"--?[a-zA-Z]")


def commands(text: str) -> Iterator[str]:
    """`kourou …` in indented lines, after a prompt, and in backquotes; without comments and marks such as […]."""
    lines = text.replace("\\\n", " ").splitlines()
    found = [match[1] for line in lines if (match := re.match(r"(?: {4}|\$ )(?:\w+=\S+ )?(kourou .+)", line))]
    for line in [*found, *re.findall(r"`(kourou [a-z][^`\n]*)`", text)]:
        yield re.sub(r"[\[\]…\\]", "", line.partition(" #")[0]).partition("|")[0]


def resolve(words: list[str]) -> tuple[Any, list[str]]:
    """The innermost command, and the words after its name. A name such as COMMAND stands for any."""
    command: Any = get_command(app)
    while hasattr(command, "resolve_command") and words and not (words[0].startswith("-") or words[0].isupper()):
        _, command, words = command.resolve_command(click.Context(command), words)
    return command, words


def mistakes(line: str) -> list[str]:
    words = [word for word in shlex.split(line)[1:] if word]
    try:
        command, rest = resolve(words)
    except click.UsageError as error:
        return [f"{line}: {error.message}"]
    if hasattr(command, "resolve_command"):
        return []  # a group, whose commands are left out
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    given = [word.partition("=")[0] for word in rest if OPTION.match(word)]
    return [f"{line}: {word}" for word in given if word not in known]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_exist(document: Path) -> None:
    assert [wrong for line in commands(document.read_text()) for wrong in mistakes(line)] == []


def test_commands_are_found() -> None:
    assert len(list(commands((ROOT / "docs" / "operations.md").read_text()))) > 20


@pytest.mark.parametrize(
    ("line", "is_wrong"),
    [
        ("kourou admin promote -b SLAVE", False),
        ("kourou admin promote --broken SLAVE", True),
        ("kourou admin promot -b SLAVE", True),
        ("kourou pipeline archive orders /data/lake --since 2026-01-31", True),
        ("kourou pipeline replay /data/lake again --since 2026-01-31", False),
    ],
)
def test_mistakes_are_found(line: str, is_wrong: bool) -> None:
    assert bool(mistakes(line)) is is_wrong
