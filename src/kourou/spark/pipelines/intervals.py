"""Intervals of offsets, [from, to), that are done or left to do. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The same offsets in as few intervals as possible, in order; adjacent and overlapping ones are merged."""
    found: list[Interval] = []
    for start, end in sorted(one for one in intervals if one[1] > one[0]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def missing(start: int, end: int, done: Sequence[Interval]) -> list[Interval]:
    """The parts of [start, end) that are not in `done`, which is merged."""
    left: list[Interval] = []
    for begin, until in done:
        if until <= start:
            continue
        if begin >= end:
            break
        if begin > start:
            left.append((start, begin))
        start = until
    if start < end:
        left.append((start, end))
    return left


def size(intervals: Iterable[Interval]) -> int:
    return sum(end - start for start, end in intervals)


def holds(done: Sequence[Interval], offset: int) -> bool:
    """Is an offset in one of these merged intervals?"""
    at = bisect_right(done, (offset, 2**63)) - 1
    return at >= 0 and done[at][0] <= offset < done[at][1]


def runs(offsets: Iterable[int]) -> list[Interval]:
    """Offsets, in any order, as intervals."""
    return merged((offset, offset + 1) for offset in offsets)
