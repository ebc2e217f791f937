"""Runs mqadmin against Kourou's broker and Apache's, and compares the output."""

import re
from collections.abc import Callable
from functools import partial

from tests.waiting import wait_for

from .mqadmin import MqAdmin
from .scenarios import Driver, Scene
from .servers import ApacheStage, KourouRun

Stage = KourouRun | ApacheStage

PATIENCE_S = 60

CLIENT = r"[\d.]+@(?:\d+#\d+|(?:consumer|producer)-\d+-\d+|MS@STREAM)"

MASKS = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d([,.]\d{3})?", "TIME"),
    (r"\b1[6-9]\d{11}\b", "MS"),
    (r"\b[0-9A-F]{32}\b", "ID"),
    (CLIENT, "CLIENT"),
    (r"127\.0\.0\.1:\d+", "PEER"),
    (r"(?<![\d.])\d+\.\d+(?![\d.])", "RATE"),
    (r"spentTimeMills=\d+", "spentTimeMills=N"),
    (r"[ \t]+", " "),
)


class Both:
    """The two brokers, Apache's first."""

    def __init__(self, apache: Stage, ours: Stage, admin: MqAdmin, driver: Driver) -> None:
        self._stages = (apache, ours)
        self._admin = admin
        self.driver = driver
        self.words: tuple[dict[str, str], dict[str, str]] = ({}, {})
        """Words among arguments that stand for something else with each broker, such as the id of a message."""

    def texts(self, command: str, *arguments: str) -> list[str]:
        """The output with each broker. BROKER among the arguments stands for the broker's address, in the text too."""
        return [self._run(stage, command, *arguments) for stage in self._stages]

    def _run(self, stage: Stage, command: str, *arguments: str) -> str:
        words = self.words[self._stages.index(stage)]
        arguments = tuple(words.get(word, word).replace("BROKER", stage.address) for word in arguments)
        text = self._admin.run(stage.name_server_address, command, *arguments)
        text = text.replace(stage.address, "BROKER").replace(stage.name_server_address, "NAMESRV")
        return text.replace(str(stage.home), "HOME")

    def run(self, command: str, *arguments: str, ready: Callable[[str], bool] | None = None) -> str:
        """The output with both, masked; if `ready` is given, once it is true of each."""
        if ready is not None:
            self.wait(command, *arguments, ready=ready)
        expected, printed = map(masked, self.texts(command, *arguments))
        assert printed == expected, f"{command} prints with Apache's broker:\n{expected}\nwith ours:\n{printed}"
        return expected

    def wait(self, command: str, *arguments: str, ready: Callable[[str], bool]) -> None:
        """Waits until the output is `ready` with each."""
        for stage in self._stages:
            wait_for(command, partial(self._is, stage, ready, command, *arguments), PATIENCE_S)

    def _is(self, stage: Stage, ready: Callable[[str], bool], command: str, *arguments: str) -> bool:
        return ready(self._run(stage, command, *arguments))

    def run_one(self, number: int, command: str, *arguments: str, word: str = "") -> str:
        """The output with one of them: 0 is Apache's, 1 Kourou's. WORD among the arguments stands for `word`."""
        return self._run(self._stages[number], command, *(argument.replace("WORD", word) for argument in arguments))

    def run_ours(self, command: str, *arguments: str) -> str:
        return self.run_one(1, command, *arguments)

    def each(self, act: Callable[[Scene], str]) -> list[str]:
        """What clients do with each."""
        driver = self.driver
        return [act(Scene(stage, driver, lambda: driver, lambda: driver)) for stage in self._stages]

    def each_run(self, command: str, *arguments: str, words: list[str]) -> str:
        """As `run`, where an argument differs: WORD stands for the one or the other."""
        texts = [masked(self.run_one(number, command, *arguments, word=word)) for number, word in enumerate(words)]
        assert texts[1] == texts[0]
        return texts[0]


def masked(text: str) -> str:
    for pattern, word in MASKS:
        text = re.sub(pattern, word, text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def rows(text: str) -> list[list[str]]:
    """A table without its head."""
    return [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
