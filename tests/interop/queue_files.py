"""Runs the real classes of queue and index files, and records their output.

`python -m tests.interop.queue_files` writes tests/data/java-queue-files-5.5.0.json anew, for unit tests without Java: a
script, the sizes it ran with, and the files that it left.
"""

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import toolchain
from .servers import OPEN_DOORS, java_command

RECORDING = toolchain.HERE.parent / "data" / "java-queue-files-5.5.0.json"

Line = tuple[str | int, ...]
"""A command of java/queuefiles/QueueFiles.java and its arguments."""


class Sizes(NamedTuple):
    queue_entries: int
    ext_size: int
    slots: int
    index_entries: int


class Java:
    """Runs scripts with the real classes."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._jars = toolchain.jars("server")
        self._classes = toolchain.classes("queuefiles", ["queuefiles"], self._jars)

    def run(self, folder: Path, sizes: Sizes, lines: Sequence[Line]) -> list[str]:
        """The answers to the questions among the lines."""
        script = self._home / "script"
        script.write_text("".join("\t".join(map(str, line)) + "\n" for line in lines))
        start = [*java_command("quiet.xml", self._home), *OPEN_DOORS, "-cp", f"{self._classes}:{self._jars}/*"]
        arguments = [str(folder), str(self._home / "store"), str(script), *map(str, sizes)]
        done = subprocess.run([*start, "QueueFiles", *arguments], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()


def tree(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


SMALL = Sizes(queue_entries=4, ext_size=100, slots=5, index_entries=6)
TAPED: list[Line] = [
    *(("put", "Topic", 0, n * 200, 200, tags, n) for n, tags in enumerate((0, 1, -1, 2**31 - 1, -(2**31), 77))),
    # A queue whose first messages are gone.
    *(("put", "Topic", 1, 1200 + n * 100, 100, 5, 6 + n) for n in range(3)),
    *(("ext", n, 1_700_000_000_000 + n, "ab" * n) for n in (0, 1, 8, 20, 60, 3)),
    # Keys of one slot and of others, one whose hash is negative, the smallest there is, not ASCII; times that stand
    # still, go back, and jump between two files.
    ("key", "Topic#a", 0, 1_700_000_000_000),
    ("key", "Topic#f", 200, 1_700_000_000_999),
    ("key", "Topic#a", 200, 1_700_000_000_999),
    ("key", "Topic#adpempfw", 400, 1_700_000_001_000),
    ("key", "#aaxoprnr", 600, 1_600_000_000_000),
    ("key", "Topic#schlüssel", 800, 1_700_000_017_400),
    ("key", "Topic#鍵🔑", 1000, 1_700_000_030_000),
    ("key", "Topic#a", 1000, 1_700_000_030_000),
]


def record(java: Java) -> dict[str, Any]:
    """The content of the recording."""
    with tempfile.TemporaryDirectory() as folder:
        answers = java.run(Path(folder), SMALL, TAPED)
        files = {name: content.hex() for name, content in tree(Path(folder)).items()}
    return {"sizes": list(SMALL), "script": [list(line) for line in TAPED], "answers": answers, "files": files}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        RECORDING.write_text(json.dumps(record(Java(Path(home))), indent=1, ensure_ascii=False) + "\n")
