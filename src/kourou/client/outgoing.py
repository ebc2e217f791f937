"""Messages on their way to a broker: what the user says, and what is sent of it.

    Message   what the user says         body, tag, keys, properties, delay …
    Draft     what is sent               body (compressed perhaps), sysFlag, the properties string, the unique id

A draft is made once. Sent again after a failure, it keeps its unique id, so that a reader can tell a copy from another
message. Java: DefaultMQProducerImpl.sendKernelImpl, MessageBatch.
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
from kourou.protocol import properties as _properties
from kourou.protocol.codes import RequestCode, SysFlag
from kourou.protocol.command import Command
from kourou.protocol.compression import compress, with_compression
from kourou.protocol.errors import LocalProtocolError
from kourou.protocol.message import MessageQueue
from kourou.protocol.properties import KEY_SEPARATOR, PROPERTIES_SIZE_MAX, Property

DELAY_MAX: Final = timedelta(days=3)
"""What brokers allow by default (`timerMaxDelaySec`); more is refused by them, not by us."""

_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)
_DEFAULT_QUEUES: Final = str(DEFAULT_QUEUES)


class Message(msgspec.Struct, kw_only=True):
    """A message to be sent. Only the body is needed."""

    body: bytes = msgspec.field()
    tag: str | None = None
    """What consumers may filter by."""
    keys: str | Sequence[str] = ()
    """What the message can be found by later. One key, or several."""
    properties: Mapping[str, str] = {}
    """Whatever else there is to say; consumers may filter by it with SQL."""
    delay: timedelta | None = None
    """Deliver it this much later (a broker of 5.0 or later)."""
    deliver_at: datetime | None = None
    """Deliver it then (a broker of 5.0 or later)."""
    delay_level: int = 0
    """Deliver it after one of the broker's fixed delays, 1 (a second) to 18 (two hours)."""
    flag: int = 0
    """A number of your own, which brokers carry along."""
    wait_stored: bool = True
    """False: be answered before the broker's flush and replication modes are satisfied."""


