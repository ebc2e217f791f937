"""The servers under test and around it: Apache's name server and broker, and our name server.

Each lives in a home of its own below the test's folder, listens on loopback, and has small files and a small heap.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Protocol

from tests.waiting import wait_for

from . import toolchain
from .processes import Process, accepts, free_port
from .toolchain import MissingToolError
from .wire import CONTROLLER_METADATA, ROUTE, Connection

START_S = 240
"""A JVM that gets a fifteenth of a processor was seen to need more than 90 s to start."""
CLUSTER = "InteropCluster"

# Apache's broker reaches into the JDK; these are the doors its own start script opens.
OPEN_DOORS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
)

STAY_CONNECTED = "-Dcom.rocketmq.remoting.client.closeSocketIfTimeout=false"
"""Else a broker whose registration of a topic takes three seconds, on a busy machine, closes its connection to the name
server, which then forgets all of its topics for ten seconds."""

BROKER_SETTINGS: Mapping[str, object] = {
    "brokerClusterName": CLUSTER,
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 20 * 30_000,
    "mappedFileSizeTimerLog": 1 << 20,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
    # A busy machine is no reason to refuse a message here.
    "waitTimeMillsInSendQueue": 10_000,
    "osPageCacheBusyTimeOutMills": 10_000,
    # The least the broker takes: one that missed a name server's start is soon known there.
    "registerNameServerPeriod": 10_000,
    # It copies the whole wheel of timers each time, a third of a core by default.
    "timerFlushIntervalMs": 60_000,
}


class NameServer(Protocol):
    """The interface of a name server for tests, Kourou's or Apache's."""

    address: str
    home: Path

    def kill(self) -> None: ...

    def restart(self) -> None:
        """Starts it again, after `kill`, on the same port and in the same home."""


class ApacheNameServer:
    """The reference."""

    def __init__(self, home: Path, tls: bool = False) -> None:
        self.home = home
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        conf = _write_conf(home, {"listenPort": port, "bindAddress": "127.0.0.1"})
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        self._command = _server_command(home, _tls_mode(tls), "-Xmx256m", main, "-c", str(conf))
        self.restart()

    def restart(self) -> None:
        self.process = Process(self._command, self.home)
        self.process.wait_until("Apache's name server", lambda: accepts(self.address), START_S)

    def kill(self) -> None:
        self.process.kill()


class ApacheController:
    """Elects the masters of broker groups. It is a group of one: the leader of itself."""

    def __init__(self, home: Path) -> None:
        self.home = home
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        settings = {
            "controllerType": "DLedger",
            "controllerDLegerGroup": "controllers",
            "controllerDLegerPeers": f"n0-{self.address}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": home / "store",
            "mappedFileSize": 1 << 20,
        }
        conf = _write_conf(home, settings)
        main = "org.apache.rocketmq.controller.ControllerStartup"
        self._command = _server_command(home, _tls_mode(False), "-Xmx256m", *OPEN_DOORS, main, "-c", str(conf))
        self.restart()

    def restart(self) -> None:
        """Starts it; again, after `kill`, on the same port and in the same home."""
        self.process = Process(self._command, self.home)
        self.process.wait_until("Apache's controller", self._leads, START_S)

    def _leads(self) -> bool:
        if not accepts(self.address):
            return False
        with Connection(self.address) as connection:
            answer = connection.ask(CONTROLLER_METADATA, {})
            return (answer.ext or {}).get("controllerLeaderAddress") == self.address

    def kill(self) -> None:
        self.process.kill()


class KourouNameServer:
    """The candidate: `kourou namesrv` in a process of its own."""

    def __init__(self, home: Path, tls: bool = False) -> None:
        check_candidate()
        self.home = home
        self._conf = _write_conf(home, {"rocketmqHome": home})
        self._port = 0
        self.restart()

    def restart(self) -> None:
        ready = self.home / "ready.json"
        ready.unlink(missing_ok=True)
        where = ["-p", str(self._port), "--host", "127.0.0.1", "--ready-file", str(ready), "-c", str(self._conf)]
        command = [sys.executable, "-m", "kourou", "namesrv", *where]
        self.process = Process(command, self.home, {"HOME": str(self.home)})
        self.process.wait_until("our name server", ready.exists, START_S)
        self.address: str = json.loads(ready.read_text())["namesrv"]
        self._port = int(self.address.rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()


class KourouController:
    """`kourou controller` in a process of its own; the leader of itself."""

    def __init__(self, home: Path) -> None:
        check_candidate()
        self.home = home
        self.address = f"127.0.0.1:{free_port()}"
        settings = {
            "controllerDLegerGroup": "controllers",
            "controllerDLegerPeers": f"n0-{self.address}",
            "controllerStorePath": home / "store",
        }
        self._conf = _write_conf(home, settings)
        self.restart()

    def restart(self) -> None:
        """Starts it; again, after `kill`, on the same port and with the same file."""
        command = [sys.executable, "-m", "kourou", "controller", "-c", str(self._conf)]
        self.process = Process(command, self.home, {"HOME": str(self.home)})
        self.process.wait_until("our controller", self._leads, START_S)

    def _leads(self) -> bool:
        if not accepts(self.address):
            return False
        with Connection(self.address) as connection:
            answer = connection.ask(CONTROLLER_METADATA, {})
            return (answer.ext or {}).get("controllerLeaderAddress") == self.address

    def kill(self) -> None:
        self.process.kill()


class KourouRun:
    """`kourou run`: a name server and a broker in a process of their own, which may end and come again."""

    def __init__(self, home: Path, *settings: str) -> None:
        check_candidate()
        self.home = home
        self._settings = [word for setting in settings for word in ("--set", setting)]
        self._ports = ("0", "0")
        self.restart()

    def restart(self) -> None:
        """Starts it, also after its end, on the same ports and with the same store."""
        ready = self.home / "ready.json"
        ready.unlink(missing_ok=True)
        where = ["--namesrv-port", self._ports[0], "--port", self._ports[1], "--store", str(self.home / "store")]
        command = [
            sys.executable,
            "-m",
            "kourou",
            "run",
            "--no-console",
            *where,
            "--ready-file",
            str(ready),
            *self._settings,
        ]
        self.process = Process(command, self.home, {"HOME": str(self.home)})
        self.process.wait_until("kourou run", ready.exists, START_S)
        told = json.loads(ready.read_text())
        self.name_server_address: str = told["namesrv"]
        self.address: str = told["broker"]
        self._ports = (self.name_server_address.rpartition(":")[2], self.address.rpartition(":")[2])

    def stop(self) -> None:
        """Asks it to stop, and waits until it has; that must go well."""
        self.process.terminate()
        assert self.process.wait_end(START_S) == 0, self.process.said()[-2000:]

    def kill(self) -> None:
        self.process.kill()


class KourouBroker:
    """`kourou broker`: one broker of a group, with a name server elsewhere; it may end and come again."""

    def __init__(self, home: Path, name: str, name_servers: str, settings: Mapping[str, object]) -> None:
        check_candidate()
        self.home = home
        self.store = home / "store"
        port = free_port(-2, 1)
        self.address = f"127.0.0.1:{port}"
        own = {"brokerClusterName": CLUSTER, "brokerName": name, "listenPort": port, "storePathRootDir": self.store}
        conf = _write_conf(home, {**own, **settings})
        self._command = [sys.executable, "-m", "kourou", "broker", "-n", name_servers, "-c", str(conf)]
        self.restart()

    def restart(self) -> None:
        """Starts it, also after its end, on the same port and with the same store."""
        ready = self.home / "ready.json"
        ready.unlink(missing_ok=True)
        command = [*self._command, "--ready-file", str(ready)]
        self.process = Process(command, self.home, {"HOME": str(self.home)})
        self.process.wait_until("kourou broker", ready.exists, START_S)

    def kill(self) -> None:
        self.process.kill()


class ApacheStage:
    """What `kourou run` is, made of Apache's name server and broker: for tests that must hold with both."""

    def __init__(self, home: Path, *settings: str) -> None:
        self.home = home
        self._name_server = ApacheNameServer(home / "namesrv")
        self.name_server_address = self._name_server.address
        chosen = dict(setting.split("=", 1) for setting in settings)
        self.broker = ApacheBroker(home / "broker", "broker-a", self._name_server.address, chosen)
        self.address = self.broker.address
        self.broker.wait_registered(self.name_server_address)

    def stop(self) -> None:
        """Asks the broker to stop, and waits until it has; the name server stays."""
        self.broker.terminate()
        self.broker.process.wait_end(START_S)

    def restart(self) -> None:
        self.broker.restart()
        self.broker.wait_registered(self.name_server_address)

    def kill(self) -> None:
        self.broker.kill()

    def kill_all(self) -> None:
        self.broker.kill()
        self._name_server.kill()


