"""The store: what an append costs, how many syncs a group commit takes, how fast and how small an open store is.

CPU time of this process, on the machine's temporary folder (--folder for another one). Dispatch to queue and index is
counted apart; the plain figures come from a process of their own with KOUROU_PURE=1.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TypeAlias

from benchmarks.report import Bar, Result, print_where, table, where
from kourou.protocol.hosts import encode_host
from kourou.store.commit_log import NewMessage
from kourou.store.settings import MIB, FlushMode, StoreSettings
from kourou.store.store import Store
from kourou.store.worker import Worker

HOST = encode_host("127.0.0.1:10911")
SETTINGS = StoreSettings(commit_log_file_size=256 * MIB, index_slots=1_000_000, index_entries=4_000_000)
BATCH = 32


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def file_time(ms: int) -> str:
    return time.strftime("%Y%m%d%H%M%S", time.localtime(ms // 1000)) + f"{ms % 1000:03}"


@contextmanager
def opened(folder: Path, settings: StoreSettings = SETTINGS) -> Iterator[Store]:
    store = Store.open(folder, settings, store_host=HOST, now_ms=now_ms(), file_time=file_time)
    try:
        yield store
    finally:
        store.close(now_ms())


def messages(count: int, body_size: int) -> list[NewMessage]:
    """As the Java client sends them: a key, a tag, a unique key."""
    body = b"x" * body_size
    born = now_ms()
    return [
        NewMessage(
            topic="OrderEvents",
            queue_id=number % 4,
            body=body,
            properties=(
                f"KEYS\x01order-{number}\x02UNIQ_KEY\x017F0000010A2B4B1AC6927C5A{number:08X}\x02"
                "CLUSTER\x01DefaultCluster\x02WAIT\x01true\x02TAGS\x01paid\x02"
            ).encode(),
            born_ms=born,
            born_host=HOST,
        )
        for number in range(count)
    ]


# ── Appending ───────────────────────────────────────────────────────────────────────────────────────────────────────


Cost: TypeAlias = tuple[float, float]
"""Median and best of some rounds.

