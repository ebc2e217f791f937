"""`kourou admin` takes every option that mqadmin's command of the same name takes."""

from collections import defaultdict
from pathlib import Path

import pytest
import typer
from tests.mqadmin_page import STATES, read_page

from kourou.cli.admin import app

FLAGS = Path(__file__).parents[2] / "data" / "mqadmin_flags.txt"


def apache() -> dict[str, list[tuple[str, str, bool]]]:
    found: dict[str, list[tuple[str, str, bool]]] = defaultdict(list)
    for line in FLAGS.read_text().splitlines():
        if not line.startswith("#"):
            command, *option = line.split()
            found[command] += []
            if option:
                short, long, kind = option
                short = long if short == "-" else short
                found[command].append(
                    ("-" * (1 + (short == long)) + short, f"--{long.replace('_', ' ')}", kind == "flag")
                )
    return found


@pytest.mark.parametrize("name", sorted(apache()))
def test_every_option_of_mqadmin_is_taken(name: str) -> None:
    ours = typer.main.get_group(app).commands[name]
    options = {word: option for option in ours.params for word in option.opts}
    for short, long, is_flag in apache()[name]:
        assert short in options, f"{name} does not take {short}"
        assert long in options, f"{name} does not take {long}"
        assert options[short] is options[long], f"{short} and {long} of {name} are two options"
        assert getattr(options[short], "is_flag", False) == is_flag, f"{short} of {name}: a flag, or with a value?"


def test_the_commands_are_those_of_mqadmin() -> None:
    commands = set(typer.main.get_group(app).commands)
    assert set(apache()) - commands == set()
    assert commands - set(apache()) == {"queryConsumerGroups", "promote", "demote", "raft"}, "these are ours"


def test_the_page_lists_the_commands_of_mqadmin() -> None:
    assert [row.command for row in read_page() if row.state not in STATES] == []
    assert sorted(row.command for row in read_page()) == sorted(apache())
