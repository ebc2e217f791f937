"""What transactional producers say to a broker, in a line each."""

import itertools
from typing import Any

from tests.unit.broker.asking import TOPIC, heartbeat, messages, offset_of, ok, request, send

from kourou.protocol import headers
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.record import StoredMessage
from kourou.testing.broker import SimulatedBroker, SimulatedClient

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SYSTEM_GROUP = "CID_RMQ_SYS_TRANS"
GROUP = "payers"
UNKNOWN, COMMIT, ROLLBACK = 0, 8, 12
PREPARED = 4

_numbers = itertools.count(1)


def half(
    body: bytes, now_ms: int, *, group: str = GROUP, properties: dict[str, str] | None = None, **more: Any
) -> Command:
    """A half message, as Java's clients send it."""
    own = {"UNIQ_KEY": f"{next(_numbers):032X}", "TRAN_MSG": "true", "PGROUP": group, "WAIT": "true"}
    fields: dict[str, Any] = {"sys_flag": PREPARED, "born_timestamp": now_ms, "producer_group": group}
    return send(body, properties=own | (properties or {}), **(fields | more))


def end(sent: Command, outcome: int, *, group: str = GROUP, checked: bool = False, **more: Any) -> Command:
    """END_TRANSACTION about a half message, by the answer to its send."""
    assert sent.ext is not None
    fields: dict[str, Any] = {
        "producer_group": group,
        "tran_state_table_offset": int(sent.ext["queueOffset"]),
        "commit_log_offset": offset_of(sent),
        "commit_or_rollback": outcome,
        "msg_id": sent.ext["transactionId"],
        "from_transaction_check": checked,
        "transaction_id": sent.ext["transactionId"],
    }
    return request(RequestCode.END_TRANSACTION, headers.EndTransaction(**(fields | more)))


def end_asked(question: Command, outcome: int, *, group: str = GROUP) -> Command:
    """END_TRANSACTION in reply to a check."""
    asked = headers.CheckTransactionState.decode(question.ext)
    header = headers.EndTransaction(
        producer_group=group,
        tran_state_table_offset=asked.tran_state_table_offset,
        commit_log_offset=asked.commit_log_offset,
        commit_or_rollback=outcome,
        msg_id=asked.msg_id or "",
        from_transaction_check=True,
        transaction_id=asked.transaction_id,
    )
    return request(RequestCode.END_TRANSACTION, header)


class Story:
    """A broker, and a producer that is connected to it."""

    def __init__(self, world: SimulatedBroker | None = None, **settings: Any) -> None:
        self.world = world or SimulatedBroker(**settings)
        self.producer = self.join()

    def join(self, client_id: str = "payer-1", group: str = GROUP) -> SimulatedClient:
        client = self.world.connect()
        ok(client, heartbeat(client_id, producers=group))
        return client

    def send_half(self, body: bytes, **more: Any) -> Command:
        return ok(self.producer, half(body, self.world.now_ms + self.world.skew_ms, **more))

    def ask_end(self, sent: Command, outcome: int, **more: Any) -> Command:
        return self.producer.ask(end(sent, outcome, **more))

    def commit(self, sent: Command) -> None:
        ok(self.producer, end(sent, COMMIT))

    def roll_back(self, sent: Command) -> None:
        ok(self.producer, end(sent, ROLLBACK))

    def take_questions(self, client: SimulatedClient | None = None) -> list[Command]:
        client = client or self.producer
        told, client.told = client.told, []
        return [command for command in told if command.code == RequestCode.CHECK_TRANSACTION_STATE]

    def next_questions(self, seconds: int = 60) -> list[Command]:
        """The questions of the next round."""
        for _ in range(seconds * 10):
            if questions := self.take_questions():
                return questions
            self.world.pass_time(100)
        return []

    def again(self, how: str) -> "Story":
        """The broker ends (stop, kill, crash), and the producer is connected to the next one."""
        return Story(getattr(self.world, how)())

    # What is there.

    def halves(self) -> list[StoredMessage]:
        return messages(self.world, HALF_TOPIC)

    def ops(self) -> list[bytes]:
        return [bytes(record.body) for record in messages(self.world, OP_TOPIC)]

    def delivered(self, topic: str = TOPIC) -> list[bytes]:
        return [bytes(record.body) for record in messages(self.world, topic)]

    def kept(self, topic: str = HALF_TOPIC) -> int:
        return self.world.machine.offsets.get(SYSTEM_GROUP, topic, 0)
