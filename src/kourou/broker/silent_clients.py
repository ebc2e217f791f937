"""Removes clients that have become silent, and expired locks of queues."""

from collections.abc import Callable

from kourou.broker.clients import Clients
from kourou.broker.events import Close, Outbox, Peer
from kourou.broker.queue_locks import QueueLocks
from kourou.broker.settings import BrokerSettings
from kourou.turns import Slices, Turns


class SilentClients:
    """Looks for them from time to time."""

    def __init__(
        self,
        settings: BrokerSettings,
        clients: Clients,
        locks: QueueLocks,
        turns: Turns,
        outbox: Outbox,
        gone: Callable[[Peer], None],
        now_ms: int,
    ) -> None:
        """`gone` is called with clients whose connections are to be closed."""
        self._settings = settings
        self._clients = clients
        self._locks = locks
        self._turns = turns
        self._outbox = outbox
        self._gone = gone
        self._scan_ms = now_ms

    def due_ms(self, _now_ms: int) -> int | None:
        """When to look for silent clients and expired locks; None: there are neither clients nor locks."""
        if not (self._clients.consumers or self._clients.producers or len(self._locks)):
            return None
        return self._scan_ms + self._settings.client_scan_ms

    def step(self, now_ms: int) -> None:
        self._scan_ms = now_ms
        self._turns.start(self._locks, self._locks.forget_expired(now_ms))
        self._turns.start("silent clients", self._close_silent(now_ms))

    def _close_silent(self, now_ms: int) -> Slices[None]:
        silent = yield from self._clients.silent(now_ms - self._settings.client_timeout_ms)
        for peer in silent:
            self._outbox.put(Close(peer, f"no heartbeat for {self._settings.client_timeout_ms // 1000} s"))
            self._gone(peer)
            yield 0
