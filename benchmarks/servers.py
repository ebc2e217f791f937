"""Name servers and brokers side by side, each a process on loopback with a home of its own, and the CPU time they used.

Apache's runs as its distribution starts it (G1, the default compilers, its own log settings), but for a smaller heap.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.interop import toolchain
from tests.interop.processes import Process, accepts, free_port
from tests.interop.servers import OPEN_DOORS
from tests.interop.wire import Connection
from tests.waiting import wait_for

START_S = 120
CLUSTER_INFO = 106
JAVA_OPTIONS = (
    *("-server", "-Xms512m", "-Xmx512m", "-XX:MetaspaceSize=128m", "-XX:MaxMetaspaceSize=320m"),
    *("-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25", "-XX:InitiatingHeapOccupancyPercent=30"),
    *("-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow", "-XX:-UseLargePages"),
)

BROKER_OPTIONS = (
    *("-server", "-Xms2g", "-Xmx2g", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25"),
    *("-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow"),
    *("-XX:MaxDirectMemorySize=2g", "-XX:-UseLargePages", "-XX:-UseBiasedLocking", "-Dtls.server.mode=disabled"),
)


class Server:
    """A running name server or broker; clients are given its address, a broker's that of its name server."""

    def __init__(self, name: str, version: str, process: Process, address: str, beside: Process | None = None) -> None:
        """`beside`: a process that it needs, and that is not measured."""
        self.name = name
        self.version = version
        self.address = address
        self.process = process
        self._beside = beside

    def cpu_ns(self) -> int:
        """CPU time of the process since its start: user and system, all threads, those that ended too."""
        return process_cpu_ns(self.process.pid)

    def memory_mib(self) -> float:
        """What it holds in memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def said(self) -> str:
        """What it wrote to its output."""
        return self.process.said()

    def stop(self) -> None:
        self.process.kill()
        if self._beside is not None:
            self._beside.kill()


def process_cpu_ns(pid: int) -> int:
    """CPU time of a process since its start."""
    return time.clock_gettime_ns(_cpu_clock(pid))


def _cpu_clock(pid: int) -> int:
    """The id of another process's CPU clock, as the C library's clock_getcpuclockid makes it on Linux."""
    return (~pid << 3) | 2


class Replica:
    """A master or a slave: a broker that may be killed and started again with its files."""

    def __init__(
        self, command: list[str], home: Path, address: str, name: str, is_ready: Callable[[str], bool]
    ) -> None:
        self.address = address
        self._command = command
        self._home = home
        self._name = name
        self._is_ready = is_ready
        self.start()

    def start(self) -> None:
        """Returns when it is ready. Raises GaveUpError."""
        (self._home / "output.txt").unlink(missing_ok=True)
        self.process = Process(self._command, self._home, {"HOME": str(self._home)})
        try:
            self.process.wait_until(self._name, lambda: self._is_ready(self.process.said()) or None, START_S)
        except BaseException:
            self.process.kill()
            raise

    def cpu_ns(self) -> int:
        """CPU time of the process since its start."""
        return process_cpu_ns(self.process.pid)

    def kill(self) -> None:
        self.process.kill()


class Pair:
    """A name server, a master and a slave."""

    def __init__(
        self, name_server: Server, start: Callable[[str, Mapping[str, str]], Replica], role: Mapping[str, str]
    ):
        self.address = name_server.address
        self.version = name_server.version
        self._name_server = name_server
        try:
            self.master = start("master", {**PAIR, **role})
            try:
                self.slave = start("slave", {**PAIR, "brokerRole": "SLAVE", "brokerId": "1"})
                wait_for("both brokers at the name server", self._are_registered, START_S)
            except BaseException:
                self.master.kill()
                raise
        except BaseException:
            name_server.stop()
            raise

    def _are_registered(self) -> bool:
        """Apache's try again after 30 s if the first attempt failed."""
        with Connection(self.address) as connection:
            known = connection.ask(CLUSTER_INFO).body
        return all(replica.address.encode() in known for replica in (self.master, self.slave))

    def stop(self) -> None:
        self.slave.kill()
        self.master.kill()
        self._name_server.stop()


