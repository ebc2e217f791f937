"""Queries: messages by id and key, offsets by time.

Java: QueryMessageProcessor, the offset requests of AdminBrokerProcessor.
"""

from typing import Final

from kourou.broker.access import Access
from kourou.broker.events import Outbox, Refused, ReplyParts, Request
from kourou.broker.settings import BrokerSettings
from kourou.protocol import headers
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers.table import GET
from kourou.store.consume_queue import Boundary
from kourou.store.index import TAGS_KEY
from kourou.store.store import Store

ANSWER_MAX: Final = 8 * 1024 * 1024
"""Bytes of messages that a query returns at most, unless the first one alone has more."""


_TAGS: Final = "T"
"""The kind of key of a query by tags."""


class Queries:
    """Serves queries."""

    def __init__(self, settings: BrokerSettings, store: Store, outbox: Outbox, access: Access) -> None:
        self._access = access
        self._settings = settings
        self._store = store
        self._outbox = outbox

    def view(self, asked: Request[headers.ViewMessage]) -> None:
        """VIEW_MESSAGE_BY_ID: the record at an offset of the log."""
        header = asked.header
        record = self._store.reader.record_at(header.offset)
        if record is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}")
        if self._access.rules is not None:
            message = self._store.reader.message_at(header.offset)
            self._access.check_topic(asked, "" if message is None else message.topic, GET)
        self._outbox.put(ReplyParts(asked.peer, asked.command.answer(), [record], len(record)))

    def query(self, asked: Request[headers.QueryMessage]) -> None:
        """QUERY_MESSAGE: messages with a key, or with these tags."""
        header = asked.header
        count = self._settings.unique_query_count if header.unique_key else header.max_num
        count = min(count, self._settings.query_count_max)
        key = TAGS_KEY + header.key if header.index_type == _TAGS and not header.unique_key else header.key
        found = self._store.reader.query(header.topic, key, count, header.begin_timestamp, header.end_timestamp)
        ext = headers.QueryMessageAnswer(
            index_last_update_timestamp=found.index_ms, index_last_update_phyoffset=found.index_physical
        ).encode()
        if not found.records:
            remark = "can not find message, maybe time range not correct"
            raise Refused(ResponseCode.QUERY_NOT_FOUND, remark, ext)
        records, size = found.records[:1], len(found.records[0])
        for record in found.records[1:]:
            if size + len(record) > ANSWER_MAX:
                break
            records.append(record)
            size += len(record)
        self._outbox.put(ReplyParts(asked.peer, asked.command.answer(ext=ext), records, size))

    def search_offset(self, asked: Request[headers.SearchOffset]) -> Command:
        """SEARCH_OFFSET_BY_TIMESTAMP."""
        header = asked.header
        boundary = Boundary.UPPER if (header.boundary_type or "").lower() == "upper" else Boundary.LOWER
        offset = self._store.reader.offset_by_time(header.topic, header.queue_id, header.timestamp, boundary)
        return asked.command.answer(ext={"offset": str(offset)})

    def max_offset(self, asked: Request[headers.GetMaxOffset]) -> Command:
        """GET_MAX_OFFSET."""
        header = asked.header
        _, end = self._store.reader.offsets(header.topic, header.queue_id)
        return asked.command.answer(ext={"offset": str(end)})

    def min_offset(self, asked: Request[headers.GetMinOffset]) -> Command:
        """GET_MIN_OFFSET."""
        header = asked.header
        start, _ = self._store.reader.offsets(header.topic, header.queue_id)
        return asked.command.answer(ext={"offset": str(start)})

    def earliest_time(self, asked: Request[headers.GetEarliestMsgStoretime]) -> Command:
        """GET_EARLIEST_MSG_STORETIME."""
        header = asked.header
        time_ms = self._store.reader.earliest_ms(header.topic, header.queue_id)
        return asked.command.answer(ext={"timestamp": str(time_ms)})
