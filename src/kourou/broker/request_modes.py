"""Whether a group pulls or pops from a topic: the choice of operators (mqadmin setConsumeMode).

The choice is kept and shown as Apache's broker does it, and goes with the store to a broker that serves both ways. This
broker serves pulls only.

Java: MessageRequestModeManager, QueryAssignmentProcessor.setMessageRequestMode.
"""

import logging
from collections.abc import Callable

from kourou.broker import names
from kourou.broker.events import Asked, Refused
from kourou.broker.groups import Groups
from kourou.broker.request_bodies import RequestBodies, too_much
from kourou.broker.topics import Topics
from kourou.protocol import bodies
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.names import shown

log = logging.getLogger(__name__)

REQUEST_MODES_MAX = 10_000
"""Choices that are kept, of all topics and groups."""


class RequestModes:
    """The choices of one broker."""

    def __init__(
        self,
        topics: Topics,
        groups: Groups,
        read: RequestBodies,
        kept: bodies.MessageRequestModeSerializeWrapper | None,
        touch: Callable[[], None],
    ) -> None:
        """`touch` is called after each change, so that it is kept."""
        self._topics = topics
        self._groups = groups
        self._read = read
        self._touch = touch
        table = {} if kept is None else kept.message_request_mode_map
        self.table = {topic: dict(modes) for topic, modes in table.items()}

    def wrapper(self) -> bodies.MessageRequestModeSerializeWrapper:
        return bodies.MessageRequestModeSerializeWrapper(message_request_mode_map=self.table)

    def adopt(self, kept: bodies.MessageRequestModeSerializeWrapper) -> None:
        """A slave takes over its master's choices."""
        if kept.message_request_mode_map != self.table:
            self.table = kept.message_request_mode_map
            self._touch()

    def requests(self) -> dict[int, Callable[[Asked], Command]]:
        return {RequestCode.SET_MESSAGE_REQUEST_MODE: self.set, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.show}

    def mode_of(self, topic: str, group: str, default: str) -> str:
        """PULL or POP. Retry topics are pulled from."""
        mode = self.table.get(topic, {}).get(group)
        if mode is not None:
            return mode.mode
        return "PULL" if topic.startswith(names.RETRY_PREFIX) else default

    def set(self, asked: Asked) -> Command:
        """SET_MESSAGE_REQUEST_MODE."""
        mode = self._read.read(bodies.SetMessageRequestModeRequestBody, asked)
        topic, group = mode.topic or "", mode.consumer_group or ""
        if mode.mode not in ("PULL", "POP"):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"the mode is {shown(mode.mode)}: PULL or POP is expected")
        if topic.startswith(names.RETRY_PREFIX):
            raise Refused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._topics.get(topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{shown(topic)}] not exist")
        if self._groups.find(group, asked.now_ms) is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        modes = self.table.get(topic, {})
        if group not in modes and sum(map(len, self.table.values())) >= REQUEST_MODES_MAX:
            raise too_much("there are too many request modes", REQUEST_MODES_MAX, "REQUEST_MODES_MAX")
        self.table[topic] = {**modes, group: mode}
        self._touch()
        log.info("request mode set topic=%s group=%s mode=%s", shown(topic), shown(group), mode.mode)
        return asked.command.answer()

    def show(self, asked: Asked) -> Command:
        """GET_ALL_MESSAGE_REQUEST_MODE."""
        return asked.command.answer(body=self.wrapper().encode())
