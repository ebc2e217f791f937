"""Many simulated lives of a Raft group.

python -m tests.simulation.raft --seeds 1000           seeds 0 … 999
python -m tests.simulation.raft --seed 42 --trace      one again, with what happened
python -m tests.simulation.raft --store                over the real store on a simulated disk
"""

import argparse
import logging
import sys
import time
import traceback
from collections import Counter

from .raft_storage import Storage
from .raft_store import StoreStorage
from .raft_world import World


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--store", action="store_true", help="over the real store, instead of a light one")
    parser.add_argument("--trace", action="store_true", help="say what a run that fails has done")
    parser.add_argument("--keep-going", action="store_true", help="after a failure")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    failed, begin = [], time.process_time()
    counts: Counter[str] = Counter()
    for count, seed in enumerate(seeds, start=1):
        world = World(seed, StoreStorage if options.store else Storage)
        try:
            world.run()
        except Exception as error:
            traceback.print_exc(limit=-6)
            failed.append(seed)
            print(f"seed {seed} failed at {world.now_ms:.0f} ms: {error}", flush=True)
            if options.trace:
                print("\n".join(world.traces))
            if not options.keep_going:
                break
        counts += counted(world)
        if count % 100 == 0:
            print(f"… seed {seed}, {dict(counts)}, {time.process_time() - begin:.0f} s", flush=True)
    print(f"{dict(counts)}, {time.process_time() - begin:.0f} s of CPU, failed: {failed or 'none'}")
    return 1 if failed else 0


def counted(world: World) -> Counter[str]:
    """What happened in a life."""
    clients = world.clients
    return Counter(
        {
            "acknowledged appends": clients.acked,
            "reads": clients.reads,
            "changes of members or leaders": clients.changes,
            "elections": world.check.elections,
            "faults": world.faults.total(),
        }
    )


if __name__ == "__main__":
    sys.exit(main())
