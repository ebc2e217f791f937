"""Many simulated lives of the three brokers of a Raft group.

python -m tests.simulation.group --seeds 1000            seeds 0 … 999
python -m tests.simulation.group --seed 42 --trace       one again, with what happened
"""

import argparse
import logging
import sys
import time
import traceback
from collections import Counter

from .group_run import GroupRun


def counted(run: GroupRun) -> Counter[str]:
    """What happened in a life."""
    return Counter(
        acknowledged=len(run.acknowledged),
        seen=len(run.seen),
        ends=run.counts["ends"] + 3 * run.counts["ends of all"],
        pauses=run.counts["pauses"],
        transfers=run.counts["transfer 0"],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--steps", type=int, default=1_500)
    parser.add_argument("--trace", action="store_true", help="say what a run that fails has done")
    parser.add_argument("--keep-going", action="store_true", help="after a failure")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    failed, total, begin = [], Counter[str](), time.monotonic()
    for seed in seeds:
        run = GroupRun(seed, options.steps)
        try:
            run.run()
        except Exception:
            traceback.print_exc(limit=-6)
            failed.append(seed)
            print(f"seed {seed} failed", flush=True)
            if options.trace:
                print("\n".join(run.trace))
            if not options.keep_going:
                break
        total += counted(run)
        if seed % 100 == 99:
            print(f"… seed {seed}, {dict(total)}, {time.monotonic() - begin:.0f} s", flush=True)
    print(f"{dict(total)}, {time.monotonic() - begin:.0f} s, failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