class Group:
    """A name server and three brokers with one log."""

    def __init__(self, name_server: Server, start: Callable[[int], Replica]):
        self.address = name_server.address
        self.version = name_server.version
        self._name_server = name_server
        self.brokers: list[Replica] = []
        try:
            for number in range(GROUP_SIZE):
                self.brokers.append(start(number))
            wait_for("a leader and its followers at the name server", self._are_registered, START_S)
        except BaseException:
            self.stop()
            raise

    def _are_registered(self) -> bool:
        with Connection(self.address) as connection:
            groups = connection.ask(CLUSTER_INFO).json()["brokerAddrTable"]
        known: dict[str, str] = groups.get(PAIR["brokerName"], {}).get("brokerAddrs", {})
        return "0" in known and len(known) == GROUP_SIZE

    def cpu_ns(self) -> int:
        """CPU time of all brokers since their start."""
        return sum(broker.cpu_ns() for broker in self.brokers)

    def stop(self) -> None:
        for broker in self.brokers:
            broker.kill()
        self._name_server.stop()


GROUP_SIZE = 3


def start_apache_group(home: Path) -> Group:
    """Three brokers in DLedger mode. Raises MissingToolError, GaveUpError."""
    name_server = start_apache(home / "namesrv")
    peers = _peers()
    return Group(
        name_server,
        lambda number: _apache_broker(home / f"n{number}", name_server.address, {**PAIR, **_member(number, peers)}),
    )


def start_kourou_group(home: Path) -> Group:
    """The same with ours. Raises GaveUpError."""
    name_server = start_kourou(home / "namesrv")
    peers = _peers()
    return Group(
        name_server,
        lambda number: _kourou_broker(home / f"n{number}", name_server.address, {**PAIR, **_member(number, peers)}),
    )


def start_kourou_trio(home: Path) -> Group:
    """A SYNC_MASTER that waits for one of its two slaves. Raises GaveUpError."""
    name_server = start_kourou(home / "namesrv")
    master = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}

    def start(number: int) -> Replica:
        own = {"brokerRole": "SLAVE", "brokerId": str(number)} if number else master
        return _kourou_broker(home / f"n{number}", name_server.address, {**PAIR, **own})

    return Group(name_server, start)


def _peers() -> str:
    return ";".join(f"n{number}-127.0.0.1:{free_port()}" for number in range(GROUP_SIZE))


def _member(number: int, peers: str) -> dict[str, str]:
    return {
        "enableDLegerCommitLog": "true",
        "dLegerGroup": PAIR["brokerName"],
        "dLegerPeers": peers,
        "dLegerSelfId": f"n{number}",
    }


PAIR = {"brokerName": "broker-a", "brokerClusterName": "Benchmark", "mappedFileSizeCommitLog": str(256 << 20)}


def start_apache_pair(home: Path, role: Mapping[str, str]) -> Pair:
    """Raises MissingToolError, GaveUpError."""
    name_server = start_apache(home / "namesrv")
    return Pair(name_server, lambda name, own: _apache_broker(home / name, name_server.address, own), role)


def start_kourou_pair(home: Path, role: Mapping[str, str]) -> Pair:
    """`kourou broker` twice. Raises GaveUpError."""
    name_server = start_kourou(home / "namesrv")

    return Pair(name_server, lambda name, own: _kourou_broker(home / name, name_server.address, own), role)


def _kourou_broker(folder: Path, name_server: str, chosen: Mapping[str, str]) -> Replica:
    port = free_port(-2, 1)
    folder.mkdir(parents=True)
    settings = {**chosen, "listenPort": str(port), "storePathRootDir": str(folder / "store")}
    words = [word for key, text in settings.items() for word in ("--set", f"{key}={text}")]
    command = [sys.executable, "-m", "kourou", "broker", "-n", name_server, *words]
    return Replica(command, folder, f"127.0.0.1:{port}", "kourou broker", lambda said: "broker is ready" in said)


