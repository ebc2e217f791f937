"""Registration at the name servers: all topics at the start, every 30 seconds and when one changes; leaving at the end.

Several changes share a registration: while one is in flight, changes are collected for the next one.

A registration is encoded in slices. It is sent in parts if an operator wants that (enableSplitRegistration), and in any
case before it exceeds `PART_MAX` bytes, as a name server reads no frame of more than 16 MiB: after such a
frame it closes the connection and removes the broker. A name server applies a known topic only if the version has
changed, so each part has a version of its own, as with Apache.

A failed registration is logged as an error, with the reason, and a heartbeat keeps the last successful registration
alive at the name server.

Java: BrokerController.registerBrokerAll, BrokerOuterAPI.
"""

import logging
import struct
import zlib
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from kourou.broker.events import Announced, Outbox
from kourou.broker.settings import READ, WRITE, BrokerSettings, Role
from kourou.broker.static_topics import StaticTopics
from kourou.broker.topics import Topics, next_version
from kourou.protocol import fastjson, headers
from kourou.protocol.bodies import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicQueueMappingInfo,
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
"""Topics that are encoded before requests have their turn."""

ORDER_SIZE_MAX = 1024 * 1024
"""Bytes of a name server's answer that are read, which lists the ordered topics."""

MASTER_SOUGHT_MS = 3_000
"""How soon a slave that follows no master asks the name servers again. Each further time it waits twice as long."""

_TABLE = b'"topicConfigTable":{'
_INT = struct.Struct(">i")


ACTING_BEAT_MS: Final = 1_000
"""Time between heartbeats of a broker with enableSlaveActingMaster."""

ACTING_TIMEOUT_MS: Final = 10_000
"""The time without a heartbeat after which the name servers remove such a broker."""


