"""A master with a slave, ours beside Apache's, under the load of Apache's own Java client, in the same run.

Both pairs are started afresh, first with ASYNC_MASTER and then with SYNC_MASTER and inSyncReplicas=2. As in `broker`,
Apache's is warmed up, then the two take turns, and the median of the rounds' ratios is judged: CPU time per message of
the master and of the slave, messages per second, and the 99th percentile of the time that a send takes.

At the end each slave is killed, its master gets a backlog, and the slave is started again with what it has: bytes per
second, from the first that arrives to the last, say how fast it catches up. (A new slave of Apache's would get the last
segment only.)
"""

import argparse
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.processes import Talker
from tests.interop.wire import Connection
from tests.waiting import GaveUpError, wait_for

from benchmarks.broker import APACHE, OURS, load_client
from benchmarks.report import Bar, Result, middle, table
from benchmarks.servers import Pair, start_apache_pair, start_kourou_pair

BODY = 128
CATCH_UP_BODY = 1024
SENDERS = (16, 256)
RUNTIME_INFO = 28
CATCH_UP_S = 120
POLL_S = 0.002
CPU_LIMIT = 1 / 3
"""What ours may use of Apache's CPU time per message, on the master and on the slave."""

ROLES = {"async": {"brokerRole": "ASYNC_MASTER"}, "sync": {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}}


@dataclass(frozen=True)
class Plan:
    """How long everything takes."""

    rounds: int
    seconds: float
    warmup: float
    backlog: int  # messages that a slave has to catch up with

    @classmethod
    def of(cls, options: argparse.Namespace) -> "Plan":
        rounds, seconds, warmup, backlog = (1, 2.0, 10.0, 100_000) if options.quick else (3, 5.0, 60.0, 500_000)
        return cls(
            rounds=options.rounds or rounds,
            seconds=options.seconds or seconds,
            warmup=warmup if options.warmup is None else options.warmup,
            backlog=backlog,
        )


@dataclass
class Figure:
    """One load on one pair in one round."""

    master_us: float
    slave_us: float
    per_second: float
    p99_ms: float


