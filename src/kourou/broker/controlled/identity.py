"""The id that the controller assigned to a broker. It is permanent, since in-sync sets and epochs refer to it.

    brokerIdentity         cluster#name#id
    brokerIdentity-temp    cluster#name#id#check code       before the controller has confirmed the id

The check code proves that this broker has applied for the id, in case the controller's answer was lost.

Java: BrokerMetadata, TempBrokerMetadata.
"""

from typing import Final, NamedTuple

FILE: Final = "brokerIdentity"
TEMPORARY_FILE: Final = "brokerIdentity-temp"

_SEPARATOR: Final = "#"


class Identity(NamedTuple):
    """The identity of a broker for its controller."""

    cluster: str
    name: str
    broker_id: int  # at least 1
    check_code: str | None = None  # only before the controller has confirmed the id

    def encode(self) -> bytes:
        """The content of its file."""
        words = [self.cluster, self.name, str(self.broker_id)]
        return _SEPARATOR.join(words if self.check_code is None else [*words, self.check_code]).encode()

    @classmethod
    def decode(cls, content: bytes) -> "Identity":
        """Raises ValueError."""
        words = content.decode().strip().split(_SEPARATOR)
        if len(words) not in (3, 4) or not words[2].isdecimal() or int(words[2]) < 1:
            raise ValueError(f"expected cluster#name#id, not {content[:100]!r}")
        return cls(words[0], words[1], int(words[2]), words[3] if len(words) == 4 else None)
