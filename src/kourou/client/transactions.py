"""Transactions: messages that are delivered if the program's own work succeeds, and never if it fails.

    send half message ─▶ do the work ─▶ commit: delivered      the broker stores the half message where consumers do not
    see it
                             └────────▶ roll back: gone

If the producer dies before the commit, or the commit is lost, the broker asks any client of the same producer group for
the outcome (request 39), repeatedly. If the transaction ended in this process, that outcome is the answer; otherwise
the result of the user's `Checker`. While the block of a transaction runs, the answer is "not known yet".

Java: TransactionMQProducer, DefaultMQProducerImpl.endTransaction.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final
from weakref import WeakValueDictionary

from kourou.client import naming
from kourou.client.delivery import Delivery, delivered_topic
from kourou.client.errors import ClosedError, InvalidMessageError, TransactionFailedError
from kourou.client.events import call
from kourou.client.outgoing import Message
from kourou.client.producer import Producer, make_message
from kourou.client.results import SendResult
from kourou.client.selecting import selector_of, sharding
from kourou.client.session import Session
from kourou.net.connection import Connection
from kourou.protocol.codes import CommandFlag, RequestCode, SysFlag
from kourou.protocol.command import Command
from kourou.protocol.errors import KourouError
from kourou.protocol.headers import CheckTransactionState, EndTransaction
from kourou.protocol.ids import decode_offset_id
from kourou.protocol.message import MessageQueue
from kourou.protocol.properties import Property
from kourou.protocol.record import decode_record

log = logging.getLogger(__name__)

Checker = Callable[[Delivery], Awaitable[bool | None] | bool | None]
"""The outcome of this message's transaction. True: committed; False: rolled back; None: not known yet."""

REMEMBERED: Final = 10_000
"""Outcomes that are kept for the checks of brokers, in case a commit is lost."""


class Outcome(IntEnum):
    """`commitOrRollback` on the wire."""

    UNKNOWN = 0
    COMMIT = SysFlag.TRANSACTION_COMMIT
    ROLLBACK = SysFlag.TRANSACTION_ROLLBACK


