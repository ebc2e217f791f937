"""Which queues are assigned to a consumer: taking them on and giving them up.

Every member of a group computes the shares of all members from the same lists: the topic's queues, from the route, and
the group's members, from a broker. If one of the lists is not available, or the broker does not know us yet, we keep
our queues and try again soon. Java: RebalanceImpl, RebalancePushImpl.
"""

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kourou.client.assigned_queue import AssignedQueue, visible
from kourou.client.errors import NoBrokerError, NoRouteError
from kourou.client.events import call_queues
from kourou.client.routes import Route
from kourou.protocol.bodies import (
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError, KourouError, PeerFailedError
from kourou.protocol.headers import GetConsumerListByGroup
from kourou.protocol.message import MessageQueue

if TYPE_CHECKING:
    from kourou.client.consumer import Consumer

log = logging.getLogger(__name__)

SOON_S: Final = 1.0
"""The time until the next round after an incomplete one."""

UNLOCK_WAIT_S: Final = 20.0
"""How long the lock of a dropped queue is kept for a message that is still being processed."""


MEMBERS_MAX: Final = 10_000
"""The largest number of members that is accepted from a broker."""

MEMBERS_SIZE_MAX: Final = 1024 * 1024


class Rebalancer:
    """Assigns queues of its topics to one consumer."""

    def __init__(self, consumer: "Consumer") -> None:
        self._consumer = consumer
        self._session = consumer.session
        self._wanted = asyncio.Event()
        self._balanced = True
        self._still_locked: set[AssignedQueue] = set()  # given up, while a message of it was being processed

    def soon(self) -> None:
        self._wanted.set()

    async def keep_balanced(self) -> None:
        """Runs for the consumer's life."""
        while True:
            pause = self._consumer.settings.rebalance_interval if self._balanced else SOON_S
            try:
                async with asyncio.timeout(pause):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            await self.run()

    async def run(self) -> None:
        """One round over all topics. Failures are logged and tried again soon."""
        self._balanced = True
        self._session.metrics.rebalances += 1
        consumer = self._consumer
        for topic in list(consumer.subscriptions) if consumer.is_balanced else ():
            try:
                await self._balance(topic)
            except NoRouteError:
                if topic != consumer.retry_topic:
                    self._balanced = False
            except KourouError as error:
                log.info("not rebalanced group=%s topic=%s: %s", consumer.group, topic, error)
                self._balanced = False
            except Exception:  # of the strategy, which may be the user's
                if not consumer.is_running:
                    raise
                log.exception("not rebalanced, queues are kept group=%s topic=%s", consumer.group, topic)
        await self.give_up([queue for queue in consumer.queues if queue.topic not in consumer.subscriptions])

    async def _balance(self, topic: str) -> None:
        route = await self._session.routes.get(topic)
        queues = route.subscribe
        if self._consumer.settings.broadcast:
            ours = list(queues)
        else:
            members = await self._members(route)
            if self._session.client_id not in members:
                await self._session.heartbeat()
                self._balanced = False
                return
            ours = self._consumer.settings.strategy.allocate(self._session.client_id, queues, members)
        wrap = self._session.wrap  # the queues of `Configured` have public names, and may be of other topics
        found = {MessageQueue(wrap(queue.topic), queue.broker_name, queue.queue_id) for queue in ours}
        await self._change(topic, {queue for queue in found if queue.topic == topic})

    async def _members(self, route: Route) -> list[str]:
        header = GetConsumerListByGroup(consumer_group=self._consumer.group)
        address = self._session.routes.any_broker_of(route)
        command = Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ext=header.encode())
        try:
            answer = await self._session.pool.ask(address, command, self._session.settings.request_timeout)
        except PeerFailedError:  # the broker does not know the group yet: a heartbeat will tell it
            return []
        if len(answer.body) > MEMBERS_SIZE_MAX:
            raise BodyError(
                f"the member list of group {header.consumer_group!r} has {len(answer.body)} bytes; {MEMBERS_SIZE_MAX} "
                "are allowed"
            )
        members = set(GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list)
        if len(members) > MEMBERS_MAX:
            raise BodyError(f"group {header.consumer_group!r} has {len(members)} members; {MEMBERS_MAX} are allowed")
        return sorted(members)

    async def _change(self, topic: str, ours: set[MessageQueue]) -> None:
        consumer = self._consumer
        had = {queue for queue in consumer.queues if queue.topic == topic}
        await self.give_up(sorted(had - ours))
        added = sorted(ours - had)
        if added and consumer.settings.orderly and not consumer.settings.broadcast:
            locked, _ = await self._lock(added)
            if len(locked) < len(added):
                self._balanced = False
            added = [queue for queue in added if queue in locked]
        await self.take_on(added)
        if added or had - ours:
            log.info(
                "queues changed group=%s topic=%s now=%d added=%d gone=%d",
                consumer.group,
                topic,
                len(ours),
                len(added),
                len(had - ours),
            )

    async def take_on(self, queues: "list[MessageQueue]") -> None:
        """Starts newly assigned queues. Users are told before the first pull, so that they can seek."""
        consumer = self._consumer
        fresh = []
        for queue in queues:
            assigned = consumer.queues[queue] = AssignedQueue(queue)
            assigned.locked_at = time.monotonic()
            consumer.ordered.took_on(assigned)
            fresh.append(assigned)
        settings = consumer.settings
        await call_queues(settings.on_assigned, visible(queues), settings.settle_timeout, consumer, self._session)
        for assigned in fresh:
            if consumer.queues.get(assigned.queue) is assigned and assigned.puller is None:
                consumer.begin_pulling(assigned)

    async def give_up(self, queues: "list[MessageQueue]") -> None:
        """Gives queues up. Users are told first, so that they can settle messages; then the offsets are stored."""
        consumer = self._consumer
        ours = [queue for queue in queues if queue in consumer.queues]
        settings = consumer.settings
        await call_queues(settings.on_revoked, visible(ours), settings.settle_timeout, consumer, self._session)
        dropped = [assigned for queue in ours if (assigned := consumer.queues.pop(queue, None)) is not None]
        for assigned in dropped:
            assigned.drop()
            if consumer.settings.orderly:
                consumer.ordered.gave_up(assigned)
        gone = {assigned.queue for assigned in dropped}
        await consumer.offsets.persist(gone, confirmed=True)  # before other members may take them
        for assigned in dropped:
            if assigned.queue not in consumer.queues:
                consumer.offsets.forget(assigned.queue)
            if consumer.settings.orderly and not consumer.settings.broadcast:
                self._still_locked.add(assigned)
                self._session.spawn(self._unlock_when_idle(assigned), f"unlock {assigned.queue}")

    async def restart(self, queue: MessageQueue, offset: int) -> None:
        """Continues at another offset; messages that are already pulled have no effect. Raises KourouError."""
        consumer = self._consumer
        old = consumer.queues.get(queue)
        if old is not None:
            old.drop()
            fresh = consumer.queues[queue] = AssignedQueue(queue)
            fresh.locked_at, fresh.paused, fresh.next_offset = old.locked_at, old.paused, offset
            if consumer.settings.orderly:
                fresh.before = old
        try:
            await consumer.offsets.reset(queue, offset)
        finally:
            if old is not None and not fresh.dropped:
                consumer.begin_pulling(fresh)

    # ── Locks of orderly consumers ────────────────────────────────────────────────────────────────────────────────

    async def _lock(self, queues: "list[MessageQueue]") -> tuple[set[MessageQueue], set[MessageQueue]]:
        """The queues that the brokers lock for us, and those that they refuse, because another member has them."""
        locked: set[MessageQueue] = set()
        refused: set[MessageQueue] = set()
        for broker, members in self._by_broker(queues).items():
            body = LockBatchRequestBody(
                consumer_group=self._consumer.group, client_id=self._session.client_id, mq_set=members
            )
            command = Command(RequestCode.LOCK_BATCH_MQ, body=body.encode())
            try:
                address = self._session.routes.master(broker)
                answer = await self._session.pool.ask(address, command, self._session.settings.request_timeout)
                granted = set(LockBatchResponseBody.decode(answer.body).locked)
                locked |= granted
                refused.update(queue for queue in members if queue not in granted)
            except KourouError as error:
                log.info("queues not locked group=%s broker=%s: %s", self._consumer.group, broker, error)
        return locked, refused

    async def renew_locks(self) -> None:
        """Renews our locks. Of a queue that another member has locked, no further message is handed out."""
        consumer = self._consumer
        held = dict(consumer.queues)
        locked, refused = await self._lock(list(held))
        for queue, assigned in held.items():
            if assigned.dropped:
                continue
            if queue in locked:
                consumer.ordered.locked(assigned)
            elif queue in refused:
                consumer.ordered.lock_lost(assigned)

    async def unlock(self, queues: "list[AssignedQueue]") -> None:
        """Releases the locks of these queues. On a broker that can't be reached they expire."""
        if not self._consumer.settings.orderly or self._consumer.settings.broadcast:
            return
        for broker, members in self._by_broker([assigned.queue for assigned in queues]).items():
            body = UnlockBatchRequestBody(
                consumer_group=self._consumer.group, client_id=self._session.client_id, mq_set=members
            )
            try:
                address = self._session.routes.master(broker)
                await self._session.pool.tell(address, Command(RequestCode.UNLOCK_BATCH_MQ, body=body.encode()))
            except KourouError as error:
                log.info("queues not unlocked group=%s broker=%s: %s", self._consumer.group, broker, error)

    def _by_broker(self, queues: "list[MessageQueue]") -> dict[str, list[MessageQueue]]:
        """Queues that no broker has now are left out."""
        grouped: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            with suppress(NoBrokerError):
                grouped.setdefault(self._session.routes.home(queue), []).append(queue)
        return grouped

    async def _unlock_when_idle(self, assigned: AssignedQueue) -> None:
        deadline = time.monotonic() + UNLOCK_WAIT_S
        while assigned.in_hand and (left := deadline - time.monotonic()) > 0:
            await assigned.wait_changed(left)
        self._still_locked.discard(assigned)
        if assigned.queue not in self._consumer.queues:
            await self.unlock([assigned])

    async def unlock_all(self) -> None:
        """Releases all locks, at the end: also those that were kept for a message that is still being processed."""
        await self.unlock([*self._consumer.queues.values(), *self._still_locked])
        self._still_locked.clear()


__all__ = ["Rebalancer"]
