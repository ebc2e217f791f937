"""Sending messages.

    send            one message, up to 1 + 2 attempts on different brokers within one time limit
    send_many       many, pipelined: the next is sent before the previous one is answered
    send_batch      many in few requests: one append, one queue, all or nothing per request
    send_one_way    does not wait for an answer: fast, and may be lost

By default, messages go to the queues of a topic in turn. An ordering key, a selector or a queue fixes the queue; then
a failed attempt is not repeated on another. The messages in flight are limited (in_flight.py); further sends wait.

Java: DefaultMQProducerImpl.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from kourou.client import naming
from kourou.client.deadlines import within
from kourou.client.errors import ClosedError, InvalidMessageError, NoBrokerError, NoRouteError
from kourou.client.faults import Faults
from kourou.client.in_flight import InFlightLimit
from kourou.client.outgoing import Draft, Message, draft as make_draft, draft_batches
from kourou.client.results import (
    STORED_CODES,
    SendManyError,
    SendResult,
    SendStatus,
    broker_of_handle,
    send_result,
)
from kourou.client.retries import last_of, may_help_to_retry
from kourou.client.routes import Route
from kourou.client.selecting import Selector, selector_of, sharding
from kourou.client.session import Session
from kourou.client.settings import ProducerSettings
from kourou.client.spans import sending
from kourou.net.errors import ConnectFailedError, RequestTimedOutError, TransportError
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.errors import KourouError, RefusedError, refused
from kourou.protocol.headers import RecallMessage
from kourou.protocol.message import MessageQueue

log = logging.getLogger(__name__)

RETRY_PAUSE_S: Final = 0.05
"""The pause before another attempt on the same broker; doubled each time."""

PROBE_INTERVAL_S: Final = 3.0


class Producer:
    """Sends messages of one producer group. Made by `Client.producer`."""

    def __init__(self, session: Session, group: str, settings: ProducerSettings) -> None:
        naming.check_group(group)
        self._session = session
        self.group = session.wrap(group)
        self.settings = settings
        self._in_flight = InFlightLimit(settings.in_flight, settings.in_flight_size)
        self._turns: dict[str, int] = {}  # topic -> which queue is next
        self._faults = Faults() if settings.avoid_slow_brokers else None
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None
        self.has_spans = True  # if opentelemetry is installed
        self.on_sent: Callable[[Draft, MessageQueue, SendResult | None, float], None] | None = None  # for traces
        self.on_ended: Callable[[MessageQueue, str, str, int, bool], None] | None = None  # the same
        self.on_recalled: Callable[[str, str], None] | None = None  # the same
        session.producer_groups.add(self.group)
        if self._faults is not None:
            self._probing = session.every(PROBE_INTERVAL_S, self._probe)

    # ── Public methods ────────────────────────────────────────────────────────────────────────────────────────────

    async def send(
        self,
        topic: str,
        body: bytes | Message,
        *,
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
        delay_level: int = 0,
        flag: int = 0,
        timeout: float | None = None,
    ) -> SendResult:
        """Send one message and wait until it is stored.

        Raises NoRouteError, InvalidMessageError, InvalidNameError, RefusedError (by the broker), TransportError (no
        broker reached, or none answered in time), ClosedError. After a RequestTimedOutError the message may be stored.
        """
        message = make_message(
            body,
            tag=tag,
            keys=keys,
            properties=properties,
            delay=delay,
            deliver_at=deliver_at,
            delay_level=delay_level,
            flag=flag,
        )
        fixed = selector_of(self._session, ordering_key, queue, selector)
        prepared = self.draft(topic, message, sharding(ordering_key))
        if ordering_key is not None:
            prepared.kind = 4
        return await self.send_draft(prepared, fixed, timeout)

    async def send_many(
        self,
        topic: str,
        messages: Iterable[bytes | Message],
        *,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> list[SendResult]:
        """Send many messages, each in its own request, without waiting for one before sending the next.

        `timeout` is for each message. With an ordering key, a queue or a selector order matters: then each message
        does wait for the one before it (`send_batch` keeps order and is quicker). Raises SendManyError, which has the
        results of all, when some could not be sent; else as `send`.
        """
        fixed = selector_of(self._session, ordering_key, queue, selector)
        limit = self.settings.timeout if timeout is None else timeout
        under_way: list[_UnderWay] = []
        results: list[SendResult | KourouError] = []
        extra = sharding(ordering_key)
        try:
            for item in messages:
                message = item if isinstance(item, Message) else Message(body=item)
                prepared = self.draft(topic, message, extra)
                if fixed is not None:
                    await self._collect(under_way, len(under_way), results, limit)
                # Collect half of them and keep the rest in flight. But never wait for room while holding places that
                # only this caller could free: two such callers would wait for each other.
                while under_way and not self._in_flight.has_room(prepared.size):
                    await self._collect(under_way, (len(under_way) + 1) // 2, results, limit)
                await self._in_flight.wait(prepared.size)
                sent = _UnderWay(prepared, fixed, len(results))
                under_way.append(sent)
                results.append(_NOT_YET)
                await self._begin(sent, limit)
            await self._collect(under_way, len(under_way), results, limit)
        finally:
            for sent in under_way:
                sent.leave(self._in_flight)
        if any(isinstance(result, KourouError) for result in results):
            raise SendManyError(results)
        return results  # type: ignore[return-value]

    async def send_batch(
        self,
        topic: str,
        messages: Iterable[bytes | Message],
        *,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> list[SendResult]:
        """Send messages in batches, in as few requests as their size allows. Returns a result for each request.

        The messages of a request are stored together in one queue, or not at all. None of them may be delayed. Raises
        as `send`; requests before the one that failed have been stored.
        """
        naming.check_sendable(topic)
        if topic.startswith(naming.RETRY_PREFIX):
            raise InvalidMessageError("retry topics do not accept batches")
        items = (item if isinstance(item, Message) else Message(body=item) for item in messages)
        batches = draft_batches(self._session.wrap(topic), items, self.settings, sharding(ordering_key))
        fixed = selector_of(self._session, ordering_key, queue, selector)
        return [await self.send_draft(batch, fixed, timeout) for batch in batches]

    async def send_one_way(
        self,
        topic: str,
        body: bytes | Message,
        *,
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> None:
        """Send a message without waiting for an answer. It may be lost, and a refusal is not noticed.

        Raises as `send` for errors that are found before it is sent.
        """
        message = make_message(body, tag=tag, keys=keys, properties=properties)
        prepared = self.draft(topic, message, sharding(ordering_key))
        try:
            self._check_open()
            route = await self._route(prepared.topic)
            chosen = self._choose(route, selector_of(self._session, ordering_key, queue, selector), None)
            address = self._session.routes.master_of(chosen)
            await self._session.pool.tell(address, prepared.command(self.group, chosen, _now_ms()))
        except BaseException as error:
            if prepared.span is not None:
                prepared.span.failed(error)
            raise
        if prepared.span is not None:
            prepared.span.sent(chosen.broker_name, chosen.queue_id)

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Cancel a delayed message by the handle in its SendResult. Returns its id.

        Raises RefusedError, also if it is already delivered; TransportError.
        """
        wrapped = self._session.wrap(topic)
        header = RecallMessage(topic=wrapped, recall_handle=recall_handle, producer_group=self.group)
        route = await self._session.publish_route(wrapped)
        broker = broker_of_handle(recall_handle) or self._session.routes.home(self._choose(route, None, None))
        command = Command(RequestCode.RECALL_MESSAGE, ext={**header.encode(), "bname": broker})
        answer = await self._session.pool.ask(self._session.routes.master(broker), command, self.settings.timeout)
        message_id = (answer.ext or {}).get("msgId", "")
        if self.on_recalled is not None:
            self.on_recalled(topic, message_id)
        return message_id

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that this topic's messages may be sent to. Raises NoRouteError, NoNameServerError."""
        return (await self._session.routes.get(self._session.wrap(topic))).publish

    async def close(self) -> None:
        """Wait for sends in flight, then tell the brokers that this group's producer leaves.

        Runs to its end even if the caller is cancelled meanwhile.
        """
        if self._closing is None:
            self._closed = True
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    @property
    def has_left(self) -> bool:
        """Whether it is closed, and another producer of the group may be made."""
        return self._closing is not None and self._closing.done()

    async def _close(self) -> None:
        if self._probing is not None:
            self._probing.cancel()
        if not await self._in_flight.drained(self.settings.drain_timeout):
            log.warning("producer closed with sends in flight group=%s count=%d", self.group, self._in_flight.count)
        await self._session.leave(self.group, is_producer=True)

    async def __aenter__(self) -> "Producer":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # ── One message ───────────────────────────────────────────────────────────────────────────────────────────────

    def draft(self, topic: str, message: Message, extra: dict[str, str] | None = None) -> Draft:
        """Makes the draft of a message, with system properties in `extra`. Raises as `send` for an invalid message."""
        naming.check_sendable(topic)
        if self._session.namespace:
            extra = {**(extra or {}), "INSTANCE_ID": self._session.namespace}
        span = sending(topic, message, self.group, self._session.client_id) if self.has_spans else None
        if span is not None:
            extra = {**span.properties, **(extra or {})}
        try:
            prepared = make_draft(self._session.wrap(topic), message, self.settings, extra)
        except BaseException as error:
            if span is not None:
                span.failed(error)
            raise
        prepared.span = span
        return prepared

    def _check_open(self) -> None:
        self._session.check_running()
        if self._closed:
            raise ClosedError(f"the producer of group {self.group!r} is closed")

    async def send_draft(self, prepared: Draft, fixed: Selector | None, timeout: float | None = None) -> SendResult:
        """Send a draft, within the limits of this producer. Raises as `send`."""
        try:
            self._check_open()
            await self._in_flight.wait(prepared.size)
            try:
                return await self._attempt(prepared, fixed, self.settings.timeout if timeout is None else timeout)
            finally:
                self._in_flight.leave(prepared.size)
        except BaseException as error:
            if prepared.span is not None:
                prepared.span.failed(error)
            raise

    async def _attempt(self, prepared: Draft, fixed: Selector | None, timeout: float) -> SendResult:
        """Tries until an attempt succeeds, none is left, or the time is over."""
        failed: list[tuple[str, KourouError]] = []
        attempts = 1 if fixed is not None else 1 + self.settings.retries
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            if left <= 0 and failed:
                raise last_of(failed)
            route = await self._route(prepared.topic, deadline)
            queue = self._choose(route, fixed, failed[-1][0] if failed else None)
            try:
                address = self._session.routes.master_of(queue)
                begun = time.monotonic()
                share = (deadline - begun) / (attempts - len(failed))  # the rest is for attempts on other brokers
                await self._connect(address, begun + share)
                command = prepared.command(self.group, queue, _now_ms())
                left = deadline - time.monotonic()
                answer = await self._session.pool.request(address, command, max(left, 0.001))
                return self._accept(answer, prepared, queue, begun, is_last=len(failed) + 1 >= attempts)
            except KourouError as error:
                self._note_failure(prepared, queue, error)
                failed.append((queue.broker_name, error))
                if len(failed) >= attempts or not self._may_try_again(prepared.topic, failed):
                    raise last_of(failed) from None
            self._session.metrics.sent[prepared.topic].retries += 1
            await self._before_retry(prepared.topic, failed, deadline)

    def _accept(
        self, answer: Command, prepared: Draft, queue: MessageQueue, begun: float, *, is_last: bool
    ) -> SendResult:
        """The result of an answer. Raises RefusedError."""
        if answer.code not in STORED_CODES:
            raise refused(answer.code, answer.remark)
        elapsed = time.monotonic() - begun
        result = send_result(answer, prepared.ids, queue)
        if result.status is not SendStatus.OK and self.settings.retry_when_unsafe and not is_last:
            raise refused(answer.code, answer.remark)
        counts = self._session.metrics.sent[prepared.topic]
        counts.messages += 1
        counts.bytes += prepared.size
        counts.seconds += elapsed
        if self._faults is not None:
            self._faults.answered(queue.broker_name, elapsed * 1000, _steady_ms())
        if self.on_sent is not None:
            self.on_sent(prepared, queue, result, elapsed)
        if prepared.span is not None:
            prepared.span.sent(queue.broker_name, queue.queue_id, result)
        return result

    def _note_failure(self, prepared: Draft, queue: MessageQueue, error: KourouError) -> None:
        self._session.metrics.sent[prepared.topic].failures += 1
        if self._faults is not None:
            reachable = not isinstance(error, TransportError | NoBrokerError) or isinstance(error, RequestTimedOutError)
            self._faults.failed(queue.broker_name, _steady_ms(), reachable=reachable)
        if self.on_sent is not None:
            self.on_sent(prepared, queue, None, 0.0)

    def _may_try_again(self, topic: str, failed: "list[tuple[str, KourouError]]") -> bool:
        """Whether another attempt may succeed; after a permanent refusal, only one on another broker."""
        error = failed[-1][1]
        if not may_help_to_retry(error):
            return False
        if error.retriable or not isinstance(error, RefusedError):
            return True
        route = self._session.routes.cached(topic)
        asked = {broker for broker, _ in failed}
        return route is not None and any(queue.broker_name not in asked for queue in route.publish)

    async def _before_retry(self, topic: str, failed: "list[tuple[str, KourouError]]", deadline: float) -> None:
        """Prepares another attempt: refreshes the route, and waits if there is only one broker."""
        half_time = (time.monotonic() + deadline) / 2  # a name server that hangs must not cost the next attempt
        with suppress(KourouError):
            await within(self._session.routes.refresh(topic, or_default=True), half_time, self._no_route(topic))
        route = self._session.routes.cached(topic)
        brokers = {queue.broker_name for queue in route.publish} if route is not None else set()
        if not brokers - {failed[-1][0]}:
            pause = min(RETRY_PAUSE_S * 2 ** len(failed), max(deadline - time.monotonic(), 0))
            await asyncio.sleep(pause)

    async def _route(self, topic: str, deadline: float | None = None) -> Route:
        """Where messages of the topic are sent. Raises NoRouteError, NoNameServerError, RequestTimedOutError."""
        routes = self._session.routes
        self._session.use(topic)
        route = routes.cached(topic)
        if route is None or not route.publish:  # there was no master; there may be one by now
            route = await within(routes.refresh(topic, or_default=True), deadline, self._no_route(topic))
        return route

    def _no_route(self, topic: str) -> str:
        return f"no answer about the route of topic {self._session.unwrap(topic)!r} from {self._session.name_servers}"

    async def _connect(self, address: str, deadline: float | None) -> None:
        """Raises ConnectFailedError. An attempt that takes longer continues, for the next sends."""
        if self._session.pool.link(address) is None:
            connected = self._session.pool.connected(address)
            await within(connected, deadline, f"no connection to {address}", ConnectFailedError)

    # ── Which queue ───────────────────────────────────────────────────────────────────────────────────────────────

    def _choose(self, route: Route, fixed: Selector | None, avoid: str | None) -> MessageQueue:
        """The queue for the next attempt. Raises NoRouteError."""
        queues = route.publish
        if not queues:
            hint = "its brokers accept no messages: no master is up, or writing is not permitted"
            raise NoRouteError(self._session.unwrap(route.topic), str(self._session.name_servers), hint)
        if fixed is not None:
            return fixed(queues)
        turn = self._turns.get(route.topic)
        if turn is None:
            turn = random.randrange(1 << 30)
        count = len(queues)
        chosen = None
        if avoid is not None or self._faults is not None:
            chosen = self._choose_carefully(queues, turn, avoid)
        if chosen is None:
            chosen = turn % count
        self._turns[route.topic] = turn + 1
        return queues[chosen]

    def _choose_carefully(self, queues: Sequence[MessageQueue], turn: int, avoid: str | None) -> int | None:
        """The next queue on a broker other than `avoid`, preferably on one without faults."""
        now, faults, count = _steady_ms(), self._faults, len(queues)
        others = [at % count for at in range(turn, turn + count) if queues[at % count].broker_name != avoid]
        if faults is None:
            return others[0] if others else None
        for is_good in (lambda name: faults.is_available(name, now), faults.is_reachable):
            for at in others:
                if is_good(queues[at].broker_name):
                    return at
        return None

    async def _probe(self) -> None:
        """Checks whether unreachable brokers are back."""
        assert self._faults is not None
        for broker in self._faults.unreachable():
            try:
                await self._session.pool.connected(self._session.routes.master(broker))
            except KourouError:
                continue
            self._faults.reached(broker)

    # ── Many messages ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _begin(self, sent: "_UnderWay", timeout: float) -> None:
        """Sends without waiting for the answer. A failure is kept, and `_collect` tries again."""
        sent.future = sent.error = None
        session, prepared = self._session, sent.prepared
        try:
            self._check_open()
            now = time.monotonic()
            deadline = sent.deadline = sent.deadline or now + timeout
            route = session.routes.cached(prepared.topic)
            if route is None or not route.publish:
                route = await self._route(prepared.topic, deadline)
            queue = sent.queue = self._choose(route, sent.fixed, sent.failed[-1][0] if sent.failed else None)
            address = session.routes.master_of(queue)
            await self._connect(address, deadline)
            link = await session.pool.connected(address)
            if link.is_congested:
                await within(link.wait_writable(), deadline, f"{queue.broker_name} did not accept data")
            sent.begun = time.monotonic()
            left = max(deadline - sent.begun, 0.001)
            sent.future = session.pool.begin(link, prepared.command(self.group, queue, _now_ms()), left)
        except KourouError as error:
            sent.error = error

    async def _collect(
        self, under_way: "list[_UnderWay]", count: int, results: "list[SendResult | KourouError]", timeout: float
    ) -> None:
        """Waits for the answers of the first `count` in flight; those that failed are sent again, all at once."""
        pending = under_way[:count]
        while pending:
            again: list[_UnderWay] = []
            for sent in pending:
                outcome = await self._outcome(sent)
                if isinstance(outcome, KourouError) and self._may_send_again(sent):
                    again.append(sent)
                    continue
                results[sent.index] = outcome
                if sent.prepared.span is not None and isinstance(outcome, KourouError):
                    sent.prepared.span.failed(outcome)
                sent.leave(self._in_flight)
            if again:
                topic = again[0].prepared.topic
                self._session.metrics.sent[topic].retries += len(again)
                await self._before_retry(topic, again[0].failed, again[0].deadline)
                for sent in again:
                    await self._begin(sent, timeout)
            pending = again
        del under_way[:count]

    async def _outcome(self, sent: "_UnderWay") -> "SendResult | KourouError":
        queue, error = sent.queue, sent.error
        if sent.future is not None:
            assert queue is not None
            is_last = len(sent.failed) >= self.settings.retries
            try:
                return self._accept(await sent.future, sent.prepared, queue, sent.begun, is_last=is_last)
            except KourouError as failure:
                error = failure
        assert error is not None
        if queue is None:
            return error
        self._note_failure(sent.prepared, queue, error)
        sent.failed.append((queue.broker_name, error))
        return last_of(sent.failed)

    def _may_send_again(self, sent: "_UnderWay") -> bool:
        if sent.fixed is not None or not sent.failed or len(sent.failed) > self.settings.retries:
            return False
        if time.monotonic() >= sent.deadline:
            return False
        return self._may_try_again(sent.prepared.topic, sent.failed)


