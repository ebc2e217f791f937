"""The table of docs/mqadmin.md."""

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "mqadmin.md"

WORKS, REFUSED, ABSENT = "works", "refused", "absent"
STATES = (WORKS, REFUSED, ABSENT)
RUN = (WORKS, REFUSED)
"""States whose commands run, and print the same with our broker as with Apache's."""


@dataclass(frozen=True)
class Row:
    """A command, and what becomes of it here."""

    command: str
    state: str
    text: str


def read_page() -> list[Row]:
    found = re.findall(r"(?m)^\| `(\w+)` \| (\w+) \|(.*)\|$", PAGE.read_text())
    return [Row(command, state, text.strip()) for command, state, text in found]
