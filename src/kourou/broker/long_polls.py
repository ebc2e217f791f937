"""Long polling: pulls that found nothing wait here until a message arrives, or their time is over.

    Pull.pull finds nothing ─▶ hold ─▶ a message is dispatched to the queue ─▶ wake ─▶ the pull is tried again
                                 │                                                      ├─ something: answered
                                 │                                                      └─ nothing that it wants: it
                                 │                                                         stays, and has seen so far
                                 └─▶ its deadline, or 5 s after it has passed over messages ─▶ answered with what is

A pull is tried again in the very step that made a message visible: no interval stands between a message and a waiting
consumer. One that wants other tags than those that came is not answered at once, for its consumer would come back
immediately; but it is after five seconds, so that the consumer learns how far its queue was looked through.

If the subscription, the topic or the group of a pull has changed while it waited, `Pull` checks it again, and begins to
look at its first offset again if its filter is another one.

Java: PullRequestHoldService, NotifyMessageArrivingListener.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kourou.broker.events import Peer, Request
from kourou.broker.filtering import MessageFilter
from kourou.protocol.bodies import SubscriptionData, SubscriptionGroupConfig, TopicConfig
from kourou.protocol.command import Command
from kourou.protocol.headers import PullMessage

PASSED_OVER_MS = 5_000

STALE_MAX = 1_024
"""How many deadlines of pulls that are answered may be kept, beside as many as there are of pulls that wait."""


@dataclass(slots=True, eq=False)
class Held:
    """A pull that waits."""

    asked: Request[PullMessage]
    wants: MessageFilter
    deadline_ms: int
    seen_to: int  # offsets before it were examined
    epoch: int  # of access control, when it was allowed
    topic: TopicConfig
    group: SubscriptionGroupConfig
    subscription: SubscriptionData | None  # of the group's heartbeats; None: the pull has its own
    done: bool = False

    @property
    def peer(self) -> Peer:
        return self.asked.peer

    @property
    def command(self) -> Command:
        return self.asked.command

    @property
    def header(self) -> PullMessage:
        return self.asked.header


@dataclass(slots=True)
class LongPolls:
    """All pulls that wait."""

    retry: Callable[[Held, bool], bool]  # (pull, last time): was it answered?
    by_queue: dict[tuple[str, int], dict[Held, None]] = field(default_factory=dict)  # in the order they came
    _by_peer: dict[Peer, set[Held]] = field(default_factory=dict)
    _deadlines: list[tuple[int, int, Held]] = field(default_factory=list)
    _count: int = 0  # of all that ever waited, to keep the heap from comparing pulls
    waiting: int = 0

    def hold(self, held: Held) -> None:
        self.by_queue.setdefault((held.header.topic, held.header.queue_id), {})[held] = None
        self._by_peer.setdefault(held.peer, set()).add(held)
        self._set_deadline(held, held.deadline_ms)
        self.waiting += 1

    def _set_deadline(self, held: Held, at_ms: int) -> None:
        self._count += 1
        heapq.heappush(self._deadlines, (at_ms, self._count, held))
        if len(self._deadlines) > 2 * self.waiting + STALE_MAX:
            self._deadlines = [deadline for deadline in self._deadlines if not deadline[2].done]
            heapq.heapify(self._deadlines)

    def wake(self, queues: Iterable[tuple[str, int]], now_ms: int) -> None:
        """There are new messages in these queues."""
        for key in queues:
            waiting = self.by_queue.pop(key, None)
            if waiting is None:
                continue
            left = {held: None for held in waiting if not self._try(held, now_ms)}
            if left:
                self.by_queue[key] = left

    def _try(self, held: Held, now_ms: int) -> bool:
        if held.done:
            return True
        seen = held.seen_to
        if self.retry(held, False):
            self._leave(held)
            return True
        if held.seen_to > seen == held.header.queue_offset:
            self._set_deadline(held, min(held.deadline_ms, now_ms + PASSED_OVER_MS))
        return False

    def expire(self, now_ms: int) -> None:
        """Answer the pulls whose time is over."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now_ms:
            _, _, held = heapq.heappop(deadlines)
            if held.done:
                continue
            self._leave(held)
            self._forget(held)
            self.retry(held, True)

    def expire_all(self) -> None:
        """Answer all pulls now."""
        if self._deadlines:
            self.expire(max(at_ms for at_ms, _, _ in self._deadlines))

    def gone(self, peer: Peer) -> None:
        """A connection is lost: its pulls are removed."""
        for held in self._by_peer.pop(peer, ()):
            held.done = True
            self.waiting -= 1
            self._forget(held)

    def _leave(self, held: Held) -> None:
        held.done = True
        self.waiting -= 1
        mine = self._by_peer.get(held.peer)
        if mine is not None:
            mine.discard(held)
            if not mine:
                del self._by_peer[held.peer]

    def _forget(self, held: Held) -> None:
        key = held.header.topic, held.header.queue_id
        waiting = self.by_queue.get(key)
        if waiting is not None:
            waiting.pop(held, None)
            if not waiting:
                del self.by_queue[key]

    def due_ms(self, _now_ms: int) -> int | None:
        """When the time of the first one is over; None: no pull waits."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][2].done:
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else None
