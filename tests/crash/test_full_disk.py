"""A small real file system, filled to the last byte: refusals that say why, and no SIGBUS.

Needs to mount one, and so needs to be root; skipped elsewhere.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kourou.store.errors import DiskFailedError, DiskFullError

from .full import fill
from .kills import PROJECT
from .opening import now_ms, open_store, settings

SIZE_MIB = 16


def run(*command: str | Path) -> None:
    subprocess.run([*map(str, command)], check=True, capture_output=True)


@contextmanager
def tmpfs(folder: Path) -> Iterator[Path]:
    run("mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "kourou-test", folder)
    yield folder
    run("umount", "--lazy", folder)


@contextmanager
def ext4(folder: Path) -> Iterator[Path]:
    image = folder.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(SIZE_MIB << 20)
    run("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image)
    run("mount", "-o", "loop", image, folder)
    yield folder
    run("umount", "--lazy", folder)


@pytest.fixture(params=[tmpfs, ext4])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    if request.param is ext4 and shutil.which("mkfs.ext4") is None:
        pytest.skip("there is no mkfs.ext4")
    try:
        mounted = request.param(folder)
        path = mounted.__enter__()
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        pytest.skip(f"no small file system can be mounted here: {error}")
    yield path
    mounted.__exit__(None, None, None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["own", "foreign", "ratio"])
def test_a_full_disk_is_refused_and_resumes(kind: str, small: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.full", str(small), kind], cwd=PROJECT, capture_output=True, text=True
    )
    assert done.returncode == 0, f"ended by {done.returncode}: {done.stderr[-2000:]}"
    told = json.loads(done.stdout)
    reason = "diskSpaceWarningLevelRatio" if kind == "ratio" else "No space left on device"
    assert reason in told["refusal"] and str(small) in told["refusal"]
    assert "resumes automatically" in told["refusal"]
    assert told["sent"] > 50 and told["read"] > 50
    assert told["refused_then"] <= 60, "it took long to notice that there is room"
    assert told["missing"] == told["unread"] == []
    assert told["hinted"], "the stop was not clean"


def test_a_start_without_room_says_so(small: Path) -> None:
    store = open_store(small / "store", settings())
    store.close(now_ms())
    fill(small / "foreign")
    with pytest.raises(DiskFullError, match=r"No space left on device.*can't be opened.*Free some space"):
        open_store(small / "store", settings())
    (small / "foreign").unlink()
    open_store(small / "store", settings()).close(now_ms())


def test_a_read_only_file_system_says_so(small: Path) -> None:
    open_store(small / "store", settings()).close(now_ms())
    run("mount", "-o", "remount,ro", small)
    with pytest.raises(DiskFailedError, match=r"Read-only file system.*can't be opened"):
        open_store(small / "store", settings())
    run("mount", "-o", "remount,rw", small)
    open_store(small / "store", settings()).close(now_ms())
