"""Plans which ranges each task reads, and how much a trigger takes. All pure.

A task costs tens of milliseconds of processor time before its first row, so small ranges of many queues go into one
task; a large range is cut into several, which read different parts of the same queue at the same time.
"""

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from kourou.protocol.message import MessageQueue
from kourou.spark.positions import Offsets

TASK_ROWS: Final = 100_000
"""The most messages of a task, unless another number is given."""


class Range(msgspec.Struct, frozen=True):
    """Messages of one queue, from `start` inclusive to `end` exclusive."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


Task = tuple[Range, ...]


def make_tasks(ranges: list[Range], *, tasks_min: int | None = None, task_rows_max: int | None = None) -> list[Task]:
    """The ranges, divided among tasks. Every message is in exactly one task; those of a queue are in order."""
    ranges = sorted((one for one in ranges if one.size > 0), key=lambda one: (one.queue.broker_name, one.queue))
    total = sum(one.size for one in ranges)
    limit = task_rows_max or TASK_ROWS
    if tasks_min:
        limit = max(min(limit, total // tasks_min), 1)
    target = math.ceil(total / math.ceil(total / limit)) if total else limit  # all about equally large
    tasks: list[Task] = []
    task: list[Range] = []
    taken = 0
    for piece in (piece for one in ranges for piece in _cut(one, limit)):
        if task and (taken >= target or taken + piece.size > limit):
            tasks.append(tuple(task))
            task, taken = [], 0
        task.append(piece)
        taken += piece.size
    if task:
        tasks.append(tuple(task))
    return tasks


def _cut(whole: Range, size_max: int) -> list[Range]:
    count = math.ceil(whole.size / size_max)
    bounds = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [Range(whole.queue, bounds[number], bounds[number + 1]) for number in range(count)]


def admit(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int], rows_max: int) -> Offsets:
    """The end offsets of a trigger with at most this number of rows. Each queue gets its share of the waiting messages.

    A queue whose share is less than a row may still get one, so that no queue waits for ever.
    """
    waiting = {queue: max(offset - start.get(queue, 0), 0) for queue, offset in end.items()}
    total = sum(waiting.values())
    if total <= rows_max:
        return dict(end)
    shares = {queue: count * rows_max // total for queue, count in waiting.items()}
    left = rows_max - sum(shares.values())
    # Rows that rounding left over go to the queues with the largest remainders.
    for queue in sorted(waiting, key=lambda queue: (-(waiting[queue] * rows_max % total), queue)):
        if left <= 0:
            break
        if shares[queue] < waiting[queue]:
            shares[queue] += 1
            left -= 1
    return {queue: start.get(queue, 0) + shares[queue] if waiting[queue] else end[queue] for queue in end}


def count_waiting(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> int:
    return sum(max(offset - start.get(queue, 0), 0) for queue, offset in end.items())
