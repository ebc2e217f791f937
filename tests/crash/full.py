"""A process that goes on writing on a file system without room. A write that has none ends it by SIGBUS.

    python -m tests.crash.full DIR own|foreign|ratio

Prints what happened, as JSON. `own`: the store takes the last room itself. `foreign`: a file of somebody else does, to
the last byte, while there is still room in the store's own files. `ratio`: refused before the disk is quite full.
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from kourou.protocol.record import decode_record
from kourou.store.errors import DiskFullError
from kourou.store.store import Store

from .kills import letters_in_log, letters_in_queues
from .letters import letter, name_of
from .opening import now_ms, open_store, settings

STEP_MS = 200


class Scene:
    """A store, the time in it, and the letters that it took."""

    def __init__(self, root: Path, *, roomy: bool) -> None:
        self.store: Store = open_store(root, settings("async", segment_kib=512), roomy=roomy)
        self.now_ms = now_ms()
        self.told: set[str] = set()

    def send(self) -> None:
        """One letter, and all that is due. Raises DiskFullError."""
        self.now_ms += STEP_MS
        for job in self.store.jobs(self.now_ms):
            job.run()
            self.store.finished(job, self.now_ms)
        name = f"{len(self.told)}"
        self.store.append([letter(name)], self.now_ms)
        self.told.add(name)
        self.store.dispatch()

    def send_until_refused(self) -> str:
        for _ in range(100_000):
            try:
                self.send()
            except DiskFullError as refusal:
                return str(refusal)
        raise AssertionError("it never was full")

    def send_until_taken(self) -> int:
        """How many times it was refused before."""
        for refused in range(100):
            try:
                self.send()
                return refused
            except DiskFullError:
                pass
        raise AssertionError("it stays refused")

    def read_some(self) -> int:
        """Reading goes on: how many letters there are to read at the start of the queues."""
        names = []
        for topic, queue_id in self.store.queues.names():
            records = self.store.reader.get(topic, queue_id, 0, 32).records
            names += [name_of(decode_record(bytes(record), crc=True)) for record in records]
        return len(names)


def fill(path: Path) -> int:
    """Take all that is left, to the last byte: how much that is."""
    size = 0
    with path.open("wb", buffering=0) as file:
        for piece in (1 << 16, 4096, 512, 1):
            with suppress(OSError):  # no room for another piece
                while True:
                    size += file.write(b"x" * piece)
                    os.fsync(file.fileno())
    return size


def main() -> None:
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    ballast = folder / "ballast"
    ballast.write_bytes(b"x" * (3 << 20))
    scene = Scene(folder / "store", roomy=kind != "ratio")
    told: dict[str, object] = {}
    if kind == "foreign":
        for _ in range(50):
            scene.send()
        told["foreign"] = fill(folder / "foreign")
    told["refusal"] = scene.send_until_refused()
    told["again"] = scene.send_until_refused()
    told["sent"] = len(scene.told)
    told["read"] = scene.read_some()
    ballast.unlink()
    (folder / "foreign").unlink(missing_ok=True)
    told["refused_then"] = scene.send_until_taken()
    for _ in range(20):
        scene.send()
    scene.store.close(scene.now_ms)
    again = open_store(folder / "store", settings("async", segment_kib=512), roomy=kind != "ratio")
    told["hinted"] = again.report.hinted
    told["missing"] = sorted(scene.told - letters_in_log(again).keys())
    told["unread"] = sorted(scene.told - letters_in_queues(again))
    again.abandon()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
