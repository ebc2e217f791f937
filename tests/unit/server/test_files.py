"""A file that is replaced is whole at every moment, whatever fails."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from kourou.server import files
from kourou.server.files import write_atomically, write_safely

OLDER, OLD, NEW = b"older", b"old and long enough to be told from a half", b"new and long enough to be told from a half"


class Crash(BaseException):
    """The process ends here: nothing after this happens."""


class Trouble:
    """Stands in for the system below `files`, and lets the n-th call fail or be the last one."""

    CALLS = ("replace", "fsync", "link", "open", "fchmod", "fchown")

    def __init__(self, at: int, kind: type[BaseException]) -> None:
        self._at = at
        self._kind = kind
        self.calls = 0
        self.happened = False

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._watched(real) if name in self.CALLS else real

    def _watched(self, real: Any) -> Any:
        def call(*args: Any) -> Any:
            self.count()
            return real(*args)

        return call

    def count(self) -> None:
        self.calls += 1
        if self._kind is Crash and self.happened:
            raise Crash
        if self.calls == self._at:
            self.happened = True
            raise Crash if self._kind is Crash else OSError(errno.EIO, "the disk fails")

    def open_file(self, path: Path, mode: str, opener: Callable[[str, int], int]) -> "HalfWriter":
        self.count()
        return HalfWriter(open(path, mode, buffering=0, opener=opener), self)  # type: ignore[arg-type]

    def unlink(self, path: Path, missing_ok: bool) -> None:
        if self._kind is Crash and self.happened:
            raise Crash
        if path.exists() or not missing_ok:
            os.unlink(path)


class HalfWriter:
    """A file whose write, when it fails, has written half of what it should."""

    def __init__(self, file: BinaryIO, trouble: Trouble) -> None:
        self._file = file
        self._trouble = trouble

    def __enter__(self) -> "HalfWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: bytes) -> None:
        self._file.write(data[: len(data) // 2])
        self._trouble.count()
        self._file.write(data[len(data) // 2 :])

    def flush(self) -> None:
        self._trouble.count()


def tried(monkeypatch: pytest.MonkeyPatch, path: Path, at: int, kind: type[BaseException]) -> tuple[Trouble, bool]:
    """Replace the file with trouble at the n-th call. Did it claim success?"""
    trouble = Trouble(at, kind)
    with monkeypatch.context() as patch:
        patch.setattr(files, "os", trouble)
        patch.setattr(files, "open", trouble.open_file, raising=False)
        patch.setattr(Path, "unlink", lambda path, missing_ok=False: trouble.unlink(path, missing_ok))
        try:
            write_safely(path, NEW)
        except (OSError, Crash):
            return trouble, False
    return trouble, True


def every_trouble(
    monkeypatch: pytest.MonkeyPatch, folder: Path, kind: type[BaseException], content: bytes | None
) -> Iterator[tuple[Path, bool]]:
    """A folder with the file, after trouble at each call in turn."""
    for at in range(1, 100):
        path = folder / str(at) / "kept.json"
        path.parent.mkdir(parents=True)
        if content is not None:
            path.with_name("kept.json.bak").write_bytes(OLDER)
            path.write_bytes(content)
        trouble, success = tried(monkeypatch, path, at, kind)
        if not trouble.happened:
            assert success
            assert at > 5, "there are more calls than that"
            return
        yield path, success
    pytest.fail("it never succeeded")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_failure_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    successes = 0
    for path, success in every_trouble(monkeypatch, tmp_path, OSError, OLD):
        assert path.read_bytes() == (NEW if success else OLD)
        assert path.with_name("kept.json.bak").read_bytes() in (OLDER, OLD)
        assert names(path.parent) == {"kept.json", "kept.json.bak"}
        successes += success
    assert successes == 1  # where hard links fail, the backup is a copy


def test_a_failure_leaves_no_file_where_there_was_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, success in every_trouble(monkeypatch, tmp_path, OSError, None):
        assert not success
        assert names(path.parent) == set()


@pytest.mark.parametrize("content", [OLD, None])
def test_a_crash_leaves_the_old_or_the_new_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    found = set()
    for path, _ in every_trouble(monkeypatch, tmp_path, Crash, content):
        present = path.read_bytes() if path.exists() else None
        assert present in (content, NEW)
        found.add(present)
        if content is not None:
            assert path.with_name("kept.json.bak").read_bytes() in (OLDER, OLD)
        write_safely(path, b"after the restart")
        assert path.read_bytes() == b"after the restart"
        if present is not None:
            assert path.with_name("kept.json.bak").read_bytes() == present
        assert names(path.parent) <= {"kept.json", "kept.json.bak"}  # this process has the same id, and cleaned up
    assert found == {content, NEW}


def test_a_folder_that_can_not_be_synced_is_no_obstacle_where_that_has_no_meaning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not here")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_safely(tmp_path / "f", "x")
    assert (tmp_path / "f").read_text() == "x"


def test_folders_are_made(tmp_path: Path) -> None:
    write_safely(tmp_path / "a" / "b" / "f", "ü")
    assert (tmp_path / "a" / "b" / "f").read_text(encoding="utf-8") == "ü"


def test_permissions_stay(tmp_path: Path) -> None:
    """The file may hold a password that others must not read."""
    path = tmp_path / "f"
    path.write_text("old")
    path.chmod(0o600)
    write_safely(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "f.bak").stat().st_mode) == 0o600


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "f", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    write_safely(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert (tmp_path / "real" / "f.bak").read_text() == "old"


def test_a_folder_in_the_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(OSError):
        write_safely(tmp_path / "f", "x")
    assert names(tmp_path) == {"f"}


def test_atomic_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "f", "one")
    write_atomically(tmp_path / "f", "two")
    assert (tmp_path / "f").read_text() == "two"
    with monkeypatch.context() as patch:
        patch.setattr(files, "os", Trouble(1, OSError))
        with pytest.raises(OSError):
            write_atomically(tmp_path / "f", "three")
    assert (tmp_path / "f").read_text() == "two"
    assert names(tmp_path) == {"f"}
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "nowhere" / "f", "x")
