"""`async for message in mq.consume(...)`: a loop that owns its consumer.

Python closes no iterator when a loop ends by `break`, `return` or an exception; it only drops the last reference to it.
So a loop gets an object of its own (`Loop`), and when that is dropped, the consumer leaves its group: queues are given
back at once, and the group can be consumed again. A consumer that was started by hand (`async with`, `start`) is closed
by hand; its loops own nothing. Several loops over one consumer own it together: the last one closes it.
"""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from kourou.client.consumer import Consumer

D_co = TypeVar("D_co", covariant=True)


class _Source(Protocol[D_co]):
    def __anext__(self) -> Awaitable[D_co]: ...


class Loop(Generic[D_co]):
    """The iterator of one loop."""

    __slots__ = ("_consumer", "_event_loop", "_source")

    def __init__(self, consumer: "Consumer", source: "_Source[D_co]", event_loop: asyncio.AbstractEventLoop) -> None:
        self._consumer = consumer
        self._source = source
        self._event_loop = event_loop
        consumer.enter_loop()

    def __aiter__(self) -> "Loop[D_co]":
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