A virtual machine gets memory that it has not used for some time from its host, page by page as it is touched, which can
take ten times as long as the append. A machine that runs a broker has its memory full of older files, and uses that
again. So everything is done twice: a first pass, whose files are removed, and a second one that counts. Both are shown.
"""


def append_costs(folder: Path, quick: bool) -> dict[str, tuple[Cost, Cost]]:
    """CPU µs a message, user and system, to append and to append and dispatch, in rounds on one store."""
    count = 2_000 if quick else 20_000
    costs: dict[str, tuple[Cost, Cost]] = {}
    with opened(folder) as store:
        for body_size in (128, 1024):
            for batch in (1, BATCH):
                work = messages(count, body_size)
                pieces = [work[at : at + batch] for at in range(0, count, batch)]
                alone: list[float] = []
                both: list[float] = []
                for _ in range(5 if quick else 9):
                    alone.append(_append(store, pieces, dispatch=False) / count)
                    store.dispatch()
                    both.append(_append(store, pieces, dispatch=True) / count)
                name = f"{body_size} B, {'single' if batch == 1 else f'batches of {batch}'}"
                costs[name] = _cost(alone), _cost(both)
    return costs


def _cost(rounds: list[float]) -> Cost:
    return median(rounds) / 1000, min(rounds) / 1000


def _append(store: Store, pieces: list[list[NewMessage]], *, dispatch: bool) -> int:
    now = now_ms()
    start = time.process_time_ns()
    for piece in pieces:
        store.append(piece, now)
        if dispatch:
            store.dispatch()
    return time.process_time_ns() - start


def plain_append_costs(folder: Path, quick: bool) -> dict[str, tuple[Cost, Cost]]:
    command = [sys.executable, "-m", "benchmarks.store", "--appends-only", "--folder", str(folder)]
    done = subprocess.run(
        command + (["--quick"] if quick else []),
        env={**os.environ, "KOUROU_PURE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, tuple[Cost, Cost]] = json.loads(done.stdout)
    return found


# ── Group commit ────────────────────────────────────────────────────────────────────────────────────────────────────


def group_commit(folder: Path, senders: int, seconds: float) -> tuple[float, float]:
    """`senders` each wait until their message is durable, then send the next: messages/s, and syncs a message."""
    settings = replace(SETTINGS, flush_mode=FlushMode.SYNC)
    work = deque(messages(50_000, 128))
    with opened(folder, settings) as store:
        worker = Worker()
        ready, acknowledged, syncs = senders, 0, 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            batch = [work.popleft() for _ in range(ready)]
            work.extend(batch)
            for place in store.append(batch, now_ms()):
                store.durability.wait(place.physical_offset + place.size, place.physical_offset, now_ms())
            ready = 0
            for job in store.jobs(now_ms()):
                syncs += type(job).__name__ == "SyncLog"
                worker.submit(job)
            for job in worker.finished(wait=True):
                ready += len(store.finished(job, now_ms()))
            store.dispatch()
            acknowledged += ready
        for job in worker.close():
            store.finished(job, now_ms())
    return acknowledged / seconds, syncs / max(acknowledged, 1)


# ── Opening ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def many_queues(folder: Path, count: int) -> dict[str, float]:
    """Open a store with this many queues, after a clean stop and after a crash."""
    settings = replace(SETTINGS, commit_log_file_size=16 * MIB)
    message = messages(1, 128)[0]
    with opened(folder, settings) as store:
        for number in range(count):
            message.topic, message.queue_id = f"topic-{number // 4}", number % 4
            store.append([message], now_ms())
        store.dispatch()
    figures: dict[str, float] = {}
    for name in ("clean", "after a crash"):
        start = time.perf_counter()
        store = Store.open(folder, settings, store_host=HOST, now_ms=now_ms(), file_time=file_time)
        figures[name] = time.perf_counter() - start
        figures[f"{name}: files mapped"] = float(_mapped_files(folder))
        store.reader.get("topic-7", 1, 0, 1)
        if name == "clean":
            store.abandon()
        else:
            store.close(now_ms())
    return figures


def _mapped_files(folder: Path) -> int:
    with open("/proc/self/maps") as maps:
        return len({line.split()[-1] for line in maps if str(folder) in line})


def idle_memory(folder: Path) -> float:
    """MiB that an open, idle store adds to a process that has imported everything."""
    program = (
        "import benchmarks.store as b, pathlib, sys;"
        "rss=lambda: int(next(l for l in open('/proc/self/status') if l.startswith('VmRSS')).split()[1]);"
        "before=rss();"
        "s=b.Store.open(pathlib.Path(sys.argv[1]), b.StoreSettings(), store_host=b.HOST, now_ms=b.now_ms(), "
        "file_time=b.file_time);"
        "print(before, rss()); s.close(b.now_ms())"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    return (after - before) / 1024


# ── The whole ───────────────────────────────────────────────────────────────────────────────────────────────────────


def run(quick: bool, folder: Path) -> Result:
    result = Result("The store")
    first = append_costs(folder / "append", quick)
    shutil.rmtree(folder / "append")
    compiled = append_costs(folder / "append", quick)
    plain = plain_append_costs(folder / "plain", quick)
    costs = [
        (name, *(f"{middle:.2f} ({best:.2f})" for middle, best in (*compiled[name], first[name][0], *plain[name])))
        for name in compiled
    ]
    head = ("CPU µs a message: median (best)", "append", "and dispatch", "append, first pass", "plain", "and dispatch")
    result.text.append(table(head, costs))
    result.bars.append(Bar("append of 128 B, single", compiled["128 B, single"][0][0], 2.0, "µs"))
    result.bars.append(
        Bar(f"append of 128 B, batches of {BATCH}", compiled[f"128 B, batches of {BATCH}"][0][0], 1.0, "µs")
    )

    commits = {
        senders: group_commit(folder / f"commit-{senders}", senders, 0.5 if quick else 3.0) for senders in (1, 16, 256)
    }
    rows = [(str(senders), f"{rate:,.0f}", f"{syncs:.4f}") for senders, (rate, syncs) in commits.items()]
    result.text += ["", table(("group commit: waiting senders", "messages/s", "syncs a message"), rows)]

    count = 1_000 if quick else 10_000
    opening = many_queues(folder / "queues", count)
    times = [(f"{count:,} queues, {name}", f"{figure:.3f}") for name, figure in opening.items()]
    result.text += ["", table(("opening", "s"), times)]
    result.bars.append(Bar(f"opening {count:,} queues", opening["clean"], 1.0, "s"))

    memory = idle_memory(folder / "idle")
    result.bars.append(Bar("memory of an idle store", memory, 30.0, "MiB"))
    result.data = {
        "append": compiled,
        "append_first_pass": first,
        "append_plain": plain,
        "group_commit": commits,
        "opening": opening,
        "idle": memory,
    }
    return result


def run_aside(quick: bool, folder: Path | None = None) -> Result:
    """In a folder of its own, within this one or the machine's temporary one."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        return run(quick, Path(temporary))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the stores are made (default: a temporary folder)")
    parser.add_argument("--appends-only", action="store_true", help="print the cost of appends as JSON")
    options = parser.parse_args()
    if options.appends_only:
        with tempfile.TemporaryDirectory() as temporary:
            print(json.dumps(append_costs(Path(temporary), options.quick)))
        return 0
    print_where(where())
    result = run_aside(options.quick, options.folder)
    result.print()
    return 0 if result.cleared else 1


if __name__ == "__main__":
    sys.exit(main())
