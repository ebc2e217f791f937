"""Requests that brokers send to consumers, often on behalf of an admin: state, progress, reset, consume one message.

    220  continue at these offsets           221  report your offsets
    307  report your state                   309  consume this message now, and report the result

Java: ClientRemotingProcessor.
"""

import asyncio
import sys
import threading
import time
import traceback
from typing import Final

from kourou.client.consumer import Consumer
from kourou.client.delivery import SETTLED, Delivery, Settling, delivered_topic
from kourou.client.session import Session
from kourou.net.connection import Connection
from kourou.protocol.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    GetConsumerStatusBody,
    ProcessQueueInfo,
    ResetOffsetBody,
)
from kourou.protocol.codes import CURRENT_VERSION, RequestCode
from kourou.protocol.command import Command
from kourou.protocol.errors import InvalidParameterError
from kourou.protocol.headers import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatusFromClient,
    ResetConsumerClientOffset,
)
from kourou.protocol.message import MessageQueue
from kourou.protocol.record import decode_record

DIRECT_TIMEOUT_S: Final = 9.0
"""Brokers wait ten seconds for the result of request 309."""


class BrokerRequests:
    """Answers these requests for the consumers of a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        session.answer_to(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset)
        session.answer_to(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._status)
        session.answer_to(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info)
        session.answer_to(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume_directly)

    def _consumer(self, group: str) -> Consumer:
        """Raises RefusedError."""
        member = self._session.members.get(group)
        if not isinstance(member, Consumer):
            raise InvalidParameterError(f"The Consumer Group <{group}> not exist in this consumer")
        return member

    def _reset(self, connection: Connection, command: Command) -> None:  # noqa: ARG002
        header = ResetConsumerClientOffset.decode(command.ext)
        offsets = ResetOffsetBody.decode(command.body).offset_table if command.body else {}
        consumer = self._consumer(header.group)
        wanted = {queue: offset for queue, offset in offsets.items() if queue in consumer.queues}
        self._session.answer_later(consumer.reset(wanted), f"reset {header.group}")

    def _status(self, connection: Connection, command: Command) -> None:
        header = GetConsumerStatusFromClient.decode(command.ext)
        consumer = self._consumer(header.group)
        table = {
            queue: offset
            for queue in consumer.queues
            if queue.topic == header.topic and (offset := consumer.offsets.committed(queue)) is not None
        }
        connection.reply(command.answer(body=GetConsumerStatusBody(message_queue_table=table).encode()))

    def _running_info(self, connection: Connection, command: Command) -> None:
        header = GetConsumerRunningInfo.decode(command.ext)
        info = running_info(self._consumer(header.consumer_group), with_stacks=header.jstack_enable)
        connection.reply(command.answer(body=info.encode()))

    def _consume_directly(self, connection: Connection, command: Command) -> None:
        header = ConsumeMessageDirectly.decode(command.ext)
        consumer = self._consumer(header.consumer_group)
        record = decode_record(command.body)
        queue = MessageQueue(record.topic, header.broker_name or "", record.queue_id)
        self._session.check_room()
        trial = _Trial()
        topic = self._session.unwrap(delivered_topic(record))
        consumer.offer_alone(record, queue, topic, trial)

        async def answer() -> None:
            result = await trial.result(is_orderly=consumer.settings.orderly)
            connection.reply(command.answer(body=result.encode()))

        self._session.answer_later(answer(), f"trial {header.consumer_group}")


class _Trial:
    """Settles a message that an admin wants to have consumed. It comes from no queue."""

    def __init__(self) -> None:
        self._outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._begun = time.monotonic()

    def acked(self, delivery: Delivery) -> None:  # noqa: ARG002
        self._done("CR_SUCCESS")

    def failed(self, delivery: Delivery, delay_level: int) -> Settling:  # noqa: ARG002
        self._done("CR_LATER")
        return SETTLED

    def released(self, delivery: Delivery) -> None:  # noqa: ARG002
        self._done("CR_LATER")

    def _done(self, outcome: str) -> None:
        if not self._outcome.done():
            self._outcome.set_result(outcome)

    async def result(self, *, is_orderly: bool) -> ConsumeMessageDirectlyResult:
        remark = None
        try:
            async with asyncio.timeout(DIRECT_TIMEOUT_S):
                outcome = await self._outcome
        except TimeoutError:
            outcome, remark = "CR_THROW_EXCEPTION", f"not consumed within {DIRECT_TIMEOUT_S:g} s"
        spent = round((time.monotonic() - self._begun) * 1000)
        return ConsumeMessageDirectlyResult(
            order=is_orderly, consume_result=outcome, remark=remark, spent_time_mills=spent
        )


def running_info(consumer: Consumer, *, with_stacks: bool = False) -> ConsumerRunningInfo:
    """The internal state of a consumer, in Java's terms."""
    properties = {
        "PROP_NAMESERVER_ADDR": str(consumer.session.name_servers),
        "PROP_CONSUME_TYPE": consumer.kind,
        "PROP_CONSUME_ORDERLY": str(consumer.settings.orderly).lower(),
        "PROP_THREADPOOL_CORE_SIZE": str(consumer.settings.concurrency),
        "PROP_CLIENT_VERSION": CURRENT_VERSION.name,
        "PROP_CONSUMER_START_TIMESTAMP": str(consumer.started_ms),
    }
    return ConsumerRunningInfo(
        properties=properties,
        subscription_set=list(consumer.subscriptions.values()),
        mq_table={queue: _queue_info(consumer, queue) for queue in sorted(consumer.queues)},
        status_table={topic: _status_of(consumer, topic) for topic in consumer.subscriptions},
        jstack=_stacks() if with_stacks else None,
    )


def _queue_info(consumer: Consumer, queue: MessageQueue) -> ProcessQueueInfo:
    assigned = consumer.queues[queue]
    unsettled = assigned.unsettled
    wall = time.time() - time.monotonic()
    return ProcessQueueInfo(
        commit_offset=consumer.offsets.committed(queue) or 0,
        cached_msg_min_offset=unsettled.first or 0,
        cached_msg_max_offset=max(unsettled.end - 1, 0) if unsettled.count else 0,
        cached_msg_count=unsettled.count,
        cached_msg_size_in_mib=unsettled.size >> 20,
        locked=consumer.settings.orderly and assigned.is_locked(time.monotonic()),
        droped=assigned.dropped,
        last_lock_timestamp=round((wall + max(assigned.locked_at, 0)) * 1000),
        last_pull_timestamp=round((wall + assigned.last_pull) * 1000) if assigned.last_pull else 0,
        last_consume_timestamp=round((wall + assigned.last_consume) * 1000) if assigned.last_consume else 0,
    )


def _status_of(consumer: Consumer, topic: str) -> ConsumeStatus:
    """Averages since the start."""
    counts = consumer.session.metrics.consumed[consumer.group, topic]
    elapsed = max(time.time() - consumer.started_ms / 1000, 1.0)
    done = counts.succeeded + counts.failed
    return ConsumeStatus(
        pull_rt=1000 * counts.pull_seconds / counts.pulls if counts.pulls else 0.0,
        pull_tps=counts.pulled / elapsed,
        consume_rt=1000 * counts.seconds / done if done else 0.0,
        consume_ok_tps=counts.succeeded / elapsed,
        consume_failed_tps=counts.failed / elapsed,
        consume_failed_msgs=counts.failed,
    )


def _stacks() -> str:
    """The stack traces of all threads."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames().items()
    return "\n".join(f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}" for ident, frame in frames)


__all__ = ["BrokerRequests", "running_info"]
