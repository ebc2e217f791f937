"""Looking things up: messages by id and key, offsets by time.

Java: QueryMessageProcessor, the offset requests of AdminBrokerProcessor.
"""

from typing import Final

from kourou.broker.events import Asked, Outbox, Refused, ReplyParts
from kourou.broker.settings import BrokerSettings
from kourou.protocol import headers
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.store.consume_queue import Boundary
from kourou.store.store import Store

ANSWER_MAX: Final = 8 * 1024 * 1024
"""Bytes of messages that a query returns at most, unless the first one alone has more."""


class Queries:
    """Serves queries."""

    def __init__(self, settings: BrokerSettings, store: Store, outbox: Outbox) -> None:
        self._settings = settings
        self._store = store
        self._outbox = outbox

    def view(self, asked: Asked) -> None:
        """VIEW_MESSAGE_BY_ID: the record at an offset of the log."""
        header = headers.ViewMessage.decode(asked.command.ext)
        record = self._store.reader.record_at(header.offset)
        if record is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}")
        self._outbox.put(ReplyParts(asked.peer, asked.command.answer(), [record], len(record)))

    def query(self, asked: Asked) -> None:
        """QUERY_MESSAGE: messages with a key."""
        header = headers.QueryMessage.decode(asked.command.ext)
        count = self._settings.unique_query_count if header.unique_key else header.max_num
        count = min(count, self._settings.query_count_max)
        found = self._store.reader.query(header.topic, header.key, count, header.begin_timestamp, header.end_timestamp)
        if not found.records:
            raise Refused(ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct")
        records, size = found.records[:1], len(found.records[0])
        for record in found.records[1:]:
            if size + len(record) > ANSWER_MAX:
                break
            records.append(record)
            size += len(record)
        ext = headers.QueryMessageAnswer(
            index_last_update_timestamp=found.index_ms, index_last_update_phyoffset=found.index_physical
        ).encode()
        self._outbox.put(ReplyParts(asked.peer, asked.command.answer(ext=ext), records, size))

    def search_offset(self, asked: Asked) -> Command:
        """SEARCH_OFFSET_BY_TIMESTAMP."""
        header = headers.SearchOffset.decode(asked.command.ext)
        boundary = Boundary.UPPER if (header.boundary_type or "").lower() == "upper" else Boundary.LOWER
        offset = self._store.reader.offset_by_time(header.topic, header.queue_id, header.timestamp, boundary)
        return asked.command.answer(ext={"offset": str(offset)})

    def max_offset(self, asked: Asked) -> Command:
        """GET_MAX_OFFSET."""
        header = headers.GetMaxOffset.decode(asked.command.ext)
        _, end = self._store.reader.offsets(header.topic, header.queue_id)
        return asked.command.answer(ext={"offset": str(end)})

    def min_offset(self, asked: Asked) -> Command:
        """GET_MIN_OFFSET."""
        header = headers.GetMinOffset.decode(asked.command.ext)
        start, _ = self._store.reader.offsets(header.topic, header.queue_id)
        return asked.command.answer(ext={"offset": str(start)})

    def earliest_time(self, asked: Asked) -> Command:
        """GET_EARLIEST_MSG_STORETIME."""
        header = headers.GetEarliestMsgStoretime.decode(asked.command.ext)
        time_ms = self._store.reader.earliest_ms(header.topic, header.queue_id)
        return asked.command.answer(ext={"timestamp": str(time_ms)})
