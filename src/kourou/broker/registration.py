"""Being known to the name servers: all topics at the start, every 30 seconds and when one changes; leaving at the end.

Several changes share a registration: while one is on its way, the next one gathers.

A registration is encoded in slices. It is sent in parts if an operator wants that (enableSplitRegistration), and in any
case before it exceeds `PART_MAX` bytes: no name server reads a frame of more than 16 MiB, and one that gets such a
frame closes the connection and forgets the broker. A name server applies a topic that it knows only if the version has
changed, so each part has a version of its own, as with Apache.

A registration that fails is an error in the log, with the reason, and what the name server knows from the last good
one is kept alive by a heartbeat.

Java: BrokerController.registerBrokerAll, BrokerOuterAPI.
"""

import logging
import struct
import zlib
from collections.abc import Iterable

import msgspec

from kourou.broker.events import Announce, Announced, Outbox
from kourou.broker.settings import READ, WRITE, BrokerSettings
from kourou.broker.topics import Topics, next_version
from kourou.protocol import fastjson, headers
from kourou.protocol.bodies import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError
from kourou.protocol.hashes import crc32
from kourou.turns import Slices, Turns

log = logging.getLogger(__name__)

PART_MAX = 14 * 1024 * 1024
"""Bytes of topics, before compression, that one registration has at most, counted generously."""

TOPICS_IN_SLICE = 500
"""Topics that are encoded before others have their turn."""

ORDER_SIZE_MAX = 1024 * 1024
"""Bytes of a name server's answer that are read, which lists the ordered topics."""

_TABLE = b'"topicConfigTable":{'
_INT = struct.Struct(">i")


class Registration:
    """Tells the name servers."""

    def __init__(self, settings: BrokerSettings, topics: Topics, outbox: Outbox, turns: Turns | None = None) -> None:
        """`turns`: where registrations are encoded in slices; without, each at once."""
        self._settings = settings
        self._topics = topics
        self._outbox = outbox
        self._turns = turns or Turns()
        self._next_ms = 0
        self._encoding = False
        self._was_registered = False
        self.is_on = False  # set by the driver once clients can be served
        self._known: dict[str, str] = {}  # name server to what went wrong last time; empty: nothing

    def step(self, now_ms: int) -> None:
        if not self.is_on or self._encoding:
            return
        if now_ms >= self._next_ms:
            self._start(None, now_ms)
            self._next_ms = now_ms + min(max(self._settings.register_interval_ms, 10_000), 60_000)
        elif self._topics.changed:
            self._start(set(self._topics.changed), now_ms)

    def _start(self, names: set[str] | None, now_ms: int) -> None:
        self._topics.changed.clear()
        self._encoding = True
        self._turns.start(self, self._register(names, now_ms))

    def _register(self, names: set[str] | None, now_ms: int) -> Slices[None]:
        """All topics or, with `names`, those of them that are there."""
        topics = self._topics
        try:
            table = topics.table
            found = list(table.values()) if names is None else [table[name] for name in names if name in table]
            if not found:  # topics are gone, and nothing else is new: a name server is told all that is left
                found = list(table.values())
            parts = yield from self._parts(found)
            for part in parts:
                if len(parts) > 1:
                    topics.version = next_version(topics.version, now_ms)
                yield from self._send(part, topics.version)
                yield 0
        finally:
            self._encoding = False

    def _parts(self, topics: list[TopicConfig]) -> Slices[list[list[TopicConfig]]]:
        """By count where that is wanted; in any case so that none becomes too large."""
        count = self._settings.register_split_size if self._settings.register_split else len(topics)
        parts: list[list[TopicConfig]] = [[]]
        size = 0
        for number, topic in enumerate(topics, 1):
            size += _size_of(topic)
            if parts[-1] and (len(parts[-1]) >= count or size > PART_MAX):
                parts.append([])
                size = _size_of(topic)
            parts[-1].append(topic)
            if number % TOPICS_IN_SLICE == 0:
                yield 0
        return parts

    def _send(self, topics: list[TopicConfig], version: DataVersion) -> Slices[None]:
        settings = self._settings
        if settings.register_compressed:
            body = yield from _compressed(topics, version, settings.permission)
        else:
            body = yield from _json(topics, version, settings.permission)
        header = headers.RegisterBroker(
            broker_name=settings.name,
            broker_addr=settings.address,
            cluster_name=settings.cluster,
            ha_server_addr=settings.ha_address,
            broker_id=settings.broker_id,
            compressed=settings.register_compressed,
            body_crc32=crc32(body) & 0x7FFFFFFF,
        )
        command = Command(RequestCode.REGISTER_BROKER, ext=header.encode(), body=body)
        self._outbox.put(Announce(command, settings.register_timeout_ms))

    def leave(self) -> None:
        """The broker stops."""
        self.is_on = False
        settings = self._settings
        header = headers.UnregisterBroker(
            broker_name=settings.name,
            broker_addr=settings.address,
            cluster_name=settings.cluster,
            broker_id=settings.broker_id,
        )
        self._outbox.put(Announce(Command(RequestCode.UNREGISTER_BROKER, ext=header.encode()), 3_000))

    def announced(self, event: Announced, now_ms: int) -> None:
        """A name server answered, or did not."""
        if event.code != RequestCode.REGISTER_BROKER:
            return
        answer = event.answer
        problem = ""
        if answer is None:
            problem = event.error or "no answer"
        elif answer.code != ResponseCode.SUCCESS:
            problem = f"code {answer.code}: {answer.remark}"
        self._note(event.address, problem)
        if problem or answer is None or not answer.body:
            return
        try:
            if len(answer.body) > ORDER_SIZE_MAX:
                raise BodyError(f"{len(answer.body)} bytes, the limit is {ORDER_SIZE_MAX}")
            ordered = KVTable.decode(answer.body).table
        except BodyError as error:
            log.warning("order topics not understood name_server=%s: %s", event.address, error)
        else:
            self._turns.start(self._topics, self._topics.mark_ordered(ordered, now_ms))

    def _note(self, address: str, problem: str) -> None:
        before = self._known.get(address)
        self._known[address] = problem
        if not problem:
            self._was_registered = True
        elif self._was_registered and self.is_on:
            self._keep_alive()
        if problem == before:
            return
        if problem:
            log.error("not registered name_server=%s: %s; it is tried again", address, problem)
        else:
            log.info("registered name_server=%s", address)

    def _keep_alive(self) -> None:
        """A name server forgets a broker after two minutes without a word. Brokers of 5.x say that they are there."""
        settings = self._settings
        header = headers.BrokerHeartbeat(
            cluster_name=settings.cluster, broker_addr=settings.address, broker_name=settings.name
        )
        command = Command(RequestCode.BROKER_HEARTBEAT, ext=header.encode())
        self._outbox.put(Announce(command, settings.register_timeout_ms))


