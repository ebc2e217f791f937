"""A Raft group of three, ours beside Apache's DLedger and beside our own master with two slaves, in the same run.

All have ASYNC_FLUSH; a sender is answered when two of three brokers have the message. The load is that of Apache's Java
client. Apache's group is warmed up, then the three take turns, and the median of the rounds' ratios is judged: CPU
time per message of all three brokers together, messages per second, and the 99th percentile of the time that a send
takes. What followers do counts for the messages that caused it.
"""

import argparse
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.processes import Talker
from tests.waiting import wait_for

from benchmarks.broker import load_client
from benchmarks.replication import log_end
from benchmarks.report import Bar, Result, middle, table
from benchmarks.servers import Group, start_apache_group, start_kourou_group, start_kourou_trio

RAFT, DLEDGER, SLAVES = "kourou", "apache", "kourou-slaves"
BODY = 128
SENDERS = (16, 256)
DLEDGER_LIMIT = 1 / 6
"""What ours may use of DLedger's CPU time per message."""

TIMES = 3
"""How many times DLedger's messages per second ours should take."""

SLAVES_LIMIT = 1.3
"""What ours may use of the CPU time per message of our SYNC_MASTER with two slaves."""


@dataclass
class Figure:
    """One load on one group in one round."""

    cpu_us: float
    per_second: float
    p99_ms: float


class Contender:
    """A group, and the load it can be put under."""

    def __init__(self, group: Group, name: str, talker: Talker) -> None:
        self.group = group
        self.errors = 0
        self._name = name
        self._talker = talker
        self._ask(f"server {name} {group.address}")

    def send(self, threads: int, seconds: float) -> Figure:
        """Until all brokers have everything."""
        before = self.group.cpu_ns()
        words = self._ask(f"times {self._name} load-{threads} {threads} {BODY} {seconds}")
        wait_for("the followers to catch up", self._are_equal, 120)
        messages, spent_ns, errors, p99_ns = map(int, words)
        self.errors += errors
        cpu_us = (self.group.cpu_ns() - before) / max(messages, 1) / 1000
        return Figure(cpu_us, messages / spent_ns * 1e9, p99_ns / 1e6)

    def warm_up(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for threads in SENDERS:
                self.send(threads, min(seconds / 4, 8.0))

    def _are_equal(self) -> bool:
        ends = {log_end(broker.address) for broker in self.group.brokers}
        return len(ends) == 1 and None not in ends

    def _ask(self, line: str) -> list[str]:
        self._talker.tell(line)
        how, *words = self._talker.line().split(" ")
        assert how == "ok", how
        return words


@dataclass
class Measured:
    """All rounds of one load, for all groups."""

    name: str
    figures: dict[str, list[Figure]] = field(default_factory=lambda: {RAFT: [], DLEDGER: [], SLAVES: []})

    def ratio(self, what: str, other: str) -> float:
        """Ours to another one's."""
        pairs = zip(self.figures[RAFT], self.figures[other], strict=True)
        return middle(getattr(ours, what) / getattr(theirs, what) for ours, theirs in pairs)

    def row(self) -> list[str]:
        return [
            self.name,
            *(
                f"{middle(getattr(one, what) for one in self.figures[name]):,.{digits}f}"
                for what, digits in (("cpu_us", 1), ("per_second", 0), ("p99_ms", 1))
                for name in (RAFT, DLEDGER, SLAVES)
            ),
        ]

    def bars(self) -> list[Bar]:
        return [
            Bar(f"{self.name}: CPU a message", self.ratio("cpu_us", DLEDGER), DLEDGER_LIMIT, "of DLedger's"),
            Bar(f"{self.name}: CPU a message", self.ratio("cpu_us", SLAVES), SLAVES_LIMIT, "of two slaves'"),
            Bar(
                f"{self.name}: {TIMES} times DLedger's messages/s to ours",
                TIMES / self.ratio("per_second", DLEDGER),
                1.0,
                "times",
            ),
            Bar(f"{self.name}: p99", self.ratio("p99_ms", DLEDGER), 1.0, "of DLedger's"),
        ]


def run(options: argparse.Namespace) -> Result:
    """Raises MissingToolError if Java or Maven is missing, GaveUpError if a server does not start."""
    rounds, seconds, warmup = (1, 2.0, 10.0) if options.quick else (3, 5.0, 60.0)
    rounds, seconds = options.rounds or rounds, options.seconds or seconds
    warmup = warmup if options.warmup is None else options.warmup
    result = Result("A Raft group, beside Apache's DLedger and beside our own slaves")
    measured = {threads: Measured(f"{threads} senders") for threads in SENDERS}
    with tempfile.TemporaryDirectory(prefix="kourou-bench-") as folder, ExitStack() as stack:
        home = Path(folder)
        talker = stack.enter_context(load_client(home / "load"))
        groups: dict[str, Group] = {}
        for name, start in ((RAFT, start_kourou_group), (SLAVES, start_kourou_trio), (DLEDGER, start_apache_group)):
            groups[name] = start(home / name)
            stack.callback(groups[name].stop)
        contenders = {name: Contender(group, name, talker) for name, group in groups.items()}
        for name, contender in contenders.items():
            contender.warm_up(warmup if name == DLEDGER else warmup / 10)
        for _ in range(rounds):
            for threads, outcome in measured.items():
                for name, contender in contenders.items():
                    outcome.figures[name].append(contender.send(threads, seconds))
        for name, contender in contenders.items():
            result.data[name] = {"version": contender.group.version, "errors": contender.errors}
            if contender.errors:
                result.text.append(f"{name}: {contender.errors} sends failed")
    head = ["128 B a message", "CPU µs", "DLedger", "two slaves", "messages/s", "DLedger", "two slaves"]
    head += ["p99 ms", "DLedger", "two slaves"]
    result.text.insert(0, table(head, [outcome.row() for outcome in measured.values()]))
    result.bars += [bar for outcome in measured.values() for bar in outcome.bars()]
    for outcome in measured.values():
        result.data[outcome.name] = {name: [vars(one) for one in figures] for name, figures in outcome.figures.items()}
    if options.quick:
        result.no_verdict = "a quick run is too short for the JVM to warm up"
    return result
