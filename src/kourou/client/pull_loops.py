"""Prefetching: a pull loop for each queue that is assigned to a consumer.

A loop pauses while enough messages of its queue are unsettled. Pulled records become deliveries, which the consumer
hands out. After an error the loop waits, for a time that depends on the error, and continues at the same offset. Java:
PullMessageService, DefaultMQPushConsumerImpl.pullMessage.
"""

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kourou.client import naming
from kourou.client.assigned_queue import AssignedQueue
from kourou.client.delivery import delivered_topic
from kourou.client.errors import NoBrokerError
from kourou.client.pulling import Pulled, PullStatus, pull
from kourou.net.errors import TransportError
from kourou.protocol.bodies import SubscriptionData
from kourou.protocol.codes import ResponseCode
from kourou.protocol.errors import KourouError, ProtocolError, RefusedError, SubscriptionError

if TYPE_CHECKING:
    from kourou.client.consumer import Consumer

log = logging.getLogger(__name__)

PULL_ERROR_PAUSE_S: Final = 1.0
BUSY_PAUSE_S: Final = 0.02

ROUTE_PAUSE_S: Final = 1.0
"""While pulls of a topic fail, its route is fetched again this often: another broker may be the master by now."""

_BUSY: Final = frozenset({ResponseCode.FLOW_CONTROL, ResponseCode.SYSTEM_BUSY})


