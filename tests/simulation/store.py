"""Many simulated lives of a store.

python -m tests.simulation.store --seeds 1000            seeds 0 … 999
python -m tests.simulation.store --seed 42 --trace       one again, with what happened
"""

import argparse
import sys
import time
import traceback

from .store_faults import FaultyRun
from .store_rot import RottenRun
from .store_run import Run

KINDS = {"crashes": Run, "faults": FaultyRun, "rot": RottenRun}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--images", type=int, default=1, help="of each side of each boundary; 0: no crashes there")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--kind", choices=KINDS, default="crashes", help="what befalls the disk")
    parser.add_argument("--trace", action="store_true", help="say what a run that fails has done")
    parser.add_argument("--keep-going", action="store_true", help="after a failure")
    options = parser.parse_args()
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    failed, boundaries, checked, begin = [], 0, 0, time.monotonic()
    for seed in seeds:
        run = KINDS[options.kind](seed, options.images, options.steps)
        try:
            run.run()
        except Exception:
            traceback.print_exc(limit=-6)
            failed.append(seed)
            print(f"seed {seed} failed at {run.boundaries}", flush=True)
            if options.trace:
                print("\n".join(run.trace))
            if not options.keep_going:
                break
        boundaries += run.boundaries
        checked += run.checked
        if seed % 20 == 19:
            print(
                f"… seed {seed}, {boundaries} boundaries, {checked} images, {time.monotonic() - begin:.0f} s",
                flush=True,
            )
    print(f"{boundaries} boundaries, {checked} images, {time.monotonic() - begin:.0f} s, failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
