"""Producers with transactions, and their decisions.

    half message ─▶ answer ─▶ the local transaction decides ─▶ END_TRANSACTION, once, twice, later or never
    question of the broker ─▶ any producer of the group answers by what was decided, or does not know yet

What was decided is in a database that all producers share; it outlives them and the broker. Nobody sees a message that
was not committed there, a committed one is delivered, and once, whatever happened.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kourou.protocol import bodies, headers, properties as _properties
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.record import StoredMessage, decode_record

from .broker_actors import HEARTBEAT_MS, Actor, Sent, request

if TYPE_CHECKING:
    from .broker_run import BrokerRun

GROUP = "payers"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
UNKNOWN, COMMIT, ROLLBACK = 0, 8, 12
ONE_WAY = 2


@dataclass(slots=True)
class Payment:
    """One transaction."""

    sent: Sent
    outcome: int = UNKNOWN  # as the database has it
    answered: bool = False  # the producer knows that the half message is stored
    promised: bool = False  # an end of it was acknowledged

    @property
    def brief(self) -> str:
        return f"{self.sent.body[:12]!r} at {self.sent.physical}, outcome {self.outcome}, promised {self.promised}"


class Payments:
    """The database: what became of each transaction."""

    def __init__(self) -> None:
        self.by_body: dict[bytes, Payment] = {}

    def check_visible(self, message: StoredMessage) -> None:
        """A consumer got this message."""
        payment = self.by_body.get(bytes(message.body))
        assert payment is None or payment.outcome == COMMIT, f"visible, and never committed: {message}"

    def is_open(self, payment: Payment) -> bool:
        return payment.outcome == UNKNOWN

    def check(self, records: Iterable[StoredMessage]) -> None:
        """Without running work, the log agrees with the database."""
        halves: set[bytes] = set()
        discarded: set[bytes] = set()
        commits: Counter[bytes] = Counter()
        for message in records:
            body = bytes(message.body)
            if message.topic == HALF_TOPIC:
                halves.add(body)
            elif message.topic == DISCARD_TOPIC:
                discarded.add(body)
            elif body in self.by_body and message.sys_flag & 0xC == COMMIT and _is_first(message):
                commits[body] += 1
        twice = [body for body, count in commits.items() if count > 1]
        assert not twice, f"committed twice: {[body[:12] for body in twice[:5]]}"
        for body, payment in self.by_body.items():
            if payment.outcome == COMMIT and body in halves:
                assert commits[body] or (body in discarded and not payment.promised), (
                    f"never delivered: {payment.brief}"
                )
            else:
                assert not commits[body], f"delivered, and not committed: {payment.brief}"


def _is_first(message: StoredMessage) -> bool:
    """A commit, and no retry of one."""
    return message.prepared_offset >= 0 and message.reconsume_times == 0


class Payer(Actor):
    """Sends half messages, decides, and answers questions."""

    def __init__(self, run: "BrokerRun", name: str) -> None:
        super().__init__(run, name)
        self.count = 0
        self._beat_ms = 0

    def connected(self) -> None:
        super().connected()
        self._beat_ms = 0

    def act(self) -> None:
        assert self.client is not None
        now_ms = self.run.world.now_ms
        if now_ms - self._beat_ms >= HEARTBEAT_MS:
            self._beat_ms = now_ms
            beat = bodies.HeartbeatData(
                client_id=self.name, producer_data_set=[bodies.ProducerData(group_name=GROUP)], consumer_data_set=[]
            )
            self.call(request(RequestCode.HEART_BEAT, body=beat.encode()), lambda _: None)
        told, self.client.told = self.client.told, []
        for question in told:
            self._answer(question)
        if self.run.producing and len(self._waiting) < 4:
            self._send()

    # ── Half messages ─────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self) -> None:
        run, chance = self.run, self.run.chance
        self.count += 1
        queue_id = chance.randrange(run.queues["plain"])
        body = f"{self.name}-{self.count}-".encode() + bytes(chance.randrange(300))
        sent = Sent(body, HALF_TOPIC, 0, 0)
        payment = Payment(sent)
        run.sent[body] = sent
        run.payments.by_body[body] = payment
        properties = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": f"{self.name}{self.count:030d}"}
        if chance.random() < 0.2:
            properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = chance.choice(("3", "10"))
        header = headers.SendMessageV2(
            producer_group=GROUP,
            topic="plain",
            default_topic="TBW102",
            default_topic_queue_nums=run.queues["plain"],
            queue_id=queue_id,
            sys_flag=4,
            born_timestamp=run.world.now_ms + run.world.skew_ms,
            flag=0,
            properties=_properties.encode(properties),
        )
        self.call(request(RequestCode.SEND_MESSAGE_V2, header, body), lambda answer: self._stored(payment, answer))

    def _stored(self, payment: Payment, answer: Command) -> None:
        if answer.code != ResponseCode.SUCCESS:
            return
        assert answer.ext is not None
        sent, chance = payment.sent, self.run.chance
        sent.acked = payment.answered = True
        sent.physical = int(answer.ext["msgId"][-16:], 16)
        sent.queue_offset = int(answer.ext["queueOffset"])
        if payment.outcome != UNKNOWN or chance.random() < 0.3:  # somebody was asked, or it takes long
            return
        self._decide(payment)
        for _ in range(chance.choice((0, 1, 1, 1, 2))):
            self._end(payment, sent.queue_offset, sent.physical, checked=False)

    def _decide(self, payment: Payment) -> None:
        payment.outcome = self.run.chance.choice((COMMIT, COMMIT, ROLLBACK))

    def _end(self, payment: Payment, queue_offset: int, physical: int, *, checked: bool) -> None:
        header = headers.EndTransaction(
            producer_group=GROUP,
            tran_state_table_offset=queue_offset,
            commit_log_offset=physical,
            commit_or_rollback=payment.outcome,
            msg_id="",
            from_transaction_check=checked,
        )
        end = request(RequestCode.END_TRANSACTION, header)
        if checked or self.run.chance.random() < 0.5:
            assert self.client is not None
            end.flag |= ONE_WAY
            self.client.send(end)
            return

        def ended(answer: Command) -> None:
            if answer.code == ResponseCode.SUCCESS:
                payment.promised |= self.run.is_sync
            elif self.run.is_sync and not self.run.faults:  # a disk that fails may not give the half message
                assert answer.code != ResponseCode.SYSTEM_ERROR, f"{payment.brief}: {answer.remark}"

        self.call(end, ended)

    # ── Questions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _answer(self, question: Command) -> None:
        assert question.code == RequestCode.CHECK_TRANSACTION_STATE
        asked = headers.CheckTransactionState.decode(question.ext)
        record = decode_record(question.body, crc=True)
        payment = self.run.payments.by_body[bytes(record.body)]
        assert record.topic == "plain"
        patience = 1.0 if not self.run.producing else 0.5
        if payment.outcome == UNKNOWN and self.run.chance.random() < patience:
            if payment.answered:
                self._decide(payment)
            else:
                payment.outcome = ROLLBACK  # nobody has begun the local transaction, and nobody will
        if self.run.producing and self.run.chance.random() < 0.2:
            return  # the answer is lost
        self._end(payment, asked.tran_state_table_offset, asked.commit_log_offset, checked=True)
