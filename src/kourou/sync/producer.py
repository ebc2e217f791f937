"""Producers without asyncio."""

from typing import Self

from kourou.client import Producer as AsyncProducer
from kourou.sync.methods import Part, documented_by, waits


@documented_by(AsyncProducer)
class Producer(Part[AsyncProducer]):
    """Sends messages of one producer group. Made by `Client.producer`."""

    send = waits(AsyncProducer.send)
    send_many = waits(AsyncProducer.send_many)
    send_batch = waits(AsyncProducer.send_batch)
    send_one_way = waits(AsyncProducer.send_one_way)
    recall = waits(AsyncProducer.recall)
    queues = waits(AsyncProducer.queues)
    close = waits(AsyncProducer.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
