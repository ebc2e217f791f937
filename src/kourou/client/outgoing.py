"""Messages to be sent: what the user specifies, and the request that is made from it.

    Message   what the user specifies    body, tag, keys, properties, delay …
    Draft     what is sent               body (possibly compressed), sysFlag, the properties string, the unique id

A draft is made once. When it is sent again after a failure it keeps its unique id, so that a consumer can recognise a
copy of a message. Java: DefaultMQProducerImpl.sendKernelImpl, MessageBatch.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from kourou.client.errors import InvalidMessageError
from kourou.client.identity import MESSAGE_IDS
from kourou.client.naming import DEFAULT_TOPIC
from kourou.client.routes import DEFAULT_QUEUES
from kourou.client.settings import ProducerSettings
from kourou.client.spans import Sending
from kourou.protocol import properties as _properties
from kourou.protocol.codes import RequestCode, SysFlag
from kourou.protocol.command import Command
from kourou.protocol.compression import compress, with_compression
from kourou.protocol.errors import LocalProtocolError
from kourou.protocol.message import MessageQueue
from kourou.protocol.properties import KEY_SEPARATOR, PROPERTIES_SIZE_MAX, Property

_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)
_DEFAULT_QUEUES: Final = str(DEFAULT_QUEUES)


class Message(msgspec.Struct, kw_only=True):
    """A message to be sent. Only the body is required."""

    body: bytes = msgspec.field()
    tag: str | None = None
    """Consumers can filter by it."""
    keys: str | Sequence[str] = ()
    """One key or several, by which the message can be found later."""
    properties: Mapping[str, str] = {}
    """Application data; consumers can filter by it with SQL."""
    delay: timedelta | None = None
    """Deliver the message after this time (brokers of 5.0 or later, with timers)."""
    deliver_at: datetime | None = None
    """Deliver the message at this time (brokers of 5.0 or later, with timers)."""
    delay_level: int = 0
    """Deliver the message after one of the broker's fixed delays: 1 (a second) to 18 (two hours) by default."""
    flag: int = 0
    """An integer for the application; brokers pass it on."""
    wait_stored: bool = True
    """False: the broker answers without waiting for its flush and replication modes."""


class Draft(msgspec.Struct):
    """A message as it is sent; its topic includes the namespace."""

    topic: str
    body: bytes
    sys_flag: int
    flag: int
    properties: str
    unique_id: str
    size: int
    """The size of the body before compression."""
    ids: str
    """The ids that the user gets: of one message, or of all messages of a batch."""
    code: int = RequestCode.SEND_MESSAGE_V2
    kind: int = 0
    """For traces: 0 normal, 1 half, 3 delayed, 4 ordered."""
    tag: str = ""
    keys: str = ""
    span: Sending | None = None
    """OpenTelemetry's, while it is sent; None: there is none."""

    def command(self, group: str, queue: MessageQueue, born_ms: int) -> Command:
        """The request that sends it to a queue."""
        ext = {
            "a": group,
            "b": self.topic,
            "c": DEFAULT_TOPIC,
            "d": _DEFAULT_QUEUES,
            "e": str(queue.queue_id),
            "f": str(self.sys_flag),
            "g": str(born_ms),
            "h": str(self.flag),
            "i": self.properties,
            "j": "0",
            "k": "false",
            "m": "true" if self.code == RequestCode.SEND_BATCH_MESSAGE else "false",
            "n": queue.broker_name,
        }
        return Command(self.code, ext=ext, body=self.body)


