"""Kill the writer again and again, on the same directory, and check each time which messages are there.

python -m tests.crash.kills --times 50 --mode sync
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from kourou.protocol.record import Found, Scanner, decode_record
from kourou.store.store import Store

from .letters import name_of
from .opening import now_ms, open_store, settings

PROJECT = Path(__file__).parents[2]
START_S = 60
KILLS = 10


@dataclass
class Victim:
    """A directory, and all letters that its writers said are stored."""

    root: Path
    mode: str
    random: Random
    told: set[str] = field(default_factory=set)
    kills: int = 0

    def kill_once(self) -> Store:
        """Let a writer run for a short time, kill it, and open its files."""
        self.kills += 1
        command = [sys.executable, "-m", "tests.crash.writer", str(self.root), "--mode", self.mode]
        with subprocess.Popen([*command, "--run", str(self.kills)], stdout=subprocess.PIPE, cwd=PROJECT) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n", f"the writer ended by itself: {process.wait(START_S)}"
            for _ in range(self.random.randint(0, 400)):
                self.told.add(process.stdout.readline().decode().rstrip())
            time.sleep(self.random.random() * 0.05)
            process.kill()
            self.told |= {line.decode() for line in process.stdout.read().split(b"\n") if line}
            assert process.wait() == -9, "it ended before it was killed"
        return self.check()

    def check(self) -> Store:
        store = open_store(self.root, settings(self.mode))
        assert not store.report.damage, store.report.damage
        # Size and magic are written last, so an interrupted write leaves no record.
        assert store.report.end_reason.endswith("never written"), store.report.end_reason
        found = letters_in_log(store)
        missing = self.told - found.keys()
        assert not missing, f"{len(missing)} letters are missing, as {sorted(missing)[:3]}"
        twice = [name for name, count in found.items() if count > 1]
        assert not twice, f"{len(twice)} letters are there twice, as {twice[:3]}"
        assert letters_in_queues(store) == found.keys()
        self._find_by_key(store, sorted(found))
        return store

    def _find_by_key(self, store: Store, names: list[str]) -> None:
        for name in self.random.sample(names, min(20, len(names))):
            topics = ("letters", "parcels")
            records = [r for topic in topics for r in store.reader.query(topic, name, 8, 0, now_ms() + 1000).records]
            assert name in {name_of(decode_record(bytes(record))) for record in records}, f"{name} has no key"


def letters_in_log(store: Store) -> Counter[str]:
    """Every letter of the log, which is made of whole records up to its end."""
    found: Counter[str] = Counter()
    segments = store.log.segments
    for start in segments.starts:
        stop = min(store.log.end - start, segments.file_size)
        scanner = Scanner(segments.file(start).buffer, 0, stop, crc=True, base=start)
        while (what := scanner.step()) == Found.RECORD:
            found[name_of(scanner.message())] += 1
        assert what == Found.FILLER or start + scanner.at == store.log.end, f"{start}+{scanner.at}: {scanner.reason}"
    return found


def letters_in_queues(store: Store) -> set[str]:
    """Every letter that a consumer gets, one queue offset after the other."""
    found = set()
    for topic, queue_id in list(store.queues.names()):
        offset, end = store.reader.offsets(topic, queue_id)
        assert offset == 0
        while offset < end:
            result = store.reader.get(topic, queue_id, offset, 32)
            assert result.next_offset == offset + len(result.records) > offset, f"a gap at {offset} of {topic}"
            messages = [decode_record(bytes(record), crc=True) for record in result.records]
            assert [message.queue_offset for message in messages] == list(range(offset, result.next_offset))
            found |= {name_of(message) for message in messages}
            offset = result.next_offset
    return found


def kill_often(folder: Path, mode: str, seed: int, times: int = KILLS, *, verbose: bool = False) -> Victim:
    """The next writer finds the files after a kill, after a start that followed it, or after a clean stop."""
    victim = Victim(folder / "store", mode, Random(f"kills {mode} {seed}"))
    for number in range(times):
        store = victim.kill_once()
        if verbose:
            print(f"kill {victim.kills}: {len(victim.told)} letters told, {store.report}", flush=True)
        if number % 2:
            store.close(now_ms())
        else:
            store.abandon()
    return victim


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=KILLS)
    parser.add_argument("--mode", choices=("sync", "async"), default="async")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        victim = kill_often(Path(folder), options.mode, options.seed, options.times, verbose=True)
    print(f"{options.times} kills, {options.mode}: none of {len(victim.told)} letters is missing")


if __name__ == "__main__":
    main()
