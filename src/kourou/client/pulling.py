"""One pull: a request for the messages of a queue from an offset on, and the decoding of its answer.

A pull returns records as they are stored; delivery.py decodes them at their first use.

An answer is checked against the request: no more messages than requested, none before the offset, in order, and the
next offset is after them. A next offset that goes backwards would repeat messages for ever, so such an answer is
refused.
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
from kourou.protocol.compression import DECOMPRESSED_LIMIT_BYTES, decompress
from kourou.protocol.errors import BodyError, HeaderError, refused
from kourou.protocol.message import MessageQueue, QueueOffset
from kourou.protocol.record import StoredMessage, decode_records
from kourou.protocol.route_queues import is_logical

_COMMIT: Final = int(PullSysFlag.COMMIT_OFFSET)
_SUSPEND: Final = int(PullSysFlag.SUSPEND)
_SUBSCRIPTION: Final = int(PullSysFlag.SUBSCRIPTION)
_LITE: Final = int(PullSysFlag.LITE_PULL)
_BULK: Final = int(PullSysFlag.BULK)
_BATCH_IN_RECORD: Final = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)

ANSWER_SLACK_S: Final = 15.0
"""How long the client waits for an answer beyond the time that the broker may hold the pull."""


RECORDS_MAX: Final = 4096
"""Records of one answer that are decoded at most, unless the caller asked for fewer."""

BATCH_MESSAGES_MAX: Final = 16_384
"""Messages that one record may contain as a batch."""

OFFSET_MAX: Final = 2**63 - 1


class PullStatus(Enum):
    """The outcome of a pull."""

    FOUND = ResponseCode.SUCCESS
    NOTHING_NEW = ResponseCode.PULL_NOT_FOUND
    NOTHING_WANTED = ResponseCode.PULL_RETRY_IMMEDIATELY
    """There are messages, but none that the subscription wants."""
    OFFSET_MOVED = ResponseCode.PULL_OFFSET_MOVED
    """The offset is outside the queue."""


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
    """The parameters of a consumer's pulls, other than queue and offset."""

    group: str
    subscription: SubscriptionData
    batch: int = 32
    batch_size: int = 256 * 1024
    suspend: float = 0.0
    with_subscription: bool = False
    """The request carries the subscription; otherwise the broker uses that of the group's heartbeats."""
    is_lite: bool = False
    is_bulk: bool = False
    """The answer is limited by bytes, not by the broker's number of messages. Apache's brokers ignore it."""


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

    `commit` is the group's offset, which the broker stores along with the pull.
    """
    address, found_id = session.routes.member_of(queue, broker_id)
    flag = (_SUSPEND if how.suspend else 0) | (_LITE if how.is_lite else 0) | (_BULK if how.is_bulk else 0)
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
    number = queue.queue_id if is_logical(queue) else None
    return read_answer(answer, offset, count=how.batch, max_body=session.settings.max_body, number=number)


def read_answer(
    answer: Command,
    offset: int = 0,
    *,
    count: int = RECORDS_MAX,
    max_body: int = DECOMPRESSED_LIMIT_BYTES,
    number: int | None = None,
) -> Pulled:
    """Decodes the answer to a pull from `offset`. Raises RefusedError, HeaderError, BodyError.

    `number` is the queue's number in a static topic: records have the number and offset in the queue of the broker.
    """
    status = _STATUS.get(answer.code)
    if status is None:
        raise refused(answer.code, answer.remark)
    ext = answer.ext or {}
    following, lowest, highest = (_offset_in(ext, name) for name in ("nextBeginOffset", "minOffset", "maxOffset"))
    try:
        suggested = int(ext["suggestWhichBrokerId"])
    except (KeyError, ValueError) as error:
        raise HeaderError(f"the broker's answer to a pull has no valid suggestWhichBrokerId: {error}") from None
    records: list[StoredMessage] = []
    if status is PullStatus.FOUND:
        delta = _offset_in(ext, "offsetDelta") if number is not None and "offsetDelta" in ext else 0
        records, is_all = _wanted(answer.body, offset - delta, count, max_body)
        if number is not None:
            records = [_renumbered(record, number, delta) for record in records]
        if records and (not is_all or following <= records[-1].queue_offset):
            following = records[-1].queue_offset + 1
        if following <= offset:
            raise _backwards(offset, following)
    elif status is PullStatus.OFFSET_MOVED:
        if not lowest <= following <= highest:
            raise HeaderError(
                f"the broker moves the offset to {following}, outside its queue, which goes from {lowest} to {highest}"
            )
    elif following < offset:
        raise _backwards(offset, following)
    return Pulled(status, following, lowest, highest, suggested, records, len(answer.body))


def _offset_in(ext: dict[str, str], name: str) -> int:
    try:
        offset = int(ext[name])
    except (KeyError, ValueError) as error:
        raise HeaderError(f"the broker's answer to a pull has no valid {name}: {error}") from None
    if not (-1 if name != "offsetDelta" else -OFFSET_MAX) <= offset <= OFFSET_MAX:
        raise HeaderError(f"the broker's answer to a pull has an invalid {name}: {offset}")
    return offset


def _backwards(offset: int, following: int) -> HeaderError:
    return HeaderError(
        f"the broker answers a pull from offset {offset} with the next offset {following}: "
        "it would repeat messages for ever, so the answer is dropped"
    )


def _wanted(body: bytes, offset: int, count: int, max_body: int) -> tuple[list[StoredMessage], bool]:
    """The records from this offset on, at most `count`, and whether these are all. Raises BodyError."""
    found = records_of(body, count=count + 1, max_body=max_body)
    is_all = len(found) <= count
    kept: list[StoredMessage] = []
    following = offset
    for record in found if is_all else found[:count]:
        if record.queue_offset >= following:
            kept.append(record)
            following = record.queue_offset + 1
        elif kept:
            raise BodyError(f"messages are not in order: offset {record.queue_offset} comes after {following - 1}")
    return kept, is_all


def _renumbered(record: StoredMessage, number: int, delta: int) -> StoredMessage:
    return msgspec.structs.replace(record, queue_id=number, queue_offset=QueueOffset(record.queue_offset + delta))


def records_of(
    body: bytes, *, count: int = RECORDS_MAX, max_body: int = DECOMPRESSED_LIMIT_BYTES
) -> list[StoredMessage]:
    """The first `count` records in a body; a record with a batch is split into its messages. Raises BodyError."""
    records = decode_records(body, count=count)
    if any(record.sys_flag & _BATCH_IN_RECORD == _BATCH_IN_RECORD for record in records):
        return [message for record in records for message in _unwrapped(record, max_body)]
    return records


def _unwrapped(record: StoredMessage, max_body: int) -> list[StoredMessage]:
    if record.sys_flag & _BATCH_IN_RECORD != _BATCH_IN_RECORD:
        return [record]
    body = decompress(record.body, record.sys_flag, max_body)
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
        for index, entry in enumerate(decode_batch(body, max(max_body, len(record.body)), BATCH_MESSAGES_MAX))
    ]