class Transactions:
    """The transactions of one client."""

    def __init__(self, session: Session, producer_of: Callable[[str], Producer]) -> None:
        self._session = session
        self._producer_of = producer_of
        self._checkers: dict[str, Checker] = {}  # by group, with the namespace
        self._producers: dict[str, Producer] = {}  # the same
        self._announced: set[tuple[str, str]] = set()  # (group, topic): the topic's brokers know the group
        self._decisions: OrderedDict[str, Outcome] = OrderedDict()  # message id -> outcome
        self._running: WeakValueDictionary[str, Transaction] = WeakValueDictionary()  # the same -> whose block runs
        session.answer_to(RequestCode.CHECK_TRANSACTION_STATE, self._check)

    def begin(self, topic: str, group: str, check: Checker | None) -> "Transaction":
        producer = self._producer(group)
        if check is not None:
            self._checkers[producer.group] = check
        return Transaction(self, self._session, producer, topic)

    async def answer_with(self, group: str, check: Checker, topics: Sequence[str]) -> None:
        """Answer checks for this group from now on: from the brokers of these topics, or from all brokers.

        Raises NoRouteError, NoNameServerError.
        """
        producer = self._producer(group)
        self._checkers[producer.group] = check
        for topic in topics:
            naming.check_topic(topic)
            await self._session.publish_route(self._session.wrap(topic))
        if not topics:
            await self._session.use_all_brokers()
        await self._session.heartbeat()

    def _producer(self, group: str) -> Producer:
        producer = self._producer_of(group)
        if self._producers.get(producer.group) is not producer:  # of a group that is new, or had left its brokers
            self._producers[producer.group] = producer
            self._announced -= {known for known in self._announced if known[0] == producer.group}
        return producer

    async def announce(self, group: str, topic: str) -> None:
        """Registers the group at the topic's brokers: brokers send checks only to groups that they know."""
        if (group, topic) not in self._announced:
            await self._session.publish_route(self._session.wrap(topic))
            await self._session.heartbeat()
            self._announced.add((group, topic))

    def entered(self, message_id: str, transaction: "Transaction") -> None:
        """A message belongs to a transaction whose block runs: its outcome is not known yet."""
        self._running[message_id] = transaction

    def decide(self, message_id: str, outcome: Outcome) -> None:
        self._running.pop(message_id, None)
        self._decisions[message_id] = outcome
        if len(self._decisions) > REMEMBERED:
            self._decisions.popitem(last=False)

    def forget(self, message_id: str) -> None:
        self._running.pop(message_id, None)

    async def end(self, group: str, sent: SendResult, outcome: Outcome, remark: str | None = None) -> None:
        """Tell the broker the outcome. If that is lost, the broker asks for it."""
        self.decide(sent.message_id, outcome)
        try:
            header = EndTransaction(
                producer_group=group,
                tran_state_table_offset=sent.queue_offset,
                commit_log_offset=decode_offset_id(sent.offset_id).offset,
                commit_or_rollback=outcome,
                msg_id=sent.message_id,
                from_transaction_check=False,
                transaction_id=sent.transaction_id,
                topic=sent.queue.topic,
            )
            ext = {**header.encode(), "bname": sent.queue.broker_name}
            command = Command(RequestCode.END_TRANSACTION, remark=remark, ext=ext)
            await self._session.pool.tell(self._session.routes.master_of(sent.queue), command)
        except KourouError as error:
            if isinstance(error, ClosedError) and outcome is Outcome.COMMIT:
                raise ClosedError(
                    f"the client was closed before the commit of message {sent.message_id}: the broker asks another "
                    "client of the group, and discards the message if none knows the outcome"
                ) from None
            log.warning(
                "the broker was not told of the %s and will ask for it id=%s: %s",
                outcome.name,
                sent.message_id,
                error,
            )
            return
        if sent.is_traced:
            self._trace(group, sent.queue, sent.message_id, sent.transaction_id, outcome, checked=False)

    def _trace(
        self,
        group: str,
        queue: MessageQueue,
        message_id: str,
        transaction_id: str | None,
        outcome: Outcome,
        *,
        checked: bool,
    ) -> None:
        producer = self._producers.get(group)
        if producer is not None and producer.on_ended is not None:
            producer.on_ended(queue, message_id, transaction_id or "", outcome, checked)

    # ── Checks by brokers ─────────────────────────────────────────────────────────────────────────────────────────

    def _check(self, connection: Connection, command: Command) -> None:
        header = CheckTransactionState.decode(command.ext)
        record = decode_record(command.body)
        queue = MessageQueue(record.topic, header.broker_name or "", record.queue_id)
        limit = self._session.settings.max_body
        message = Delivery(record, queue, self._session.unwrap(delivered_topic(record)), None, max_body=limit)
        self._session.answer_later(self._answer(connection, header, message), f"check {message.message_id}")

    async def _answer(self, connection: Connection, header: CheckTransactionState, message: Delivery) -> None:
        group = message.properties.get(Property.PRODUCER_GROUP, "")
        remark = None
        try:
            outcome = await self._outcome(group, message)
        except Exception as error:
            log.exception("transaction check failed id=%s", message.message_id)
            outcome, remark = Outcome.UNKNOWN, f"checkLocalTransactionState exception: {error}"
        answer = EndTransaction(
            producer_group=group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=outcome,
            msg_id=message.message_id,
            from_transaction_check=True,
            transaction_id=header.transaction_id,
            topic=message.queue.topic,
        )
        ext = {**answer.encode(), "bname": message.queue.broker_name}
        command = Command(RequestCode.END_TRANSACTION, flag=int(CommandFlag.ONE_WAY), remark=remark, ext=ext)
        self._session.pool.sign(command)
        connection.send_now(command)
        if message.properties.get(Property.TRACE_ON) != "false":
            self._trace(group, message.queue, message.message_id, header.transaction_id, outcome, checked=True)

    async def _outcome(self, group: str, message: Delivery) -> Outcome:
        if message.message_id in self._running:
            return Outcome.UNKNOWN
        decided = self._decisions.get(message.message_id)
        if decided is not None:
            return decided
        checker = self._checkers.get(group)
        if checker is None:
            return Outcome.UNKNOWN
        verdict = await call(checker, message)
        if verdict is None:
            return Outcome.UNKNOWN
        return Outcome.COMMIT if verdict else Outcome.ROLLBACK

    async def close(self) -> None:
        self._checkers.clear()


