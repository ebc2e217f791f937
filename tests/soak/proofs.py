"""The list of long proofs.

A proof has trials, which are numbered: trial 7 of a simulation is the life with seed 7. A trial raises if something is
wrong, and returns what it has counted. To add a proof, write its trial and add a line to `PROOFS`.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).parents[2]

Trial = Callable[[int], Counter[str]]


class SkippedError(Exception):
    """This machine lacks a requirement of the proof."""


class Proof(NamedTuple):
    """Something that is shown by many trials."""

    name: str
    about: str
    trial: Trial
    sample: str
    """The tests that run a few such trials in `make test`."""

    again: str = ""
    """The command that repeats a trial, with {seed} in it; by default that of this package."""

    worth: int = 1
    """How many seeds, kills or thousands of frames one trial has: with `--count 1000`, 1000 / worth trials run."""

    share: float = 1
    """How much of the time it gets, beside the others."""

    takes_s: float = 5
    """About how long a trial takes. A proof with a trial of more than a quarter of the given time is left out."""

    limit_s: float = 300
    """A trial that takes longer has failed."""

    alone: bool = False
    """It measures how long something takes, or uses all cores itself: one trial at a time."""

    only: int | None = None
    """How many different trials there are."""

    def command(self, seed: int) -> str:
        return (self.again or f"python -m tests.soak --only {self.name} --seed {{seed}}").format(seed=seed)


# ── Trials ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Each imports its own modules, so a worker loads only those of its proof.


def _store(kind: str, seed: int) -> Counter[str]:
    from tests.simulation.store import KINDS

    run = KINDS[kind](seed, 1, 60)
    run.run()
    return Counter({"power cuts": run.boundaries, "images of a disk": run.checked})


def _broker(faults: bool, lane: bool, seed: int) -> Counter[str]:
    from tests.simulation.broker_run import BrokerRun

    from kourou.broker.lane import IS_COMPILED

    if lane and not IS_COMPILED:
        raise SkippedError("the fast lane is not compiled")
    run = BrokerRun(seed, faults=faults, lane=lane)
    run.run()
    ends = {"stop": "stops", "kill": "kills", "crash": "power cuts"}
    return Counter({"messages": len(run.sent)}) + Counter({ends[how]: count for how, count in run.ends.items()})


def _raft(seed: int) -> Counter[str]:
    from tests.simulation.raft import counted
    from tests.simulation.raft_world import World

    world = World(seed)
    world.run()
    return counted(world)


def _replication(seed: int) -> Counter[str]:
    from tests.simulation.replication import counted
    from tests.simulation.replication_run import ReplicationRun

    run = ReplicationRun(seed)
    run.run()
    return counted(run)


def _group(seed: int) -> Counter[str]:
    from tests.simulation.group import counted
    from tests.simulation.group_run import GroupRun

    run = GroupRun(seed)
    run.run()
    return counted(run)


def _lake(kind: str, seed: int) -> Counter[str]:
    from tests.simulation.lake import KINDS
    from tests.simulation.lake_run import LakeRun

    run = LakeRun(seed, **KINDS[kind])
    run.run()
    return Counter({"commits": len(run.commits), "kills": run.kills.total(), "checks": run.checks})


def _kills(mode: str, seed: int) -> Counter[str]:
    from tests.crash.kills import KILLS, kill_often

    with tempfile.TemporaryDirectory(prefix="kourou-soak-") as folder:
        victim = kill_often(Path(folder), mode, seed)
    return Counter({"kills": KILLS, "letters": len(victim.told)})


def _failing(mode: str, seed: int) -> Counter[str]:
    from tests.crash.failing import build, plan, run

    with tempfile.TemporaryDirectory(prefix="kourou-soak-") as folder:
        library = build(Path(folder))
        if library is None:
            raise SkippedError("there is no C compiler, which makes the library of failing calls")
        counts = run(Path(folder), library, mode, plan(seed))
    acknowledged = counts.pop("acknowledged")
    return Counter({"failed calls": counts.total(), "messages": acknowledged})


def _fuzz(seed: int) -> Counter[str]:
    from benchmarks import fuzz

    outcome = fuzz.run(seed, FRAMES, 0)
    if outcome.failure is not None:
        raise AssertionError(outcome.failure)
    assert outcome.grown_mib <= fuzz.MEMORY_MIB, f"the process grew by {outcome.grown_mib:.0f} MiB"
    return Counter({"frames": outcome.frames})


FRAMES = 100_000


def _fuzz_decoders(seed: int) -> Counter[str]:
    from benchmarks import fuzz_decoders

    outcome = fuzz_decoders.run(seed, INPUTS, 0)
    if outcome.failure is not None:
        raise AssertionError(outcome.failure)
    return Counter({"inputs": outcome.inputs, "refused": outcome.refused.total()})


INPUTS = 200_000


def _sql92(seed: int) -> Counter[str]:
    from tests.property import sql92_random

    return Counter({"expressions": EXPRESSIONS, "that compile": sql92_random.run(EXPRESSIONS, seed)})


EXPRESSIONS = 5_000


def _bystander(seed: int) -> Counter[str]:
    from tests.hostile.bystander import ATTACKS, MEMORY_MAX, P99_MAX, run
    from tests.hostile.target import MIB

    name = list(ATTACKS)[seed % len(ATTACKS)]
    with tempfile.TemporaryDirectory(prefix="kourou-soak-") as folder:
        outcome = run(name, Path(folder), 3, 5.0)
    assert outcome.p99 < P99_MAX, f"{name}: the bystander's p99 is {outcome.p99 * 1000:.0f} ms"
    assert outcome.kept < MEMORY_MAX, f"{name}: the broker keeps {outcome.kept / MIB:.0f} MiB"
    return Counter({"attacks": 1})


def _turns_of_broker(seed: int) -> Counter[str]:
    from tests.hostile import longest_turns as turns

    from kourou.server.process import calm_collector

    with tempfile.TemporaryDirectory(prefix="kourou-soak-") as folder:
        walked = turns.Walked(Path(folder), turns.Sizes())
        calm_collector()
        found = turns.walk(walked, turns.served_by_brokers())
    return _turns(found)


def _turns_of_name_server(seed: int) -> Counter[str]:
    from tests.hostile import longest_turns_namesrv as turns

    from kourou.server.process import calm_collector

    walked = turns.Walked(turns.Sizes())
    calm_collector()
    return _turns({**turns.walk(walked, turns.served()), **turns.walk_away(walked)})


def _turns(found: dict[int, float]) -> Counter[str]:
    from tests.hostile.longest_turns import LIMIT_MS

    late = {code: f"{worst:.1f} ms" for code, worst in found.items() if worst > LIMIT_MS}
    assert not late, f"these request codes hold the event loop for more than {LIMIT_MS} ms: {late}"
    return Counter({"request codes": len(found)})


def _pytest(words: Iterable[str], seed: int) -> Counter[str]:
    """A run of some tests, with another seed of the random ones."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--hypothesis-seed={seed}", *words]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    found = re.findall(r"(\d+) (passed|skipped)", done.stdout.strip().rpartition("\n")[2])
    counts = {word: int(number) for number, word in found}
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}\n{done.stdout[-20_000:]}{done.stderr[-4_000:]}")
    if not counts.get("passed"):
        raise SkippedError((re.findall(r"^SKIPPED .*?: (.*)$", done.stdout, re.M) or ["no test was run"])[0])
    return Counter({"tests": counts["passed"], "skipped tests": counts.get("skipped", 0)})


