"""Name servers and brokers side by side, each a process on loopback with a home of its own, and the CPU time they used.

Apache's runs as its distribution starts it (G1, the default compilers, its own log settings), but for a smaller heap.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.interop import toolchain
from tests.interop.processes import Process, accepts, free_port
from tests.interop.servers import OPEN_DOORS

START_S = 120
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
    broker_home = home / "broker"
    broker_home.mkdir(parents=True)
    settings = {
        "listenPort": free_port(-2, 1),
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "namesrvAddr": name_server.address,
        "storePathRootDir": broker_home / "store",
        "storePathCommitLog": broker_home / "store" / "commitlog",
        "flushDiskType": flush,
    }
    conf = broker_home / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = [
        toolchain.java(),
        *BROKER_OPTIONS,
        *OPEN_DOORS,
        *("-Djava.net.preferIPv4Stack=true", f"-Duser.home={broker_home}", f"-Drocketmq.home.dir={broker_home}"),
        *("-cp", f"{toolchain.jars('server')}/*", "org.apache.rocketmq.broker.BrokerStartup", "-c", str(conf)),
    ]
    process = Process(command, broker_home)
    try:
        process.wait_until("Apache's broker", lambda: "boot success" in process.said() or None, START_S)
    except BaseException:
        process.kill()
        name_server.stop()
        raise
    return Server("apache", name_server.version, process, name_server.address, name_server.process)


def start_kourou_broker(home: Path, flush: str) -> Server:
    """`kourou run` in a process of its own."""
    home.mkdir(parents=True)
    ready = home / "ready.json"
    where = ["--namesrv-port", "0", "--port", "0", "--store", str(home / "store"), "--ready-file", str(ready)]
    command = [sys.executable, "-m", "kourou", "run", *where, "--set", f"flushDiskType={flush}"]
    process = Process(command, home, {"HOME": str(home)})
    process.wait_until("kourou run", ready.exists, START_S)
    said = subprocess.run([sys.executable, "-m", "kourou", "--version"], capture_output=True, text=True, check=True)
    address: str = json.loads(ready.read_text())["namesrv"]
    return Server("kourou", said.stdout.strip(), process, address)


def _jar_version(jars: Path) -> str:
    prefix = "rocketmq-namesrv-"
    return next(jar.stem.removeprefix(prefix) for jar in jars.glob(f"{prefix}*.jar"))


def _java_version() -> str:
    said = subprocess.run([toolchain.java(), "-version"], capture_output=True, text=True, check=True).stderr
    return said.splitlines()[1]
