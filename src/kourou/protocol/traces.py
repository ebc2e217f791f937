"""Trace records: the history of a message at its producer and consumers, as clients send it to a trace topic.

    body    record 0x02 record 0x02 …
    record  field 0x01 field 0x01 …       the first field is the kind; a null in Java is the text `null`

    Pub             time region group topic id tags keys store-host body-size cost type offset-id success
    SubBefore       time region group request-id id retry-times keys
    SubAfter        request-id id cost success keys context-code time group
    EndTransaction  time region group topic id tags keys store-host type transaction-id state from-check
    Recall          time region group topic id success

Older clients omit fields: the offset id of Pub, the time and the group of SubAfter; some add their host to Pub.

Java: TraceDataEncoder, TraceView.
"""

from typing import Final

import msgspec

RECORD_END: Final = "\x02"
FIELD_END: Final = "\x01"

PUB: Final = "Pub"
SUB_BEFORE: Final = "SubBefore"
SUB_AFTER: Final = "SubAfter"
END_TRANSACTION: Final = "EndTransaction"
RECALL: Final = "Recall"

_DIGITS_MAX: Final = 19


class Trace(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One record. Fields that its kind does not have, or that an older client did not write, are None."""

    kind: str
    message_id: str
    group: str | None = None
    topic: str | None = None
    time_ms: int | None = None
    cost_ms: int | None = None
    is_success: bool | None = None
    keys: str | None = None
    request_id: str | None = None
    """Equal in the SubBefore and SubAfter of one consumption."""
    transaction_state: str | None = None


def encode_trace(*fields: object) -> str:
    """Encode a record. Separators inside fields are removed."""
    texts = (str(field).replace(FIELD_END, "").replace(RECORD_END, "") for field in fields)
    return FIELD_END.join(texts) + RECORD_END


def decode_traces(body: bytes | memoryview) -> list[Trace]:
    """The records of a trace message. Other kinds and invalid records are ignored."""
    found = []
    for text in str(body, "utf-8", "replace").split(RECORD_END):
        fields = text.split(FIELD_END)
        read = _READERS.get(fields[0])
        if read is not None:
            try:
                found.append(read(fields))
            except (IndexError, ValueError):
                continue
    return found


def _pub(fields: list[str]) -> Trace:
    return Trace(
        kind=PUB,
        message_id=fields[5],
        group=_text(fields[3]),
        topic=_text(fields[4]),
        time_ms=_number(fields[1]),
        cost_ms=_number(fields[10]),
        is_success=_truth(fields[13] if len(fields) > 13 else fields[12]),
        keys=_text(fields[7]),
    )


def _before(fields: list[str]) -> Trace:
    return Trace(
        kind=SUB_BEFORE,
        message_id=fields[5],
        group=_text(fields[3]),
        time_ms=_number(fields[1]),
        keys=_text(fields[7]),
        request_id=fields[4],
    )


def _after(fields: list[str]) -> Trace:
    has_time = len(fields) > 8
    return Trace(
        kind=SUB_AFTER,
        message_id=fields[2],
        group=_text(fields[8]) if has_time else None,
        time_ms=_number(fields[7]) if has_time else None,
        cost_ms=_number(fields[3]),
        is_success=_truth(fields[4]),
        keys=_text(fields[5]),
        request_id=fields[1],
    )


def _end_transaction(fields: list[str]) -> Trace:
    return Trace(
        kind=END_TRANSACTION,
        message_id=fields[5],
        group=_text(fields[3]),
        topic=_text(fields[4]),
        time_ms=_number(fields[1]),
        keys=_text(fields[7]),
        transaction_state=fields[11],
    )


def _recall(fields: list[str]) -> Trace:
    return Trace(
        kind=RECALL,
        message_id=fields[5],
        group=_text(fields[3]),
        topic=_text(fields[4]),
        time_ms=_number(fields[1]),
        is_success=_truth(fields[6]),
    )


_READERS: Final = {
    PUB: _pub,
    SUB_BEFORE: _before,
    SUB_AFTER: _after,
    END_TRANSACTION: _end_transaction,
    RECALL: _recall,
}


def _text(field: str) -> str | None:
    return None if field in ("", "null") else field


def _truth(field: str) -> bool:
    return field.lower() == "true"


def _number(field: str) -> int:
    digits = field.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _DIGITS_MAX:
        raise ValueError(f"{field[:40]!r} is not a number")
    return int(field)