def start_apache(home: Path) -> Server:
    """Raises MissingToolError when there is no Java 17, or no Maven to fetch the jars with."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    conf = home / "namesrv.conf"
    home.mkdir(parents=True)
    conf.write_text(f"listenPort={port}\nbindAddress=127.0.0.1\nkvConfigPath={home}/kvConfig.json\n")
    jars = toolchain.jars("server")
    command = [
        toolchain.java(),
        *JAVA_OPTIONS,
        *("-Djava.net.preferIPv4Stack=true", f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"),
        *("-cp", f"{jars}/*", "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(conf)),
    ]
    process = Process(command, home)
    process.wait_until("Apache's name server", lambda: accepts(address), START_S)
    return Server("apache", f"RocketMQ {_jar_version(jars)}, {_java_version()}", process, address)


def start_kourou(home: Path, pure: bool = False) -> Server:
    """`kourou namesrv` in a process of its own; `pure` runs it without the compiled modules."""
    home.mkdir(parents=True)
    ready = home / "ready.json"
    settings = {"HOME": str(home), **({"KOUROU_PURE": "1"} if pure else {})}
    command = [sys.executable, "-m", "kourou", "namesrv", "-p", "0", "--host", "127.0.0.1", "--ready-file", str(ready)]
    process = Process(command, home, settings)
    process.wait_until("our name server", ready.exists, START_S)
    asked = [sys.executable, "-m", "kourou", "--version"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True, env={**os.environ, **settings})
    address: str = json.loads(ready.read_text())["namesrv"]
    return Server("kourou, plain" if pure else "kourou", said.stdout.strip(), process, address)


def start_apache_broker(home: Path, flush: str) -> Server:
    """A broker as Apache's settings have it, but for ports and places. Raises MissingToolError."""
    name_server = start_apache(home / "namesrv")
    try:
        broker = _apache_broker(home / "broker", name_server.address, {"flushDiskType": flush})
    except BaseException:
        name_server.stop()
        raise
    return Server("apache", name_server.version, broker.process, name_server.address, name_server.process)


def _apache_broker(home: Path, name_server: str, chosen: Mapping[str, str]) -> "Replica":
    home.mkdir(parents=True)
    port = free_port(-2, 1)
    settings = {
        "listenPort": port,
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "namesrvAddr": name_server,
        "storePathRootDir": home / "store",
        "storePathCommitLog": home / "store" / "commitlog",
        **chosen,
    }
    conf = home / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = [
        toolchain.java(),
        *BROKER_OPTIONS,
        *OPEN_DOORS,
        *("-Djava.net.preferIPv4Stack=true", f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"),
        *("-cp", f"{toolchain.jars('server')}/*", "org.apache.rocketmq.broker.BrokerStartup", "-c", str(conf)),
    ]
    return Replica(command, home, f"127.0.0.1:{port}", "Apache's broker", lambda said: "boot success" in said)


def start_kourou_broker(home: Path, flush: str, *, with_version: bool = True) -> Server:
    """`kourou run` in a process of its own, on a new store or on the one that is there."""
    home.mkdir(parents=True, exist_ok=True)
    ready = home / "ready.json"
    ready.unlink(missing_ok=True)
    where = ["--namesrv-port", "0", "--port", "0", "--store", str(home / "store"), "--ready-file", str(ready)]
    command = [sys.executable, "-m", "kourou", "run", "--no-console", *where, "--set", f"flushDiskType={flush}"]
    process = Process(command, home, {"HOME": str(home)})
    process.wait_until("kourou run", ready.exists, START_S)
    address: str = json.loads(ready.read_text())["namesrv"]
    if not with_version:
        return Server("kourou", "", process, address)
    said = subprocess.run([sys.executable, "-m", "kourou", "--version"], capture_output=True, text=True, check=True)
    return Server("kourou", said.stdout.strip(), process, address)


def _jar_version(jars: Path) -> str:
    prefix = "rocketmq-namesrv-"
    return next(jar.stem.removeprefix(prefix) for jar in jars.glob(f"{prefix}*.jar"))


def _java_version() -> str:
    said = subprocess.run([toolchain.java(), "-version"], capture_output=True, text=True, check=True).stderr
    return said.splitlines()[1]
