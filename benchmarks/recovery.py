"""Recovery after kill -9: our store beside Apache's broker, each on a copy of the same directory.

A process writes one segment of 1 KiB messages, each with a unique key and a key, and kills itself. Recovery then walks
all of it, with CRCs, and adds every record to queues and index again. Ours is `Store.open` in a fresh process;
Apache's is the time between two lines of its log, from the moment it finds that the last shutdown was abnormal to
"load over", without the start of the JVM. The files are in the page cache of the system for both.

    python -m benchmarks.recovery [--quick] [--mib N]
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import count
from pathlib import Path

from tests.interop.servers import ApacheBroker

from benchmarks.report import ROOT, Result, print_where, table, where
from kourou.protocol.hosts import encode_host
from kourou.store.commit_log import NewMessage
from kourou.store.settings import MIB, StoreSettings
from kourou.store.store import Store

BODY_SIZE = 1024
QUEUES = 8
BATCH = 32
HOST = encode_host("127.0.0.1:10911")
NO_NAME_SERVER = "127.0.0.1:9"
MIB_WRITTEN, QUICK_MIB = 1024, 128
INDEX_SLOTS, INDEX_ENTRIES = 1_000_000, 4_000_000

FOUND_ABNORMAL, LOADED = "last shutdown abnormally", "load over, and the max phy offset"


@dataclass(frozen=True)
class Figure:
    """One recovery."""

    seconds: float
    cpu: float
    """Seconds of CPU time; Apache's are those of its whole start."""
    size: int
    records: int

    def row(self, name: str) -> list[str]:
        speed, records = self.size / self.seconds / 1e9, self.records / self.seconds
        return [name, f"{self.seconds:.2f}", f"{self.cpu:.2f}", f"{speed:.2f}", f"{records:,.0f}"]


def run(mib: int) -> Result:
    """Raises MissingToolError when there is no Java."""
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        _child("write", folder / "left", mib)
        for name in ("ours", "apache/store"):
            shutil.copytree(folder / "left", folder / name)
        os.sync()  # or the first to sync a file would wait for the copies, too
        ours = Figure(**json.loads(_child("open", folder / "ours", mib)))
        seconds, cpu, end = _start_apache(folder / "apache", mib)
    assert end == ours.size, f"Apache's log ends at {end}, ours at {ours.size}"
    apache = Figure(seconds, cpu, ours.size, ours.records)
    text = table(
        ["recovery after kill -9", "s", "CPU s", "GB/s", "records/s"],
        [ours.row("kourou"), apache.row("Apache RocketMQ, CPU with the start of the JVM")],
    )
    return Result(
        f"Recovery of {ours.size / MIB:.0f} MiB, {ours.records:,} messages of {BODY_SIZE} bytes",
        [text, "", f"ratio of times, kourou / Apache: {ours.seconds / apache.seconds:.2f}"],
        data={"kourou": asdict(ours), "apache": asdict(apache)},
    )


# ── Our side, each in a process of its own ──────────────────────────────────────────────────────────────────────────


def _child(what: str, root: Path, mib: int) -> str:
    command = [sys.executable, "-m", "benchmarks.recovery", f"--{what}", str(root), "--mib", str(mib)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}")
    return done.stdout


def _open(root: Path, mib: int) -> Store:
    settings = StoreSettings(
        commit_log_file_size=mib * MIB, index_slots=INDEX_SLOTS, index_entries=INDEX_ENTRIES, reserved_hours=1000
    )
    return Store.open(root, settings, store_host=HOST, now_ms=_now_ms(), file_time=_file_time)


def _write(root: Path, mib: int) -> None:
    """Fill one segment, and die."""
    store = _open(root, mib)
    body = os.urandom(BODY_SIZE)
    for first in count(0, BATCH):
        if store.log.end > mib * MIB - 2 * BATCH * (BODY_SIZE + 256):
            break
        store.append([_message(first + n, body) for n in range(BATCH)], _now_ms())
        store.dispatch()
    os.kill(os.getpid(), signal.SIGKILL)


def _message(number: int, body: bytes) -> NewMessage:
    properties = f"UNIQ_KEY\x017F000001000100000000{number:012X}\x02KEYS\x01order-{number}\x02TAGS\x01paid\x02"
    return NewMessage("orders", number % QUEUES, body, properties.encode(), _now_ms(), HOST)


def _recover(root: Path, mib: int) -> None:
    start = time.perf_counter(), time.process_time()
    store = _open(root, mib)
    end = time.perf_counter(), time.process_time()
    figure = Figure(end[0] - start[0], end[1] - start[1], store.log.end, store.report.records)
    print(json.dumps(asdict(figure)))
    store.abandon()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _file_time(ms: int) -> str:
    return time.strftime("%Y%m%d%H%M%S", time.localtime(ms // 1000)) + f"{ms % 1000:03}"


# ── Apache's side ───────────────────────────────────────────────────────────────────────────────────────────────────


def _start_apache(home: Path, mib: int) -> tuple[float, float, int]:
    """Seconds, seconds of CPU time, and where the log ends."""
    sizes = {
        "mappedFileSizeCommitLog": mib * MIB,
        "mappedFileSizeConsumeQueue": StoreSettings().queue_file_entries * 20,
        "maxHashSlotNum": INDEX_SLOTS,
        "maxIndexNum": INDEX_ENTRIES,
    }
    broker = ApacheBroker(home, "broker-a", NO_NAME_SERVER, sizes)
    try:
        broker.process.wait_until("the recovery", lambda: _loaded(broker) or None, 600)
        cpu = _cpu_seconds(broker.process.pid)
        lines = broker.log().splitlines()
    finally:
        broker.kill()
    begin = next(line for line in lines if FOUND_ABNORMAL in line)
    end = next(line for line in lines if LOADED in line)
    return (_clock(end) - _clock(begin)) % 86_400, cpu, int(end.rpartition("=")[2])


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process since its start, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _loaded(broker: ApacheBroker) -> bool:
    return (broker.home / "server.log").exists() and LOADED in broker.log()


def _clock(line: str) -> float:
    """The seconds of the day at which a line was logged."""
    time_of_day = datetime.strptime(f"1970-01-01 {line.split()[0]} +0000", "%Y-%m-%d %H:%M:%S.%f %z")
    return time_of_day.timestamp()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description="Recovery after kill -9.")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_MIB} MiB only")
    parser.add_argument("--mib", type=int, metavar="N", help=f"the size of the log (default: {MIB_WRITTEN})")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    mib = options.mib or (QUICK_MIB if options.quick else MIB_WRITTEN)
    if options.write is not None:
        _write(options.write, mib)
    elif options.open is not None:
        _recover(options.open, mib)
    else:
        print_where(where())
        run(mib).print()


if __name__ == "__main__":
    main()
