"""The real `mqadmin`, kept running: a command costs milliseconds instead of the start of a JVM."""

import json
import re
from pathlib import Path

from . import toolchain
from .processes import Talker
from .servers import java_command


class MqAdmin:
    """Runs commands one after the other, against any name server."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._talker: Talker | None = self._start()

    def run(self, name_servers: str, command: str, *arguments: str) -> str:
        """The output of the command, with errors, without the frames of its stack traces."""
        return self._run([command, *arguments, "-n", name_servers])

    def help(self) -> str:
        """The list of commands."""
        return self._run([])

    def _run(self, words: list[str]) -> str:
        talker = self._talker = self._talker or self._start()
        talker.tell(json.dumps(words))
        how, size = talker.line().split(" ")
        printed = talker.read(int(size))
        if how == "exit":
            self.stop()
        return re.sub(r"(?m)^\t(at |\.\.\. ).*\n", "", printed)

    def stop(self) -> None:
        if self._talker is not None:
            self._talker.stop()
        self._talker = None

    def _start(self) -> Talker:
        jars = toolchain.jars("server")
        classes = toolchain.classes("admin", ["admin"], jars)
        start = [*java_command("quiet.xml", self._home), f"-Drocketmq.home.dir={self._home}", "-Xmx256m"]
        return Talker([*start, "-cp", f"{classes}:{jars}/*", "AdminDriver"], self._home)
