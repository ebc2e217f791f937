"""Which modules of Python the parts may import: the contracts in pyproject.toml, checked by import-linter."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_import_contracts_hold() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_a_breach_is_found(tmp_path: Path) -> None:
    """The contracts can fail: a copy in which the protocol imports asyncio breaks one."""
    import shutil

    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "src" / "kourou", tmp_path / "kourou", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    with (tmp_path / "kourou" / "protocol" / "codes.py").open("a") as codes:
        codes.write("import asyncio\n")
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [lint, "--no-cache"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "kourou.protocol.codes -> asyncio" in done.stdout
