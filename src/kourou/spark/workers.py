"""What a Python worker of Spark does once in its life.

Spark collects garbage after every task of a worker, and each time looks at all that a worker has imported: some ten
milliseconds, which a stream of small batches pays again and again.
"""

import gc
import os

_settled: set[int] = set()
"""Processes; a worker that is forked has its own life."""


def settle() -> None:
    """What is in memory now will stay: leave it out of garbage collections to come. Called as tasks begin."""
    if os.getpid() not in _settled:
        _settled.add(os.getpid())
        gc.freeze()