class PullLoops:
    """The pull loops of one consumer."""

    def __init__(self, consumer: "Consumer") -> None:
        self._consumer = consumer
        self._session = consumer.session
        self._routes_fetched: dict[str, float] = {}  # by topic: when its route was fetched after a failure

    def begin(self, assigned: AssignedQueue) -> None:
        name = f"pull {assigned.queue.topic} {assigned.queue.broker_name} {assigned.queue.queue_id}"
        assigned.puller = self._session.spawn(self._pull_loop(assigned), name)

    async def _pull_loop(self, assigned: AssignedQueue) -> None:
        """Pulls as long as the queue is assigned to us."""
        wanted = self._consumer.subscriptions.get(assigned.queue.topic)
        assert wanted is not None
        settings, how = self._consumer.settings, self._consumer.how(wanted)
        while not assigned.dropped:
            try:
                if assigned.next_offset < 0:
                    assigned.next_offset = await self._consumer.starting_offset(assigned.queue)
                if await self._must_rest(assigned):
                    continue
                begun = time.monotonic()
                pulled = await pull(
                    self._session,
                    how,
                    assigned.queue,
                    assigned.next_offset,
                    commit=self._commit_of(assigned),
                    broker_id=assigned.broker_id,
                )
                await self._take_in(assigned, wanted, pulled, begun)
                if settings.pull_interval:
                    await asyncio.sleep(settings.pull_interval)
            except KourouError as error:
                await self._after_pull_error(assigned, error)
            except Exception:
                log.exception("pull failed queue=%s", assigned.queue)
                await asyncio.sleep(PULL_ERROR_PAUSE_S)

    def _commit_of(self, assigned: AssignedQueue) -> int | None:
        """The offset that a pull commits along with it: only if everything that was pulled before is settled.

        Apache's broker stores it in another thread, possibly after an offset that was sent later: the group of a
        consumer that pulled, acknowledged and closed would go back. If everything is settled, nothing can be
        acknowledged before this pull is answered.
        """
        if self._consumer.settings.broadcast:
            return None
        committed = self._consumer.offsets.committed(assigned.queue)
        return committed if committed == assigned.next_offset else None

    async def _must_rest(self, assigned: AssignedQueue) -> bool:
        """Waits while enough messages are unsettled, or the queue must not be pulled; True if it waited."""
        settings, unsettled = self._consumer.settings, assigned.unsettled
        is_full = (
            unsettled.count > settings.queue_messages
            or unsettled.size > settings.queue_size
            or (not settings.orderly and unsettled.span > settings.queue_span)
        )
        is_barred = assigned.paused or (
            settings.orderly and not settings.broadcast and not assigned.is_locked(time.monotonic())
        )
        if is_full or is_barred:
            await assigned.wait_changed(1.0)
            return True
        return False

    async def _take_in(self, assigned: AssignedQueue, wanted: SubscriptionData, pulled: Pulled, begun: float) -> None:
        now = time.monotonic()
        assigned.last_pull = now
        if assigned.dropped:
            return
        assigned.broker_id = pulled.suggested_broker
        counts = self._session.metrics.consumed[self._consumer.group, assigned.queue.topic]
        counts.pulls += 1
        if pulled.status is PullStatus.OFFSET_MOVED:
            log.warning(
                "offset moved by the broker queue=%s from=%d to=%d",
                assigned.queue,
                assigned.next_offset,
                pulled.next_offset,
            )
            if pulled.next_offset <= assigned.next_offset:
                await asyncio.sleep(PULL_ERROR_PAUSE_S)  # the broker may do so repeatedly
            assigned.puller = None  # this loop: it ends by itself, and another one starts
            await self._consumer.rebalancer.restart(assigned.queue, pulled.next_offset)
            return
        assigned.next_offset = pulled.next_offset
        if pulled.status is PullStatus.FOUND:
            counts.pull_seconds += now - begun
            counts.pulled += len(pulled.records)
            counts.pulled_bytes += pulled.size
            if self._deliver(assigned, wanted, pulled):
                return
        if not assigned.unsettled.count:
            self._consumer.offsets.commit(assigned.queue, pulled.next_offset)

    def _deliver(self, assigned: AssignedQueue, wanted: SubscriptionData, pulled: Pulled) -> bool:
        """Makes deliveries of the pulled records; False if the subscription wants none of them."""
        consumer, queue, unwrap = self._consumer, assigned.queue, self._session.unwrap
        topic = unwrap(queue.topic)
        is_retry = queue.topic.startswith(naming.RETRY_PREFIX)
        deliveries = [
            consumer.delivery(record, queue, unwrap(delivered_topic(record)) if is_retry else topic, consumer, assigned)
            for record in pulled.records
        ]
        if wanted.tags_set:
            tags = set(wanted.tags_set)
            deliveries = [delivery for delivery in deliveries if delivery.tag in tags]
        if not deliveries:
            return False
        assigned.unsettled.put((delivery.record.queue_offset, delivery.record.size) for delivery in deliveries)
        if consumer.settings.orderly:
            assigned.waiting.extend(deliveries)
            consumer.ordered.offer_next(assigned)
        else:
            consumer.offer(deliveries)
        return True

    async def _after_pull_error(self, assigned: AssignedQueue, error: Exception) -> None:
        """Waits for a time that depends on the error, and fixes its cause if that is possible."""
        pause = PULL_ERROR_PAUSE_S
        if isinstance(error, RefusedError) and error.response_code in _BUSY:
            pause = BUSY_PAUSE_S
        elif isinstance(error, SubscriptionError):
            await self._session.heartbeat()  # the broker does not know this client, or no longer
        elif isinstance(error, TransportError | NoBrokerError):
            assigned.broker_id = 0
        elif isinstance(error, ProtocolError):
            log.error("messages can't be decoded queue=%s offset=%d: %s", assigned.queue, assigned.next_offset, error)
        log.info("pull failed queue=%s: %s", assigned.queue, error)
        if isinstance(error, TransportError | NoBrokerError | RefusedError):
            await self._fetch_route(assigned.queue.topic)
        await asyncio.sleep(pause)

    async def _fetch_route(self, topic: str) -> None:
        """The periodic refresh alone would leave the consumer with an old master for up to 30 seconds."""
        now = time.monotonic()
        if now - self._routes_fetched.get(topic, -ROUTE_PAUSE_S) >= ROUTE_PAUSE_S:
            self._routes_fetched[topic] = now
            with suppress(KourouError):
                await self._session.routes.refresh(topic)
