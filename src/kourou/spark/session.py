"""Creates a Spark session for the data sources; if that is impossible, raises a one-line error.

It is optional: `spark.read.format("rocketmq")` works in every session of Spark 4.2 and later whose workers have
Kourou installed.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kourou.spark.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_SPARK: Final = (4, 2)

CONNECT: Final = "sc://"
"""The scheme of a Spark Connect server's address, in place of a master."""

SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}

JAVA_OPTIONS: Final = (
    "-XX:+UseParallelGC "  # batches die young: the collector that costs least in all
    "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"  # no check of every value
)
SOCKET_PATH_MAX: Final = 50
"""Workers are connected by Unix sockets if the path of their folder is short enough: a path has at most 108 bytes."""

_HOME_PARTS: Final = ("bin", "jars", "sbin", "conf")


def speed_settings() -> dict[str, str]:
    """Settings that make reading and writing cheaper, unless the user sets others."""
    found = {
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",  # batches for a sink then stay in the cache
    }
    if len(tempfile.gettempdir()) <= SOCKET_PATH_MAX:
        found["spark.python.unix.domain.socket.enabled"] = "true"
    return found


def light_home() -> str | None:
    """A home for Spark without the archive of pyspark that workers would import; None if the usual one is used.

    Spark puts `python/lib/pyspark.zip` before everything else on the path of its workers. Every new process compiles
    the modules that it imports from there, which takes a second of processor time for each streaming query, and reads
    the archive's directory again for every task. Without it, workers import the installed pyspark, which is compiled
    already. The home is a folder of links in the user's cache, and is kept.
    """
    import pyspark

    installed = Path(pyspark.__file__).resolve().parent
    given = os.environ.get("SPARK_HOME")
    name = f"spark-{pyspark.__version__}-{sha256(str(installed).encode()).hexdigest()[:16]}"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kourou" / name
    if (given and given != str(home)) or not (installed / "jars").is_dir():
        return None
    try:
        home.mkdir(parents=True, exist_ok=True)
        for part in _HOME_PARTS:
            if (installed / part).is_dir():
                _link(home / part, installed / part)
    except OSError:
        return None
    return str(home)


def _link(path: Path, target: Path) -> None:
    """The folder exists when this returns, even if another process creates it at the same time."""
    if not path.is_symlink() or path.readlink() != target:
        fresh = path.with_name(f".{path.name}-{os.getpid()}")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target)
        fresh.replace(path)


def prepare(master: str | None, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """All settings of a session, before its JVM is started, and the environment that it needs."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master is None or master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if master is not None and master.startswith("local") and (home := light_home()) is not None:
        os.environ["SPARK_HOME"] = home
    return {**SETTINGS, **speed_settings(), **(settings or {})}


def check_installation() -> None:
    """Raises SparkError that says what to install."""
    try:
        import pyarrow  # noqa: F401
        import pyspark
    except ImportError as error:
        raise SparkError(f"Spark is not installed ({error}): pip install 'kourou[spark]'") from None
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < OLDEST_SPARK:
        raise SparkError(f"pyspark {pyspark.__version__} is too old: pip install 'pyspark>=4.2'")
    home = os.environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").exists():
        raise SparkError(f"JAVA_HOME is {home}, which has no bin/java: Spark needs Java 17 or later")
    if not home and shutil.which("java") is None:
        raise SparkError("Java was not found: Spark needs Java 17 or later; install it, or set JAVA_HOME")


def session(
    name: str = "kourou", master: str | None = None, settings: Mapping[str, str] | None = None
) -> "SparkSession":
    """A session whose workers use this interpreter. Raises SparkError if Spark or Java is missing."""
    check_installation()
    from pyspark.sql import SparkSession

    prepared = prepare(master, settings)
    builder = SparkSession.builder.appName(name)
    if master is not None and master.startswith(CONNECT):
        return _connect(builder.remote(master), settings or {})
    if master is not None:
        builder = builder.master(master)
    for key, value in prepared.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _connect(builder: "SparkSession.Builder", settings: Mapping[str, str]) -> "SparkSession":
    """A session of a server, whose settings only it can change, except those of queries."""
    try:
        import grpc  # type: ignore[import-untyped, unused-ignore]  # noqa: F401
        import pandas  # type: ignore[import-untyped, unused-ignore]  # noqa: F401
    except ImportError as error:
        raise SparkError(f"Spark Connect is not installed ({error}): pip install 'pyspark[connect]'") from None
    for key, value in {**SETTINGS, **settings}.items():
        if key.startswith("spark.sql."):
            builder = builder.config(key, value)
    return builder.getOrCreate()


def hadoop_version() -> str | None:
    """The version of the Hadoop in this pyspark, which its other packages must have as well."""
    import pyspark

    jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    found = sorted(jars.glob("hadoop-client-api-*.jar"))
    return found[-1].stem.removeprefix("hadoop-client-api-") if found else None


def reason(error: BaseException) -> str:
    """The relevant line of an error of Spark: Kourou's own message, without the traces around it."""
    text = str(error)
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None:
        text += f"\n{java}"
        java = java.getCause()
    own = [line.strip() for line in text.splitlines() if line.strip().startswith("kourou.")]
    if own:
        return own[-1].partition(": ")[2]
    behind = text.rpartition("Traceback (most recent call last):")[2]  # of a Python exception; its type and text follow
    lines = [line.strip() for line in behind.splitlines() if line.strip() and (behind == text or line[0] != " ")]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling "):  # of Py4J, then Java's
        return lines[1].removeprefix(": ")
    return lines[0] if lines else type(error).__name__
