"""Programs for the tests, fetched and built once per machine: jars, Java classes, the Go driver.

Each product lives in the cache in a folder named by a hash of what it is made from, so that a changed pom or source
makes a new one. A file lock per product keeps test runs at the same time from making it twice; a folder is renamed
into place only when whole.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
JAVA_SOURCES = HERE / "java"
CACHE = Path(os.environ.get("KOUROU_INTEROP_CACHE") or HERE.parents[1] / ".cache" / "interop")

OLDEST_JAVA = 17
FETCH_TIMEOUT_S = 900


_failed: dict[str, "MissingToolError"] = {}


class MissingToolError(Exception):
    """Something these tests need is not on this machine; the text says what, and why."""


def prepare() -> None:
    """Fetches and builds missing files of the cache, before the first test and its time limit; ignores failures.

    Whoever needs what could not be made meets the error again, without a second try.
    """
    with suppress(MissingToolError):
        jars("server")
        jars("client49")
    with suppress(MissingToolError):
        go_driver()
        go_scenarios()


@cache
def java() -> str:
    """The path of a Java of at least version 17."""
    path = tool("java")
    said = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < OLDEST_JAVA:
        raise MissingToolError(f"{path} is not Java {OLDEST_JAVA} or later: {said.splitlines()[:1]}")
    return path


def jars(name: str) -> Path:
    """The folder of the jars that `java/pom-<name>.xml` asks for."""
    pom = JAVA_SOURCES / f"pom-{name}.xml"

    def fetch(folder: Path) -> None:
        # The pom moves along: Maven may write beside it.
        with tempfile.TemporaryDirectory() as work:
            shutil.copy(pom, Path(work) / "pom.xml")
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
            _run([tool("mvn"), "-q", "-B", *goal], cwd=Path(work))

    return made(f"jars-{name}", [pom], fetch)


def classes(name: str, sources: Iterable[str], jar_folder: Path) -> Path:
    """The folder of the classes compiled from `sources` (files or folders under `java/`) against those jars."""
    files = sorted(file for source in sources for file in _java_files(JAVA_SOURCES / source))

    def compile_all(folder: Path) -> None:
        options = ["-nowarn", "-Xlint:none", "-encoding", "UTF-8", "-d", str(folder), "-cp", f"{jar_folder}/*"]
        _run([tool("javac"), *options, *map(str, files)])

    java()
    return made(f"classes-{name}", files, compile_all, salt=jar_folder.name)


def go_driver() -> Path:
    """The Go client's driver, a program of its own."""
    return _go_program("go-driver", ".")


def go_scenarios() -> Path:
    """The same for the scenarios."""
    return _go_program("go-scenarios", "scenarios")


def _go_program(name: str, package: str) -> Path:
    module = HERE / "go"
    inputs = {*module.glob("go.*"), *(module / package).glob("*.go")}

    def build(folder: Path) -> None:
        _run([tool("go"), "build", "-buildvcs=false", "-o", str(folder / "driver"), f"./{package}"], cwd=module)

    return made(name, sorted(inputs), build) / "driver"


def tool(name: str) -> str:
    """The path of a program. Raises MissingToolError."""
    # Go's own packages install to a folder that is not on everyone's path.
    path = shutil.which(name) or shutil.which(name, path="/usr/local/go/bin")
    if path is None:
        raise MissingToolError(f"{name} is not on the path")
    return path


def _java_files(source: Path) -> list[Path]:
    return sorted(source.rglob("*.java")) if source.is_dir() else [source]


def made(name: str, inputs: Iterable[Path], make: Callable[[Path], None], salt: str = "") -> Path:
    """The folder which `make` fills, given its inputs; made now if it is not there yet."""
    digest = hashlib.sha256(salt.encode())
    for file in inputs:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    target = CACHE / f"{name}-{digest.hexdigest()[:16]}"
    if target.name in _failed:
        raise _failed[target.name]
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as work:
                fresh = Path(work) / "made"
                fresh.mkdir()
                try:
                    make(fresh)
                except MissingToolError as missing:
                    _failed[target.name] = missing
                    raise
                fresh.rename(target)
    return target


def _run(command: list[str], cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise MissingToolError(f"{' '.join(command[:3])} … took more than {FETCH_TIMEOUT_S} s") from None
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()[-20:]
        raise MissingToolError(f"{' '.join(command[:3])} … failed:\n" + "\n".join(said))
