"""The name servers side by side, each a process on loopback with a home of its own, and the CPU time they used.

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

START_S = 120
JAVA_OPTIONS = (
    *("-server", "-Xms512m", "-Xmx512m", "-XX:MetaspaceSize=128m", "-XX:MaxMetaspaceSize=320m"),
    *("-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25", "-XX:InitiatingHeapOccupancyPercent=30"),
    *("-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow", "-XX:-UseLargePages"),
)


class Server:
    """A running name server."""

    def __init__(self, name: str, version: str, process: Process, address: str) -> None:
        self.name = name
        self.version = version
        self.address = address
        self._process = process

    def cpu_ns(self) -> int:
        """CPU time of the process since its start: user and system, all threads, those that ended too."""
        return time.clock_gettime_ns(_cpu_clock(self._process.pid))

    def memory_mib(self) -> float:
        """What it holds in memory."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def said(self) -> str:
        """What it wrote to its output."""
        return self._process.said()

    def stop(self) -> None:
        self._process.kill()


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


def _jar_version(jars: Path) -> str:
    prefix = "rocketmq-namesrv-"
    return next(jar.stem.removeprefix(prefix) for jar in jars.glob(f"{prefix}*.jar"))


def _java_version() -> str:
    said = subprocess.run([toolchain.java(), "-version"], capture_output=True, text=True, check=True).stderr
    return said.splitlines()[1]
