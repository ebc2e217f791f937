"""Our name server beside Apache's, under the same load in the same run.

For 1 and for 10,000 topics, both servers are started afresh and one broker registers with each. Apache's then gets the
whole load for a minute and more, until it gets no faster. From there on the servers take turns, for the speed of a
machine drifts; each round gives a figure for both, and the median of the rounds' ratios is judged.

What counts is CPU time of the server's process per request: unlike throughput, it does not depend on what share of the
cores the load itself takes.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import geometric_mean, median

from benchmarks import requests
from benchmarks.load import Crowd, Link, RefusedError, Seen, Stalls, repeat, stalls
from benchmarks.report import Bar, Result, middle, quantile, table
from benchmarks.servers import Server, start_apache, start_kourou

OURS, APACHE = "kourou", "apache"
RATIO_LIMIT = 0.5
STALL_LIMIT_MS = 50.0

TOPICS = (1, 10_000)
SYNC_CONNECTIONS = 16
PIPES, PIPE_DEPTH = 4, 64
VARIANTS = 12
"""Different registrations that take turns: enough that none follows itself, few enough to hold 10,000 topics each."""
STALL_PAUSE_S = 0.1

SYNC = f"route query, {SYNC_CONNECTIONS} connections in turn"
PIPELINED = f"route query, {PIPES} connections {PIPE_DEPTH} deep"
FIRST = "route query, the first after a change of all"  # shown, not judged: it comes once per topic and change
UNCHANGED = "registration, unchanged (5.x)"
REPEATED = "registration, unchanged (4.9)"
CHANGED = "registration, one topic changed"


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--topics", type=int, nargs="+", default=TOPICS, metavar="N", help="how many topics (default: 1 10000)"
    )
    group.add_argument("--rounds", type=int, metavar="N", help="turns of each server (default: 5; quick: 2)")
    group.add_argument("--seconds", type=float, metavar="S", help="length of one load (default: 3; quick: 0.5)")
    group.add_argument("--warmup", type=float, metavar="S", help="load before the first round (default: 90; quick: 10)")
    group.add_argument("--pure", action="store_true", help="also measure our name server without compiled modules")


@dataclass(frozen=True)
class Plan:
    """How long everything takes."""

    topics: tuple[int, ...]
    rounds: int
    seconds: float
    warmup: float
    pure: bool

    @classmethod
    def of(cls, options: argparse.Namespace) -> "Plan":
        rounds, seconds, warmup = (2, 0.5, 10.0) if options.quick else (5, 3.0, 90.0)
        return cls(
            topics=tuple(options.topics),
            rounds=options.rounds or rounds,
            seconds=options.seconds or seconds,
            warmup=warmup if options.warmup is None else options.warmup,
            pure=options.pure,
        )


# ── One server under load ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Frames:
    """All that is sent in one case, made in advance."""

    topics: int
    queries: list[bytes]
    empty: bytes
    unchanged: list[bytes]
    repeated: bytes
    changed: list[bytes]
    touch_all: bytes

    @classmethod
    def make(cls, topics: int) -> "Frames":
        names = requests.topic_names(topics)
        asked = random.Random(7).choices(names, k=max(1000, topics))
        return cls(
            topics=topics,
            queries=[requests.route_query(name) for name in asked],
            empty=requests.empty_registration(),
            unchanged=requests.unchanged_registrations(names, VARIANTS),
            repeated=requests.repeated_registration(names),
            changed=requests.changed_registrations(names, VARIANTS),
            touch_all=requests.add_write_permission(),
        )


@dataclass
class Figure:
    """One load on one server in one round."""

    cpu_us: float
    per_second: float
    p50_us: float | None = None
    p99_us: float | None = None


class Contender:
    """A server, the broker that is registered with it, and the loads it can be put under.

    The broker's connection stays open from start to end, for a name server forgets the broker when it closes. It is
    used in every turn, and so is never idle for the two minutes after which it would be closed.
    """

    def __init__(self, server: Server, frames: Frames) -> None:
        self.server = server
        self.frames = frames
        self._broker = Link(server.address)
        self._queries = cycle(frames.queries)
        self._broker.ask(frames.empty)
        self._broker.ask(frames.changed[0])

    def close(self) -> None:
        self._broker.close()

    def loads(self) -> dict[str, Callable[[float], Figure]]:
        loads: dict[str, Callable[[float], Figure]] = {
            SYNC: self._sync,
            PIPELINED: self._pipelined,
            UNCHANGED: lambda seconds: self._register(self.frames.unchanged, seconds),
            REPEATED: lambda seconds: self._register([self.frames.repeated], seconds),
            CHANGED: lambda seconds: self._register(self.frames.changed, seconds),
        }
        return {**loads, FIRST: self._first} if self.frames.topics > 1 else loads

    def warm_up(self, seconds: float, until_settled: bool) -> None:
        """All loads in turn, in slices short enough that none is forgotten.

        For so many seconds or, `until_settled`, for up to three times as many until it gets no better: when the machine
        is busy, the JVM's compilers need longer.
        """
        start = time.monotonic()
        slice_s = min(2.0, seconds / 10)
        costs: list[float] = []
        while (spent := time.monotonic() - start) < 3 * seconds:
            if spent >= seconds and (settled(costs) or not until_settled):
                break
            costs.append(geometric_mean([load(slice_s).cpu_us for load in self.loads().values()]))

    def _sync(self, seconds: float) -> Figure:
        with Crowd(self.server.address, SYNC_CONNECTIONS, 1) as crowd:
            seen, cpu_ns = self._watched(lambda: crowd.run(self._queries, seconds))
        return Figure(cpu_ns / seen.count / 1000, seen.per_second, seen.latency_us(0.5), seen.latency_us(0.99))

    def _pipelined(self, seconds: float) -> Figure:
        with Crowd(self.server.address, PIPES, PIPE_DEPTH) as crowd:
            seen, cpu_ns = self._watched(lambda: crowd.run(self._queries, seconds))
        return Figure(cpu_ns / seen.count / 1000, seen.per_second)

    def _first(self, seconds: float) -> Figure:
        """Every topic once after all have changed, again and again."""
        once = sorted(set(self.frames.queries))
        count, busy_s, cpu_ns = 0, 0.0, 0
        end = time.monotonic() + seconds
        with Crowd(self.server.address, PIPES, PIPE_DEPTH) as crowd:
            while not count or time.monotonic() < end:
                self._broker.ask(self.frames.touch_all)
                seen, spent_ns = self._watched(lambda: crowd.run(iter(once), seconds=60))
                count, busy_s, cpu_ns = count + seen.count, busy_s + seen.seconds, cpu_ns + spent_ns
        return Figure(cpu_ns / count / 1000, count / busy_s)

    def _register(self, registrations: list[bytes], seconds: float) -> Figure:
        self._broker.ask(registrations[-1])
        seen, cpu_ns = self._watched(lambda: repeat(self._broker, registrations, seconds))
        return Figure(cpu_ns / seen.count / 1000, seen.per_second, seen.latency_us(0.5), seen.latency_us(0.99))

    def _watched(self, work: Callable[[], Seen]) -> tuple[Seen, int]:
        before = self.server.cpu_ns()
        seen = work()
        return seen, self.server.cpu_ns() - before

    def stalls(self) -> Stalls:
        return stalls(self.server.address, self._broker, self.frames.changed, self.frames.queries, STALL_PAUSE_S)


def settled(costs: list[float]) -> bool:
    """Whether the last three of these figures are no better, but for a twentieth, than the best one before them."""
    return len(costs) > 3 and min(costs[-3:]) > 0.95 * min(costs[:-3])


# ── A case: one number of topics ────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Case:
    """All figures for one number of topics: load -> server -> rounds."""

    topics: int
    versions: dict[str, str] = field(default_factory=dict)
    figures: dict[str, dict[str, list[Figure]]] = field(default_factory=dict)
    stalls: dict[str, list[Stalls]] = field(default_factory=dict)
    memory_mib: dict[str, float] = field(default_factory=dict)

    def cpu_us(self, load: str, server: str) -> float:
        return middle(figure.cpu_us for figure in self.figures[load][server])

    def ratio(self, load: str, server: str = OURS) -> float:
        """Ours to Apache's, CPU per request: the median of the rounds."""
        rounds = zip(self.figures[load][server], self.figures[load][APACHE], strict=True)
        return median(ours.cpu_us / theirs.cpu_us for ours, theirs in rounds)


