"""Placement of timed messages: in the timer topic, or in their own topic if their time has passed.

Java: HookUtils.handleScheduleMessage.
"""

import random
from typing import Final

from kourou.broker.events import Refused
from kourou.broker.names import TIMER_TOPIC
from kourou.broker.placement import Candidate, may_wait
from kourou.broker.settings import BrokerSettings
from kourou.broker.timers.timing import slot_of
from kourou.protocol.codes import ResponseCode
from kourou.protocol.errors import BodyError
from kourou.protocol.properties import Property, number
from kourou.store.store import Store

_FACTORS: Final = (
    (Property.TIMER_DELAY_SEC, 1000),
    (Property.TIMER_DELAY_MS, 1),
    (Property.TIMER_DELIVER_MS, 0),
)
"""The properties in order of precedence, and the milliseconds of their unit; 0: the value is a time."""


class TimedMessages:
    """Stores messages with a delivery time in the timer topic."""

    def __init__(self, settings: BrokerSettings, store: Store, chance: random.Random) -> None:
        self._settings = settings
        self._store = store
        self._chance = chance

    def place(self, candidate: Candidate) -> bool:
        message, properties = candidate.message, candidate.properties
        asked = next(((name, factor) for name, factor in _FACTORS if name in properties), None)
        if (
            asked is None
            or not may_wait(message)
            or message.topic == TIMER_TOPIC
            or Property.TIMER_OUT_MS in properties
        ):
            return False
        if not self._settings.timers:
            raise Refused(ResponseCode.SYSTEM_ERROR, "accurate timer message is not enabled: timerWheelEnable is false")
        store = self._store
        now_ms = max(store.clock.stamp(candidate.now_ms), store.log.stored_ms)  # the store time of the message
        name, factor = asked
        try:
            given = number(properties, name) or 0
        except BodyError:
            raise self._illegal(f"{name} is {properties[name][:40]!r}, a number is expected") from None
        deliver_ms = now_ms + given * factor if factor else given
        if deliver_ms <= now_ms:
            if Property.TIMER_DEL_UNIQUE_KEY in properties:
                raise self._illegal("the time of a recall has passed")
            return True
        limit_s = self._settings.timer_max_delay_s
        if deliver_ms - now_ms > limit_s * 1000:
            raise self._illegal(f"the delay is {(deliver_ms - now_ms) // 1000} s, the limit is {limit_s} s")
        slot_ms = slot_of(deliver_ms, store.timers.precision_ms)
        self._check_slot(slot_ms)
        properties[Property.TIMER_OUT_MS] = str(slot_ms)
        properties[Property.REAL_TOPIC] = message.topic
        properties[Property.REAL_QUEUE_ID] = str(message.queue_id)
        message.topic, message.queue_id = TIMER_TOPIC, 0
        return True

    def _illegal(self, reason: str) -> Refused:
        return Refused(ResponseCode.MESSAGE_ILLEGAL, f"timer message illegal: {reason} (timerMaxDelaySec)")

    def _check_slot(self, slot_ms: int) -> None:
        """Flow control: beyond its limit a slot refuses some messages, and beyond twice the limit all."""
        limit = self._settings.timer_slot_max
        count = self._store.timers.wheel.slot(slot_ms).messages
        if count <= limit:
            return
        if count >= 2 * limit or self._chance.randrange(1000) > 1000 * (count - limit) / (limit + 0.1):
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"timer message is under flow control: {count} messages are due in that second, the limit is {limit} "
                "(timerCongestNumEachSlot). Choose another time, or send it later",
            )
