"""Errors of access control."""

from kourou.protocol.codes import ResponseCode


class AccessError(Exception):
    """A request is refused, or a change of users and policies is not valid.

    The texts of refusals are those of Apache's broker, which its clients and tools display.
    """

    def __init__(self, text: str, code: int = ResponseCode.NO_PERMISSION) -> None:
        super().__init__(text)
        self.code = code


class AccessFileError(Exception):
    """A file with users or rules can't be used. The text names the file, the cause and the remedy."""
