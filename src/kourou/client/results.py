"""The results of sends."""

from enum import IntEnum

import msgspec

from kourou.client.errors import ClientError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import HeaderError, KourouError
from kourou.protocol.message import MessageQueue


class SendStatus(IntEnum):
    """How durable a stored message is. OK: as the broker's flush and replication modes promise; otherwise less."""

    OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


STORED_CODES = frozenset(int(status) for status in SendStatus)
_STATUS = {int(status): status for status in SendStatus}


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message was stored."""

    status: SendStatus
    message_id: str
    """The id that consumers know it by; of a batch, all of them, joined by commas."""
    offset_id: str
    """The offset id, which encodes its place in the broker's store; of a batch, all of them, joined by commas."""
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region: str | None = None
    recall_handle: str | None = None
    """The handle to recall a delayed message with."""
    is_traced: bool = True
    """Whether the broker wants traces of its messages (`traceOn`)."""

    @property
    def is_safe(self) -> bool:
        """Whether the message is as durable as the broker's flush and replication modes promise."""
        return self.status is SendStatus.OK

    @property
    def message_ids(self) -> list[str]:
        return self.message_id.split(",")


def send_result(answer: Command, message_id: str, queue: MessageQueue) -> SendResult:
    """The result in a broker's answer with one of STORED_CODES. Raises HeaderError."""
    ext = answer.ext or {}
    try:
        queue_id = int(ext["queueId"])
        if queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
        return SendResult(
            _STATUS[answer.code],
            message_id,
            ext["msgId"],
            queue,
            int(ext["queueOffset"]),
            ext.get("transactionId"),
            ext.get("MSG_REGION"),
            ext.get("recallHandle"),
            ext.get("TRACE_ON") != "false",
        )
    except (KeyError, ValueError) as error:
        raise HeaderError(f"the broker's answer to a send is not valid: {error}") from None


class SendManyError(ClientError):
    """Some messages of `send_many` could not be sent. `results` has the result or error of each, in order."""

    def __init__(self, results: "list[SendResult | KourouError]") -> None:
        errors = [result for result in results if isinstance(result, KourouError)]
        super().__init__(f"{len(errors)} of {len(results)} messages were not sent; the first: {errors[0]}")
        self.results = results
        self.errors = errors


def broker_of_handle(handle: str) -> str | None:
    """The broker in a recall handle, which is base64 of `v1 topic broker timestamp id`."""
    import base64

    try:
        parts = base64.urlsafe_b64decode(handle + "=" * (-len(handle) % 4)).decode().split(" ")
    except ValueError:
        return None
    return parts[2] if len(parts) == 5 else None