def draft(topic: str, message: Message, settings: ProducerSettings, extra: dict[str, str] | None = None) -> Draft:
    """Makes the draft of a message. `extra` are system properties. Raises InvalidMessageError."""
    body = message.body
    if type(body) is not bytes:
        body = _as_bytes(body)
    size = len(body)
    if not 0 < size <= settings.body_size_max:
        raise InvalidMessageError(
            f"the body has {size} bytes; 1 to {settings.body_size_max} are allowed (body_size_max)"
        )
    unique_id = MESSAGE_IDS.next(time.time_ns() // 1_000_000)
    text, kind, keys = _properties_text(message, unique_id, extra)
    _check_flag(message.flag)
    sys_flag = 0
    if settings.compress_from is not None and size >= settings.compress_from:
        body = compress(body, settings.compression, settings.compression_level)
        sys_flag = with_compression(0, settings.compression)
    if extra is not None and Property.TRANSACTION_PREPARED in extra:
        sys_flag |= _PREPARED
        kind = 1
    return Draft(
        topic,
        body,
        sys_flag,
        message.flag,
        text,
        unique_id,
        size,
        unique_id,
        kind=kind,
        tag=message.tag or "",
        keys=keys,
    )


def _as_bytes(body: object) -> bytes:
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise InvalidMessageError(f"the body must be bytes, not {type(body).__name__}: encode it first")


def _check_flag(flag: int) -> None:
    if not isinstance(flag, int) or not -(2**31) <= flag < 2**31:
        raise InvalidMessageError(f"the flag must be a 32-bit integer, not {flag!r}")


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidMessageError(f"{what} must be a string, not {type(value).__name__}")


def _properties_text(message: Message, unique_id: str, extra: dict[str, str] | None) -> tuple[str, int, str]:
    """The properties string, the kind of message, and its keys. Raises InvalidMessageError."""
    named: dict[str, str] = {}
    kind = 0
    try:
        if message.properties:
            _add_user_properties(named, message.properties)
        if message.tag:
            _check_text("a tag", message.tag)
            named[Property.TAGS] = message.tag
        keys = _joined_keys(message.keys) if message.keys else ""
        if keys:
            named[Property.KEYS] = keys
        if message.delay_level or message.delay is not None or message.deliver_at is not None:
            named.update(_delay(message))
            kind = 3
        if extra:
            named.update(extra)
        own = f"UNIQ_KEY\x01{unique_id}\x02WAIT\x01{'true' if message.wait_stored else 'false'}\x02"
        if not named:
            return own, kind, keys
        text = _properties.encode(named)
    except LocalProtocolError as error:
        raise InvalidMessageError(str(error)) from None
    if len(text) + len(own) > PROPERTIES_SIZE_MAX:
        raise InvalidMessageError(
            f"the properties take more than the {PROPERTIES_SIZE_MAX} bytes that a message can have"
        )
    return text + own, kind, keys


def _add_user_properties(named: dict[str, str], properties: Mapping[str, str]) -> None:
    if not isinstance(properties, Mapping):
        raise InvalidMessageError(f"properties must map strings to strings, not be a {type(properties).__name__}")
    for name, value in properties.items():
        _check_text("the name of a property", name)
        _check_text(f"property {name[:40]!r}", value)
        _properties.check_user_property(name, value)
        named[name] = value


def _joined_keys(keys: str | Iterable[str]) -> str:
    try:
        found = [keys] if isinstance(keys, str) else list(keys)
    except TypeError:
        raise InvalidMessageError(f"keys must be a string or a list of strings, not {type(keys).__name__}") from None
    for key in found:
        _check_text("a key", key)
        if not key or KEY_SEPARATOR in key:
            raise InvalidMessageError(f"key {key[:40]!r} is empty or contains a space, which separates keys")
    return KEY_SEPARATOR.join(found)


def _delay(message: Message) -> dict[str, str]:
    given = [message.delay is not None, message.deliver_at is not None, bool(message.delay_level)]
    if sum(given) > 1:
        raise InvalidMessageError("give only one of delay, deliver_at and delay_level")
    if message.delay is not None and not isinstance(message.delay, timedelta):
        raise InvalidMessageError(f"delay must be a timedelta, not {type(message.delay).__name__}")
    if message.deliver_at is not None and not isinstance(message.deliver_at, datetime):
        raise InvalidMessageError(f"deliver_at must be a datetime, not {type(message.deliver_at).__name__}")
    if not isinstance(message.delay_level, int):
        raise InvalidMessageError(f"delay_level must be an integer, not {type(message.delay_level).__name__}")
    if message.delay is not None:
        delay_ms = round(message.delay.total_seconds() * 1000)
        if delay_ms < 0:
            raise InvalidMessageError(f"a delay of {message.delay} is in the past")
        return {Property.TIMER_DELAY_MS: str(delay_ms)}
    if message.deliver_at is not None:
        try:
            return {Property.TIMER_DELIVER_MS: str(round(message.deliver_at.timestamp() * 1000))}
        except (OverflowError, ValueError):
            raise InvalidMessageError(f"deliver_at can't be {message.deliver_at}") from None
    if message.delay_level < 0:
        raise InvalidMessageError(f"delay level {message.delay_level} is below 1, the first level")
    return {Property.DELAY_LEVEL: str(int(message.delay_level))}


def draft_batches(
    topic: str, messages: Iterable[Message], settings: ProducerSettings, extra: dict[str, str] | None = None
) -> list[Draft]:
    """Batches of at most `batch_size_max` bytes and `batch_count_max` messages.

    A message that is larger by itself gets a batch of its own. `extra` are system properties of each message.

    Raises InvalidMessageError.
    """
    batches: list[Draft] = []
    entries: list[bytes] = []
    ids: list[str] = []
    size = 0
    for message in messages:
        if message.delay_level or message.delay is not None or message.deliver_at is not None:
            raise InvalidMessageError("a message in a batch can't be delayed: send it by itself")
        entry, unique_id = _batch_entry(message, settings, extra)
        if entries and (size + len(entry) > settings.batch_size_max or len(entries) >= settings.batch_count_max):
            batches.append(_batch(topic, entries, ids))
            entries, ids, size = [], [], 0
        entries.append(entry)
        ids.append(unique_id)
        size += len(entry)
    if entries:
        batches.append(_batch(topic, entries, ids))
    return batches


def _batch_entry(message: Message, settings: ProducerSettings, extra: dict[str, str] | None) -> tuple[bytes, str]:
    body = message.body if type(message.body) is bytes else _as_bytes(message.body)
    if not 0 < len(body) <= settings.body_size_max:
        raise InvalidMessageError(
            f"the body has {len(body)} bytes; 1 to {settings.body_size_max} are allowed (body_size_max)"
        )
    unique_id = MESSAGE_IDS.next(time.time_ns() // 1_000_000)
    text, _, _ = _properties_text(message, unique_id, extra)
    _check_flag(message.flag)
    raw = text.encode()
    head = (22 + len(body) + len(raw)).to_bytes(4) + bytes(8) + message.flag.to_bytes(4, signed=True)
    return b"".join((head, len(body).to_bytes(4), body, len(raw).to_bytes(2), raw)), unique_id


def _batch(topic: str, entries: list[bytes], ids: list[str]) -> Draft:
    unique_id = MESSAGE_IDS.next(time.time_ns() // 1_000_000)
    body = b"".join(entries)
    text = f"UNIQ_KEY\x01{unique_id}\x02WAIT\x01true\x02"
    return Draft(topic, body, 0, 0, text, unique_id, len(body), ",".join(ids), code=int(RequestCode.SEND_BATCH_MESSAGE))
