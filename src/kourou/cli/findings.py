"""The results of the checks of `kourou doctor`."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The result of a check."""

    GOOD = "ok"
    DOUBTFUL = "warning"
    BAD = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check, and what to do about it."""

    check: str
    state: State
    text: str
    remedy: str = ""
