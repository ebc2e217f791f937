"""Transactions beside a model: whatever producers, clocks and crashes do, a message is delivered once, or never.

The model knows what each producer has decided. After each step, the real topic has the committed messages and no other
ones; in the end, each half message that is in the log has ended as it was decided.
"""

from collections import Counter
from dataclasses import dataclass, replace

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.broker.asking import TOPIC, heartbeat, messages, ok
from tests.unit.broker.transacting import COMMIT, DISCARD_TOPIC, GROUP, ROLLBACK, UNKNOWN, end, end_asked, half

from kourou.broker.settings import BrokerSettings
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.record import decode_record
from kourou.store.settings import FlushMode
from kourou.testing.broker import SMALL_STORE, SimulatedBroker, SimulatedClient

SYNC = replace(SMALL_STORE, flush_mode=FlushMode.SYNC)
QUICK = BrokerSettings(
    transaction_check_interval_ms=1_000,
    transaction_timeout_ms=500,
    transaction_check_max=1_000,
    transaction_op_interval_ms=300,
    transaction_op_size=12,
)
OUTCOMES = st.sampled_from((COMMIT, ROLLBACK))


@dataclass
class Payment:
    """A transaction, as its producer knows it."""

    sent: Command  # the answer to the half message
    outcome: int = UNKNOWN


class Transactions(RuleBasedStateMachine):
    """One broker with SYNC_FLUSH, so that acknowledged messages survive each crash."""

    def __init__(self) -> None:
        super().__init__()
        self.world = SimulatedBroker(settings=QUICK, store_settings=SYNC)
        self.payments: dict[bytes, Payment] = {}
        self.producer = self.join()

    def join(self) -> SimulatedClient:
        client = self.world.connect()
        ok(client, heartbeat("payer", producers=GROUP))
        return client

    @rule(immunity=st.sampled_from((None, None, "2", "nonsense")))
    def send(self, immunity: str | None) -> None:
        body = b"payment %d" % len(self.payments)
        properties = {} if immunity is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": immunity}
        now_ms = self.world.now_ms + self.world.skew_ms
        self.payments[body] = Payment(ok(self.producer, half(body, now_ms, properties=properties)))

    @precondition(lambda self: self.payments)
    @rule(data=st.data(), outcome=OUTCOMES, one_way=st.booleans())
    def end(self, data: st.DataObject, outcome: int, one_way: bool) -> None:
        """By the first copy, however old it is, and perhaps not for the first time."""
        payment = self.payments[data.draw(st.sampled_from(sorted(self.payments)))]
        decided = payment.outcome or outcome
        command = end(payment.sent, decided, checked=True)
        if one_way:
            command.flag |= 2
            self.producer.send(command)
        else:
            ok(self.producer, command)
        payment.outcome = decided

    @rule(ms=st.sampled_from((1, 300, 1_000, 3_000)))
    def pass_time(self, ms: int) -> None:
        self.world.pass_time(ms)

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """Answer the questions that have arrived, with the current decisions."""
        told, self.producer.told = self.producer.told, []
        for question in told:
            if question.code == RequestCode.CHECK_TRANSACTION_STATE and data.draw(st.booleans()):
                self._reply(question, data.draw(st.sampled_from((UNKNOWN, COMMIT, ROLLBACK))))

    def _reply(self, question: Command, outcome: int) -> None:
        payment = self.payments[bytes(decode_record(question.body).body)]
        payment.outcome = payment.outcome or outcome
        ok(self.producer, end_asked(question, payment.outcome))

    @rule(hours=st.sampled_from((-1, 1)))
    def set_clock(self, hours: int) -> None:
        self.world.set_clock(hours * 3_600_000)

    @rule(how=st.sampled_from(("stop", "kill", "crash")))
    def restart(self, how: str) -> None:
        self.world = getattr(self.world, how)()
        self.producer = self.join()

    @rule()
    def reconnect(self) -> None:
        self.producer.close()
        self.producer = self.join()

    @invariant()
    def delivered_once(self) -> None:
        found = Counter(bytes(message.body) for message in messages(self.world, TOPIC))
        decided = {body for body, payment in self.payments.items() if payment.outcome == COMMIT}
        assert found == Counter(decided)

    def teardown(self) -> None:
        """Everything that is open is asked about, and ends."""
        for _ in range(60):
            told, self.producer.told = self.producer.told, []
            for question in told:
                self._reply(question, COMMIT)
            if not self.world.machine.transactions.halves.has_open:
                break
            ok(self.producer, heartbeat("payer", producers=GROUP))
            self.world.pass_time(1_000)
        assert not self.world.machine.transactions.halves.has_open
        assert messages(self.world, DISCARD_TOPIC) == []
        self.delivered_once()


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
