"""Arithmetic of majorities."""

from collections.abc import Iterable


def majority(count: int) -> int:
    """How many voters of `count` are a majority."""
    return count // 2 + 1


def agreed(values: Iterable[int]) -> int:
    """The highest value that a majority of voters has reached; `values` has one per voter, at least one."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]
