"""Code that the handlers of all requests share."""

import logging
from collections.abc import Callable
from typing import TypeAlias

from kourou.access.errors import AccessError
from kourou.nameserver.events import Asked
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import ProtocolError
from kourou.turns import Slices

log = logging.getLogger(__name__)

BODY_SIZE_MAX = 64 * 1024
"""The largest body in bytes, except of a registration."""

DIALECT_SIZE_MAX = 8 * 1024
"""The same for fastjson's dialect."""

REMARK_MAX = 2_000
"""The longest refusal in characters: it may repeat the peer's input."""

Handler: TypeAlias = Callable[[Asked], Command | Slices[Command] | None]
"""Answers a request: at once, in slices, or later (None). Raises Refused, ProtocolError."""

Change: TypeAlias = Callable[[Asked], Slices[Command]]
"""Changes the tables in slices. Raises Refused, ProtocolError."""


class Refused(Exception):
    """A request that is answered with an error code."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


def refusal(asked: Asked, error: Exception) -> Command:
    """The answer to a request that was refused, or that failed because of a bug, which is logged."""
    if isinstance(error, Refused):
        return asked.command.answer(error.code, str(error)[:REMARK_MAX])
    if isinstance(error, AccessError):
        return asked.command.answer(error.code, str(error)[:REMARK_MAX])
    if isinstance(error, ProtocolError):
        return asked.command.answer(ResponseCode.SYSTEM_ERROR, str(error)[:REMARK_MAX])
    log_fault(error)
    return asked.command.answer(ResponseCode.SYSTEM_ERROR, "internal error: see the log of the name server")


def log_fault(error: Exception) -> None:
    log.error("internal error", exc_info=error)


def small_body(asked: Asked) -> bytes:
    """The body of a request that should be small."""
    if len(asked.command.body) > BODY_SIZE_MAX:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"the body has {len(asked.command.body)} bytes; the limit is {BODY_SIZE_MAX}"
        )
    return asked.command.body
