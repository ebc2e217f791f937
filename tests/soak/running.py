"""Runs the trials of a proof in worker processes. A worker that dies or hangs is a failure of the trial it was at."""

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from .proofs import PROJECT, Proof

LINE_MAX = 1 << 20
"""Bytes of one line of a worker: the traceback of a failure, and the output of tests that failed."""

FAILURES_MAX = 20
"""After so many failures, a proof is not run any further."""


@dataclass
class Result:
    """What became of a proof."""

    proof: Proof
    trials: int = 0
    failures: dict[int, str] = field(default_factory=dict)
    """By seed: the failure."""
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    left_out: str = ""
    """Why it was not run."""


@dataclass
class Wanted:
    """How much is to be done."""

    first: int = 0
    count: int | None = None
    seconds: float | None = None
    processes: int = 2
    module: str = "tests.soak.proofs"
    """Where workers find the proofs."""

    def stop(self, proof: Proof) -> int:
        """The first trial that is not run any more."""
        trials = sys.maxsize if self.count is None else -(-self.count // proof.worth)
        return self.first + min(trials, sys.maxsize if proof.only is None else proof.only)


async def run(proof: Proof, wanted: Wanted, seconds: float) -> Result:
    """As many trials as there is time for; at least one."""
    result = Result(proof)
    began = time.monotonic()
    first, stop = wanted.first, wanted.stop(proof)
    processes = 1 if proof.alone else min(wanted.processes, stop - first)
    workers = [
        _Worker(wanted.module, result, range(first + n, stop, processes), began + seconds) for n in range(processes)
    ]
    await asyncio.gather(*(worker.run() for worker in workers))
    result.seconds = time.monotonic() - began
    return result


class _Worker:
    """Keeps a process at work until its seeds or the time are used up."""

    def __init__(self, module: str, result: Result, seeds: range, until: float) -> None:
        self._module = module
        self._result = result
        self._seeds = seeds
        self._until = until
        self._running: int | None = None  # the seed of the trial that has begun

    async def run(self) -> None:
        while self._seeds and not await self._work():
            if len(self._result.failures) >= FAILURES_MAX or time.monotonic() >= self._until:
                return

    async def _work(self) -> bool:
        """Whether the process has come to its end by itself."""
        left = max(self._until - time.monotonic(), 0.0)
        seeds = (self._seeds.start, self._seeds.step, self._seeds.stop, left)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.soak.worker", self._module, self._result.proof.name, *map(str, seeds)),
            cwd=PROJECT,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=LINE_MAX,
        )
        assert process.stdout is not None
        try:
            while line := await asyncio.wait_for(process.stdout.readline(), self._result.proof.limit_s):
                self._take(json.loads(line))
                if len(self._result.failures) >= FAILURES_MAX:
                    return True
            code = await process.wait()
            if code == 0:
                return True
            self._fail(f"the process of the trial ended with {code}")
        except TimeoutError:
            self._fail(f"the trial took longer than {self._result.proof.limit_s:.0f} s")
        finally:
            with suppress(ProcessLookupError):  # nothing that a trial has started stays
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        return False

    def _take(self, line: dict[str, Any]) -> None:
        if "begins" in line:
            self._running = line["begins"]
            return
        self._running = None
        if "skipped" in line:
            self._result.left_out = line["skipped"]
            return
        self._result.trials += 1
        if "failure" in line:
            self._result.failures[line["ended"]] = line["failure"]
        self._result.counts.update(line.get("counts", {}))

    def _fail(self, reason: str) -> None:
        """The trial that was running has failed, or the first one if none had begun. Those after it are left."""
        seed = self._seeds.start if self._running is None else self._running
        self._running = None
        self._seeds = self._seeds[self._seeds.index(seed) + 1 :]
        self._result.trials += 1
        self._result.failures[seed] = reason