class Registration:
    """Tells the name servers."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: Topics,
        static: StaticTopics,
        outbox: Outbox,
        turns: Turns | None = None,
        on_master: Callable[[str | None, str | None, int], bool] = lambda _master, _ha, _now_ms: True,
        has_master: Callable[[], bool] = lambda: True,
    ) -> None:
        """`turns`: where registrations are encoded in slices; without, each at once.

        `on_master` is told what a name server answers a slave: the addresses of its master and of the master's HA port,
        None if there is no master, and the time. It returns False if that can't be the master. `has_master`: is this
        broker a master, or connected to one?
        """
        self._on_master = on_master
        self._has_master = has_master
        self._had_master = False
        self._lost_ms = -MASTER_SOUGHT_MS  # when the name servers were asked because the master was lost
        self._seek_ms = MASTER_SOUGHT_MS
        self._settings = settings
        self._topics = topics
        self._static = static
        self._outbox = outbox
        self._turns = turns or Turns()
        self._next_ms = self._beat_ms = 0
        self._encoding = False
        self._was_registered = False
        self.epoch = 0  # of the master's log: of two that claim to be the master, name servers keep the newer one
        self.is_on = False  # set by the driver once clients can be served
        self.is_fenced = False  # the controller has not assigned a role to this broker yet
        self._known: dict[str, str] = {}  # by name server: the last error; empty: none

    def due_ms(self, now_ms: int) -> int | None:
        """When `step` has something to announce; None: not before the broker is on, or a registration is encoded."""
        if not self.is_on or self.is_fenced or self._encoding:
            return None
        if self._topics.changed:
            return now_ms
        return min(self._next_ms, self._beat_ms) if self._beats else self._next_ms

    @property
    def _beats(self) -> bool:
        """Do the name servers get heartbeats? They then notice soon that a slave must act as master, or no longer."""
        return self._settings.slave_acting_master and self._was_registered

    def announce_now(self) -> None:
        """The role of the broker has changed: it registers again at once."""
        self._next_ms = 0
        self._seek_ms = MASTER_SOUGHT_MS

    def step(self, now_ms: int) -> None:
        if not self.is_on or self.is_fenced or self._encoding:
            return
        self._notice_loss(now_ms)
        if now_ms >= self._next_ms:
            self._start(None, now_ms)
            self._next_ms = now_ms + min(max(self._settings.register_interval_ms, 10_000), 60_000)
        elif self._topics.changed:
            self._start(set(self._topics.changed), now_ms)
        if self._beats and now_ms >= self._beat_ms:
            self._beat_ms = now_ms + ACTING_BEAT_MS
            self._keep_alive()

    def _notice_loss(self, now_ms: int) -> None:
        """A slave that has lost its master asks the name servers: another slave may be promoted."""
        had_master, self._had_master = self._had_master, self._has_master()
        if had_master and not self._had_master and not self._settings.raft:
            self._lost_ms = max(now_ms, self._lost_ms + MASTER_SOUGHT_MS)
            self._next_ms = min(self._next_ms, self._lost_ms)
            self._seek_ms = MASTER_SOUGHT_MS

    def _start(self, names: set[str] | None, now_ms: int) -> None:
        self._topics.changed.clear()
        self._encoding = True
        self._turns.start(self, self._register(names, now_ms))

    def _register(self, names: set[str] | None, now_ms: int) -> Slices[None]:
        """All topics or, with `names`, those of them that exist."""
        topics = self._topics
        try:
            table = topics.table
            found = list(table.values()) if names is None else [table[name] for name in names if name in table]
            if not found:  # topics were deleted, and nothing else has changed: register all the others
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
        """Parts with a number of topics, if that is configured; in any case none becomes too large."""
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
        if self.epoch > version.state_version:
            version = msgspec.structs.replace(version, state_version=self.epoch)
        names = (topic.topic_name or "" for topic in topics) if self._static.table else ()
        static = {name: info for name in names if (info := self._static.info(name)) is not None}
        if settings.register_compressed:
            body = yield from _compressed(topics, static, version, settings.permission)
        else:
            body = yield from _json(topics, static, version, settings.permission)
        header = headers.RegisterBroker(
            broker_name=settings.name,
            broker_addr=settings.address,
            cluster_name=settings.cluster,
            ha_server_addr=settings.ha_address,
            broker_id=settings.broker_id,
            heartbeat_timeout_millis=ACTING_TIMEOUT_MS if settings.slave_acting_master else None,
            enable_acting_master=settings.slave_acting_master or None,
            compressed=settings.register_compressed,
            body_crc32=crc32(body) & 0x7FFFFFFF,
        )
        command = Command(RequestCode.REGISTER_BROKER, ext=header.encode(), body=body)
        self._outbox.announce(command, settings.register_timeout_ms)

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
        self._outbox.announce(Command(RequestCode.UNREGISTER_BROKER, ext=header.encode()), 3_000)

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
        if problem or answer is None:
            return
        if self._settings.role is Role.SLAVE:
            self._take_master(answer, now_ms)
        if not answer.body:
            return
        try:
            if len(answer.body) > ORDER_SIZE_MAX:
                raise BodyError(f"{len(answer.body)} bytes, the limit is {ORDER_SIZE_MAX}")
            ordered = KVTable.decode(answer.body).table
        except BodyError as error:
            log.warning("the list of ordered topics can't be decoded name_server=%s: %s", event.address, error)
        else:
            self._turns.start(self._topics, self._topics.mark_ordered(ordered, now_ms))

    def _take_master(self, answer: Command, now_ms: int) -> None:
        """A slave learns the address of its master. Without a master, it asks again sooner than otherwise."""
        found = headers.RegisterBrokerAnswer.decode(answer.ext)
        is_master = self._on_master(found.master_addr or None, found.ha_server_addr or None, now_ms)
        if found.master_addr and is_master and self._has_master():
            self._seek_ms = MASTER_SOUGHT_MS
        elif now_ms + self._seek_ms < self._next_ms:
            self._next_ms = now_ms + self._seek_ms
            self._seek_ms *= 2

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
            log.error("registration failed and will be retried name_server=%s: %s", address, problem)
        else:
            log.info("registered name_server=%s", address)

    def _keep_alive(self) -> None:
        """A name server removes a broker that is silent for two minutes, so brokers of 5.x send heartbeats."""
        settings = self._settings
        header = headers.BrokerHeartbeat(
            cluster_name=settings.cluster, broker_addr=settings.address, broker_name=settings.name
        )
        command = Command(RequestCode.BROKER_HEARTBEAT, ext=header.encode())
        self._outbox.announce(command, settings.register_timeout_ms)


def _size_of(topic: TopicConfig) -> int:
    """An upper estimate of the bytes of its JSON."""
    size = 256 + 2 * len(topic.topic_name or "")
    return size + sum(len(key) + len(value) + 8 for key, value in topic.attributes.items())


def _permitted(topics: Iterable[TopicConfig], permission: int) -> Iterable[TopicConfig]:
    if permission & (READ | WRITE) == READ | WRITE:
        return topics
    return (msgspec.structs.replace(topic, perm=topic.perm & (permission | 1)) for topic in topics)


_StaticInfo = dict[str, TopicQueueMappingInfo]


def _json(topics: list[TopicConfig], static: _StaticInfo, version: DataVersion, permission: int) -> Slices[bytes]:
    wrapper = TopicConfigAndMappingSerializeWrapper(data_version=version, topic_queue_mapping_info_map=static)
    before, _, after = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode().partition(_TABLE)
    body = bytearray(before + _TABLE)
    for at in range(0, len(topics), TOPICS_IN_SLICE):
        some = _permitted(topics[at : at + TOPICS_IN_SLICE], permission)
        body += b"," if at else b""
        body += fastjson.encode({topic.topic_name or "": topic for topic in some})[1:-1]
        yield len(body)
    body += after
    return bytes(body)


def _compressed(topics: list[TopicConfig], static: _StaticInfo, version: DataVersion, permission: int) -> Slices[bytes]:
    """As `RegisterBrokerBody.compress`, a few topics at a time."""
    compressor = zlib.compressobj(level=9)
    encoded = version.encode()
    body = bytearray(compressor.compress(_INT.pack(len(encoded)) + encoded + _INT.pack(len(topics))))
    for at in range(0, len(topics), TOPICS_IN_SLICE):
        texts = (topic.to_text().encode() for topic in _permitted(topics[at : at + TOPICS_IN_SLICE], permission))
        body += compressor.compress(b"".join(_INT.pack(len(text)) + text for text in texts))
        yield len(body)
    body += compressor.compress(_INT.pack(2) + b"[]" + _INT.pack(len(static)))
    for info in static.values():
        encoded = info.encode()
        body += compressor.compress(_INT.pack(len(encoded)) + encoded)
    body += compressor.flush()
    return bytes(body)