def _size_of(topic: TopicConfig) -> int:
    """About as many bytes as its JSON has, not less."""
    size = 256 + 2 * len(topic.topic_name or "")
    return size + sum(len(key) + len(value) + 8 for key, value in topic.attributes.items())


def _permitted(topics: Iterable[TopicConfig], permission: int) -> Iterable[TopicConfig]:
    if permission & (READ | WRITE) == READ | WRITE:
        return topics
    return (msgspec.structs.replace(topic, perm=topic.perm & (permission | 1)) for topic in topics)


def _json(topics: list[TopicConfig], version: DataVersion, permission: int) -> Slices[bytes]:
    wrapper = TopicConfigAndMappingSerializeWrapper(data_version=version)
    before, _, after = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode().partition(_TABLE)
    body = bytearray(before + _TABLE)
    for at in range(0, len(topics), TOPICS_IN_SLICE):
        some = _permitted(topics[at : at + TOPICS_IN_SLICE], permission)
        body += b"," if at else b""
        body += fastjson.encode({topic.topic_name or "": topic for topic in some})[1:-1]
        yield len(body)
    body += after
    return bytes(body)


def _compressed(topics: list[TopicConfig], version: DataVersion, permission: int) -> Slices[bytes]:
    """As `RegisterBrokerBody.compress`, a few topics at a time."""
    compressor = zlib.compressobj(level=9)
    encoded = version.encode()
    body = bytearray(compressor.compress(_INT.pack(len(encoded)) + encoded + _INT.pack(len(topics))))
    for at in range(0, len(topics), TOPICS_IN_SLICE):
        texts = (topic.to_text().encode() for topic in _permitted(topics[at : at + TOPICS_IN_SLICE], permission))
        body += compressor.compress(b"".join(_INT.pack(len(text)) + text for text in texts))
        yield len(body)
    body += compressor.compress(_INT.pack(2) + b"[]" + _INT.pack(0))
    body += compressor.flush()
    return bytes(body)