class Draft(msgspec.Struct):
    """A message as it is sent; the topic is the one that brokers know."""

    topic: str
    body: bytes
    sys_flag: int
    flag: int
    properties: str
    unique_id: str
    size: int
    """Of the body as the user had it."""
    ids: str
    """The ids that the user gets: of one message, or of all in a batch."""
    code: int = RequestCode.SEND_MESSAGE_V2
    kind: int = 0
    """For traces: 0 normal, 1 half, 3 delayed, 4 ordered."""
    tag: str = ""
    keys: str = ""

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
    """What is sent of a message. `extra` are properties of the system's own. Raises InvalidMessageError."""
    body = message.body
    if type(body) is not bytes:
        body = _as_bytes(body)
    size = len(body)
    if not 0 < size <= settings.body_size_max:
        raise InvalidMessageError(
            f"a body of {size} bytes: at least 1 and at most {settings.body_size_max} are allowed (maxMessageSize)"
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
    raise InvalidMessageError(f"a body is bytes, not {type(body).__name__}: encode it first")


def _check_flag(flag: int) -> None:
    if not isinstance(flag, int) or not -(2**31) <= flag < 2**31:
        raise InvalidMessageError(f"a flag is a number of 32 bits, not {flag!r}")


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidMessageError(f"{what} is text, not {type(value).__name__}: {str(value)[:40]!r} in quotes may do")


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
        raise InvalidMessageError(f"properties take more than the {PROPERTIES_SIZE_MAX} bytes that fit")
    return text + own, kind, keys


def _add_user_properties(named: dict[str, str], properties: Mapping[str, str]) -> None:
    if not isinstance(properties, Mapping):
        raise InvalidMessageError(f"properties are a mapping of text to text, not {type(properties).__name__}")
    for name, value in properties.items():
        _check_text("the name of a property", name)
        _check_text(f"property {name[:40]!r}", value)
        _properties.check_user_property(name, value)
        named[name] = value


def _joined_keys(keys: str | Iterable[str]) -> str:
    try:
        found = [keys] if isinstance(keys, str) else list(keys)
    except TypeError:
        raise InvalidMessageError(f"keys are text, or a list of texts, not {type(keys).__name__}") from None
    for key in found:
        _check_text("a key", key)
        if not key or KEY_SEPARATOR in key:
            raise InvalidMessageError(f"key {key[:40]!r} is empty or holds a blank, and blanks separate keys")
    return KEY_SEPARATOR.join(found)


def _delay(message: Message) -> dict[str, str]:
    given = [message.delay is not None, message.deliver_at is not None, bool(message.delay_level)]
    if sum(given) > 1:
        raise InvalidMessageError("delay, deliver_at and delay_level exclude each other")
    if message.delay is not None and not isinstance(message.delay, timedelta):
        raise InvalidMessageError(f"a delay is a timedelta, not {type(message.delay).__name__}")
    if message.deliver_at is not None and not isinstance(message.deliver_at, datetime):
        raise InvalidMessageError(f"deliver_at is a datetime, not {type(message.deliver_at).__name__}")
    if not isinstance(message.delay_level, int):
        raise InvalidMessageError(f"a delay level is a number, not {type(message.delay_level).__name__}")
    if message.delay is not None:
        delay_ms = round(message.delay.total_seconds() * 1000)
        if delay_ms < 0:
            raise InvalidMessageError(f"a delay of {message.delay} lies in the past")
        return {Property.TIMER_DELAY_MS: str(delay_ms)}
    if message.deliver_at is not None:
        return {Property.TIMER_DELIVER_MS: str(round(message.deliver_at.timestamp() * 1000))}
    if message.delay_level < 0:
        raise InvalidMessageError(f"delay level {message.delay_level}: levels count from 1")
    return {Property.DELAY_LEVEL: str(message.delay_level)}


def draft_batches(topic: str, messages: Iterable[Message], settings: ProducerSettings) -> list[Draft]:
    """Batches of at most `batch_size_max` bytes and `batch_count_max` messages.

    A message that is larger by itself gets a batch of its own.

    Raises InvalidMessageError.
    """
    batches: list[Draft] = []
    entries: list[bytes] = []
    ids: list[str] = []
    size = 0
    for message in messages:
        if message.delay_level or message.delay is not None or message.deliver_at is not None:
            raise InvalidMessageError("a message in a batch can't be delayed")
        entry, unique_id = _batch_entry(topic, message, settings)
        if entries and (size + len(entry) > settings.batch_size_max or len(entries) >= settings.batch_count_max):
            batches.append(_batch(topic, entries, ids))
            entries, ids, size = [], [], 0
        entries.append(entry)
        ids.append(unique_id)
        size += len(entry)
    if entries:
        batches.append(_batch(topic, entries, ids))
    return batches


def _batch_entry(topic: str, message: Message, settings: ProducerSettings) -> tuple[bytes, str]:
    body = message.body if type(message.body) is bytes else _as_bytes(message.body)
    if not 0 < len(body) <= settings.body_size_max:
        raise InvalidMessageError(
            f"a body of {len(body)} bytes for {topic!r}: 1 to {settings.body_size_max} are allowed"
        )
    unique_id = MESSAGE_IDS.next(time.time_ns() // 1_000_000)
    text, _, _ = _properties_text(message, unique_id, None)
    _check_flag(message.flag)
    raw = text.encode()
    head = (22 + len(body) + len(raw)).to_bytes(4) + bytes(8) + message.flag.to_bytes(4, signed=True)
    return b"".join((head, len(body).to_bytes(4), body, len(raw).to_bytes(2), raw)), unique_id


def _batch(topic: str, entries: list[bytes], ids: list[str]) -> Draft:
    unique_id = MESSAGE_IDS.next(time.time_ns() // 1_000_000)
    body = b"".join(entries)
    text = f"UNIQ_KEY\x01{unique_id}\x02WAIT\x01true\x02"
    return Draft(topic, body, 0, 0, text, unique_id, len(body), ",".join(ids), code=int(RequestCode.SEND_BATCH_MESSAGE))
