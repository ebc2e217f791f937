"""Our broker beside Apache's, under the load of Apache's own Java client, in the same run.

Both are started afresh, first with asynchronous and then with synchronous flush. Apache's gets all loads for a minute
and more, ours a little. From there on the two take turns, for the speed of a machine drifts; each round gives a figure
for both, and the median of the rounds' ratios is judged.

CPU time of the broker's process per message is what counts: messages per second also depend on what the client leaves
of the cores. `kourou run` has its name server in the same process, Apache's is not counted.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.interop import toolchain
from tests.interop.processes import Talker

from benchmarks.report import Bar, Result, middle, table
from benchmarks.servers import Server, start_apache_broker, start_kourou_broker

OURS, APACHE = "kourou", "apache"
BODY = 128

THREADS_16 = "16 threads, each sends and waits"
THREADS_64 = "64 threads, each sends and waits"
BATCHES = "4 threads, batches of 32"
DRAIN = "draining a backlog"
FLUSH = "16 threads, synchronous flush"

CPU_LIMITS = {THREADS_16: 1 / 3, BATCHES: 1 / 2, DRAIN: 1 / 2}
"""What ours may use of Apache's CPU time per message."""


@dataclass(frozen=True)
class Plan:
    """How long everything takes."""

    rounds: int
    seconds: float
    warmup: float
    backlog: int  # measured messages of a drained backlog; as many again are there before and behind them

    @classmethod
    def of(cls, options: argparse.Namespace) -> "Plan":
        rounds, seconds, warmup, backlog = (1, 1.5, 8.0, 30_000) if options.quick else (3, 5.0, 90.0, 200_000)
        return cls(
            rounds=options.rounds or rounds,
            seconds=options.seconds or seconds,
            warmup=warmup if options.warmup is None else options.warmup,
            backlog=backlog,
        )


@dataclass
class Figure:
    """One load on one broker in one round."""

    cpu_us: float
    per_second: float


# ── One broker under load ───────────────────────────────────────────────────────────────────────────────────────────


class Contender:
    """A broker, and the loads it can be put under."""

    def __init__(self, server: Server, name: str, talker: Talker, plan: Plan) -> None:
        self.server = server
        self.errors = 0
        self._name = name
        self._talker = talker
        self._plan = plan
        self._topics = 0
        self._ask(f"server {name} {server.address}")

    def loads(self, flush: str, /) -> dict[str, Callable[[float], Figure]]:
        if flush == "SYNC_FLUSH":
            return {FLUSH: lambda seconds: self._send(16, 1, seconds)}
        return {
            THREADS_16: lambda seconds: self._send(16, 1, seconds),
            THREADS_64: lambda seconds: self._send(64, 1, seconds),
            BATCHES: lambda seconds: self._send(4, 32, seconds),
            DRAIN: lambda _: self._drain(),
        }

    def warm_up(self, seconds: float, flush: str) -> None:
        """All loads in turn, the plain sends longest."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for load in self.loads(flush).values():
                load(min(seconds / 4, 8.0))

    def _send(self, threads: int, batch: int, seconds: float) -> Figure:
        return self.figure("send", f"load-{threads}-{batch} {threads} {batch} {BODY} {seconds}")

    def figure(self, load: str, words: str) -> Figure:
        """Put it under a load, until the load has ended."""
        before = self.server.cpu_ns()
        said = self._ask(f"{load} {self._name} {words}")
        cpu_ns = self.server.cpu_ns() - before
        messages, spent_ns, errors = map(int, said)
        self.errors += errors
        return Figure(cpu_ns / max(messages, 1) / 1000, messages / spent_ns * 1e9)

    def _drain(self) -> Figure:
        self._topics += 1
        count, topic = self._plan.backlog, f"drain-{self._topics}"
        self._ask(f"fill {self._name} {topic} {3 * count} {BODY}")
        self._talker.tell(f"drain {self._name} {topic} {count} {count}")
        assert self._talker.line() == "begin"
        before = self.server.cpu_ns()
        _, *words = self._talker.line().split(" ")
        cpu_ns = self.server.cpu_ns() - before
        messages, spent_ns = map(int, words)
        assert self._talker.line() == "ok"
        return Figure(cpu_ns / messages / 1000, messages / spent_ns * 1e9)

    def _ask(self, line: str) -> list[str]:
        self._talker.tell(line)
        how, *words = self._talker.line().split(" ")
        assert how == "ok", how
        return words


@contextmanager
def load_client(home: Path) -> Iterator[Talker]:
    """The Java process that makes the load. Raises MissingToolError."""
    jars = toolchain.jars("server")
    sources = Path(__file__).parent / "java"
    classes = toolchain.classes("broker-load", [str(sources)], jars)
    log_settings = toolchain.JAVA_SOURCES / "quiet.xml"
    options = ["-Xms512m", "-Xmx512m", "-Djava.net.preferIPv4Stack=true", f"-Duser.home={home}"]
    talker = Talker(
        [
            toolchain.java(),
            *options,
            f"-Drmq.logback.configurationFile={log_settings}",
            *("-cp", f"{classes}:{jars}/*", "BrokerLoad"),
        ],
        home,
    )
    try:
        assert talker.line() == "ready"
        yield talker
    finally:
        talker.stop()


# ── The comparison ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Measured:
    """All rounds of one load, for both brokers."""

    name: str
    figures: dict[str, list[Figure]] = field(default_factory=lambda: {OURS: [], APACHE: []})

    def cpu_ratio(self) -> float:
        pairs = zip(self.figures[OURS], self.figures[APACHE], strict=True)
        return median(ours.cpu_us / theirs.cpu_us for ours, theirs in pairs)

    def rate_ratio(self) -> float:
        """Apache's messages a second to ours: at most 1, or ours is slower."""
        pairs = zip(self.figures[OURS], self.figures[APACHE], strict=True)
        return median(theirs.per_second / ours.per_second for ours, theirs in pairs)

    def row(self) -> list[str]:
        ours, theirs = self.figures[OURS], self.figures[APACHE]
        return [
            self.name,
            f"{middle(one.cpu_us for one in ours):.2f}",
            f"{middle(one.cpu_us for one in theirs):.2f}",
            f"{self.cpu_ratio():.2f}",
            f"{middle(one.per_second for one in ours):,.0f}",
            f"{middle(one.per_second for one in theirs):,.0f}",
            f"{1 / self.rate_ratio():.2f}",
        ]

    def bars(self) -> list[Bar]:
        bars = [Bar(f"{self.name}: Apache's messages/s to ours", self.rate_ratio(), 1.0, "times")]
        if self.name in CPU_LIMITS:
            bars.insert(0, Bar(f"{self.name}: CPU a message", self.cpu_ratio(), CPU_LIMITS[self.name], "of Apache's"))
        return bars


