"""Simulations of the outside world for tests: they run in memory, from a seed, and fail on demand.

disk.py     a disk that loses, tears and flips unsynced writes, fills up and fails
broker.py   a broker on such a disk, with connections and a clock that the test controls

The production code runs on them unchanged. A seed repeats a run exactly.
"""

from kourou.testing.broker import SimulatedBroker, SimulatedClient
from kourou.testing.disk import SimulatedCrash, SimulatedDisk, crash_everywhere

__all__ = ["SimulatedBroker", "SimulatedClient", "SimulatedCrash", "SimulatedDisk", "crash_everywhere"]
