"""What a check does with an open half message.

    asked often enough ─▶ discard
    stored after the round began, or too young ─▶ wait
    immune: its producer said for how long ─▶ copy, and ask nobody
    else ─▶ copy, and ask a producer of its group

The age of a half message is counted from its birth, by the clock of its producer. If that clock is ahead of ours, the
store time counts. The age is that of a message stored now: store times never go back, so a half message does not become
younger when the time of day is set back.

Java: TransactionalMessageServiceImpl.check, needDiscard, needSkip.
"""

from enum import Enum, auto

from kourou.broker.settings import BrokerSettings
from kourou.broker.transactions.half_records import Half


class Verdict(Enum):
    """What a check does with a half message."""

    WAIT = auto()
    COPY = auto()
    ASK = auto()
    DISCARD = auto()


def judge(half: Half, stamp_ms: int, round_ms: int, settings: BrokerSettings, kept_ms: int) -> Verdict:
    """`stamp_ms` is the store time of a message that arrives now, `round_ms` that of one when the round began.
    `kept_ms` is how long messages are kept (fileReservedTime).

    One that is older than messages are kept is discarded while its record is there; but never one that nobody was
    asked about.
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
