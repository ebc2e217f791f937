"""Refusals of the console: a code for translation, a text, and what to do."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kourou.client.errors import ClientError, InvalidNameError, NoNameServerError, NoRouteError
from kourou.client.pacing import TooBusyError
from kourou.net.errors import TransportError
from kourou.printable import printable
from kourou.protocol.errors import (
    ConsumerNotOnlineError,
    KourouError,
    NoPermissionError,
    ProtocolError,
    RefusedError,
    RequestCodeNotSupportedError,
    TopicNotExistError,
)

STATUS: Final = {
    "bad_request": 400,
    "bad_filter": 400,
    "not_signed_in": 401,
    "login_failed": 401,
    "forbidden": 403,
    "read_only": 403,
    "foreign_origin": 403,
    "missing_header": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "confirm_needed": 409,
    "conflict": 409,
    "refused": 409,
    "too_large": 413,
    "wrong_type": 415,
    "wrong_host": 421,
    "too_many_attempts": 429,
    "internal": 500,
    "unreachable": 502,
    "busy": 503,
}


class ConsoleError(Exception):
    """A refusal with its code, which is a key of STATUS."""

    def __init__(self, code: str, text: str, remedy: str = "", args: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.remedy = remedy
        self.facts = dict(args or {})

    @property
    def status(self) -> int:
        return STATUS[self.code]

    def to_json(self) -> bytes:
        return msgspec.json.encode(
            {"code": self.code, "text": printable(self.text), "remedy": self.remedy, "args": self.facts}
        )


def of_failure(error: Exception) -> ConsoleError | None:
    """The refusal for an error of the client or of a broker; None for any other exception."""
    if isinstance(error, ConsoleError):
        return error
    text = str(error)
    match error:
        case NoRouteError() | TopicNotExistError():
            return ConsoleError("not_found", text, "check the name; a new topic is known after its first message")
        case TooBusyError():
            return ConsoleError("busy", text, "try again in a few seconds")
        case NoNameServerError() | TransportError():
            return ConsoleError("unreachable", text, "check that the servers run and that this machine reaches them")
        case InvalidNameError():
            return ConsoleError("bad_request", text)
        case RefusedError():
            return ConsoleError(
                "refused", text, _remedy(error), {"broker_code": None if error.code is None else int(error.code)}
            )
        case ProtocolError() | ClientError():
            return ConsoleError("bad_request", text)
        case KourouError():
            return ConsoleError("refused", text)
    return None


def _remedy(error: RefusedError) -> str:
    match error:
        case NoPermissionError():
            return "if permissions are missing, grant them to the RocketMQ user whose key signs the requests"
        case RequestCodeNotSupportedError():
            return "this broker does not support this function"
        case ConsumerNotOnlineError():
            return "start a member of the group"
    return ""
