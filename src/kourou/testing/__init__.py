"""Twins of the outside world for tests: they run in memory, from a seed, and fail when they are told to.

disk.py     a disk that loses, tears and flips what was not made safe, fills up and breaks
broker.py   a broker on such a disk, with connections and a clock in the hands of a test

The shipped code runs on them unchanged. A failing seed replays a run to the byte.
"""

from kourou.testing.broker import SimulatedBroker, SimulatedClient
from kourou.testing.disk import SimulatedCrash, SimulatedDisk, crash_everywhere

__all__ = ["SimulatedBroker", "SimulatedClient", "SimulatedCrash", "SimulatedDisk", "crash_everywhere"]
