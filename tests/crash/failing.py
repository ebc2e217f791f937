"""A real broker whose system calls fail for a while, under load, and work again; then it is killed.

python -m tests.crash.failing --mode sync              each call with one errno
python -m tests.crash.failing --mode sync --seed 3     each with another one
python -m tests.crash.failing --mode sync --all        every call with every errno: some two minutes
"""

import argparse
import errno
import mmap
import os
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.hostile.broker_target import BrokerTarget, pull_command, send_command
from tests.hostile.target import Peer

from kourou.protocol.bodies import KVTable
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.record import Found, Scanner
from kourou.store.segments import Segments

from .opening import open_store, settings

CALLS = (
    *("open", "fsync", "fdatasync", "ftruncate", "fallocate", "rename", "unlink"),
    *("msync", "mkdir", "pwrite", "link", "mmap"),
)
"""In the order of failing_calls.c."""

ERRORS = (errno.EIO, errno.ENOSPC, errno.EMFILE, errno.ENOMEM, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.ENFILE)
FAILING_S = 0.4
RESUMES_S = 5.0
"""How long after the last failure a send must succeed again."""

SEGMENT = 1024 * 1024
LINES_MAX = 15
"""Lines of the log for one kind of failure, during which hundreds of calls fail."""

SOURCE = Path(__file__).with_name("failing_calls.c")


def build(folder: Path) -> Path | None:
    """The library; None where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    library = folder / "failing_calls.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library


class FailingBroker(BrokerTarget):
    """A broker whose calls on its store fail when told."""

    def __init__(self, folder: Path, library: Path, mode: str) -> None:
        orders = folder / "orders"
        orders.write_bytes(bytes(4096))
        with orders.open("r+b") as file:
            self._orders = mmap.mmap(file.fileno(), 4096)
        self._orders[128:384] = str(folder / "store").encode().ljust(256, b"\0")
        self.extra_environment = {"LD_PRELOAD": str(library), "KOUROU_FAILING_CALLS": str(orders)}
        super().__init__(
            folder,
            f"flushDiskType={mode.upper()}_FLUSH",
            f"mappedFileSizeCommitLog={SEGMENT}",
            "flushIntervalCommitLog=50",
            "flushCommitLogLeastPages=0",
            "flushIntervalConsumeQueue=100",
            "flushConsumeQueueLeastPages=0",
        )

    def fail(self, call: str, code: int) -> None:
        struct.pack_into("i", self._orders, 4 * CALLS.index(call), code)

    def heal(self) -> None:
        self._orders[0:64] = bytes(64)

    def failures(self, call: str) -> int:
        (count,) = struct.unpack_from("i", self._orders, 64 + 4 * CALLS.index(call))
        return int(count)


class Load(threading.Thread):
    """Sends messages one after the other, and remembers which were acknowledged."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self.acknowledged: set[bytes] = set()
        self.answers: Counter[int] = Counter()
        self.problem: str | None = None
        self.stopping = False

    def run(self) -> None:
        try:
            with Peer(self._port) as peer:
                number = 0
                while not self.stopping:
                    number += 1
                    body = b"%d-" % number + b"x" * 2_000
                    topic = f"made-{number}" if number % 50 == 0 else f"topic-{number % 20}"
                    answer = peer.ask(send_command(topic, body, queue_id=number % 4))
                    self.answers[answer.code] += 1
                    if answer.code == ResponseCode.SUCCESS:
                        self.acknowledged.add(body)
        except Exception as error:  # told to the test
            self.problem = f"{type(error).__name__}: {error}"


def run(folder: Path, library: Path, mode: str, plan: list[tuple[str, int]]) -> Counter[str]:
    """Each failure of the plan for a while; then a kill, and a check of the files."""
    counts: Counter[str] = Counter()
    broker = FailingBroker(folder, library, mode)
    try:
        load = Load(broker.port)
        load.start()
        _until_more(load, RESUMES_S)
        for call, code in plan:
            lines, before = _complaints(broker.log), broker.failures(call)
            broker.fail(call, code)
            time.sleep(FAILING_S)
            broker.heal()
            _until_more(load, RESUMES_S, f"{call} failed with {errno.errorcode[code]}")
            counts[call] += broker.failures(call) - before
            more = _complaints(broker.log) - lines
            assert more <= LINES_MAX, f"{call}, {errno.errorcode[code]}: {more} lines\n{broker.log[-6000:]}"
        _check_health(broker)
        load.stopping = True
        load.join(60)
        assert load.problem is None, load.problem
    finally:
        broker.process.kill()
        broker.process.wait()
    assert "Traceback" not in broker.log, broker.log[broker.log.index("Traceback") - 2000 :]
    _check_store(folder / "store", load.acknowledged)
    counts["acknowledged"] = len(load.acknowledged)
    return counts


def _complaints(log: str) -> int:
    return log.count(" ERROR ") + log.count(" WARNING ")


def _until_more(load: Load, seconds: float, what: str = "it started") -> None:
    """Another message is acknowledged in time."""
    before, deadline = len(load.acknowledged), time.monotonic() + seconds
    while len(load.acknowledged) <= before:
        assert load.problem is None, load.problem
        assert time.monotonic() < deadline, f"after {what}, no send succeeded for {seconds} s: {load.answers}"
        time.sleep(0.005)


def _check_health(broker: FailingBroker) -> None:
    """Everything is synced, messages are visible, and only the expected calls failed."""
    deadline = time.monotonic() + RESUMES_S
    with Peer(broker.port) as peer:
        while True:
            body = peer.ask(Command(RequestCode.GET_BROKER_RUNTIME_INFO, 1)).body
            table = KVTable.decode(body).table
            if table["kourouFlushLateMillis"] == "0" and int(table["dispatchBehindBytes"]) < SEGMENT:
                break
            assert time.monotonic() < deadline, table
            time.sleep(0.02)
        assert table["kourouInternalErrors"] == "0", broker.log[-6000:]
        found = peer.ask(pull_command("topic-1", 0, queue_id=1))
        assert found.code == ResponseCode.SUCCESS, found


def _check_store(root: Path, acknowledged: set[bytes]) -> None:
    store = open_store(root, settings(segment_kib=SEGMENT // 1024))
    try:
        missing = acknowledged - set(_bodies(store.log.segments, store.log.end))
        assert not missing, f"{len(missing)} acknowledged messages are missing, as {sorted(missing)[0][:12]!r}"
    finally:
        store.abandon()


def _bodies(segments: Segments, end: int) -> Iterator[bytes]:
    for start in segments.starts:
        buffer = segments.file(start).buffer
        scanner = Scanner(buffer, 0, min(end - start, len(buffer)), crc=True, base=start)
        while scanner.step() == Found.RECORD:
            yield bytes(scanner.message().body)


def plan(seed: int) -> list[tuple[str, int]]:
    """Each call with one errno. Eight seeds in a row have every call with every errno."""
    return [(call, ERRORS[(number + seed) % len(ERRORS)]) for number, call in enumerate(CALLS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=("sync", "async"), default="sync")
    parser.add_argument("--seed", type=int, default=0, help="which errno each call fails with")
    parser.add_argument("--all", action="store_true", help="every call with every errno")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kourou-failing-") as folder:
        library = build(Path(folder))
        if library is None:
            raise SystemExit("there is no C compiler, which makes the library of failing calls")
        seeds = range(len(ERRORS)) if options.all else [options.seed]
        failures = [failure for seed in seeds for failure in plan(seed)]
        print(dict(run(Path(folder), library, options.mode, failures)), os.uname().release)


if __name__ == "__main__":
    main()
