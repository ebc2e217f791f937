"""Real clients, driven by lines of text: they send and receive messages."""

from enum import Enum
from pathlib import Path

from . import toolchain
from .processes import Talker
from .servers import java_command


class Kind(Enum):
    """A client, and how it is set."""

    JAVA = "Java 5.5.0"
    JAVA_BINARY = "Java 5.5.0, binary headers"
    JAVA_TLS = "Java 5.5.0, TLS"
    JAVA_49 = "Java 4.9.8"
    GO = "Go v2"


# On a busy machine a JVM takes its time.
PATIENCE_S = 100

JAVA_OPTIONS = {
    Kind.JAVA: [],
    Kind.JAVA_BINARY: ["-Drocketmq.serialize.type=ROCKETMQ"],
    Kind.JAVA_TLS: ["-Dtls.enable=true"],
    Kind.JAVA_49: [],
}


class Client:
    """One client process: a producer, and as many consumers as groups were subscribed."""

    def __init__(self, kind: Kind, name_servers: str, home: Path, *credentials: str) -> None:
        """`credentials`, an access key and a secret, are for Go; with Java's clients use `sign_as`."""
        self._talker = Talker([*_command(kind, name_servers, home), *credentials], home)
        try:
            assert self._talker.line() == "ready"
        except AssertionError:
            self.stop()
            raise

    def send(self, topic: str, prefix: str, count: int) -> None:
        """Sends the bodies `prefix-0`, `prefix-1` …"""
        assert self._ask(f"send {topic} {prefix} {count}") == [str(count)]

    def sign_as(self, access_key: str, secret: str) -> None:
        """From now on, requests are signed."""
        assert self._ask(f"as {access_key} {secret}") == [access_key]

    def refusal(self, topic: str) -> str:
        """Why a message can't be sent."""
        self._talker.tell(f"send {topic} refused 1")
        how, _, why = self._talker.line().partition(" ")
        assert how == "failed", why
        return why

    def subscribe(self, topic: str, group: str) -> None:
        """Starts a consumer, from the first message of the topic on."""
        assert self._ask(f"subscribe {topic} {group}") == [group]

    def receive(self, group: str, count: int, seconds: int = PATIENCE_S) -> list[str]:
        """The next bodies that the group's consumer got: fewer than `count` only if the time is up."""
        return self._ask(f"receive {group} {count} {seconds}")

    def stop(self) -> None:
        self._talker.stop()

    def _ask(self, line: str) -> list[str]:
        self._talker.tell(line)
        how, *words = self._talker.line().split(" ")
        assert how == "ok", " ".join(words)
        return words


def _command(kind: Kind, name_servers: str, home: Path) -> list[str]:
    if kind is Kind.GO:
        return [str(toolchain.go_driver()), name_servers]
    version = "client49" if kind is Kind.JAVA_49 else "server"
    jars = toolchain.jars(version)
    classes = toolchain.classes(f"{version}-driver", ["client"], jars)
    start = [*java_command("quiet.xml", home), *JAVA_OPTIONS[kind], "-Xmx256m"]
    return [*start, "-cp", f"{classes}:{jars}/*", "ClientDriver", name_servers]