class _UnderWay:
    """One message of `send_many`."""

    __slots__ = ("_entered", "begun", "deadline", "error", "failed", "fixed", "future", "index", "prepared", "queue")

    def __init__(self, prepared: Draft, fixed: Selector | None, index: int) -> None:
        self.prepared = prepared
        self.fixed = fixed
        self.index = index  # the index of its result
        self.queue: MessageQueue | None = None
        self.future: asyncio.Future[Command] | None = None
        self.error: KourouError | None = None
        self.failed: list[tuple[str, KourouError]] = []  # attempts so far
        self.begun = 0.0
        self.deadline = 0.0  # set when it is first sent
        self._entered = True

    def leave(self, limit: InFlightLimit) -> None:
        if self._entered:
            self._entered = False
            limit.leave(self.prepared.size)


_NOT_YET: Final = ClosedError("not answered yet")


def make_message(
    body: bytes | Message,
    *,
    tag: str | None = None,
    keys: str | Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    delay: timedelta | None = None,
    deliver_at: datetime | None = None,
    delay_level: int = 0,
    flag: int = 0,
) -> Message:
    """A message from a `Message`, or from single arguments. Raises InvalidMessageError for a mix of both."""
    if isinstance(body, Message):
        if tag or keys or properties or delay or deliver_at or delay_level or flag:
            raise InvalidMessageError("set tag, keys and other options on the Message, not as arguments beside it")
        return body
    return Message(
        body=body,
        tag=tag,
        keys=keys,
        properties=properties or {},
        delay=delay,
        deliver_at=deliver_at,
        delay_level=delay_level,
        flag=flag,
    )


def _steady_ms() -> int:
    """A monotonic clock, for durations: the time of day may jump."""
    return time.monotonic_ns() // 1_000_000


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


__all__ = ["Producer", "make_message"]
