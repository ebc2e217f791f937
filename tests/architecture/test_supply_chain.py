"""The inputs of a release and its tests: fixed versions with hashes, and builds that can be repeated."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pinned(name: str) -> dict[str, str]:
    """Versions by package. Raises AssertionError for a line without a hash."""
    versions: dict[str, str] = {}
    for entry in re.split(r"\n(?=\S)", (ROOT / name).read_text()):
        if entry.startswith("#"):
            continue
        found = re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;]+)", entry)
        assert found, entry[:100]
        assert "--hash=sha256:" in entry, entry[:100]
        versions[canonicalize_name(found[1])] = found[2]
    return versions


def wanted(groups: tuple[str, ...]) -> list[Requirement]:
    found = [line for group in groups for line in PROJECT["dependency-groups"][group] if isinstance(line, str)]
    return [Requirement(line) for line in found]


@pytest.mark.parametrize(
    ("file", "groups", "others"),
    [
        ("requirements-test.txt", ("build", "test"), ("dependencies", "spark")),
        ("requirements-tools.txt", ("tools",), ()),
    ],
)
def test_everything_is_pinned(file: str, groups: tuple[str, ...], others: tuple[str, ...]) -> None:
    """`make lock` was run after a change of pyproject.toml."""
    project = PROJECT["project"]
    lines = {"dependencies": project["dependencies"], "spark": project["optional-dependencies"]["spark"]}
    requirements = wanted(groups) + [Requirement(line) for name in others for line in lines[name]]
    versions = pinned(file)
    assert requirements
    for requirement in requirements:
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), requirement


def test_the_build_is_that_of_users() -> None:
    """Tests build with the pinned group `build`, an installation by `build-system`: both ask for the same."""
    assert sorted(PROJECT["dependency-groups"]["build"]) == sorted(PROJECT["build-system"]["requires"])


@pytest.mark.slow
def test_two_builds_are_equal(tmp_path: Path) -> None:
    into = tmp_path / "dist"
    command = [sys.executable, str(ROOT / "tools" / "dist.py"), "--plain", "--no-try", "--into", str(into)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = into.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    assert "kourou/py.typed" in names and not [name for name in names if name.endswith((".so", ".c"))]
    (archive,) = into.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    assert {"build_hot.py", "setup.py", "SECURITY.md", "src/kourou/protocol/_wire.pyx"} <= inside
