"""Many simulated lives of a broker.

python -m tests.simulation.broker --seeds 1000           seeds 0 … 999
python -m tests.simulation.broker --seed 42 --trace      one again, with what happened
python -m tests.simulation.broker --lane on              all through the fast lane; off: through the general path
"""

import argparse
import logging
import sys
import time
import traceback
from collections import Counter

from kourou.broker.lane import IS_COMPILED

from .broker_run import BrokerRun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--steps", type=int, default=1_500)
    parser.add_argument("--mode", choices=("sync", "async"), help="the flush mode; by the seed if not given")
    parser.add_argument(
        "--lane",
        choices=("on", "off", "seed"),
        default="seed",
        help="usual requests take the fast lane, or the general path; by the seed if not given",
    )
    parser.add_argument("--faults", action="store_true", help="the disk fails at times")
    parser.add_argument("--trace", action="store_true", help="say what a run that fails has done")
    parser.add_argument("--keep-going", action="store_true", help="after a failure")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    if options.lane != "off" and not IS_COMPILED:
        parser.error("the fast lane is not compiled (make install compiles it): --lane off")
    lane = None if options.lane == "seed" else options.lane == "on"
    failed, begin, messages, in_lane = [], time.monotonic(), 0, 0
    ends: Counter[str] = Counter()
    for count, seed in enumerate(seeds, start=1):
        run = BrokerRun(seed, options.steps, options.mode, faults=options.faults, lane=lane)
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
        ends += run.ends
        messages += len(run.sent)
        in_lane += run.in_lane
        if count % 50 == 0:
            print(f"… seed {seed}, {messages} messages, {dict(ends)}, {time.monotonic() - begin:.0f} s", flush=True)
    print(
        f"{messages} messages, {in_lane} bytes by the fast lane, {dict(ends)}, {time.monotonic() - begin:.0f} s, "
        f"failed: {failed or 'none'}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
