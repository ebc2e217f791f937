"""Received messages: the stored records in the answers to pull, pop, query and view requests, as consumers see them.

The body is decompressed, the hosts are text, and `message_id` is the id that the producer knows. A record may contain a
whole batch (flags INNER_BATCH and NEED_UNWRAP); its messages are returned one by one, as if they had been stored one
after the other.
"""

from typing import Final

from msgspec.structs import replace

from kourou.protocol import properties as _properties
from kourou.protocol.batch import decode_batch
from kourou.protocol.codes import SysFlag
from kourou.protocol.compression import DECOMPRESSED_LIMIT_BYTES, decompress, without_compression
from kourou.protocol.ids import encode_offset_id
from kourou.protocol.layout import Buffer
from kourou.protocol.message import Message, PhysicalOffset, QueueOffset
from kourou.protocol.record import StoredMessage, decode_records

_BATCH_IN_RECORD: Final = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)


class ReceivedMessage(Message, frozen=True, kw_only=True):
    """A message as a consumer receives it, with its position and history."""

    offset_id: str
    """The id of the position where it is stored: broker and log offset."""
    queue_id: int
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    sys_flag: int
    born_ms: int
    born_host: str
    stored_ms: int
    store_host: str
    reconsume_times: int
    """How often consumers of this group failed to process it."""
    prepared_offset: PhysicalOffset
    stored_size: int
    """The size of its record in bytes."""

    @property
    def message_id(self) -> str:
        """The id that the producer knows: the unique key or, without one, the offset id."""
        return self.unique_key or self.offset_id


def received_messages(body: Buffer, limit: int = DECOMPRESSED_LIMIT_BYTES) -> list[ReceivedMessage]:
    """The messages of an answer's body. Raises BodyError for an invalid record, or a body larger than `limit`."""
    messages: list[ReceivedMessage] = []
    for record in decode_records(body):
        message = receive(record, limit)
        if message.sys_flag & _BATCH_IN_RECORD == _BATCH_IN_RECORD:
            messages.extend(_unwrap(message, limit))
        else:
            messages.append(message)
    return messages


def receive(record: StoredMessage, limit: int = DECOMPRESSED_LIMIT_BYTES) -> ReceivedMessage:
    """The messages of one record. Raises BodyError if its body does not decompress to at most `limit` bytes."""
    return ReceivedMessage(
        topic=record.topic,
        body=decompress(record.body, record.sys_flag, limit),
        flag=record.flag,
        properties=_properties.decode(record.raw_properties),
        offset_id=encode_offset_id(record.store_host, record.physical_offset),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        sys_flag=without_compression(record.sys_flag),
        born_ms=record.born_ms,
        born_host=record.born_address,
        stored_ms=record.stored_ms,
        store_host=record.store_address,
        reconsume_times=record.reconsume_times,
        prepared_offset=record.prepared_offset,
        stored_size=record.size,
    )


def _unwrap(outer: ReceivedMessage, limit: int) -> list[ReceivedMessage]:
    """The messages of a batch that was stored as one record. Java: MessageDecoder.decodeMessage."""
    return [
        replace(
            outer,
            body=bytes(entry.body),
            flag=entry.flag,
            properties=entry.properties,
            queue_offset=QueueOffset(outer.queue_offset + index),
        )
        for index, entry in enumerate(decode_batch(outer.body, limit))
    ]
