"""Records again the bytes that the real Java classes write: `python -m tests.interop.record`."""

import subprocess
import tempfile
from pathlib import Path

from . import toolchain
from .servers import java_command

DATA = toolchain.HERE.parent / "data"
RECORDINGS = {
    "java-5.5.0.jsonl": ("server", ["recorder"], "Recorder"),
    "java-4.9.8.jsonl": ("client49", ["recorder/Tape.java", "recorder49"], "Recorder49"),
}


def record(name: str, target: Path) -> None:
    """Runs the recorder of that file's version, which writes to `target`."""
    pom, sources, main = RECORDINGS[name]
    jars = toolchain.jars(pom)
    classes = toolchain.classes(main.lower(), sources, jars)
    with tempfile.TemporaryDirectory() as home:
        # The time in a message id counts from the start of a month in local time.
        start = [*java_command("quiet.xml", Path(home)), "-Duser.timezone=UTC"]
        command = [*start, "-cp", f"{classes}:{jars}/*", main, str(target)]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    for recording in RECORDINGS:
        record(recording, DATA / recording)
