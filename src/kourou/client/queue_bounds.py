"""Offsets that brokers are asked for: the first and next of a queue, and the first at a time. Answers are validated."""

from kourou.client.session import Session
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.errors import HeaderError
from kourou.protocol.headers import GetMaxOffset, OffsetAnswer, SearchOffset
from kourou.protocol.message import MessageQueue


async def max_offset(session: Session, queue: MessageQueue) -> int:
    """The offset that the next message of the queue will have. Raises KourouError."""
    return await _offset(
        session, queue, RequestCode.GET_MAX_OFFSET, GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id).encode()
    )


async def min_offset(session: Session, queue: MessageQueue) -> int:
    """The offset of the first message that the queue still has. Raises KourouError."""
    ext = {"topic": queue.topic, "queueId": str(queue.queue_id)}
    return await _offset(session, queue, RequestCode.GET_MIN_OFFSET, ext)


async def search_offset(session: Session, queue: MessageQueue, time_ms: int) -> int:
    """The offset of the first message that was stored at this time or later. Raises KourouError."""
    header = SearchOffset(topic=queue.topic, queue_id=queue.queue_id, timestamp=time_ms)
    return await _offset(session, queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header.encode())


async def _offset(session: Session, queue: MessageQueue, code: RequestCode, ext: dict[str, str]) -> int:
    address, _ = session.routes.member_of(queue)
    command = Command(code, ext={**ext, "bname": queue.broker_name})
    answer = await session.pool.ask(address, command, session.settings.request_timeout)
    offset = OffsetAnswer.decode(answer.ext).offset
    if offset < 0 and code != RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
        raise HeaderError(
            f"broker {queue.broker_name} answers {code.name} for {queue} with the invalid offset {offset}"
        )
    return max(offset, 0)
