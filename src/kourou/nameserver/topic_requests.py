"""Requests of tools that change topics: create, delete, permissions.

Java: DefaultRequestProcessor.
"""

import logging

from kourou.nameserver.events import Asked
from kourou.nameserver.limits import NAME_LENGTH_MAX
from kourou.nameserver.requests import DIALECT_SIZE_MAX, Change, Refused, small_body
from kourou.nameserver.tables import Tables
from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.names import shown
from kourou.turns import Slices

log = logging.getLogger(__name__)


class TopicRequests:
    """Changes topics without a registration by their broker."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def changes(self) -> dict[int, Change]:
        return {
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
        }

    def _register_topic(self, asked: Asked) -> Slices[Command]:
        yield 0
        topic = headers.RegisterTopicInNamesrv.decode(asked.command.ext).topic
        if not topic.isprintable() or len(topic) > NAME_LENGTH_MAX:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"topic={shown(topic)} is too long or has unprintable characters")
        route = bodies.TopicRouteData.decode(
            small_body(asked), untyped_max=DIALECT_SIZE_MAX, dialect_max=DIALECT_SIZE_MAX
        )
        if self._tables.is_full and topic not in self._tables.topics:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{len(self._tables.topics)} topics are registered, the limit")
        if not self._tables.add_topic(topic, route.queue_datas):
            log.info("topic not registered topic=%s: it has no broker, or an unregistered one", shown(topic))
        return asked.command.answer()

    def _delete_topic(self, asked: Asked) -> Slices[Command]:
        yield 0
        header = headers.DeleteTopicInNamesrv.decode(asked.command.ext)
        self._tables.delete_topic(header.topic, header.cluster_name)
        log.info("topic deleted topic=%s cluster=%s", shown(header.topic), shown(header.cluster_name or "all"))
        return asked.command.answer()

    def _wipe_write_perm(self, asked: Asked) -> Slices[Command]:
        name = headers.WipeWritePerm.decode(asked.command.ext).broker_name
        count = yield from self._tables.wipe_write_perm(name)
        log.info("write permission wiped broker=%s topics=%d", shown(name), count)
        return asked.command.answer(ext=headers.WipeWritePermAnswer(wipe_topic_count=count).encode())

    def _add_write_perm(self, asked: Asked) -> Slices[Command]:
        name = headers.AddWritePerm.decode(asked.command.ext).broker_name
        count = yield from self._tables.add_write_perm(name)
        log.info("write permission added broker=%s topics=%d", shown(name), count)
        return asked.command.answer(ext=headers.AddWritePermAnswer(add_topic_count=count).encode())
