"""RECALL_MESSAGE: cancels a waiting message. Also the requests about the state of the timers.

A recall is itself a message, which waits in the slot of the message that it recalls. It is not checked that the message
exists: the answer only confirms that the recall is stored.

Java: RecallMessageProcessor.
"""

from kourou.broker.events import Asked, Refused, Request
from kourou.broker.message_writer import MessageWriter
from kourou.broker.names import NOT_FOR_SENDING
from kourou.broker.serving import Serve
from kourou.broker.settings import BrokerSettings, Role
from kourou.broker.stats import Stats
from kourou.broker.timers import handles
from kourou.broker.timers.handles import Handle
from kourou.broker.timers.service import Timers
from kourou.broker.topics import Topics
from kourou.protocol import headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.properties import Property
from kourou.store.commit_log import NewMessage

RECALL_TAG = "_RECALL_TAG_"


def timer_requests(
    settings: BrokerSettings, topics: Topics, writer: MessageWriter, stats: Stats, timers: Timers
) -> dict[int, Serve]:
    """The functions of the requests about timers, by code."""
    requests = TimerRequests(settings, topics, writer, stats, timers)
    return {
        RequestCode.RECALL_MESSAGE: requests.recall,
        RequestCode.GET_TIMER_CHECK_POINT: requests.checkpoint,
        RequestCode.GET_TIMER_METRICS: requests.metrics,
    }


class TimerRequests:
    """Serves requests about timers."""

    def __init__(
        self, settings: BrokerSettings, topics: Topics, writer: MessageWriter, stats: Stats, timers: Timers
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._writer = writer
        self._stats = stats
        self._timers = timers

    def recall(self, asked: Request[headers.RecallMessage]) -> Command | None:
        """RECALL_MESSAGE."""
        ext = {"MSG_REGION": self._settings.region}
        try:
            handle = self._checked(asked.header, asked)
            stored = self._store(handle, asked.header.producer_group or "", asked)
        except Refused as refused:
            refused.ext = {**ext, **(refused.ext or {})}
            raise
        answer = asked.command.answer(ext={**ext, "msgId": handle.unique_key})
        self._stats.put(stored.topic, 1, len(stored.body))
        self._writer.answer(asked.peer, asked.command, answer, asked.now_ms)
        return None

    def _checked(self, header: headers.RecallMessage, asked: Asked) -> Handle:
        """The message to recall, if it may be recalled. Raises Refused."""
        settings = self._settings
        if not settings.recall:
            raise Refused(ResponseCode.NO_PERMISSION, "recall failed: recallMessageEnable=false on this broker")
        if settings.role is Role.SLAVE:
            raise Refused(ResponseCode.SLAVE_NOT_AVAILABLE, "recall failed: this broker is a slave")
        if asked.wall_ms < settings.accept_sends_from_ms:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed: the broker does not accept messages yet")
        if not settings.is_writable and not settings.recall_if_read_only:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed: the broker is not writable")
        if self._topics.get(header.topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"recall failed: the topic {header.topic} does not exist")
        handle = handles.decode(header.recall_handle)
        if handle is None or handle.topic in NOT_FOR_SENDING:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
        if handle.topic != header.topic:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall failed: the handle belongs to another topic")
        if handle.broker != settings.name:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall failed: the handle belongs to another broker")
        left_ms = handle.time_ms - self._timers.time_ms(asked.now_ms)
        if not 0 < left_ms < settings.timer_max_delay_s * 1000:
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION, "recall failed: the message is due, or beyond timerMaxDelaySec"
            )
        return handle

    def _store(self, handle: Handle, group: str, asked: Asked) -> NewMessage:
        key = handle.unique_key
        properties = {
            Property.TAGS: RECALL_TAG,
            Property.TIMER_DEL_UNIQUE_KEY: f"{handle.topic}+{key}" if self._settings.recall_by_topic else key,
            Property.UNIQUE_KEY: key,
            Property.TIMER_DELIVER_MS: handle.time,
            Property.BORN_TIMESTAMP: str(asked.wall_ms),
        }
        if group:
            properties[Property.PRODUCER_GROUP] = group
        message = NewMessage(
            topic=handle.topic,
            queue_id=0,
            body=b"0",
            properties=b"",
            born_ms=asked.wall_ms,
            born_host=asked.peer.host,
        )
        try:
            self._writer.put([message], properties, asked.now_ms)
        except Refused as refused:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"recall failed: {refused.remark}") from None
        return message

    # ── The state of the timers ───────────────────────────────────────────────────────────────────────────────────

    def checkpoint(self, asked: Asked) -> Command:
        """GET_TIMER_CHECK_POINT, for slaves."""
        return asked.command.answer(body=self._timers.checkpoint_head())

    def metrics(self, asked: Asked) -> Command:
        """GET_TIMER_METRICS, for slaves."""
        return asked.command.answer(body=self._timers.wrapper().encode())
