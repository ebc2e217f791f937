"""Builds the source archive and the wheels, twice, and tries them in an environment without a compiler.

    python tools/dist.py [--into dist] [--clean .cache/clean] [--plain] [--no-try]

The same files give the same bytes: times are those of SOURCE_DATE_EPOCH, or of the commit if it is not set. The Python
that runs this needs setuptools and Cython.
"""

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
SDIST = "from setuptools import build_meta; import sys; build_meta.build_sdist(sys.argv[1])"
WHEEL = "from setuptools import build_meta; import sys; build_meta.build_wheel(sys.argv[1])"
ONE_MESSAGE = """
import asyncio, sys
import kourou

async def main():
    async with kourou.embedded() as broker, kourou.connect(broker.namesrv) as mq:
        await mq.send("orders", b"hello")
        async for message in mq.consume("orders", group="billing", start="first"):
            await message.ack()
            assert bytes(message.body) == b"hello", message.body
            break
    lane = "kourou.broker._lane" in sys.modules
    print("kourou", kourou.__version__, "compiled" if lane else "plain", "sent and received one message")

asyncio.run(main())
"""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=HERE / "dist", help="folder of the results")
    parser.add_argument("--clean", type=Path, default=HERE / ".cache" / "clean", help="environment for the trial")
    parser.add_argument("--plain", action="store_true", help="no compiled wheel")
    parser.add_argument("--no-try", action="store_true", help="build, and try nothing")
    given = parser.parse_args(arguments)
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or commit_time()
    shutil.rmtree(given.into, ignore_errors=True)
    built = build(given.into, epoch, given.plain)
    with tempfile.TemporaryDirectory() as folder:
        again = {path.name: digest(path) for path in build(Path(folder), epoch, given.plain)}
    different = [path.name for path in built if digest(path) != again.get(path.name)]
    for path in built:
        print(f"{digest(path)}  {path.name}{'  NOT REPRODUCIBLE' if path.name in different else ''}")
    if different:
        print(f"two builds differ: {', '.join(different)}", file=sys.stderr)
        return 1
    if not given.no_try:
        for path in sorted(built, key=lambda path: "none-any" in path.name):  # the plain wheel stays installed
            install(path, given.clean)
    return 0


def commit_time() -> str:
    shown = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=HERE, capture_output=True, text=True, check=True)
    return shown.stdout.strip()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build(into: Path, epoch: str, plain_only: bool = False) -> list[Path]:
    """The source archive, the plain wheel and, if there is a C compiler, the compiled wheel."""
    into.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch, "PYTHONHASHSEED": "0"}
    for name in ("KOUROU_SKIP_COMPILED", "KOUROU_REQUIRE_COMPILED"):
        environment.pop(name, None)
    plain = {**environment, "KOUROU_SKIP_COMPILED": "1"}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        copy_tracked(copy)
        _run([sys.executable, "-c", SDIST, str(into)], copy, plain)
        (archive,) = into.glob("*.tar.gz")
        settle(archive, int(epoch))
        forms = [plain]
        if not plain_only and has_compiler():
            forms.append({**environment, "KOUROU_REQUIRE_COMPILED": "1"})
        elif not plain_only:
            print("no C compiler here: no compiled wheel", file=sys.stderr)
        for number, variables in enumerate(forms):
            with tarfile.open(archive) as opened:
                opened.extractall(Path(folder) / str(number), filter="data")
            (tree,) = (Path(folder) / str(number)).iterdir()
            _run([sys.executable, "-c", WHEEL, str(into)], tree, variables)
    return sorted(into.iterdir())


def copy_tracked(into: Path) -> None:
    """The files that git knows. A build in the tree itself would remove, or take along, its compiled modules."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=HERE, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        target = into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (HERE / name).is_file():
            shutil.copyfile(HERE / name, target)


def settle(archive: Path, epoch: int) -> None:
    """Write the archive again, with one time, one owner and one order: setuptools takes those of the machine."""
    packed = io.BytesIO()
    with tarfile.open(archive) as source, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as target:
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            member.mtime = epoch
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() else 0o644
            member.pax_headers = {}
            target.addfile(member, source.extractfile(member) if member.isfile() else None)
    archive.write_bytes(gzip.compress(packed.getvalue(), mtime=epoch))


def has_compiler() -> bool:
    return any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc"))


def install(package: Path, clean: Path) -> None:
    """Install the package in a new environment whose PATH has no compiler, and send a message with it."""
    shutil.rmtree(clean, ignore_errors=True)
    _run([sys.executable, "-m", "venv", "--without-pip", str(clean)], HERE, dict(os.environ))
    python = str(clean / "bin" / "python")
    away = ("PYTHONPATH", "KOUROU_PURE", "KOUROU_SKIP_COMPILED", "KOUROU_REQUIRE_COMPILED")
    environment = {name: value for name, value in os.environ.items() if name not in away}
    environment |= {"PATH": str(clean / "bin"), "CC": "/nonexistent/cc"}
    binary = ["--only-binary", ":all:"] if package.suffix == ".whl" else []
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *binary, str(package)]
    _run(pip, clean, environment)
    print(f"{package.name}: ", end="", flush=True)
    _run([python, "-c", ONE_MESSAGE], clean, environment, shown=True)


def _run(command: list[str], folder: Path, environment: dict[str, str], shown: bool = False) -> None:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        raise SystemExit(f"failed: {' '.join(command)}")
    if shown:
        print(done.stdout.strip())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
