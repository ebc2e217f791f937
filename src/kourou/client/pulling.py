"""One pull: a request for the messages of a queue from an offset on, and what its answer means.

Whoever pulls gets records as they are stored; they become messages when somebody looks at them (delivery.py).
"""

from enum import Enum
from typing import Final

import msgspec

from kourou.client.filters import TAG
from kourou.client.session import Session
from kourou.protocol.batch import decode_batch
from kourou.protocol.bodies import SubscriptionData
from kourou.protocol.codes import MASTER_ID, PullSysFlag, RequestCode, ResponseCode, SysFlag
from kourou.protocol.command import Command
from kourou.protocol.compression import decompress
from kourou.protocol.errors import HeaderError, refused
from kourou.protocol.message import MessageQueue, QueueOffset
from kourou.protocol.record import StoredMessage, decode_records

_COMMIT: Final = int(PullSysFlag.COMMIT_OFFSET)
_SUSPEND: Final = int(PullSysFlag.SUSPEND)
_SUBSCRIPTION: Final = int(PullSysFlag.SUBSCRIPTION)
_LITE: Final = int(PullSysFlag.LITE_PULL)
_BATCH_IN_RECORD: Final = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)

ANSWER_SLACK_S: Final = 15.0
"""How much longer than the broker may hold a pull we wait for its answer."""


class PullStatus(Enum):
    """What a pull found."""

    FOUND = ResponseCode.SUCCESS
    NOTHING_NEW = ResponseCode.PULL_NOT_FOUND
    NOTHING_WANTED = ResponseCode.PULL_RETRY_IMMEDIATELY
    """Messages, but none that the subscription wants."""
    OFFSET_MOVED = ResponseCode.PULL_OFFSET_MOVED
    """The offset lies outside of the queue."""


_STATUS = {int(status.value): status for status in PullStatus}


class Pulled(msgspec.Struct, frozen=True):
    """An answer."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker: int
    records: list[StoredMessage]
    size: int
    """Bytes of the answer's body."""


class Pull(msgspec.Struct, frozen=True, kw_only=True):
    """How one consumer pulls, always the same but for queue and offset."""

    group: str
    subscription: SubscriptionData
    batch: int = 32
    batch_size: int = 256 * 1024
    suspend: float = 0.0
    with_subscription: bool = False
    """The broker takes the subscription from the request, rather than from the group's heartbeats."""
    is_lite: bool = False


async def pull(
    session: Session,
    how: Pull,
    queue: MessageQueue,
    offset: int,
    *,
    commit: int | None = None,
    broker_id: int = MASTER_ID,
) -> Pulled:
    """Messages of a queue. Raises RefusedError, TransportError, NoBrokerError, BodyError.

    `commit` is the group's offset, which the broker takes note of on the way.
    """
    address, found_id = session.routes.member(queue.broker_name, broker_id)
    flag = (_SUSPEND if how.suspend else 0) | (_LITE if how.is_lite else 0)
    if commit is not None and commit > 0 and found_id == MASTER_ID:
        flag |= _COMMIT
    wanted = how.subscription
    ext = {
        "consumerGroup": how.group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(how.batch),
        "commitOffset": str(commit or 0),
        "suspendTimeoutMillis": str(int(how.suspend * 1000)),
        "subVersion": str(wanted.sub_version),
        "expressionType": wanted.expression_type,
        "maxMsgBytes": str(how.batch_size),
        "bname": queue.broker_name,
    }
    if how.with_subscription or wanted.expression_type != TAG:
        flag |= _SUBSCRIPTION
        ext["subscription"] = wanted.sub_string or "*"
    ext["sysFlag"] = str(flag)
    code = RequestCode.LITE_PULL_MESSAGE if how.is_lite else RequestCode.PULL_MESSAGE
    timeout = how.suspend + ANSWER_SLACK_S if how.suspend else session.settings.request_timeout + 7.0
    answer = await session.pool.request(address, Command(code, ext=ext), timeout)
    return read_answer(answer)


def read_answer(answer: Command) -> Pulled:
    """What an answer says. Raises RefusedError, HeaderError, BodyError."""
    status = _STATUS.get(answer.code)
    if status is None:
        raise refused(answer.code, answer.remark)
    ext = answer.ext or {}
    try:
        return Pulled(
            status,
            int(ext["nextBeginOffset"]),
            int(ext["minOffset"]),
            int(ext["maxOffset"]),
            int(ext["suggestWhichBrokerId"]),
            records_of(answer.body) if status is PullStatus.FOUND else [],
            len(answer.body),
        )
    except (KeyError, ValueError) as error:
        raise HeaderError(f"answer to a pull without {error}") from None


def records_of(body: bytes) -> list[StoredMessage]:
    """The records in a body; one that holds a batch comes as its messages. Raises BodyError."""
    records = decode_records(body)
    if any(record.sys_flag & _BATCH_IN_RECORD == _BATCH_IN_RECORD for record in records):
        return [message for record in records for message in _unwrapped(record)]
    return records


def _unwrapped(record: StoredMessage) -> list[StoredMessage]:
    if record.sys_flag & _BATCH_IN_RECORD != _BATCH_IN_RECORD:
        return [record]
    body = decompress(record.body, record.sys_flag)
    flags = record.sys_flag & ~int(SysFlag.COMPRESSED)
    return [
        msgspec.structs.replace(
            record,
            body=bytes(entry.body),
            raw_properties=bytes(entry.raw_properties),
            flag=entry.flag,
            sys_flag=flags,
            queue_offset=QueueOffset(record.queue_offset + index),
        )
        for index, entry in enumerate(decode_batch(body))
    ]