IN_TWO = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")

# ── The list ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _simulations() -> Iterable[Proof]:
    for kind, about in (
        ("crashes", "after a power cut at any point, a store has all acknowledged messages, and none twice"),
        ("faults", "the same while calls of the disk fail"),
        ("rot", "damage in any file is found, is never served, and is repaired as far as the log allows"),
    ):
        command = f"python -m tests.simulation.store --kind {kind} --seed {{seed}} --trace"
        yield Proof(
            f"store-{kind}", about, partial(_store, kind), "tests/simulation/test_store_seeds.py", command, share=3
        )
    for faults, lane, about in (
        (
            False,
            True,
            "clients, stops, kills and power cuts: nothing acknowledged is lost, order and offsets are right",
        ),
        (False, False, "the same by the general path, without the fast lane"),
        (True, True, "the same while calls of the disk fail"),
        (True, False, "the same by the general path, while calls of the disk fail"),
    ):
        words = f" --lane {'on' if lane else 'off'}" + (" --faults" if faults else "")
        yield Proof(
            f"broker{'' if lane else '-general'}{'-faults' if faults else ''}",
            about,
            partial(_broker, faults, lane),
            "tests/simulation/test_broker_seeds.py",
            f"python -m tests.simulation.broker{words} --seed {{seed}} --trace",
            share=3 if lane else 2,
        )
    yield Proof(
        "replication",
        "a master and its slave, with crashes, power cuts, lost bytes and promotions: nothing acknowledged is lost",
        _replication,
        "tests/simulation/test_replication_seeds.py",
        "python -m tests.simulation.replication --seed {seed} --trace",
        takes_s=1,
    )
    yield Proof(
        "raft",
        "Raft groups with partitions, crashes, full disks, jumping clocks: nothing committed is lost, no read is stale",
        _raft,
        "tests/simulation/test_raft_seeds.py",
        "python -m tests.simulation.raft --seed {seed} --trace",
        takes_s=1,
    )
    yield Proof(
        "raft-brokers",
        "the brokers of a Raft group, with pauses, partitions, power cuts: no message, table or delay is lost",
        _group,
        "tests/simulation/test_group_seeds.py",
        "python -m tests.simulation.group --seed {seed} --trace",
        takes_s=2,
    )
    for kind, about in (
        ("two", "two writers of a lake, killed at any step: every row once"),
        ("five", "the same with five writers"),
        ("compact", "the same with two writers and two compactions"),
        ("delta", "three writers of a Delta table"),
        ("delta-compact", "two writers and two compactions of a Delta table"),
    ):
        command = f"python -m tests.simulation.lake --kind {kind} --seed {{seed}} --trace"
        yield Proof(f"lake-{kind}", about, partial(_lake, kind), "tests/simulation/test_lake_seeds.py", command)