def run(options: argparse.Namespace) -> Result:
    """Measures all cases. Raises MissingToolError, RefusedError."""
    plan = Plan.of(options)
    result = Result("Name server: ours beside Apache's")
    for topics in plan.topics:
        case = _run_case(topics, plan)
        result.text += _case_text(case)
        result.bars += _bars(case)
        result.data[f"{topics} topics"] = _case_data(case)
    if options.quick:
        result.no_verdict = "a quick run. The JVM was not warm, so Apache's figures are worse than it deserves."
    return result


def _run_case(topics: int, plan: Plan) -> Case:
    case = Case(topics)
    frames = Frames.make(topics)
    with ExitStack() as at_end:
        home = Path(at_end.enter_context(tempfile.TemporaryDirectory(prefix="kourou-bench-")))
        contenders = [_start(at_end, start_apache(home / "apache"), frames, plan.warmup, until_settled=True)]
        contenders.append(_start(at_end, start_kourou(home / "kourou"), frames, plan.warmup / 10))
        if plan.pure:
            contenders.append(_start(at_end, start_kourou(home / "pure", pure=True), frames, plan.warmup / 10))
        for number in range(plan.rounds):
            _say(f"{topics} topics: round {number + 1} of {plan.rounds}")
            for contender in contenders if number % 2 else reversed(contenders):
                with _last_words(contender.server):
                    _turn(case, contender, plan.seconds)
        for contender in contenders:
            case.versions[contender.server.name] = contender.server.version
            case.memory_mib[contender.server.name] = contender.server.memory_mib()
    return case


