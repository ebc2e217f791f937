"""Locks on queues: which client of an orderly group may consume a queue.

A client has a lock for 60 seconds; its consumers renew it every 20 seconds by asking again. After that, or when the
lock is released, any client may get it.

Java: RebalanceLockManager.
"""

import logging
from collections.abc import Iterable

from kourou.protocol.message import MessageQueue
from kourou.protocol.names import shown
from kourou.turns import Slices

log = logging.getLogger(__name__)

LOCKS_IN_SLICE = 500
"""Locks that are examined before requests have their turn."""


class QueueLocks:
    """The locks of all groups."""

    def __init__(self, lifetime_ms: int, count_max: int = 200_000) -> None:
        """Above `count_max` locks no further ones are granted until some are released or expire."""
        self._lifetime_ms = lifetime_ms
        self._count_max = count_max
        self._count = 0
        self._groups: dict[str, dict[MessageQueue, tuple[str, int]]] = {}  # the owner of a lock, and since when

    def __len__(self) -> int:
        return self._count

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str, now_ms: int) -> list[MessageQueue]:
        """The queues that the client has now."""
        locks = self._groups.get(group, {})
        got: list[MessageQueue] = []
        for queue in queues:
            owner, since_ms = locks.get(queue, (client_id, now_ms))
            if owner != client_id and now_ms - since_ms <= self._lifetime_ms:
                continue
            if queue not in locks:
                if self._count >= self._count_max:
                    continue
                self._count += 1
            if owner != client_id:
                log.info(
                    "lock taken over after a timeout group=%s queue=%s from=%s by=%s",
                    shown(group),
                    shown(queue),
                    shown(owner),
                    shown(client_id),
                )
            locks[queue] = client_id, now_ms
            got.append(queue)
        if locks:
            self._groups[group] = locks
        return got

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Release the queues that the client has."""
        locks = self._groups.get(group)
        if locks is None:
            return
        for queue in queues:
            if locks.get(queue, ("", 0))[0] == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            del self._groups[group]

    def is_held(self, group: str, now_ms: int) -> bool:
        """Has a group a lock that has not expired?"""
        locks = self._groups.get(group)
        return locks is not None and any(now_ms - since_ms <= self._lifetime_ms for _, since_ms in locks.values())

    def forget_expired(self, now_ms: int) -> Slices[None]:
        """Remove expired locks, so that deleted groups leave no memory in use."""
        for group in list(self._groups):
            for number, queue in enumerate(list(self._groups.get(group, ())), 1):
                locks = self._groups.get(group, {})
                if now_ms - locks.get(queue, ("", now_ms))[1] > self._lifetime_ms:
                    del locks[queue]
                    self._count -= 1
                if number % LOCKS_IN_SLICE == 0:
                    yield 0
            if not self._groups.get(group, True):
                del self._groups[group]
            yield 0