def _processes() -> Iterable[Proof]:
    for mode in ("sync", "async"):
        yield Proof(
            f"kills-{mode}",
            f"a writer with {mode} flush that is killed under load loses no acknowledged message",
            partial(_kills, mode),
            "tests/crash/test_kills.py",
            f"python -m tests.crash.kills --mode {mode} --seed {{seed}}",
            worth=10,
            takes_s=15,
        )
        yield Proof(
            f"failing-{mode}",
            f"a broker with {mode} flush whose system calls fail for a while loses nothing, and resumes automatically",
            partial(_failing, mode),
            "tests/crash/test_failing_calls.py",
            f"python -m tests.crash.failing --mode {mode} --seed {{seed}}",
            worth=100,
            takes_s=20,
        )
    yield Proof(
        "clock",
        "a broker whose time of day is set back an hour and ahead a day does its periodic work in time",
        partial(_pytest, ["tests/crash/test_jumping_clock.py"]),
        "tests/crash/test_jumping_clock.py",
        worth=500,
        takes_s=60,
    )
    yield Proof(
        "full-disk",
        "a file system without a free byte: sends are refused with the reason, nothing is lost, no SIGBUS",
        partial(_pytest, ["tests/crash/test_full_disk.py"]),
        "tests/crash/test_full_disk.py",
        worth=500,
        takes_s=30,
    )


