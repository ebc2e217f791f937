"""The entries of a consume queue, for who looks for a missing message.

Java: AdminBrokerProcessor.queryConsumeQueue.
"""

from typing import Final

from kourou.broker.admin import tables
from kourou.broker.clients import Clients
from kourou.broker.events import Asked, Large, Refused
from kourou.protocol import bodies, headers
from kourou.protocol.bodies import ConsumeQueueData, SubscriptionData
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.store.queues import Queues
from kourou.turns import Slices

ENTRIES_MAX: Final = 10_000
"""How many entries one answer has at most."""


class EntryRequests:
    """Serves requests about consume queues."""

    def __init__(self, queues: Queues, clients: Clients) -> None:
        self._queues = queues
        self._clients = clients

    def show(self, asked: Asked) -> Slices[Command | Large]:
        """QUERY_CONSUME_QUEUE: some entries, and what a group subscribes to."""
        yield 0
        header = headers.QueryConsumeQueue.decode(asked.command.ext)
        topic, queue_id, index = header.topic or "", header.queue_id, header.index
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        if not queue.start <= index < queue.end:
            return asked.command.answer(remark=f"Index {index} of {queue_id}@{topic} is not exist!")
        wanted: SubscriptionData | None = None
        filter_text: str | None = None
        if header.consumer_group is not None:
            wanted = self._clients.subscription(header.consumer_group, topic)
            filter_text = "null" if wanted is not None else f"{header.consumer_group}@{topic} is not online!"
        entries = tables.Entries()
        end = min(index + min(max(header.count, 0), ENTRIES_MAX), queue.end)
        for number in range(index, end):
            physical, size, tags_code = queue.entry(number)
            entries.add(ConsumeQueueData(physic_offset=physical, physic_size=size, tags_code=tags_code).encode())
            if number % tables.ENTRIES_IN_SLICE == 0:
                yield len(entries.text)
                if self._queues.get(topic, queue_id) is not queue or number < queue.start:
                    raise Refused(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} was removed meanwhile")
        shell = bodies.QueryConsumeQueueResponseBody(
            subscription_data=wanted,
            filter_data=filter_text,
            queue_data=[],
            max_queue_index=queue.end,
            min_queue_index=queue.start,
        )
        return entries.answer(asked.command, shell, "queueData")
