"""Which failed sends may succeed at another attempt."""

from typing import Final

from kourou.client.errors import NoBrokerError
from kourou.client.results import STORED_CODES
from kourou.net.errors import TransportError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.errors import KourouError

RETRIED_CODES: Final = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Refusals after which another broker, or the same one a little later, may accept the message."""


def may_help_to_retry(error: KourouError) -> bool:
    """Whether another broker, or the same one a little later, may accept the message."""
    if isinstance(error, TransportError | NoBrokerError):
        return True
    return _is_unsafe(error) or getattr(error, "response_code", None) in RETRIED_CODES


def _is_unsafe(error: KourouError) -> bool:
    return getattr(error, "response_code", None) in STORED_CODES


def last_of(failed: "list[tuple[str, KourouError]]") -> KourouError:
    """The last error, with a note about the earlier attempts."""
    error = failed[-1][1]
    if len(failed) > 1:
        error.add_note("attempts: " + "; ".join(f"{broker}: {cause}" for broker, cause in failed))
    return error
