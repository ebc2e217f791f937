"""Listeners: functions that are called with messages, several at a time.

A listener that returns has consumed its messages; if it raises, they are delivered again. A coroutine function
runs on the event loop, any other function in a thread, so that it may block.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kourou.client.consumer import Consumer
from kourou.client.delivery import Delivery, log_failure, settle_failure
from kourou.client.events import as_coroutine
from kourou.client.spans import processing
from kourou.client.user_calls import is_called_by, task_outside, user_call

Listener = Callable[[Delivery], object]
BatchListener = Callable[[list[Delivery]], object]
"""Functions or coroutine functions. Their return values are ignored."""


class Listening:
    """A consumer that passes its messages to a listener, until it or its client is closed. Made by `Client.listen`."""

    def __init__(self, consumer: Consumer, listener: Listener | None, batch_listener: BatchListener | None) -> None:
        assert (listener is None) != (batch_listener is None), "one listener"
        consumer.is_listened = True
        self.consumer = consumer
        self._is_batch = batch_listener is not None
        self._workers: list[asyncio.Task[None]] = []
        count = consumer.settings.concurrency
        self._threads = ThreadPoolExecutor(count, thread_name_prefix=f"listener {consumer.group}")
        self._closing: asyncio.Task[None] | None = None
        function: Any = batch_listener if listener is None else listener
        self._call = as_coroutine(function, self._threads)

    async def start(self) -> "Listening":
        """Raises as `Consumer.start`."""
        await self.consumer.start()
        spawn = self.consumer.session.spawn
        count = self.consumer.settings.concurrency
        self._workers = [spawn(self._work(), f"listener {self.consumer.group} {n}") for n in range(count)]
        return self

    async def _work(self) -> None:
        size = self.consumer.settings.batch_size if self._is_batch else 1
        while batch := await self.consumer.take(size):
            try:
                owners = self.consumer, self.consumer.session
                with user_call(*owners), processing(batch, self.consumer.group, self.consumer.session.client_id):
                    await self._call(batch if self._is_batch else batch[0])
            except Exception as error:
                await self._failed(batch, error)
            else:
                for delivery in batch:
                    delivery.ack()

    async def _failed(self, batch: list[Delivery], error: Exception) -> None:
        for delivery in batch:
            if not delivery.settled:
                try:
                    await settle_failure(delivery, error)
                except Exception as failure:
                    log_failure(delivery, failure)

    async def close(self) -> None:
        """Leave the group. Running listeners may finish, within `settle_timeout`.

        If its own listener calls it, it returns at once, and the consumer closes when the listener has returned.
        """
        if not is_called_by(self.consumer):
            await self._close()
        elif self._closing is None:
            self._closing = task_outside(self._close(), f"close listener {self.consumer.group}")

    async def _close(self) -> None:
        await self.consumer.close()
        others = [worker for worker in self._workers if worker is not asyncio.current_task()]
        for worker in others:
            worker.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def __aenter__(self) -> "Listening":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