class Contender:
    """A pair, and the loads it can be put under."""

    def __init__(self, pair: Pair, name: str, talker: Talker) -> None:
        self.pair = pair
        self.errors = 0
        self._name = name
        self._talker = talker
        self._ask(f"server {name} {pair.address}")

    def send(self, threads: int, seconds: float) -> Figure:
        """Until the slave has everything: its work counts for the messages that caused it."""
        master, slave = self.pair.master, self.pair.slave
        before = master.cpu_ns(), slave.cpu_ns()
        words = self._ask(f"times {self._name} load-{threads} {threads} {BODY} {seconds}")
        self.wait_equal()
        messages, spent_ns, errors, p99_ns = map(int, words)
        self.errors += errors
        master_us, slave_us = (
            (server.cpu_ns() - used) / max(messages, 1) / 1000
            for server, used in zip((master, slave), before, strict=True)
        )
        return Figure(master_us, slave_us, messages / spent_ns * 1e9, p99_ns / 1e6)

    def warm_up(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for threads in SENDERS:
                self.send(threads, min(seconds / 4, 8.0))

    def wait_equal(self) -> None:
        """Until the slave has the log of its master."""
        wait_for("the slave to catch up", lambda: log_end(self.pair.slave.address) == self._master_end(), 120)

    def _master_end(self) -> int:
        return log_end(self.pair.master.address) or -1

    def catch_up(self, count: int) -> float:
        """MB/s at which the slave gets a backlog of so many messages."""
        self.pair.slave.kill()
        start = self._master_end()
        self._ask(f"fill {self._name} backlog {count} {CATCH_UP_BODY}")
        end = self._master_end()
        self.pair.slave.start()
        samples: list[tuple[float, int]] = []

        def is_done() -> bool:
            offset = log_end(self.pair.slave.address)
            if offset is not None and offset > start:
                samples.append((time.monotonic(), offset))
            return offset == end

        give_up = time.monotonic() + CATCH_UP_S
        while not is_done():
            if time.monotonic() > give_up:
                raise GaveUpError(f"{self._name}: the slave does not catch up within {CATCH_UP_S} s")
            time.sleep(POLL_S)
        (first_s, first), (last_s, last) = samples[0], samples[-1]
        return (last - first) / max(last_s - first_s, 1e-9) / 1e6

    def _ask(self, line: str) -> list[str]:
        self._talker.tell(line)
        how, *words = self._talker.line().split(" ")
        assert how == "ok", how
        return words


def log_end(address: str) -> int | None:
    """Where the log of a broker ends; None: it does not answer."""
    try:
        with Connection(address) as connection:
            answer = connection.ask(RUNTIME_INFO)
            return int(answer.json()["table"]["commitLogMaxOffset"]) if answer.code == 0 else None
    except (OSError, EOFError):
        return None


@dataclass
class Measured:
    """All rounds of one load, for both pairs."""

    name: str
    figures: dict[str, list[Figure]] = field(default_factory=lambda: {OURS: [], APACHE: []})

    def ratio(self, what: str) -> float:
        """Ours to Apache's."""
        pairs = zip(self.figures[OURS], self.figures[APACHE], strict=True)
        return middle(getattr(ours, what) / getattr(theirs, what) for ours, theirs in pairs)

    def row(self) -> list[str]:
        columns = (("master_us", 1), ("slave_us", 1), ("per_second", 0), ("p99_ms", 1))
        return [
            self.name,
            *(
                f"{middle(getattr(one, what) for one in self.figures[name]):,.{digits}f}"
                for what, digits in columns
                for name in (OURS, APACHE)
            ),
        ]

    def bars(self) -> list[Bar]:
        return [
            Bar(f"{self.name}: CPU a message, master", self.ratio("master_us"), CPU_LIMIT, "of Apache's"),
            Bar(f"{self.name}: CPU a message, slave", self.ratio("slave_us"), CPU_LIMIT, "of Apache's"),
            Bar(f"{self.name}: Apache's messages/s to ours", 1 / self.ratio("per_second"), 1.0, "times"),
            Bar(f"{self.name}: p99", self.ratio("p99_ms"), 1.0, "of Apache's"),
        ]


def _compare(mode: str, plan: Plan, home: Path, result: Result) -> list[Measured]:
    with ExitStack() as stack:
        talker = stack.enter_context(load_client(home / f"load-{mode}"))
        pairs = {
            OURS: start_kourou_pair(home / f"kourou-{mode}", ROLES[mode]),
            APACHE: start_apache_pair(home / f"apache-{mode}", ROLES[mode]),
        }
        for pair in pairs.values():
            stack.callback(pair.stop)
        contenders = {name: Contender(pair, name, talker) for name, pair in pairs.items()}
        contenders[APACHE].warm_up(plan.warmup)
        contenders[OURS].warm_up(plan.warmup / 10)
        measured = {threads: Measured(f"{mode}, {threads} senders") for threads in SENDERS}
        for _ in range(plan.rounds):
            for threads, outcome in measured.items():
                for name, contender in contenders.items():
                    outcome.figures[name].append(contender.send(threads, plan.seconds))
        if mode == "async":  # the same bytes in both modes
            rates = {name: contender.catch_up(plan.backlog) for name, contender in contenders.items()}
            result.data["catching up, MB/s"] = rates
            result.text.append(f"catching up: {rates[OURS]:.0f} MB/s, Apache's {rates[APACHE]:.0f} MB/s")
            result.bars.append(Bar("catching up: Apache's MB/s to ours", rates[APACHE] / rates[OURS], 1.0, "times"))
        for name, contender in contenders.items():
            result.data[f"{name} {mode}"] = {"version": contender.pair.version, "errors": contender.errors}
            if contender.errors:
                result.text.append(f"{name}, {mode}: {contender.errors} sends failed")
        return list(measured.values())


def run(options: argparse.Namespace) -> Result:
    """Raises MissingToolError if Java or Maven is missing, GaveUpError if a server does not start."""
    plan = Plan.of(options)
    result = Result("Replication, beside Apache's")
    outcomes: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="kourou-bench-") as folder:
        for mode in ROLES:
            outcomes += _compare(mode, plan, Path(folder), result)
    head = ["128 B a message", "master µs", "Apache's", "slave µs", "Apache's"]
    head += ["messages/s", "Apache's", "p99 ms", "Apache's"]
    result.text.insert(0, table(head, [outcome.row() for outcome in outcomes]))
    result.bars += [bar for outcome in outcomes for bar in outcome.bars()]
    for outcome in outcomes:
        result.data[outcome.name] = {name: [vars(one) for one in figures] for name, figures in outcome.figures.items()}
    if options.quick:
        result.no_verdict = "a quick run is too short for the JVM to warm up"
    return result