def _hostile() -> Iterable[Proof]:
    yield Proof(
        "fuzz",
        "mutated frames: both codecs agree, the name server answers with errors of the protocol, memory does not grow",
        _fuzz,
        "tests/hostile/test_fuzz.py",
        f"python -m benchmarks.fuzz --seed {{seed}} --count {FRAMES} --processes 1",
        worth=100,
        takes_s=20,
    )
    yield Proof(
        "fuzz-decoders",
        "mutated inputs: decoders of bodies, records, replication, Raft and files raise only their declared errors",
        _fuzz_decoders,
        "tests/hostile/test_fuzz.py",
        f"python -m benchmarks.fuzz_decoders --seed {{seed}} --count {INPUTS} --processes 1",
        worth=200,
        takes_s=40,
    )
    yield Proof(
        "bystander",
        "a client is served within 100 ms (p99) while two others attack the broker, which keeps less than 50 MiB",
        _bystander,
        "tests/hostile/test_bystander.py",
        worth=100,
        takes_s=40,
        alone=True,
        only=10,
    )
    yield Proof(
        "turns-broker",
        "no request holds a broker's event loop for more than 20 ms, with tables as large as the limits allow",
        _turns_of_broker,
        "tests/hostile/test_longest_turns.py",
        worth=1000,
        takes_s=300,
        limit_s=1800,
        alone=True,
        only=1,
    )
    yield Proof(
        "turns-name-server",
        "no request holds a name server's event loop for more than 20 ms, with 100,000 topics",
        _turns_of_name_server,
        "tests/hostile/test_longest_turns_namesrv.py",
        worth=1000,
        takes_s=120,
        limit_s=1200,
        alone=True,
        only=1,
    )


def _suites() -> Iterable[Proof]:
    yield Proof(
        "sql-expressions",
        "random SQL92 expressions: the broker's evaluator agrees with a simple one, within the steps that it declares",
        _sql92,
        "tests/property/test_sql92_properties.py",
        f"python -m tests.property.sql92_random {EXPRESSIONS} {{seed}}",
        worth=50,
        takes_s=10,
    )
    yield Proof(
        "lane",
        "the compiled lane and the general path answer and store the same bytes",
        partial(_pytest, ["tests/property/test_lane.py"]),
        "tests/property/test_lane.py",
        "pytest tests/property/test_lane.py --hypothesis-seed={seed}",
        worth=50,
        takes_s=20,
        limit_s=900,
        share=2,
    )
    yield Proof(
        "properties",
        "the other random and differential tests: codecs, records, queues, index, name server, client",
        partial(_pytest, ["tests/property", "--ignore=tests/property/test_lane.py"]),
        "tests/property",
        "pytest tests/property --hypothesis-seed={seed}",
        worth=50,
        takes_s=40,
        limit_s=900,
    )
    yield Proof(
        "interop",
        "the real Java and Go clients and mqadmin with Kourou's servers, compared with Apache's",
        partial(_pytest, ["tests/interop", "tests/client", "-m", "interop", *IN_TWO]),
        "tests/interop",
        worth=1000,
        takes_s=900,
        limit_s=5400,
        alone=True,
    )
    yield Proof(
        "spark",
        "queries and pipelines in a real Spark, with brokers that restart and workers that die",
        partial(_pytest, ["tests/spark", "-m", "spark", *IN_TWO]),
        "tests/spark",
        worth=1000,
        takes_s=900,
        limit_s=5400,
        alone=True,
    )


PROOFS: dict[str, Proof] = {
    proof.name: proof for proofs in (_suites, _hostile, _processes, _simulations) for proof in proofs()
}
"""In the order in which they run: those with few trials first; the time that they do not use is for the others."""


def form() -> str:
    """Which form of the compiled modules the trials run with."""
    from kourou.broker.lane import IS_COMPILED

    return "plain" if os.environ.get("KOUROU_PURE") == "1" or not IS_COMPILED else "compiled"