def _start(at_end: ExitStack, server: Server, frames: Frames, warmup: float, until_settled: bool = False) -> Contender:
    at_end.callback(server.stop)
    with _last_words(server):
        contender = Contender(server, frames)
        at_end.callback(contender.close)
        _say(f"{frames.topics} topics: {server.name} warms up for {warmup:g} s{' or more' if until_settled else ''}")
        contender.warm_up(warmup, until_settled)
    return contender


@contextmanager
def _last_words(server: Server) -> Iterator[None]:
    """A server that fails says why."""
    try:
        yield
    except (RefusedError, OSError) as fault:
        raise RefusedError(f"{server.name}: {fault}; its output ends with:\n{server.said()[-2000:]}") from fault


def _turn(case: Case, contender: Contender, seconds: float) -> None:
    name = contender.server.name
    for load, measure in contender.loads().items():
        case.figures.setdefault(load, {}).setdefault(name, []).append(measure(seconds))
    if case.topics > 1:
        case.stalls.setdefault(name, []).append(contender.stalls())


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


# ── The report ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _bars(case: Case) -> Iterator[Bar]:
    for load in case.figures:
        if load != FIRST:
            yield Bar(f"{case.topics} topics, {load}: CPU, ours to Apache's", case.ratio(load), RATIO_LIMIT, "times")
    if case.stalls:
        worst = max(stalled.max_ms for stalled in case.stalls[OURS])
        yield Bar(f"{case.topics} topics: longest query during a registration", worst, STALL_LIMIT_MS, "ms")


def _case_text(case: Case) -> list[str]:
    head = ["load", "server", "CPU µs each", "of Apache's", "per second", "p50 µs", "p99 µs"]
    rows = [_row(case, load, server) for load, servers in case.figures.items() for server in servers]
    text = ["", f"{case.topics} topics, medians of {len(next(iter(case.figures[SYNC].values())))} rounds"]
    text += [f"  {server}: {version}, {case.memory_mib[server]:.0f} MiB" for server, version in case.versions.items()]
    text += ["", table(head, rows)]
    if case.stalls:
        head = [
            "queries while topics register",
            "p50 µs",
            "p99.9 ms",
            "usual stall ms",
            "longest ms",
            "quiet: longest ms",
        ]
        text += ["", table(head, [_stall_row(server, rounds) for server, rounds in case.stalls.items()])]
    return text


def _row(case: Case, load: str, server: str) -> list[str]:
    figures = case.figures[load][server]
    p50, p99 = (
        middle(value for value in values if value is not None)
        for values in ([f.p50_us for f in figures], [f.p99_us for f in figures])
    )
    return [
        load,
        server,
        f"{case.cpu_us(load, server):.1f}",
        "" if server == APACHE else f"{case.ratio(load, server):.2f}",
        f"{middle(figure.per_second for figure in figures):.0f}",
        "" if p50 != p50 else f"{p50:.0f}",
        "" if p99 != p99 else f"{p99:.0f}",
    ]


def _stall_row(server: str, rounds: list[Stalls]) -> list[str]:
    latencies = [ns for stalled in rounds for ns in stalled.latencies_ns]
    worst = [ns for stalled in rounds for ns in stalled.worst_ns]
    quiet = [ns for stalled in rounds for ns in stalled.quiet_ns]
    return [
        server,
        f"{quantile(latencies, 0.5) / 1e3:.0f}",
        f"{quantile(latencies, 0.999) / 1e6:.1f}",
        f"{median(worst) / 1e6:.1f}",
        f"{max(worst) / 1e6:.1f}",
        f"{max(quiet, default=0) / 1e6:.1f}",
    ]


def _case_data(case: Case) -> dict[str, object]:
    return {
        "servers": case.versions,
        "memory_mib": case.memory_mib,
        "loads": {
            load: {
                server: [
                    {"cpu_us": f.cpu_us, "per_second": f.per_second, "p50_us": f.p50_us, "p99_us": f.p99_us}
                    for f in figures
                ]
                for server, figures in servers.items()
            }
            for load, servers in case.figures.items()
        },
        "ratios": {load: case.ratio(load) for load in case.figures},
        "stalls_ms": {
            server: [[ns / 1e6 for ns in stalled.worst_ns] for stalled in rounds]
            for server, rounds in case.stalls.items()
        },
    }
