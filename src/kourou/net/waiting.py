"""The queue of a peer's requests and bytes that wait for their turn, in order of arrival. No sockets here.

    read ─▶ decoded requests           ─▶ bytes of later reads
            handed over in batches        decoded when no request is left before them

Batches are small at first, grow while they are cheap, and shrink when they take long or their answers pile up. So the
first requests of a connection can't produce more answers than can be sent.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from kourou.protocol.command import Command

TURN: Final = 0.010
"""Seconds for which waiting requests of one connection are served before other connections have their turn."""

FIRST_BATCH: Final = 8
"""The size of a batch before the cost of requests is known."""

_COMMAND_SIZE: Final = 512
"""The approximate memory of a decoded request, without its body."""


class Waiting:
    """The queue of one connection."""

    __slots__ = ("_batch_max", "_began", "_clock", "_requests", "_size", "batch", "rest", "steps_back")

    def __init__(self, batch_max: int, clock: Callable[[], float]) -> None:
        self._requests: deque[Command] = deque()
        self._size = 0  # their approximate size in bytes
        self._batch_max = batch_max
        self._clock = clock
        self._began = 0.0  # when a batch of more than one request was handed over
        self.batch = min(FIRST_BATCH, batch_max)  # the current size of a batch
        self.rest = b""  # undecoded bytes after the requests
        self.steps_back = False  # the peer reads in bulk: its next requests wait for the background

    def __bool__(self) -> bool:
        return bool(self._requests or self.rest)

    @property
    def has_requests(self) -> bool:
        return bool(self._requests)

    @property
    def size(self) -> int:
        """The approximate number of bytes held."""
        return self._size + len(self.rest)

    def put(self, requests: list[Command]) -> None:
        self._requests.extend(requests)
        self._size += _size_of(requests)

    def put_back(self, requests: list[Command]) -> None:
        """Put back requests, to be served first in the next turn."""
        self._requests.extendleft(reversed(requests))
        self._size += _size_of(requests)

    def take_batch(self) -> list[Command]:
        batch = [self._requests.popleft() for _ in range(min(len(self._requests), self.batch))]
        self._size -= _size_of(batch)
        return batch

    def take_rest(self) -> bytes:
        rest, self.rest = self.rest, b""
        return rest

    def clear(self) -> None:
        self._requests.clear()
        self._size = 0
        self.rest = b""

    def begin(self, count: int) -> None:
        """A batch of `count` requests is handed over."""
        if count > 1:  # a batch of one can't shrink
            self._began = self._clock()

    def fit(self, count: int, *, is_congested: bool) -> None:
        """Set the size of the next batch after one of `count` requests: larger, or smaller if that one took long."""
        took_long = count > 1 and self._clock() - self._began > TURN
        if is_congested or self.steps_back or took_long:
            self.batch = max(count // 2, 1)
        elif count == self.batch:
            self.batch = min(self.batch * 2, self._batch_max)


def _size_of(requests: list[Command]) -> int:
    return sum(len(command.body) + _COMMAND_SIZE for command in requests)
