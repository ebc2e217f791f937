"""Consumers without asyncio."""

from collections.abc import Callable, Iterator
from typing import Generic, Self, TypeVar

from kourou.client import (
    Consumer as AsyncConsumer,
    Delivery as AsyncDelivery,
    LitePullConsumer as AsyncLitePullConsumer,
    MessageQueue,
    PullConsumer as AsyncPullConsumer,
    TypedConsumer as AsyncTypedConsumer,
)
from kourou.client.listeners import Listening as AsyncListening
from kourou.sync.deliveries import Delivery, TypedDelivery
from kourou.sync.loop import Loop
from kourou.sync.methods import Part, calls, documented_by, waits

T = TypeVar("T")
D_co = TypeVar("D_co", bound=Delivery, covariant=True)


class Messages(Iterator[D_co]):
    """The iterator of one loop. When it is dropped, however the loop ended, its consumer leaves the group."""

    def __init__(self, consumer: "_Consumer[D_co]", inner: AsyncConsumer, loop: Loop) -> None:
        self._consumer = consumer
        self._inner = inner
        self._loop = loop
        loop.call(inner.enter_loop)

    def __next__(self) -> D_co:
        return next(self._consumer)

    def __del__(self) -> None:
        self._loop.finish(self._left())

    async def _left(self) -> None:
        self._inner.leave_loop()
        if self._inner.is_ending:
            await self._inner.close()


@documented_by(AsyncConsumer)
class _Consumer(Part[AsyncConsumer], Generic[D_co]):
    """The common part of consumers with and without values."""

    def __init__(self, inner: AsyncConsumer, loop: Loop, kind: Callable[[AsyncDelivery, Loop], D_co]) -> None:
        super().__init__(inner, loop)
        self._kind = kind

    start = waits(AsyncConsumer.start)
    subscribe = waits(AsyncConsumer.subscribe)
    unsubscribe = waits(AsyncConsumer.unsubscribe)
    pause = calls(AsyncConsumer.pause)
    resume = calls(AsyncConsumer.resume)
    commit = waits(AsyncConsumer.commit)
    close = waits(AsyncConsumer.close)
    drop = waits(AsyncConsumer.drop)
    reset = waits(AsyncConsumer.reset)

    def __iter__(self) -> Iterator[D_co]:
        """The messages. A consumer that its loop started leaves the group with it, however the loop ends."""
        self._loop.call(self._inner.check_open)
        return Messages(self, self._inner, self._loop)

    def __next__(self) -> D_co:
        delivery = self._loop.run(self._inner.next())
        if delivery is None:
            raise StopIteration
        return self._kind(delivery, self._loop)

    def next(self, timeout: float | None = None) -> D_co | None:
        delivery = self._loop.run(self._inner.next(timeout))
        return None if delivery is None else self._kind(delivery, self._loop)

    @property
    def assignment(self) -> list[MessageQueue]:
        return self._loop.call(lambda: self._inner.assignment)

    @property
    def is_running(self) -> bool:
        return self._inner.is_running

    def __enter__(self) -> Self:
        self._loop.run(self._inner.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Consumer(_Consumer[Delivery]):
    """A member of a group: iterate over it."""

    def __init__(self, inner: AsyncConsumer, loop: Loop) -> None:
        super().__init__(inner, loop, Delivery)


class TypedConsumer(_Consumer[TypedDelivery[T]], Generic[T]):
    """A consumer whose messages have values."""

    def __init__(self, inner: AsyncTypedConsumer[T], loop: Loop) -> None:
        super().__init__(inner, loop, TypedDelivery[T])


class Listening(Part[AsyncListening]):
    """A consumer whose messages go to a listener."""

    close = waits(AsyncListening.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@documented_by(AsyncLitePullConsumer)
class LitePullConsumer(_Consumer[Delivery]):
    """A consumer that is polled."""

    def __init__(self, inner: AsyncLitePullConsumer, loop: Loop) -> None:
        super().__init__(inner, loop, Delivery)
        self._lite = inner

    assign = waits(AsyncLitePullConsumer.assign)
    subscribe = waits(AsyncLitePullConsumer.subscribe)
    commit = waits(AsyncLitePullConsumer.commit)
    topic_queues = waits(AsyncLitePullConsumer.topic_queues)
    committed = waits(AsyncLitePullConsumer.committed)
    seek = waits(AsyncLitePullConsumer.seek)
    seek_to_begin = waits(AsyncLitePullConsumer.seek_to_begin)
    seek_to_end = waits(AsyncLitePullConsumer.seek_to_end)
    offset_for_time = waits(AsyncLitePullConsumer.offset_for_time)
    pause = calls(AsyncLitePullConsumer.pause)
    resume = calls(AsyncLitePullConsumer.resume)

    def poll(self, timeout: float = 5.0, *, count: int = 10) -> list[Delivery]:
        return [Delivery(found, self._loop) for found in self._loop.run(self._lite.poll(timeout, count=count))]


class PullConsumer(Part[AsyncPullConsumer]):
    """Pulls by hand, one queue at a time."""

    queues = waits(AsyncPullConsumer.queues)
    pull = waits(AsyncPullConsumer.pull)
    max_offset = waits(AsyncPullConsumer.max_offset)
    min_offset = waits(AsyncPullConsumer.min_offset)
    search_offset = waits(AsyncPullConsumer.search_offset)
    committed = waits(AsyncPullConsumer.committed)
    commit = waits(AsyncPullConsumer.commit)
    close = waits(AsyncPullConsumer.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