class Transaction:
    """`async with mq.transaction(...) as tx`: commits at the end, rolls back after an exception."""

    def __init__(self, transactions: Transactions, session: Session, producer: Producer, topic: str) -> None:
        self._transactions = transactions
        self._session = session
        self._producer = producer
        self._topic = topic
        self._halves: list[SendResult] = []
        self._ended = False

    async def __aenter__(self) -> "Transaction":
        await self._transactions.announce(self._producer.group, self._topic)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            await self.commit()
        else:
            await asyncio.shield(asyncio.ensure_future(self.rollback(f"{type(error).__name__}: {error}")))

    async def send(
        self,
        body: bytes | Message,
        *,
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        ordering_key: str | None = None,
        topic: str | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Store a message that consumers do not see before the commit; in the transaction's topic, or in another one.

        Raises TransactionFailedError if it is not stored as durably as the broker promises; otherwise as
        `Producer.send`.
        """
        if self.has_ended():
            raise TransactionFailedError("the transaction has ended")
        message = make_message(body, tag=tag, keys=keys, properties=properties)
        if message.delay is not None or message.deliver_at is not None or message.delay_level:
            raise InvalidMessageError("a message of a transaction can't be delayed")
        extra = {
            Property.TRANSACTION_PREPARED: "true",
            Property.PRODUCER_GROUP: self._producer.group,
            **sharding(ordering_key),
        }
        if topic is not None:
            await self._transactions.announce(self._producer.group, topic)
        prepared = self._producer.draft(topic or self._topic, message, extra)
        self._transactions.entered(prepared.unique_id, self)
        fixed = selector_of(self._session, ordering_key)
        try:
            sent = await self._producer.send_draft(prepared, fixed, timeout)
        except BaseException:  # the message may be stored all the same, but the caller got an error
            self._transactions.decide(prepared.unique_id, Outcome.ROLLBACK)
            raise
        if self.has_ended():  # by another task, which did not wait for this one
            await self._transactions.end(self._producer.group, sent, Outcome.ROLLBACK, "sent too late")
            raise TransactionFailedError("the transaction ended before the message was sent: await every send in it")
        self._halves.append(sent)
        if not sent.is_safe:
            await self.rollback(f"stored with {sent.status.name}")
            raise TransactionFailedError(f"half message {sent.message_id} was not stored durably: {sent.status.name}")
        return sent

    def has_ended(self) -> bool:
        """Whether it was committed, rolled back, or left open."""
        return self._ended

    async def commit(self) -> None:
        """Deliver the messages of the transaction."""
        await self._end(Outcome.COMMIT, None)

    async def rollback(self, reason: str | None = None) -> None:
        """Discard the messages of the transaction."""
        await self._end(Outcome.ROLLBACK, reason)

    async def leave_open(self) -> None:
        """End without an outcome: the broker will ask, and the checker decides."""
        if not self._ended:
            self._ended = True
            for half in self._halves:
                self._transactions.forget(half.message_id)

    async def _end(self, outcome: Outcome, remark: str | None) -> None:
        if self._ended:
            return
        self._ended = True
        for half in self._halves:
            self._transactions.decide(half.message_id, outcome)  # before the first await: the broker may ask meanwhile
        for half in self._halves:
            await self._transactions.end(self._producer.group, half, outcome, remark)
