"""A process that stores letters as fast as it can, and says which ones are stored. The test kills it.

    python -m tests.crash.writer DIR --mode sync|async --run 7

It prints one line for each letter that a producer would have been told of: with `async` when it is written, with
`sync` when it is safe. Lines are short enough that the pipe takes each whole or not at all.
"""

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from random import Random

from kourou.store.worker import Worker

from .letters import letter
from .opening import now_ms, open_store, settings

WAITING_MAX = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--mode", choices=("sync", "async"), default="async")
    parser.add_argument("--run", type=int, default=0, help="part of the letters' names")
    options = parser.parse_args()
    store = open_store(options.root, settings(options.mode))
    worker = Worker()
    random = Random(options.run)
    waiting = number = 0
    say(["ready"])
    while True:
        names = [f"{options.run}-{number + more}" for more in range(random.choice((1, 1, 2, 8)))]
        number += len(names)
        store.append([letter(name) for name in names], now_ms(), together=random.random() < 0.3)
        if options.mode == "async" or store.durability.wait(store.log.end, tuple(names), now_ms()):
            say(names)
        else:
            waiting += 1
        for job in store.jobs(now_ms()):
            worker.submit(job)
        for job in worker.finished(wait=waiting > WAITING_MAX):
            for token in store.finished(job, now_ms()):
                assert isinstance(token, tuple)
                say(token)
                waiting -= 1
        store.dispatch()


def say(names: Iterable[str]) -> None:
    for name in names:
        os.write(1, f"{name}\n".encode())


if __name__ == "__main__":
    main()
