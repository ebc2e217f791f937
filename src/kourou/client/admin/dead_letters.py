"""Dead letters: where they came from, and how they are sent again. One form for the console and for Spark.

A dead letter keeps the topic that it was sent to in RETRY_TOPIC. It is sent there again (`origin`), or to %RETRY% of
its group, where no other group sees it (`retry`), or to another topic; with its unique key, and marked: REDRIVE_ID
names the run, REDRIVE_FROM is where the dead letter is.
"""

from collections.abc import Mapping
from typing import Final

from kourou.client.delivery import Delivery
from kourou.client.errors import InvalidMessageError
from kourou.client.outgoing import Draft
from kourou.client.producer import Producer
from kourou.client.results import SendResult
from kourou.protocol import properties as _properties
from kourou.protocol.codes import SysFlag
from kourou.protocol.errors import LocalProtocolError
from kourou.protocol.properties import RESERVED, Property
from kourou.protocol.system_names import DEAD_LETTER_PREFIX, RETRY_PREFIX

MARK: Final = "REDRIVE"
MARK_ID: Final = f"{MARK}_ID"
MARK_FROM: Final = f"{MARK}_FROM"
ORIGIN: Final = "origin"
TO_RETRY: Final = "retry"

_COMPRESSION: Final = int(SysFlag.COMPRESSED) | 0x700
"""The bits of a record's flags that say how its body is compressed."""

_KEPT: Final = (Property.TAGS, Property.KEYS, Property.UNIQUE_KEY, Property.SHARDING_KEY)


def origin_topic(properties: Mapping[str, str]) -> str | None:
    """The topic that a dead letter was sent to; None if it does not say."""
    told = properties.get(Property.RETRY_TOPIC)
    if told is None:
        told = properties.get(Property.DLQ_ORIGIN_TOPIC)
        if told is not None and told.startswith(RETRY_PREFIX):
            return None
    return told


def place_of(letter: Delivery) -> str:
    """`topic/broker/queue/offset`, as in REDRIVE_FROM."""
    return f"{letter.record.topic}/{letter.queue.broker_name}/{letter.queue_id}/{letter.queue_offset}"


def target_topic(letter: Delivery, target: str) -> str | None:
    """Where a dead letter goes: `target` is origin, retry, or a topic. None if its origin is not known."""
    if target == ORIGIN:
        return origin_topic(letter.properties)
    if target == TO_RETRY:
        group = letter.record.topic.removeprefix(DEAD_LETTER_PREFIX)
        return None if origin_topic(letter.properties) is None else RETRY_PREFIX + group
    return target


def redriven(letter: Delivery, target: str, run_id: str) -> Draft:
    """The message to be sent. Raises InvalidMessageError if it can't be."""
    topic = target_topic(letter, target)
    if topic is None:
        raise InvalidMessageError("the dead letter does not say to which topic it was sent")
    named = {name: value for name, value in letter.properties.items() if name not in RESERVED or name in _KEPT}
    named[Property.WAIT_STORED] = "true"
    named[MARK_ID] = run_id
    named[MARK_FROM] = place_of(letter)
    origin = origin_topic(letter.properties)
    if target == TO_RETRY and origin is not None:
        named[Property.RETRY_TOPIC] = origin
    try:
        text = _properties.encode(named)
    except LocalProtocolError as error:
        raise InvalidMessageError(f"its properties can't be sent again: {error}") from None
    key = letter.message_id
    body = bytes(letter.record.body)
    return Draft(
        topic, body, letter.sys_flag & _COMPRESSION, letter.flag, text, key, len(body), key, tag=letter.tag or ""
    )


async def redrive(producer: Producer, letter: Delivery, target: str, run_id: str) -> SendResult:
    """Sends one dead letter again. Raises InvalidMessageError, RefusedError, TransportError, NoRouteError."""
    return await producer.send_draft(redriven(letter, target, run_id), None)


__all__ = ["MARK", "MARK_FROM", "MARK_ID", "ORIGIN", "TO_RETRY", "origin_topic", "redrive", "redriven", "target_topic"]
