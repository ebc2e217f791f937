"""Timers beside a model: whatever clocks, stops and crashes do, a message is delivered once and on time, or recalled.

The model knows when each message is due. After each step, the real topic has the messages that are due and no other
ones, each once.
"""

from collections import Counter
from dataclasses import dataclass, replace

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.broker.asking import messages, ok, request, send

from kourou.broker.settings import BrokerSettings
from kourou.protocol import headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.store.settings import FlushMode
from kourou.testing.broker import ROOT, SMALL_STORE, SimulatedBroker

SYNC = replace(SMALL_STORE, flush_mode=FlushMode.SYNC)
TOPIC = "orders"


@dataclass
class Timed:
    """A message, as its sender knows it."""

    due_ms: int
    handle: str
    is_recalled: bool = False


class Timers(RuleBasedStateMachine):
    """One broker with SYNC_FLUSH, so that acknowledged messages survive each crash."""

    def __init__(self) -> None:
        super().__init__()
        rolling = BrokerSettings(recall=True, timer_roll_slots=7, timer_flush_ms=300)
        self.world = SimulatedBroker(settings=rolling, store_settings=SYNC)
        self.timed: dict[bytes, Timed] = {}
        self.client = self.world.connect()

    @rule(
        delay_ms=st.integers(1, 3_000) | st.integers(1, 30_000) | st.sampled_from((1_000, 2_000, 999, 1_001)),
        name=st.sampled_from(("TIMER_DELAY_MS", "TIMER_DELIVER_MS")),
        count=st.sampled_from((1, 1, 20)),
    )
    def send(self, delay_ms: int, name: str, count: int) -> None:
        for _ in range(count):
            due_ms = self.world.stamp_ms + delay_ms
            body = b"message %d" % len(self.timed)
            given = delay_ms if name == "TIMER_DELAY_MS" else due_ms
            properties = {name: str(given), "UNIQ_KEY": f"{len(self.timed):032}"}
            answer = ok(self.client, send(body, properties=properties))
            assert answer.ext is not None
            self.timed[body] = Timed(due_ms, answer.ext["recallHandle"])

    @precondition(lambda self: self.timed)
    @rule(data=st.data())
    def recall(self, data: st.DataObject) -> None:
        timed = self.timed[data.draw(st.sampled_from(sorted(self.timed)))]
        header = headers.RecallMessage(topic=TOPIC, recall_handle=timed.handle)
        answer = self.client.ask(request(RequestCode.RECALL_MESSAGE, header))
        if answer.code == ResponseCode.SUCCESS:
            timed.is_recalled = True
        else:
            assert timed.due_ms <= self.world.stamp_ms + 1_000, "refused, and its second has not begun"

    @rule(ms=st.sampled_from((1, 10, 250, 999, 1_000, 5_000)))
    def pass_time(self, ms: int) -> None:
        self.world.pass_time(ms)

    @rule(how=st.sampled_from(("stop", "kill", "crash")))
    def end(self, how: str) -> None:
        self.world = getattr(self.world, how)()
        self.client = self.world.connect()

    @rule(name=st.sampled_from(("timerwheel", "config/timercheck", "timerlog")))
    def lose_a_file(self, name: str) -> None:
        path = ROOT / name
        if name == "timerlog":
            self.world.disk.remove_folder(path)
        elif self.world.disk.peek(path) is not None:
            self.world.disk.remove(path)
        self.world = self.world.kill()
        self.client = self.world.connect()

    @invariant()
    def is_on_time(self) -> None:
        found = messages(self.world, TOPIC)
        counts = Counter(bytes(message.body) for message in found)
        assert not [body for body, count in counts.items() if count > 1], counts.most_common(3)
        for message in found:
            timed = self.timed[bytes(message.body)]
            assert message.stored_ms >= timed.due_ms, f"{timed.due_ms - message.stored_ms} ms early"
            assert not timed.is_recalled, "recalled, and delivered"

    def teardown(self) -> None:
        self.world.pass_time(40_000)
        counts = Counter(bytes(message.body) for message in messages(self.world, TOPIC))
        assert counts.keys() == {body for body, timed in self.timed.items() if not timed.is_recalled}
        assert set(counts.values()) <= {1}
        assert self.world.machine.timers.pending == 0


TestTimers = Timers.TestCase
TestTimers.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
