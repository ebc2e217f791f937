"""Placement: in which topic and queue a message is stored first.

    message ─▶ half message? ─▶ delay level? ─▶ timer? ─▶ none of these: the topic and queue that it was sent to

Most messages are stored where they were sent to. Others wait elsewhere until something happens: a message with a delay
level waits in the schedule topic, in the queue of its level, and its properties name its real topic and queue.

Each kind of message that is stored elsewhere is one function in an ordered list. The functions are asked in order,
until one of them decides. A function may refuse the message (raise Refused), change its place and properties and
return True, or return False to let the next one decide. `Broker` has the list; a new kind is added there.

Java: SendMessageProcessor.sendMessage (half messages), HookUtils.handleScheduleMessage (delays and timers).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from kourou.broker.events import Refused
from kourou.broker.names import SCHEDULE_TOPIC
from kourou.protocol.codes import TRANSACTION_MASK, ResponseCode, SysFlag
from kourou.protocol.errors import BodyError
from kourou.protocol.properties import Property, number
from kourou.store.commit_log import NewMessage

_TRANSACTION = int(TRANSACTION_MASK)
_UNDECIDED = frozenset((int(SysFlag.TRANSACTION_PREPARED), int(SysFlag.TRANSACTION_ROLLBACK)))

TIMER_PROPERTIES = (Property.TIMER_DELIVER_MS, Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS)


class Candidate(msgspec.Struct, gc=False):
    """A message that is about to be stored. Its properties are encoded after its place is decided."""

    message: NewMessage
    properties: dict[str, str]
    now_ms: int
    is_sent: bool  # a client sent it; False: the broker stores it again, as a retry or a dead letter


Kind: TypeAlias = Callable[[Candidate], bool]
"""Decides the place of one kind of message. True: decided. Raises Refused."""


class Placement:
    """The kinds of messages, in the order in which they are asked."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = tuple(kinds)

    def place(self, candidate: Candidate) -> None:
        """Decide where a message is stored. Raises Refused."""
        for kind in self._kinds:
            if kind(candidate):
                return


class DelayLevels:
    """Messages with a delay level are stored in the schedule topic."""

    def __init__(self, delay_ms: dict[int, int]) -> None:
        self.delay_ms = delay_ms  # by level
        self._level_max = max(delay_ms, default=0)

    def place(self, candidate: Candidate) -> bool:
        if not may_wait(candidate.message):
            return False
        message, properties = candidate.message, candidate.properties
        level = min(delay_level(properties), self._level_max)
        if level <= 0:
            return False
        for name in TIMER_PROPERTIES:
            properties.pop(name, None)
        properties[Property.DELAY_LEVEL] = str(level)
        properties[Property.REAL_TOPIC] = message.topic
        properties[Property.REAL_QUEUE_ID] = str(message.queue_id)
        message.topic, message.queue_id = SCHEDULE_TOPIC, level - 1
        return True


def delay_level(properties: Mapping[str, str]) -> int:
    """The delay level of a message; 0 or less: none. Raises Refused."""
    try:
        return number(properties, Property.DELAY_LEVEL) or 0
    except BodyError:
        text = properties[Property.DELAY_LEVEL]
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the delay level is {text[:40]!r}, a number is expected") from None


def is_half(candidate: Candidate) -> bool:
    """Is it the first half of a transaction? A retry of a committed message still has the property, and is not."""
    properties = candidate.properties
    if properties.get(Property.TRANSACTION_PREPARED, "").lower() != "true":
        return False
    return not (candidate.message.reconsume_times > 0 and properties.get(Property.DELAY_LEVEL, "0") != "0")


def may_wait(message: NewMessage) -> bool:
    """Half messages and rollbacks are not delayed, nor are messages that are in the schedule topic already."""
    return message.sys_flag & _TRANSACTION not in _UNDECIDED and message.topic != SCHEDULE_TOPIC
