"""Request and reply: a message whose sender waits for another one in return.

    requester ── request, REPLY_TO_CLIENT = its client id ──▶ broker ──▶ consumer
    requester ◀── PUSH_REPLY_MESSAGE_TO_CLIENT ── broker ◀── SEND_REPLY_MESSAGE, the same id ── consumer
                          └── its answer ──▶ the reply is stored ──▶ the consumer is answered

A requester is found by its client id, which is in its heartbeats. It is connected to the broker that gets the reply,
because consumers send replies to the broker that they got the request from. The consumer
learns whether the reply has arrived. It is stored in any case, so that it can be looked up later.

Java: ReplyMessageProcessor.
"""

import logging
from functools import partial

import msgspec

from kourou.broker.clients import Clients
from kourou.broker.events import Asked, Outbox, Refused, Request
from kourou.broker.message_writer import MessageWriter
from kourou.broker.meters import message_type
from kourou.broker.send import Send
from kourou.broker.settings import BrokerSettings
from kourou.broker.stats import Stats
from kourou.protocol import headers, properties as _properties
from kourou.protocol.codes import COMPRESSION_MASK, RequestCode, ResponseCode, SysFlag
from kourou.protocol.command import Command
from kourou.protocol.errors import LocalProtocolError
from kourou.protocol.names import shown
from kourou.protocol.properties import Property
from kourou.store.commit_log import NewMessage
from kourou.store.errors import StoreError

log = logging.getLogger(__name__)

PUSH_TIMEOUT_MS = 10_000
PUSHED_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of replies that may wait for requesters, since a requester that does not answer must not fill the memory."""

_KEPT_FLAGS = int(COMPRESSION_MASK | SysFlag.COMPRESSED)


class Replies:
    """Serves replies."""

    def __init__(
        self,
        settings: BrokerSettings,
        clients: Clients,
        send: Send,
        writer: MessageWriter,
        stats: Stats,
        outbox: Outbox,
    ) -> None:
        self._settings = settings
        self._clients = clients
        self._send = send
        self._writer = writer
        self._stats = stats
        self._outbox = outbox
        self._pushed_bytes = 0

    def reply(self, asked: Request[headers.SendMessage | headers.SendMessageV2]) -> None:
        """SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2."""
        try:
            self._send.check_state(asked)
            header = asked.header.to_v2()
            topic = self._send.topic_for(header, asked)
            queue_id = self._send.choose_queue(header.queue_id, topic)
            if self._pushed_bytes > PUSHED_BYTES_MAX:
                raise Refused(
                    ResponseCode.SYSTEM_BUSY,
                    f"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, replies of "
                    f"{self._pushed_bytes} bytes wait for their requesters",
                )
        except Refused as refused:
            refused.ext = {**self._send.answer_ext, **(refused.ext or {})}
            raise
        header = self._with_region(header)
        problem = self._push(header, queue_id, asked)
        if problem is not None:
            log.warning("reply not forwarded peer=%s: %s", asked.peer.address, shown(problem))
            self._finish(header, queue_id, asked, problem, asked.now_ms)

    def _with_region(self, header: headers.SendMessageV2) -> headers.SendMessageV2:
        """A reply says which region it is from and whether it is traced, as other messages do."""
        properties = _properties.decode(header.properties or "")
        properties[Property.REGION] = self._send.answer_ext["MSG_REGION"]
        properties[Property.TRACE_ON] = self._send.answer_ext["TRACE_ON"]
        try:
            return msgspec.structs.replace(header, properties=_properties.encode(properties))
        except LocalProtocolError:  # there is no room for them
            return header

    def _push(self, header: headers.SendMessageV2, queue_id: int, asked: Asked) -> str | None:
        """Pass the reply to the waiting client; returns the reason if that is not possible."""
        properties = _properties.decode(header.properties or "")
        requester = properties.get(Property.REPLY_TO_CLIENT)
        if requester is None:
            return f"reply message properties[{Property.REPLY_TO_CLIENT}] is null"
        client = self._clients.by_id.get(requester)
        if client is None:
            return f"push reply message fail, channel of <{requester}> not found."
        properties[Property.PUSH_REPLY_TIME] = str(asked.wall_ms)
        try:
            text = _properties.encode(properties)
        except LocalProtocolError as error:
            return f"push reply message to {requester} fail. {error}"
        push = headers.PushReplyMessage(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=asked.peer.address,
            store_host=self._settings.address,
            store_timestamp=asked.wall_ms,
            properties=text,
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode or False,
        )
        body = asked.command.body
        command = Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext=push.encode(), body=body)
        self._pushed_bytes += len(body)
        self._outbox.ask(
            client.peer, command, PUSH_TIMEOUT_MS, partial(self._pushed, header, queue_id, asked, requester)
        )
        return None

    def _pushed(
        self,
        header: headers.SendMessageV2,
        queue_id: int,
        asked: Asked,
        requester: str,
        answer: Command | None,
        now_ms: int,
    ) -> None:
        """The requester has answered, or has not."""
        self._pushed_bytes -= len(asked.command.body)
        problem = None
        if answer is None or answer.code != ResponseCode.SUCCESS:
            problem = f"push reply message to {requester}fail."
            why = "no answer" if answer is None else f"code {answer.code}: {answer.remark}"
            log.warning("reply refused by %s: %s", shown(requester), shown(why))
        self._finish(header, queue_id, asked, problem, now_ms)

    def _finish(
        self, header: headers.SendMessageV2, queue_id: int, asked: Asked, problem: str | None, now_ms: int
    ) -> None:
        """Store the reply, and answer its sender."""
        command, ext = asked.command, dict(self._send.answer_ext)
        if problem is None:
            ext |= {"msgId": "0", "queueId": str(queue_id), "queueOffset": "0"}
        if self._settings.store_replies:
            ext |= self._store(header, queue_id, asked, now_ms)
        code = ResponseCode.SUCCESS if problem is None else ResponseCode.SYSTEM_ERROR
        self._writer.answer(asked.peer, command, command.answer(code, problem, ext), now_ms)

    def _store(self, header: headers.SendMessageV2, queue_id: int, asked: Asked, now_ms: int) -> dict[str, str]:
        """Where the reply is stored now. A failure is not a reason to send it again."""
        message = NewMessage(
            topic=header.topic,
            queue_id=queue_id,
            body=asked.command.body,
            properties=(header.properties or "").encode("utf-8", "replace"),
            born_ms=header.born_timestamp,
            born_host=asked.peer.host,
            flag=header.flag,
            sys_flag=header.sys_flag & _KEPT_FLAGS,
            reconsume_times=header.reconsume_times or 0,
        )
        try:
            (stored,) = self._writer.put([message], None, now_ms)
        except (Refused, StoreError) as error:
            log.warning("reply not stored topic=%s: %s", shown(header.topic), shown(error))
            return {}
        kind = message_type(_properties.decode(header.properties or ""))
        self._stats.put(header.topic, 1, stored.size, message_type=kind)
        return self._send.place(stored, queue_id, None)