def compare(flush: str, plan: Plan, home: Path, result: Result, kind: type[Contender] = Contender) -> list[Measured]:
    """All loads of this kind, for both brokers."""
    with ExitStack() as stack:
        talker = stack.enter_context(load_client(home / f"load-{flush}"))
        servers = {
            OURS: start_kourou_broker(home / f"kourou-{flush}", flush),
            APACHE: start_apache_broker(home / f"apache-{flush}", flush),
        }
        for server in servers.values():
            stack.callback(server.stop)
        contenders = {name: kind(server, name, talker, plan) for name, server in servers.items()}
        contenders[APACHE].warm_up(plan.warmup, flush)
        contenders[OURS].warm_up(plan.warmup / 10, flush)
        measured = {name: Measured(name) for name in contenders[OURS].loads(flush)}
        for _ in range(plan.rounds):
            for load, outcome in measured.items():
                for name, contender in contenders.items():
                    outcome.figures[name].append(contender.loads(flush)[load](plan.seconds))
        for name, contender in contenders.items():
            result.data[f"{name} {flush}"] = {"version": contender.server.version, "errors": contender.errors}
            if contender.errors:
                result.text.append(f"{name}: {contender.errors} sends failed")
        return list(measured.values())


def run(options: argparse.Namespace) -> Result:
    """Raises MissingToolError if Java or Maven is missing, GaveUpError if a server does not start."""
    plan = Plan.of(options)
    result = Result("Broker, beside Apache's")
    outcomes: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="kourou-bench-") as folder:
        for flush in ("ASYNC_FLUSH", "SYNC_FLUSH"):
            outcomes += compare(flush, plan, Path(folder), result)
    result.bars = [bar for outcome in outcomes for bar in outcome.bars()]
    show(outcomes, result)
    if options.quick:
        result.no_verdict = "a quick run is too short for the JVM to warm up"
    return result


def show(outcomes: list[Measured], result: Result) -> None:
    """The table, and every figure."""
    head = ["128 B a message", "CPU µs", "Apache's", "ratio", "messages/s", "Apache's", "times"]
    result.text.append(table(head, [outcome.row() for outcome in outcomes]))
    for outcome in outcomes:
        result.data[outcome.name] = {
            name: [{"cpu_us": one.cpu_us, "per_second": one.per_second} for one in figures]
            for name, figures in outcome.figures.items()
        }
