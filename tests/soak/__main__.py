"""python -m tests.soak: see the package."""

import argparse
import asyncio
import shlex
import sys
import time
from fnmatch import fnmatch
from pathlib import Path

from . import __doc__ as about
from .page import as_json, row, table, write_page
from .proofs import PROOFS, Proof
from .running import Result, Wanted, run

SHOWN_LINES = 30
"""Of each failure, on the terminal; the file of --json has all."""


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, help="for how long, shared by all proofs")
    parser.add_argument("--count", type=int, help="how many seeds of each simulation, kills, thousands of frames …")
    parser.add_argument("--only", action="append", metavar="NAME", help="proofs whose name is like this (* and ?)")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="one trial, with this seed")
    parser.add_argument("--processes", type=int, default=2, help="trials that run at the same time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, with all of each failure")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the table there (docs/evidence.md)")
    parser.add_argument("--list", action="store_true", help="only say which proofs there are")
    options = parser.parse_args(words)
    chosen = [proof for proof in PROOFS.values() if _is_chosen(proof, options.only)]
    if not chosen:
        parser.error(f"no proof is named like {options.only}; there are {', '.join(PROOFS)}")
    if options.list:
        print("\n".join(f"{proof.name:18}{proof.about}" for proof in chosen))
        return 0
    if options.seed is not None:
        wanted = Wanted(options.seed, 1, None, 1)
    elif options.minutes is None and options.count is None:
        parser.error("how long? Give --minutes or --count")
    else:
        seconds = options.minutes * 60 if options.minutes is not None else None
        wanted = Wanted(options.first, options.count, seconds, options.processes)
    command = f"python -m tests.soak {shlex.join(words)}"
    results = asyncio.run(run_all(chosen, wanted))
    print(f"\n{table(map(row, results))}", end="")
    if options.json:
        options.json.write_text(as_json(results, command))
    if options.page:
        write_page(options.page, results, command)
    return 1 if any(result.failures for result in results) else 0


def _is_chosen(proof: Proof, patterns: list[str] | None) -> bool:
    return patterns is None or any(fnmatch(proof.name, pattern) for pattern in patterns)


async def run_all(chosen: list[Proof], wanted: Wanted) -> list[Result]:
    """One proof after the other. Time that one does not use is shared by those after it."""
    results: list[Result] = []
    ends = time.monotonic() + (wanted.seconds or 0.0)
    for number, proof in enumerate(chosen):
        seconds = float("inf")
        if wanted.seconds is not None:
            shares = sum(other.share for other in chosen[number:])
            seconds = max(ends - time.monotonic(), 0.0) * proof.share / shares
            if proof.takes_s > wanted.seconds / 4:
                results.append(Result(proof, left_out=f"a trial takes about {proof.takes_s / 60:.0f} minutes"))
                continue
        print(f"{proof.name}: {proof.about}", flush=True)
        result = await run(proof, wanted, seconds)
        results.append(result)
        print(f"  {_summary(result)}", flush=True)
        for seed, reason in result.failures.items():
            lines = reason.strip().splitlines()[-SHOWN_LINES:]
            print("\n".join([f"  trial {seed} FAILED; again: {proof.command(seed)}", *(f"    {x}" for x in lines)]))
    return results


def _summary(result: Result) -> str:
    if not result.trials:
        return f"not run: {result.left_out}"
    counts = "".join(f", {number:,} {what}" for what, number in sorted(result.counts.items()) if number)
    return f"{result.trials} trials{counts}, {len(result.failures)} failures, {result.seconds:.0f} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
