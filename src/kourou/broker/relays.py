"""Requests that only a consumer can answer: the broker forwards them to it, and returns its answer.

    admin ─▶ request ─▶ Relays ─▶ Ask ─▶ consumer ─▶ Answered ─▶ Relays ─▶ Reply ─▶ admin

Java: AdminBrokerProcessor.callConsumer, Broker2Client.getConsumeStatus.
"""

from collections.abc import Callable
from typing import Final

from kourou.broker.access import Access
from kourou.broker.clients import Client, Clients
from kourou.broker.events import Asked, Outbox, Refused, Request
from kourou.broker.groups import Groups
from kourou.broker.settings import BrokerSettings
from kourou.broker.topics import Topics
from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import ProtocolError
from kourou.protocol.headers.table import SUB
from kourou.protocol.ids import decode_offset_id
from kourou.protocol.message import MessageQueue
from kourou.protocol.signing import SIGNATURE_FIELDS
from kourou.store.reading import Reader

CALL_TIMEOUT_MS: Final = 10_000
STATUS_TIMEOUT_MS: Final = 5_000

WAITING_MAX: Final = 1_000
"""How many requests may be in flight: each keeps its message in memory until the consumer has answered."""


class Relays:
    """Serves requests that consumers answer."""

    def __init__(
        self,
        settings: BrokerSettings,
        reader: Reader,
        topics: Topics,
        groups: Groups,
        clients: Clients,
        outbox: Outbox,
        access: Access,
    ) -> None:
        self._access = access
        self._settings = settings
        self._reader = reader
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._outbox = outbox
        self._waiting = 0

    def running_info(self, asked: Request[headers.GetConsumerRunningInfo]) -> None:
        """GET_CONSUMER_RUNNING_INFO."""
        header = asked.header
        question = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, ext=_handed_on(asked))
        self._call(header.consumer_group, header.client_id, question, asked)

    def consume_directly(self, asked: Request[headers.ConsumeMessageDirectly]) -> None:
        """CONSUME_MESSAGE_DIRECTLY: a consumer gets one message, whatever it has consumed."""
        header = asked.header
        ext = {**_handed_on(asked), "brokerName": self._settings.name}
        topic = self._topics.get(header.topic or "")
        if topic is not None:
            ext["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._groups.get(header.consumer_group)
        if group is not None:
            ext["groupSysFlag"] = str(group.group_sys_flag)
        record = self._record(header.msg_id or "", asked)
        question = Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext=ext, body=record)
        self._call(header.consumer_group, header.client_id or "", question, asked)

    def _record(self, message_id: str, asked: Asked) -> bytes:
        try:
            _, offset = decode_offset_id(message_id)
        except ProtocolError as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"{message_id[:40]} is not the id of a stored message: {error}"
            ) from None
        record = self._reader.record_at(offset)
        if record is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        if self._access.rules is not None:  # the topic that the request names may be another one
            message = self._reader.message_at(offset)
            self._access.check_topic(asked, "" if message is None else message.topic, SUB)
        return bytes(record)

    def _call(self, group: str, client_id: str, question: Command, asked: Asked) -> None:
        members = self._clients.group(group)
        client = None if members is None else members.client(client_id)
        if client is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")

        def go_on(answer: Command | None) -> None:
            request = asked.command
            if answer is None:
                reply = request.answer(
                    ResponseCode.CONSUME_MSG_TIMEOUT,
                    f"consumer <{group}> <{client_id}> Timeout: no answer in {CALL_TIMEOUT_MS} ms, or it is gone",
                )
            else:
                reply = request.answer(answer.code, answer.remark, answer.ext, answer.body)
            self._outbox.reply(asked.peer, request, reply)

        self._ask(client, question, CALL_TIMEOUT_MS, go_on)

    def status(self, asked: Request[headers.InvokeBrokerToGetConsumerStatus]) -> None:
        """INVOKE_BROKER_TO_GET_CONSUMER_STATUS: the offsets that the members of a group, or one of them, report."""
        header = asked.header
        group = self._clients.group(header.group)
        if group is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]")
        wanted = (header.client_addr or "").strip()
        clients = [client for client in group.clients.values() if not wanted or client.client_id == wanted]
        table: dict[str, dict[MessageQueue, int]] = {}
        left = len(clients)

        def finish() -> None:
            body = bodies.GetConsumerStatusBody(consumer_table=table)
            self._outbox.reply(asked.peer, asked.command, asked.command.answer(body=body.encode()))

        def answered_by(client: Client) -> Callable[[Command | None], None]:
            def go_on(answer: Command | None) -> None:
                nonlocal left
                left -= 1
                offsets = _offsets_in(answer, self._settings.loose_size_max)
                if offsets is not None:
                    table[client.client_id] = offsets
                if not left:
                    finish()

            return go_on

        if not clients:
            finish()
        ext = headers.GetConsumerStatusFromClient(topic=header.topic, group=header.group).encode()
        self._check_load(len(clients))
        for client in clients:
            question = Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext=ext)
            self._ask(client, question, STATUS_TIMEOUT_MS, answered_by(client))

    def _ask(self, client: Client, question: Command, timeout_ms: int, then: Callable[[Command | None], None]) -> None:
        self._check_load(1)
        self._waiting += 1

        def go_on(answer: Command | None, _: int) -> None:
            self._waiting -= 1
            then(answer)

        self._outbox.ask(client.peer, question, timeout_ms, go_on)

    def _check_load(self, more: int) -> None:
        if self._waiting + more > WAITING_MAX:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"{self._waiting} requests wait for consumers: try again later")


def _handed_on(asked: Asked) -> dict[str, str]:
    """The fields of a request without its signature, with which a consumer could send other requests in that name."""
    return {key: value for key, value in (asked.command.ext or {}).items() if key not in SIGNATURE_FIELDS}


def _offsets_in(answer: Command | None, size_max: int) -> dict[MessageQueue, int] | None:
    """The content of a consumer's answer; None if it is invalid or too large."""
    if answer is None or answer.code != ResponseCode.SUCCESS or not 0 < len(answer.body) <= size_max:
        return None
    try:
        return bodies.GetConsumerStatusBody.decode(answer.body).message_queue_table
    except ProtocolError:
        return None
