"""The entries of a consume queue, to look for a missing message.

Java: AdminBrokerProcessor.queryConsumeQueue.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from kourou.broker import subscriptions
from kourou.broker.admin import tables
from kourou.broker.clients import Clients
from kourou.broker.consumer_filters import ConsumerFilter, ConsumerFilters
from kourou.broker.events import Large, Refused, Request
from kourou.protocol import bodies, headers
from kourou.protocol.bodies import ConsumeQueueData, SubscriptionData
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.store.consume_queue import ConsumeQueue
from kourou.store.consume_queue_ext import Unit, is_address
from kourou.store.errors import StoreError
from kourou.store.metadata import pretty
from kourou.store.queues import Queues
from kourou.turns import Slices

ENTRIES_MAX: Final = 10_000
"""How many entries one answer has at most."""


class EntryRequests:
    """Serves requests about consume queues."""

    def __init__(self, queues: Queues, clients: Clients, filters: ConsumerFilters) -> None:
        self._queues = queues
        self._clients = clients
        self._filters = filters

    def show(self, asked: Request[headers.QueryConsumeQueue]) -> Slices[Command | Large]:
        """QUERY_CONSUME_QUEUE: some entries, and the subscription of a group."""
        yield 0
        header = asked.header
        topic, queue_id, index = header.topic or "", header.queue_id, header.index
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        if not queue.start <= index < queue.end:
            return asked.command.answer(remark=f"Index {index} of {queue_id}@{topic} is not exist!")
        wanted: SubscriptionData | None = None
        filter_text: str | None = None
        accepts: Callable[[Unit], bool] | None = None
        if header.consumer_group is not None:
            wanted = self._clients.subscription(header.consumer_group, topic)
            filter_text = f"{header.consumer_group}@{topic} is not online!"
            if wanted is not None:
                found = self._filters.get(topic, header.consumer_group)
                filter_text = "null" if found is None else pretty(found.body())
                accepts = _accepts(wanted, found)
        entries = tables.Entries()
        end = min(index + min(max(header.count, 0), ENTRIES_MAX), queue.end)
        for number in range(index, end):
            entries.add(self._entry(queue, number, accepts).encode())
            if number % tables.ENTRIES_IN_SLICE == 0:
                yield len(entries.text)
                if self._queues.get(topic, queue_id) is not queue or number < queue.start:
                    raise Refused(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} was removed during the request")
        shell = bodies.QueryConsumeQueueResponseBody(
            subscription_data=wanted,
            filter_data=filter_text,
            queue_data=[],
            max_queue_index=queue.end,
            min_queue_index=queue.start,
        )
        return entries.answer(asked.command, shell, "queueData")

    def _entry(self, queue: ConsumeQueue, number: int, accepts: Callable[[Unit], bool] | None) -> ConsumeQueueData:
        physical, size, tags_code = queue.entry(number)
        if not is_address(tags_code):
            return ConsumeQueueData(physic_offset=physical, physic_size=size, tags_code=tags_code)
        try:
            unit = self._queues.extensions.unit(queue, tags_code)
        except (OSError, StoreError):
            unit = None
        if unit is None:
            missing = f"Cq extend not exist!addr: {tags_code}"
            return ConsumeQueueData(physic_offset=physical, physic_size=size, tags_code=tags_code, msg=missing)
        return ConsumeQueueData(
            physic_offset=physical,
            physic_size=size,
            tags_code=unit.tags_code,
            extend_data_json=_described(unit),
            bit_map=_drawn(unit.bit_map) if unit.bit_map else None,
            eval=accepts is not None and accepts(unit),
        )


def _accepts(wanted: SubscriptionData, found: ConsumerFilter | None) -> Callable[[Unit], bool]:
    """May a message pass, by the unit of its entry?"""
    if not subscriptions.is_by_tag(wanted.expression_type):
        return (lambda _: True) if found is None else found.may_pass
    codes = subscriptions.codes(wanted)
    return lambda unit: codes is None or unit.tags_code in codes


def _described(unit: Unit) -> str:
    """A unit as Java's JSON has it: its bytes are signed numbers."""
    bit_map = [byte - 256 if byte > 127 else byte for byte in unit.bit_map]
    shown: dict[str, Any] = {"filterBitMap": bit_map} if bit_map else {}
    shown |= {"msgStoreTime": unit.stored_ms, "size": unit.size, "tagsCode": unit.tags_code}
    return json.dumps(shown, separators=(",", ":"))


def _drawn(bit_map: bytes) -> str:
    """Bits from the last to the first, in lines of eight bytes. Java: BitsArray.toString."""
    text = ""
    for at in range(len(bit_map) - 1, -1, -1):
        text += f"{bit_map[at]:08b}"
        if at % 8 == 0:
            text += "\n"
    return text
