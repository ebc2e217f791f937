"""Decides how a check treats an open half message.

    asked often enough ─▶ discard
    stored after the round began, or too young ─▶ wait
    immune, for the time that its producer has set ─▶ copy, but do not ask
    otherwise ─▶ copy, and ask a producer of its group

The age of a half message is counted from its birth, by the clock of its producer. If it is ahead, the store time
counts. The age is relative to the store time of a new message, which never goes back: so a half message does
not become younger when the clock is set back.

Java: TransactionalMessageServiceImpl.check, needDiscard, needSkip.
"""

from enum import Enum, auto

from kourou.broker.settings import BrokerSettings
from kourou.broker.transactions.half_records import Half


class Verdict(Enum):
    """How a check treats a half message."""

    WAIT = auto()
    COPY = auto()
    ASK = auto()
    DISCARD = auto()


def judge(half: Half, stamp_ms: int, round_ms: int, settings: BrokerSettings, kept_ms: int) -> Verdict:
    """`stamp_ms` is the store time of a message that arrives now, `round_ms` the store time when the round began.
    `kept_ms` is how long messages are kept (fileReservedTime).

    A half message that is older than that is discarded while its record still exists, but only if its producer has been
    asked at least once.
    """
    record = half.record
    age_ms = stamp_ms - min(record.born_ms, record.stored_ms)
    times = half.check_times
    if times >= settings.transaction_check_max or (times > 0 and age_ms > kept_ms):
        return Verdict.DISCARD
    if record.stored_ms >= round_ms:
        return Verdict.WAIT
    immunity_ms = half.immunity_ms(settings.transaction_timeout_ms)
    if immunity_ms is None:
        return Verdict.WAIT if age_ms <= settings.transaction_timeout_ms else Verdict.ASK
    return Verdict.COPY if age_ms <= immunity_ms else Verdict.ASK