@cache
def check_candidate() -> None:
    """Raises MissingToolError when there is no `kourou namesrv` to test."""
    asked = subprocess.run([sys.executable, "-m", "kourou", "namesrv", "--help"], capture_output=True, text=True)
    if asked.returncode != 0:
        raise MissingToolError(f"kourou namesrv does not run: {asked.stderr.strip()[-300:]}")


class ApacheBroker:
    """A real broker. It listens on three ports: its own, that less two, and that plus one for its slaves."""

    def __init__(
        self,
        home: Path,
        name: str,
        name_servers: str,
        settings: Mapping[str, object] | None = None,
        tls: bool = False,
        start: bool = True,
    ) -> None:
        self.home = home
        self.name = name
        port = free_port(-2, 1)
        self.address = f"127.0.0.1:{port}"
        places = {"storePathRootDir": home / "store", "storePathCommitLog": home / "store" / "commitlog"}
        own = {"brokerName": name, "namesrvAddr": name_servers, "listenPort": port}
        conf = _write_conf(home, {**BROKER_SETTINGS, **places, **own, **(settings or {})})
        main = "org.apache.rocketmq.broker.BrokerStartup"
        java = (_tls_mode(tls), "-Xmx512m", "-XX:MaxDirectMemorySize=512m", STAY_CONNECTED, *OPEN_DOORS)
        self._command = _server_command(home, *java, main, "-c", str(conf))
        if start:
            self.restart()

    def restart(self) -> None:
        """Starts it, also after its end, on the same port and in the same home. Its earlier output is dropped."""
        for said in ("output.txt", "server.log"):
            (self.home / said).unlink(missing_ok=True)
        self.process = Process(self._command, self.home)

    def wait_ready(self) -> None:
        """Until it has said that it runs; whether a name server knows it by then is not certain."""
        self.process.wait_until(
            f"the broker {self.name}", lambda: "boot success" in self.process.said() or None, START_S
        )

    def wait_registered(self, name_server: str) -> None:
        """Until it runs and the name server knows it: each broker has a topic of its name.

        On a busy machine its first registration may fail; the next comes ten seconds later.
        """
        self.wait_ready()
        wait_for(f"the registration of {self.name}", lambda: self._is_known(name_server), START_S)

    def _is_known(self, name_server: str) -> bool:
        with Connection(name_server) as connection:
            return self.address.encode() in connection.ask(ROUTE, {"topic": self.name}).body

    def log(self) -> str:
        return (self.home / "server.log").read_text(errors="replace")

    def kill(self) -> None:
        self.process.kill()

    def terminate(self) -> None:
        """Asks it to stop. It unregisters at once, but takes some twenty seconds to end."""
        self.process.terminate()


def _tls_mode(tls: bool) -> str:
    """Apache's servers take TLS beside plain text, but spend seconds on making a certificate for it."""
    return f"-Dtls.server.mode={'permissive' if tls else 'disabled'}"


def _server_command(home: Path, *arguments: str) -> list[str]:
    return [
        *java_command("server-log.xml", home),
        f"-Drocketmq.home.dir={home}",
        *("-cp", f"{toolchain.jars('server')}/*"),
        *arguments,
    ]


def java_command(log_settings: str, home: Path) -> list[str]:
    """The start of every Java command here: quick to start, small, IPv4, at home in `home`."""
    return [
        toolchain.java(),
        *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Djava.net.preferIPv4Stack=true"),
        f"-Duser.home={home}",
        f"-Drmq.logback.configurationFile={toolchain.JAVA_SOURCES / log_settings}",
    ]


def _write_conf(home: Path, settings: Mapping[str, object]) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    conf = home / "server.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return conf
