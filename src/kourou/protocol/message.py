"""A message as a producer creates it, and the queue that it is sent to.

A broker stores it as a `record.StoredMessage`; a consumer receives it as a `received.ReceivedMessage`.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NewType, Self

import msgspec

from kourou.protocol import properties as _properties
from kourou.protocol.codes import TRANSACTION_MASK
from kourou.protocol.errors import LocalProtocolError
from kourou.protocol.java import Int32
from kourou.protocol.properties import KEY_SEPARATOR, Property

QueueOffset = NewType("QueueOffset", int)
"""The number of a message in its queue, from 0."""

PhysicalOffset = NewType("PhysicalOffset", int)
"""The byte position of a record in the commit log."""

BODY_SIZE_MAX: Final = 4 * 1024 * 1024
"""The largest body that producers send and brokers accept by default (`maxMessageSize`)."""


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel", gc=False):
    """One queue of a topic on one broker group."""

    topic: str
    broker_name: str
    queue_id: Int32


class Message(msgspec.Struct, frozen=True):
    """A topic, a body, and properties."""

    topic: str
    body: bytes
    flag: int = 0
    """The user's own number; brokers and clients pass it on unread."""
    properties: dict[str, str] = {}

    @classmethod
    def build(
        cls,
        topic: str,
        body: bytes,
        *,
        tag: str | None = None,
        keys: Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        delay_level: int = 0,
        wait_stored: bool = True,
    ) -> Self:
        """Create a message from user input. Raises LocalProtocolError for names and values that users may not set."""
        named = dict(properties or {})
        for name, value in named.items():
            _properties.check_user_property(name, value)
        if tag:
            named[Property.TAGS] = tag
        if joined := KEY_SEPARATOR.join(_checked_keys(keys)):
            named[Property.KEYS] = joined
        if delay_level:
            named[Property.DELAY_LEVEL] = str(delay_level)
        named[Property.WAIT_STORED] = "true" if wait_stored else "false"
        return cls(topic, body, flag, named)

    @property
    def tags(self) -> str | None:
        """The tag that filters compare. Despite the plural, it is one tag."""
        return self.properties.get(Property.TAGS)

    @property
    def keys(self) -> list[str]:
        """The keys that the message is indexed by, in addition to its unique key."""
        return [key for key in self.properties.get(Property.KEYS, "").split(KEY_SEPARATOR) if key]

    @property
    def unique_key(self) -> str | None:
        """The id that the producer assigned."""
        return self.properties.get(Property.UNIQUE_KEY)

    @property
    def delay_level(self) -> int:
        """The delay level; 0 is none. Raises BodyError if it is not a number."""
        return _properties.number(self.properties, Property.DELAY_LEVEL) or 0

    @property
    def sharding_key(self) -> str | None:
        """Messages with the same sharding key keep their order."""
        return self.properties.get(Property.SHARDING_KEY)

    @property
    def wait_stored(self) -> bool:
        """Whether the producer waits until the message is as durable as the broker's modes promise."""
        return self.properties.get(Property.WAIT_STORED, "true").lower() == "true"

    def with_properties(self, changes: Mapping[str, str]) -> Self:
        """A copy with some properties set, without validation: for system properties."""
        return msgspec.structs.replace(self, properties=self.properties | dict(changes))


def _checked_keys(keys: Iterable[str]) -> Iterable[str]:
    for key in keys:
        if not key or KEY_SEPARATOR in key:
            raise LocalProtocolError(f"key {key[:40]!r} is empty or contains a blank, but blanks separate keys")
        yield key


def transaction_of(sys_flag: int) -> int:
    """SysFlag.TRANSACTION_PREPARED, _COMMIT or _ROLLBACK; 0 for a message outside a transaction."""
    return sys_flag & TRANSACTION_MASK


def with_transaction(sys_flag: int, transaction: int) -> int:
    """The flags with their transaction bits replaced."""
    return (sys_flag & ~TRANSACTION_MASK) | transaction
