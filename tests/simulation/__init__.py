"""Whole parts under simulated faults: a seed decides everything, and replays it."""
