"""Sending a failed message back: the broker delivers it to the group again later, or keeps it as a dead letter.

The broker copies the message from its log to the group's retry topic. If that is not possible (the broker can't be
reached, or the consumer is orderly), the client sends the copy itself. Java: DefaultMQPushConsumerImpl.sendMessageBack.
"""

import time
from typing import TYPE_CHECKING, Final

from kourou.client.errors import NoBrokerError
from kourou.client.naming import DEFAULT_TOPIC
from kourou.client.session import INNER_PRODUCER
from kourou.net.errors import TransportError
from kourou.protocol import properties as _properties
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.errors import KourouError
from kourou.protocol.headers import ConsumerSendMsgBack
from kourou.protocol.properties import Property

if TYPE_CHECKING:
    from kourou.client.consumer import Consumer
    from kourou.client.delivery import Delivery

RETRIES_DEFAULT: Final = 16
TIMEOUT_S: Final = 5.0

_DROPPED: Final = (Property.TRANSACTION_PREPARED, Property.MIN_OFFSET, Property.MAX_OFFSET)


async def give_back(consumer: "Consumer", delivery: "Delivery", delay_level: int, *, resend: bool = False) -> None:
    """With level 0 the broker chooses the delay; -1 makes it a dead letter. Raises KourouError if both ways fail."""
    limit = consumer.settings.retries if consumer.settings.retries >= 0 else RETRIES_DEFAULT
    if not resend or delay_level < 0:
        try:
            await _ask_broker(consumer, delivery, delay_level, limit)
            return
        except (TransportError, NoBrokerError):
            pass
        except KourouError:
            if delay_level < 0:
                raise
    # A message with more attempts than allowed becomes a dead letter.
    times = max(delivery.reconsume_times + 1, 0 if delay_level >= 0 else limit + 1)
    await _send_copy(consumer, delivery, limit, times)


async def _ask_broker(consumer: "Consumer", delivery: "Delivery", delay_level: int, limit: int) -> None:
    header = ConsumerSendMsgBack(
        offset=delivery.physical_offset,
        group=consumer.group,
        delay_level=delay_level,
        origin_msg_id=delivery.offset_id,
        origin_topic=consumer.session.wrap(delivery.topic),
        max_reconsume_times=limit,
    )
    address = consumer.session.routes.master(delivery.queue.broker_name)
    ext = {**header.encode(), "bname": delivery.queue.broker_name}
    await consumer.session.pool.ask(address, Command(RequestCode.CONSUMER_SEND_MSG_BACK, ext=ext), TIMEOUT_S)


async def _send_copy(consumer: "Consumer", delivery: "Delivery", limit: int, times: int) -> None:
    """Sends a copy to the retry topic; by its properties the broker treats it as a retry."""
    session = consumer.session
    named = {name: value for name, value in delivery.properties.items() if name not in _DROPPED}
    named[Property.RETRY_TOPIC] = session.wrap(delivery.topic)
    named.setdefault(Property.ORIGIN_MESSAGE_ID, delivery.offset_id)
    named[Property.RECONSUME_TIME] = str(times)
    named[Property.MAX_RECONSUME_TIMES] = str(limit)
    named[Property.DELAY_LEVEL] = str(3 + delivery.reconsume_times)
    route = await session.routes.get(consumer.retry_topic)
    failure: KourouError = NoBrokerError(f"topic {consumer.retry_topic!r} accepts no messages now")
    for queue in route.publish:
        ext = {
            "a": INNER_PRODUCER,
            "b": consumer.retry_topic,
            "c": DEFAULT_TOPIC,
            "d": "4",
            "e": str(queue.queue_id),
            "f": str(delivery.sys_flag & 0x701),
            "g": str(time.time_ns() // 1_000_000),
            "h": str(delivery.flag),
            "i": _properties.encode(named),
            "j": str(times),
            "k": "false",
            "l": str(limit),
            "m": "false",
            "n": queue.broker_name,
        }
        command = Command(RequestCode.SEND_MESSAGE_V2, ext=ext, body=bytes(delivery.record.body))
        try:
            await session.pool.ask(session.routes.master_of(queue), command, TIMEOUT_S)
            return
        except KourouError as error:
            failure = error
    raise failure
