"""The other side of the Spark benchmark: a single Kafka, Spark's connector for it, and a Spark that this fits.

Fetched once per machine, as for the interop tests; nothing of it comes with Kourou. The connector is not there for the
newest Spark, so both sides run on the newest that it is there for.
"""

import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from tests.interop import toolchain
from tests.interop.processes import Process, accepts, free_port

SPARK_VERSION = "4.2.0"
START_S = 120
FETCH_S = 900
_HERE = Path(__file__).parent


def jars(name: str) -> Path:
    """The folder of the jars that `java/pom-<name>.xml` asks for. Raises MissingToolError."""
    pom = _HERE / "java" / f"pom-{name}.xml"

    def fetch(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as work:
            shutil.copy(pom, Path(work) / "pom.xml")
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
            _run([toolchain.tool("mvn"), "-q", "-B", *goal], Path(work))

    return toolchain.made(f"jars-{name}", [pom], fetch)


def spark_home() -> Path:
    """A folder with a pyspark of the version of the connector, to be put before others. Raises MissingToolError.

    Compiled, as pip leaves what it installs: every streaming query and every lookup of a format starts a Python.
    """

    def fetch(folder: Path) -> None:
        wanted = ["--no-deps", "--compile", "--target", str(folder), f"pyspark=={SPARK_VERSION}"]
        _run([sys.executable, "-m", "pip", "install", "--quiet", *wanted], folder)

    return toolchain.made("pyspark", [], fetch, salt=f"{SPARK_VERSION} compiled")


def _run(command: list[str], cwd: Path) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=FETCH_S)
    except subprocess.TimeoutExpired:
        raise toolchain.MissingToolError(f"{' '.join(command[:4])} … took more than {FETCH_S} s") from None
    if done.returncode != 0:
        raise toolchain.MissingToolError(f"{' '.join(command[:4])} … failed:\n{(done.stdout + done.stderr)[-2000:]}")


class Kafka:
    """One node that is broker and controller, on loopback, with the settings of its distribution but for the heap."""

    def __init__(self, home: Path, partitions: int) -> None:
        """Raises MissingToolError, GaveUpError."""
        home.mkdir(parents=True)
        port, controller_port = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(home / "logs"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "num.partitions": str(partitions),
            "broker.session.timeout.ms": "120000",  # stay in the cluster on a busy machine
        }
        conf = home / "server.properties"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        java = [toolchain.java(), "-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "-cp", f"{jars('kafka')}/*"]
        cluster = uuid.uuid4().hex[:22]
        _run([*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(conf)], home)
        self._process = Process([*java, "kafka.Kafka", str(conf)], home)
        self._process.wait_until("Kafka", lambda: accepts(self.address), START_S)

    def stop(self) -> None:
        self._process.kill()
