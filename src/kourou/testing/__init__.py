"""Twins of the outside world for tests: they run in memory, from a seed, and fail when they are told to.

disk.py   a disk that loses, tears and flips what was not made safe, fills up and breaks

The shipped code runs on them unchanged. A failing seed replays a run to the byte.
"""

from kourou.testing.disk import SimulatedCrash, SimulatedDisk, crash_everywhere

__all__ = ["SimulatedCrash", "SimulatedDisk", "crash_everywhere"]
