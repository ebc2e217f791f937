"""Consuming messages as a member of a group: Java's push consumer, with an asyncio interface.

    rebalance ─▶ assigned queues ─▶ a pull loop each ─▶ ready ─▶ next() / listeners ─▶ ack or retry ─▶ offsets

- The group's queues are shared again every 20 seconds, and at once when a broker reports that a member joined or left
  (rebalancing.py). A queue that moves to another member is dropped: its committed offset is stored, messages that are
  being processed may finish, and settling them has no effect.
- Pulled messages are in `Unsettled` until they are settled; a queue's offset is that of its first unsettled message.
  Pulling pauses while too many messages of a queue are unsettled.
- Concurrent: all messages of a queue are ready at once. Orderly: one batch after another, under a lock that the
  broker gives to one member.
- A failed message is sent back to the broker, which delivers it again after a delay, and after too many failures to the
  dead letters. An orderly consumer tries it again locally, and its queue waits.

No task and no timer per message. Java: DefaultMQPushConsumerImpl, ConsumeMessage(Concurrently|Orderly)Service.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import Final, Self

from kourou.client import naming
from kourou.client.assigned_queue import AssignedQueue, visible
from kourou.client.consumer_loop import ConsumerLoop
from kourou.client.delivery import SETTLED, Delivery, Settler, Settling
from kourou.client.errors import ClosedError, NoRouteError
from kourou.client.events import call_queues
from kourou.client.filters import SQL, subscription
from kourou.client.identity import DEFAULT_INSTANCE, client_id as make_client_id
from kourou.client.offsets import BrokerOffsets, FileOffsets, OffsetStore, offset_path
from kourou.client.ordered import Ordered
from kourou.client.pull_loops import PullLoops
from kourou.client.pulling import Pull
from kourou.client.queue_bounds import max_offset, search_offset
from kourou.client.ready import ReadyMessages
from kourou.client.rebalancing import Rebalancer
from kourou.client.routes import Route
from kourou.client.send_back import give_back
from kourou.client.session import Session
from kourou.client.settings import ConsumerSettings
from kourou.client.user_calls import is_called_by, task_outside
from kourou.protocol.bodies import CheckClientRequestBody, ConsumerData, SubscriptionData
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.errors import KourouError
from kourou.protocol.message import MessageQueue
from kourou.protocol.record import StoredMessage

log = logging.getLogger(__name__)

LOCAL_RETRY_S: Final = 5.0
"""When a failed message could not be sent back to the broker, it is tried again locally after this time."""
LOCK_INTERVAL_S: Final = 20.0
EXPIRED_LEVEL: Final = 3
EXPIRED_AT_ONCE: Final = 16

_WHERE: Final[dict[object, str]] = {
    "last": "CONSUME_FROM_LAST_OFFSET",
    "first": "CONSUME_FROM_FIRST_OFFSET",
    "timestamp": "CONSUME_FROM_TIMESTAMP",
}


class Consumer:
    """A member of a group. Made by `Client.consume` and `Client.listen`.

        async for message in consumer:
            async with message.process():
                ...

    Topics map to (tags, sql). Public names are the user's; internal ones are those that brokers know, with the
    namespace.
    """

    has_retry_topic = True
    kind = "CONSUME_PASSIVELY"

    def __init__(
        self,
        session: Session,
        group: str,
        topics: Mapping[str, tuple[str | None, str | None]],
        settings: ConsumerSettings,
    ) -> None:
        naming.check_group(group)
        for topic in topics:
            naming.check_topic(topic)
        self.session = session
        self.settings = settings
        self.group = session.wrap(group)
        self.subscriptions: dict[str, SubscriptionData] = {
            session.wrap(topic): subscription(session.wrap(topic), tags, sql) for topic, (tags, sql) in topics.items()
        }
        self.retry_topic = naming.retry_topic(self.group)
        if self.has_retry_topic and not settings.broadcast:
            self.subscriptions[self.retry_topic] = subscription(self.retry_topic)
        self.offsets: OffsetStore = self._make_offsets()
        self.queues: dict[MessageQueue, AssignedQueue] = {}
        self.started_ms = 0
        self.is_listened = False  # listeners take the messages, not an iterator
        self.is_balanced = True  # the group shares the queues; otherwise the user assigns them
        self.on_taken: Callable[[Delivery], None] | None = None  # for traces
        self.on_settled: Callable[[Delivery, bool], None] | None = None
        self.rebalancer = Rebalancer(self)
        self._pull_loops = PullLoops(self)
        self.ordered = Ordered(self)
        self._ready = ReadyMessages()
        self._tasks: list[asyncio.Task[None]] = []
        self._starting: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._giving_back: set[asyncio.Task[None]] = set()
        self._loops = 0  # loops that own this consumer: see consumer_loop.py
        self._is_owned = False
        self.on_closed: Callable[[], object] | None = None
        self._state = "new"

    def _make_offsets(self) -> OffsetStore:
        if not self.settings.broadcast:
            return BrokerOffsets(self.session, self.group)
        settings = self.session.settings
        instance = settings.instance_name or DEFAULT_INSTANCE  # the next process finds the file by it
        place = make_client_id(self.session.ip, instance, settings.unit_name)
        return FileOffsets(offset_path(self.settings.offset_dir, place, self.group))

    # ── Life ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Join the group. Happens automatically at the first use; a caller of `start` has to call `close` as well.

        Raises GroupInUseError, NoNameServerError, SubscriptionParseFailedError (an invalid SQL filter).
        """
        self._is_owned = False
        await self._begin()

    async def _begin(self) -> None:
        if self._starting is None:
            if self._state == "closed":
                raise ClosedError(f"the consumer of group {self.group!r} is closed")
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(_seen)
        elif self._state == "closed" and (self._closing is not None or self._starting.cancelled()):
            raise ClosedError(f"the consumer of group {self.group!r} is closed")
        try:
            await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closing is None or task is None or task.cancelling():
                raise
            raise ClosedError(f"the consumer of group {self.group!r} was closed while it started") from None

    async def _start(self) -> None:
        before = self.session.members.get(self.group)
        if isinstance(before, Consumer) and before.is_ending:
            await before.close()
        self.session.join(self)
        try:
            await self._find_topics()
            await self._check_filters()
            self.started_ms = time.time_ns() // 1_000_000
            await self.session.heartbeat()
            await self.rebalancer.run()
        except BaseException:
            self._state = "closed"
            for assigned in self.queues.values():
                assigned.drop()
            self.queues.clear()
            self.session.members.pop(self.group, None)
            self.session.spawn(self.session.leave(self.group), f"leave {self.group}")
            raise
        self._state = "running"
        spawn, every = self.session.spawn, self.session.every
        self._tasks = [
            spawn(self.rebalancer.keep_balanced(), f"rebalance {self.group}"),
            every(self.settings.persist_interval, self.offsets.persist),
            every(self.settings.consume_timeout, self._give_back_expired),
        ]
        if self.settings.orderly and not self.settings.broadcast:
            self._tasks.append(every(LOCK_INTERVAL_S, self.rebalancer.renew_locks))

    async def _find_topics(self) -> None:
        for topic in list(self.subscriptions):
            try:
                await self.session.routes.refresh(topic)
            except NoRouteError as error:
                if topic != self.retry_topic:  # the broker creates that one at the first heartbeat
                    log.warning("nothing to consume yet group=%s: %s", self.group, error)

    async def _check_filters(self) -> None:
        """Lets a broker check the SQL filters, which would otherwise fail silently at every pull."""
        for wanted in list(self.subscriptions.values()):
            route = self.session.routes.cached(wanted.topic or "")
            if wanted.expression_type == SQL and route is not None:
                body = CheckClientRequestBody(
                    client_id=self.session.client_id, group=self.group, subscription_data=wanted
                )
                command = Command(RequestCode.CHECK_CLIENT_CONFIG, body=body.encode())
                address = self.session.routes.any_broker_of(route)
                await self.session.pool.ask(address, command, self.session.settings.request_timeout)

    async def close(self) -> None:
        """Leave the group: wait for messages that are being processed, store offsets, release the queues.

        Messages that were pulled and not handed out are delivered again, to other members. A second call does nothing.
        Runs to its end even if the caller is cancelled meanwhile. If a listener or callback of this consumer calls it,
        it returns at once, and the consumer closes when that function has returned.
        """
        self.abandon()
        assert self._closing is not None
        if not is_called_by(self):
            await asyncio.shield(self._closing)

    @property
    def is_ending(self) -> bool:
        """Whether it is closed or closing."""
        return self._closing is not None

    async def _close(self) -> None:
        try:
            await self._leave()
        finally:
            if self.on_closed is not None:
                self.on_closed()

    async def _leave(self) -> None:
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        was_running, self._state = self._state == "running", "closed"
        self._ready.wake_all()
        if not was_running:
            return
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for assigned in self.queues.values():
            if assigned.puller is not None:
                assigned.puller.cancel()
        self._ready.messages.clear()
        await self._wait_settled(self.settings.settle_timeout)
        await call_queues(self.settings.on_revoked, self.assignment, self.settings.settle_timeout, self, self.session)
        if self._giving_back:
            await asyncio.wait(self._giving_back, timeout=self.settings.settle_timeout)
        await self.offsets.persist(confirmed=True)
        await self.rebalancer.unlock_all()
        for assigned in self.queues.values():
            assigned.drop()
        self.queues.clear()
        await self.session.leave(self.group)

    async def _wait_settled(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self.is_listened and (busy := [assigned for assigned in self.queues.values() if assigned.in_hand]):
            left = deadline - time.monotonic()
            if left <= 0:
                log.warning("consumer closed while messages were being processed group=%s", self.group)
                return
            await busy[0].wait_changed(left)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:  # cancelled, for example: there will be no __aexit__
            self.abandon()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # ── Taking messages ───────────────────────────────────────────────────────────────────────────────────────────

    def __aiter__(self) -> AsyncIterator[Delivery]:
        """The messages. A consumer that the loop started leaves the group with the loop, however that ends."""
        self.check_open()
        return ConsumerLoop(self, self, asyncio.get_running_loop())

    def check_open(self) -> None:
        """Raises ClosedError."""
        if self._state == "closed" or self._closing is not None:
            raise ClosedError(
                f"the consumer of group {self.group!r} is closed, because its loop has ended: call consume again, "
                "or put several loops into one `async with`"
            )

    def enter_loop(self) -> None:
        if self._starting is None:
            self._is_owned = True
        self._loops += 1

    def leave_loop(self) -> None:
        """A loop has ended. The last loop that owns the consumer closes it."""
        self._loops -= 1
        if self._is_owned and not self._loops:
            self.abandon()

    def abandon(self) -> None:
        """Closes the consumer in the background, because no loop owns it any more."""
        if self._closing is None:
            self._closing = task_outside(self._close(), f"close {self.group}")

    async def __anext__(self) -> Delivery:
        while True:
            while self._ready.messages:
                delivery = self._ready.messages.popleft()
                if self._hand_out(delivery):
                    return delivery
            if self._state == "closed" and (self._closing is not None or self._starting is None):
                raise StopAsyncIteration
            if self._state != "running":
                try:
                    await self._begin()
                except ClosedError:
                    if self._closing is None:
                        raise  # it is the client that is closed
            else:
                await self._ready.wait()

    async def next(self, timeout: float | None = None) -> Delivery | None:
        """The next message; None after `timeout` seconds without one, or when the consumer is closed."""
        try:
            async with asyncio.timeout(timeout):
                return await self.__anext__()
        except (TimeoutError, StopAsyncIteration):
            return None

    async def take(self, count: int) -> list[Delivery]:
        """One to `count` messages of one queue; none when the consumer is closed."""
        try:
            first = await self.__anext__()
        except StopAsyncIteration:
            return []
        taken, ready = [first], self._ready.messages
        while len(taken) < count and ready and ready[0].source is first.source:
            delivery = ready.popleft()
            if self._hand_out(delivery):
                taken.append(delivery)
        return taken

    def _hand_out(self, delivery: Delivery) -> bool:
        """False if the message's queue is no longer assigned to us, or its turn is over."""
        assigned = delivery.source
        if assigned is None:
            return True
        assert isinstance(assigned, AssignedQueue)
        if assigned.dropped or delivery.settled or (self.settings.orderly and not self.ordered.may_take(delivery)):
            return False
        delivery.started = time.monotonic()
        assigned.in_hand[delivery.record.queue_offset] = delivery
        if self.on_taken is not None:
            self.on_taken(delivery)
        return True

    def offer(self, deliveries: list[Delivery]) -> None:
        """Makes messages available to `take` and `next`."""
        self._ready.offer(deliveries)

    def offer_alone(self, record: StoredMessage, queue: MessageQueue, topic: str, settler: Settler) -> None:
        """Offers a message that comes from no queue, but from an administrator's request."""
        self.offer([self.delivery(record, queue, topic, settler, None)])

    # ── Settling messages ─────────────────────────────────────────────────────────────────────────────────────────

    def acked(self, delivery: Delivery) -> None:
        assigned = delivery.source
        assert isinstance(assigned, AssignedQueue)
        self._count(delivery, ok=True)
        self.settle(assigned, delivery)

    def settle(self, assigned: AssignedQueue, delivery: Delivery) -> None:
        """The message is consumed, or given back."""
        record = delivery.record
        if not assigned.dropped:
            self.offsets.commit(assigned.queue, assigned.unsettled.settle(record.queue_offset, record.size))
        self.put_down(assigned, delivery)
        if self.settings.orderly and not assigned.dropped:
            self.ordered.settled(assigned, delivery)

    def put_down(self, assigned: AssignedQueue, delivery: Delivery) -> None:
        """The message is not being processed any more."""
        if assigned.in_hand.get(delivery.queue_offset) is delivery:
            del assigned.in_hand[delivery.queue_offset]
        assigned.changed()
        if assigned.dropped and self.settings.orderly:
            self.ordered.let_go(assigned)

    def failed(self, delivery: Delivery, delay_level: int) -> Settling:
        assigned = delivery.source
        assert isinstance(assigned, AssignedQueue)
        self._count(delivery, ok=False)
        if assigned.dropped:
            self.put_down(assigned, delivery)
            return SETTLED
        if self.settings.orderly:
            work = self.ordered.failed(assigned, delivery, delay_level)
        elif self.settings.broadcast:
            log.warning("failed message dropped id=%s: broadcast messages are not retried", delivery.message_id)
            self.settle(assigned, delivery)
            return SETTLED
        else:
            work = self._failed_concurrently(assigned, delivery, delay_level)
        task = self.session.spawn(work, f"give back {delivery.message_id}")
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)
        return Settling(task)

    async def _failed_concurrently(self, assigned: AssignedQueue, delivery: Delivery, delay_level: int) -> None:
        try:
            await give_back(self, delivery, delay_level)
        except KourouError as error:
            log.warning(
                "failed message could not be sent back and is tried again locally id=%s: %s",
                delivery.message_id,
                error,
            )
            self._again_later(assigned, delivery)
        except BaseException:
            self._again_later(assigned, delivery)
            raise
        else:
            self.settle(assigned, delivery)

    def _again_later(self, assigned: AssignedQueue, delivery: Delivery) -> None:
        delivery.settled = False
        delivery.reconsume_times += 1
        self.put_down(assigned, delivery)
        asyncio.get_running_loop().call_later(LOCAL_RETRY_S, self._offer_unless_dropped, assigned, delivery)

    def released(self, delivery: Delivery) -> None:
        assigned = delivery.source
        assert isinstance(assigned, AssignedQueue)
        if delivery.settled or assigned.in_hand.get(delivery.queue_offset) is not delivery:
            return
        if self.settings.orderly and not assigned.dropped:
            self.ordered.again(assigned, delivery)
        else:
            self.put_down(assigned, delivery)
            asyncio.get_running_loop().call_later(LOCAL_RETRY_S, self._offer_unless_dropped, assigned, delivery)

    def _offer_unless_dropped(self, assigned: AssignedQueue, delivery: Delivery) -> None:
        if not (assigned.dropped or delivery.settled) and self._state == "running":
            self.offer([delivery])

    def _count(self, delivery: Delivery, *, ok: bool) -> None:
        counts = self.session.metrics.consumed[self.group, delivery.queue.topic]
        now = time.monotonic()
        counts.seconds += now - delivery.started
        if ok:
            counts.succeeded += 1
        else:
            counts.failed += 1
        assert isinstance(delivery.source, AssignedQueue)
        delivery.source.last_consume = now
        if self.on_settled is not None:
            self.on_settled(delivery, ok)

    async def _give_back_expired(self) -> None:
        """Sends messages back that have been in processing for too long, so that their queue can move on."""
        if self.settings.orderly or self.settings.broadcast:
            return
        limit = time.monotonic() - self.settings.consume_timeout
        for assigned in list(self.queues.values()):
            expired = [delivery for delivery in assigned.in_hand.values() if delivery.started < limit]
            for delivery in expired[:EXPIRED_AT_ONCE]:
                await delivery.retry(EXPIRED_LEVEL)

    # ── For the pull loops ────────────────────────────────────────────────────────────────────────────────────────

    def begin_pulling(self, assigned: AssignedQueue) -> None:
        self._pull_loops.begin(assigned)

    def how(self, wanted: SubscriptionData) -> Pull:
        """The parameters of this consumer's pulls of a topic."""
        settings = self.settings
        return Pull(
            group=self.group,
            subscription=wanted,
            batch=settings.pull_batch,
            batch_size=settings.pull_batch_size,
            suspend=settings.long_poll,
        )

    def delivery(
        self, record: StoredMessage, queue: MessageQueue, topic: str, settler: Settler, assigned: AssignedQueue | None
    ) -> Delivery:
        """Makes the message that users see."""
        return Delivery(record, queue, topic, settler, assigned, self.session.settings.max_body)

    # ── Starting offsets ──────────────────────────────────────────────────────────────────────────────────────────

    async def starting_offset(self, queue: MessageQueue) -> int:
        """The group's committed offset in a queue, or where a new group starts. Raises KourouError."""
        stored = await self.offsets.read(queue)
        if stored is not None and stored >= 0:
            return stored
        is_retry, start = queue.topic.startswith(naming.RETRY_PREFIX), self.settings.start
        if start == "first" or (start == "last" and is_retry):
            return 0
        if start == "last" or is_retry:
            return await max_offset(self.session, queue)
        at = start.timestamp() if isinstance(start, datetime) else self.settings.start_at
        return await search_offset(self.session, queue, round((time.time() - 30 * 60 if at is None else at) * 1000))

    # ── For the session ───────────────────────────────────────────────────────────────────────────────────────────

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=self.kind,
            message_model="BROADCASTING" if self.settings.broadcast else "CLUSTERING",
            consume_from_where=_WHERE.get(self.settings.start, _WHERE["timestamp"]),
            subscription_data_set=list(self.subscriptions.values()),
        )

    def topics(self) -> set[str]:
        return set(self.subscriptions)

    def route_changed(self, route: Route) -> None:  # noqa: ARG002
        self.rebalance_soon()

    def rebalance_soon(self) -> None:
        self.rebalancer.soon()

    # ── Controls for users ────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_running(self) -> bool:
        return self._state == "running"

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are assigned to this member now."""
        return visible(self.queues)

    async def subscribe(self, topic: str, tags: str | None = None, sql: str | None = None) -> None:
        """Consume another topic, or change the filter of one. All members of the group must do the same."""
        naming.check_topic(topic)
        wrapped = self.session.wrap(topic)
        self.subscriptions[wrapped] = subscription(wrapped, tags, sql)
        await self.rebalancer.give_up([queue for queue in self.queues if queue.topic == wrapped])
        if self._state == "running":
            await self._find_topics()
            await self.session.heartbeat()
            self.rebalance_soon()

    async def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic."""
        wrapped = self.session.wrap(topic)
        self.subscriptions.pop(wrapped, None)
        await self.rebalancer.give_up([queue for queue in self.queues if queue.topic == wrapped])
        await self.session.heartbeat()

    async def drop(self, queue: MessageQueue) -> None:
        """Give up a queue; its committed offset is stored first."""
        await self.rebalancer.give_up([self.wrapped(queue)])

    def pause(self) -> None:
        """Stop pulling for now. Messages that are already pulled may be taken."""
        for assigned in self.queues.values():
            assigned.paused = True

    def resume(self) -> None:
        """Pull again after `pause`."""
        for assigned in self.queues.values():
            assigned.paused = False
            assigned.changed()

    async def commit(self) -> None:
        """Store the offsets of settled messages now, rather than within `persist_interval`."""
        await self.offsets.persist()

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at these offsets, earlier or later. Raises KourouError if a broker can't be told."""
        for queue, offset in offsets.items():
            await self.rebalancer.restart(self.wrapped(queue), offset)

    def wrapped(self, queue: MessageQueue) -> MessageQueue:
        """The queue with the names that brokers know."""
        return MessageQueue(self.session.wrap(queue.topic), queue.broker_name, queue.queue_id)


def _seen(start: "asyncio.Task[None]") -> None:
    """The failure of a start is raised by all later uses, even if no caller waits for the start itself."""
    if not start.cancelled():
        start.exception()


__all__ = ["Consumer"]
