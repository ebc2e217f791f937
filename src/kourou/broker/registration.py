"""Being known to the name servers: all topics at the start, every 30 seconds and when one changes; leaving at the end.

Several changes share a registration: while one is on its way, the next one gathers.

Java: BrokerController.registerBrokerAll, BrokerOuterAPI.
"""

import logging

import msgspec

from kourou.broker.events import Announce, Announced, Outbox
from kourou.broker.settings import READ, WRITE, BrokerSettings
from kourou.broker.topics import Topics
from kourou.protocol import headers
from kourou.protocol.bodies import KVTable, RegisterBrokerBody, TopicConfig, TopicConfigAndMappingSerializeWrapper
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError
from kourou.protocol.hashes import crc32

log = logging.getLogger(__name__)


class Registration:
    """Tells the name servers."""

    def __init__(self, settings: BrokerSettings, topics: Topics, outbox: Outbox) -> None:
        self._settings = settings
        self._topics = topics
        self._outbox = outbox
        self._next_ms = 0
        self.is_on = False  # set by the driver once clients can be served
        self._known: dict[str, bool] = {}  # name server to whether it answered last time

    def step(self, now_ms: int) -> None:
        if not self.is_on:
            return
        if now_ms >= self._next_ms:
            self._register(self._topics.table)
            self._next_ms = now_ms + min(max(self._settings.register_interval_ms, 10_000), 60_000)
        elif self._topics.changed:
            changed = {name: self._topics.table[name] for name in self._topics.changed if name in self._topics.table}
            self._register(changed or self._topics.table)

    def _register(self, topics: dict[str, TopicConfig]) -> None:
        self._topics.changed.clear()
        settings = self._settings
        if settings.permission & (READ | WRITE) != READ | WRITE:
            topics = {
                name: msgspec.structs.replace(topic, perm=topic.perm & (settings.permission | 1))
                for name, topic in topics.items()
            }
        wrapper = TopicConfigAndMappingSerializeWrapper(topic_config_table=topics, data_version=self._topics.version)
        whole = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
        body = whole.compress() if settings.register_compressed else whole.encode()
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
        answer = event.answer
        good = answer is not None and answer.code == ResponseCode.SUCCESS
        if self._known.get(event.address) is not good:
            self._known[event.address] = good
            if good:
                log.info("registered name_server=%s", event.address)
            else:
                why = "no answer" if answer is None else f"code {answer.code}: {answer.remark}"
                log.warning("not registered name_server=%s: %s; it is tried again", event.address, why)
        if good and answer is not None and answer.body:
            try:
                self._topics.mark_ordered(KVTable.decode(answer.body).table, now_ms)
            except BodyError as error:
                log.warning("order topics not understood name_server=%s: %s", event.address, error)
