"""Many simulated lives of a lake: several writers, compactions and readers, all killed at any step.

python -m tests.simulation.lake --seeds 200              seeds 0 … 199, of every kind
python -m tests.simulation.lake --seed 42 --kind five --trace       one again, with what happened
"""

import argparse
import sys
import time
import traceback
from collections import Counter
from typing import Any

from .lake_run import LakeRun

KINDS: dict[str, dict[str, Any]] = {
    "two": {"writers": 2},
    "five": {"writers": 5},
    "compact": {"writers": 2, "compactions": 2},
    "delta": {"writers": 3, "form": "delta"},
    "delta-compact": {"writers": 2, "compactions": 2, "form": "delta"},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200, help="how many of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--kind", choices=KINDS, help="who is there (default: every kind)")
    parser.add_argument("--trace", action="store_true", help="say what a run that fails has done")
    parser.add_argument("--where", action="store_true", help="say at which steps processes were killed")
    options = parser.parse_args()
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    failed: list[tuple[str, int]] = []
    for kind in [options.kind] if options.kind else KINDS:
        begin = time.monotonic()
        steps = commits = checks = merged = conflicts = 0
        kills: Counter[str] = Counter()
        for seed in seeds:
            run = LakeRun(seed, **KINDS[kind])
            try:
                run.run()
            except Exception:
                traceback.print_exc(limit=-6)
                print(f"{kind}: seed {seed} failed at step {run.world.steps}", flush=True)
                failed.append((kind, seed))
                if options.trace:
                    print("\n".join(run.trace))
            steps += run.world.steps
            commits += len(run.commits)
            checks += run.checks
            merged += run.merged
            conflicts += run.conflicts
            kills.update(run.kills)
        print(
            f"{kind}: {len(seeds)} seeds, {steps} steps, {kills.total()} kills at {len(kills)} places, "
            f"{commits} commits, {conflicts} conflicts, {merged} merges, {checks} checks, "
            f"{time.monotonic() - begin:.0f} s",
            flush=True,
        )
        if options.where:
            print("\n".join(f"  {count:6} {place}" for place, count in sorted(kills.items())))
    print(f"failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
