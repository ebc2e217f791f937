"""`async for message in mq.consume(...)`: a loop that owns its consumer.

When a loop ends by `break`, `return` or an exception, Python does not close its iterator; it only drops the last
reference to it. So each loop gets its own `ConsumerLoop`, and when that object is dropped, the consumer leaves its
group: the queues go back at once, and the group can be consumed again. A consumer that was started explicitly (`async
with`, `start`) is closed explicitly; loops do not own it. Several loops over one consumer own it together: the last one
closes it.
"""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from kourou.client.consumer import Consumer

D_co = TypeVar("D_co", covariant=True)


class _Source(Protocol[D_co]):
    def __anext__(self) -> Awaitable[D_co]: ...


class ConsumerLoop(Generic[D_co]):
    """The iterator of one loop."""

    __slots__ = ("_consumer", "_event_loop", "_source")

    def __init__(self, consumer: "Consumer", source: "_Source[D_co]", event_loop: asyncio.AbstractEventLoop) -> None:
        self._consumer = consumer
        self._source = source
        self._event_loop = event_loop
        consumer.enter_loop()

    def __aiter__(self) -> "ConsumerLoop[D_co]":
        return self

    def __anext__(self) -> Awaitable[D_co]:
        return self._source.__anext__()

    def __del__(self) -> None:
        consumer = self._consumer
        try:
            here = asyncio.get_running_loop() is self._event_loop
        except RuntimeError:
            here = False
        if here:
            consumer.leave_loop()
        elif not self._event_loop.is_closed():  # dropped by the garbage collector, in some other thread
            self._event_loop.call_soon_threadsafe(consumer.leave_loop)
