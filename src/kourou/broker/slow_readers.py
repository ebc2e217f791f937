"""Groups that read too slowly lose the right to read, where an operator wants it (disableConsumeIfConsumerReadSlowly).

A group that is far behind makes the disk read data that no other group needs. Its lag is computed
every three minutes, for the subscriptions of connected groups: from their last pull to the end of the log.
The group stays disabled until `consumeEnable` is set again.

Java: BrokerController.protectBroker.
"""

import logging

import msgspec

from kourou.broker.clients import Clients
from kourou.broker.groups import Groups
from kourou.broker.offsets import Offsets
from kourou.broker.settings import BrokerSettings
from kourou.protocol.names import shown
from kourou.store.errors import StoreError
from kourou.store.store import Store

log = logging.getLogger(__name__)

INTERVAL_MS = 180_000


class SlowReaders:
    """Looks for them."""

    def __init__(
        self, settings: BrokerSettings, store: Store, groups: Groups, clients: Clients, offsets: Offsets, now_ms: int
    ) -> None:
        self._settings = settings
        self._store = store
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._due_ms = now_ms + INTERVAL_MS

    def due_ms(self, _now_ms: int) -> int | None:
        """When to look next; None: slow readers are allowed."""
        return self._due_ms if self._settings.disable_slow_readers else None

    def step(self, now_ms: int) -> None:
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + INTERVAL_MS
        if not self._settings.disable_slow_readers:
            return
        for name, members in self._clients.consumers.items():
            group = self._groups.get(name)
            if group is None or not group.consume_enable:
                continue
            behind = max((self._behind(topic, name) for topic in members.subscriptions), default=0)
            if behind > self._settings.slow_reader_bytes:
                log.warning(
                    "group %s may no longer read, because it is too far behind: %d bytes, %d are allowed "
                    "(consumerFallbehindThreshold)",
                    shown(name),
                    behind,
                    self._settings.slow_reader_bytes,
                )
                self._groups.put(msgspec.structs.replace(group, consume_enable=False), now_ms)

    def _behind(self, topic: str, group: str) -> int:
        """Bytes of the log between the last message that a group got of a topic, in any queue, and the end."""
        farthest = 0
        for queue_id, offset in self._offsets.pulled.get(f"{topic}@{group}", {}).items():
            queue = self._store.queues.get(topic, queue_id)
            if queue is None or offset >= queue.end:
                continue
            try:
                physical, _, _ = queue.entry(max(offset - 1, queue.start))
            except (StoreError, OSError) as error:
                log.error("queue %d of %s can't be read: %s", queue_id, topic, error)
                continue
            farthest = max(farthest, self._store.log.end - physical)
        return farthest
