"""`kourou admin` takes every option that mqadmin's command of the same name takes."""

from collections import defaultdict
from pathlib import Path

import pytest
import typer

from kourou.cli.admin import app

FLAGS = Path(__file__).parents[2] / "data" / "mqadmin_flags.txt"


def apache() -> dict[str, list[tuple[str, str, bool]]]:
    found: dict[str, list[tuple[str, str, bool]]] = defaultdict(list)
    for line in FLAGS.read_text().splitlines():
        if not line.startswith("#"):
            command, short, long, kind = line.split()
            found[command].append((f"-{short}", f"--{long}", kind == "flag"))
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


def test_the_list_is_of_our_commands() -> None:
    commands = set(typer.main.get_group(app).commands)
    assert set(apache()) <= commands
    assert commands - set(apache()) == {"getNamesrvConfig", "queryConsumerGroups"}, (
        "the one has none, the other is ours"
    )
