"""The ledger of half messages and the lists of op records, each beside a slow and obvious model."""

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.broker.transacting import OP_TOPIC

from kourou.broker.transactions import ledger as _ledger, op_records
from kourou.broker.transactions.ledger import Fate, Ledger
from kourou.broker.transactions.op_records import OpQueue, PendingOps
from kourou.protocol.record import StoredMessage, decode_record, encode_record

FATES = st.sampled_from([fate for fate in Fate if fate is not Fate.OPEN])


class LedgerModel(RuleBasedStateMachine):
    """A log, a queue of half messages, and for each of them all marks with where the log must be durable."""

    def __init__(self) -> None:
        super().__init__()
        self.log_end = 1_000
        self.durable = 1_000
        self.queue: list[int] = []  # where each half message ends in the log
        self.marks: list[tuple[int, int, Fate]] = []  # where the log must be durable, the offset, the fate
        self.ledger = Ledger(0, 0)

    def fate(self, offset: int, upto: int | None = None) -> Fate:
        found = [fate for end, at, fate in self.marks if at == offset and (upto is None or end <= upto)]
        return found[-1] if found else Fate.OPEN

    def position(self, upto: int | None = None) -> int:
        count = len(self.queue)
        return next((offset for offset in range(count) if self.fate(offset, upto) is Fate.OPEN), count)

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        for _ in range(count):
            self.log_end += 10
            self.queue.append(self.log_end)

    @precondition(lambda self: self.queue)
    @rule(data=st.data(), fate=FATES, with_record=st.booleans())
    def mark(self, data: st.DataObject, fate: Fate, with_record: bool) -> None:
        offset = data.draw(st.integers(0, len(self.queue) - 1))
        end = self.queue[offset]
        if with_record:
            self.log_end += 7
            end = self.log_end
        self.marks.append((end, offset, fate))
        self.ledger.mark(offset, fate, end)

    @rule(share=st.floats(0, 1))
    def sync(self, share: float) -> None:
        self.durable += round((self.log_end - self.durable) * share)
        self.ledger.settle(self.durable)

    @rule(share=st.floats(0, 1))
    def cut(self, share: float) -> None:
        """A sync failed, and some of what was not durable is lost."""
        end = self.durable + round((self.log_end - self.durable) * share)
        lost = sorted(offset for log_end, offset, _ in self.marks if log_end > end)
        self.log_end = self.durable = end
        self.queue = [at for at in self.queue if at <= end]
        self.marks = [mark for mark in self.marks if mark[0] <= end]
        assert sorted(self.ledger.cut(end, len(self.queue))) == lost
        self.ledger.settle(self.durable)

    @invariant()
    def agrees(self) -> None:
        count = len(self.queue)
        assert [self.ledger.fate(offset) for offset in range(count)] == [self.fate(offset) for offset in range(count)]
        assert self.ledger.position == self.position()
        assert self.ledger.safe_position <= self.position(self.durable)
        open_ones = [offset for offset in range(count) if self.fate(offset) is Fate.OPEN]
        found, at = [], 0
        while (offset := self.ledger.next_open(at, count)) is not None:
            found.append(offset)
            at = offset + 1
        assert found == open_ones

    @rule()
    def sync_all(self) -> None:
        self.durable = self.log_end
        self.ledger.settle(self.durable)
        assert self.ledger.safe_position == self.position()


TestLedger = LedgerModel.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_history_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ledger, "HISTORY_MAX", 100)
    ledger = Ledger(0, 0)
    for offset in range(1_000):
        ledger.mark(offset, Fate.COMMITTED, 0)
        assert ledger.position - ledger.floor <= 200
    assert ledger.floor >= 800
    assert ledger.fate(ledger.floor - 1) is None
    assert ledger.fate(ledger.floor) is Fate.COMMITTED
    ledger.mark(3, Fate.ROLLED_BACK, 0)  # too old, and ignored
    assert ledger.position == 1_000


def test_what_has_expired_is_passed() -> None:
    ledger = Ledger(0, 0)
    ledger.mark(1, Fate.COMMITTED, 5)
    ledger.mark(6, Fate.COMMITTED, 5)
    assert ledger.skip_to(5) == 4
    assert (ledger.position, ledger.fate(0), ledger.fate(1)) == (5, Fate.GIVEN_UP, Fate.COMMITTED)
    assert ledger.skip_to(5) == 0
    assert ledger.skip_to(6) == 1
    assert ledger.position == 7


def test_what_a_start_does_not_know() -> None:
    ledger = Ledger(10, 15)
    assert ledger.fate(9) is None
    assert ledger.fate(10) is Fate.COPIED  # not open, and nobody has ended it
    ledger.mark(12, Fate.ENDED, 0)
    assert ledger.fate(12) is Fate.ENDED
    assert (ledger.position, ledger.is_open(15)) == (15, True)


# ── Op records ──────────────────────────────────────────────────────────────────────────────────────────────────────


def op_record(body: bytes, properties: bytes = b"TAGS\x01d\x02WAIT\x01true\x02") -> StoredMessage:
    raw = encode_record(
        topic=OP_TOPIC,
        body=body,
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        born_ms=1,
        born_host=bytes(8),
        stored_ms=1,
        store_host=bytes(8),
        raw_properties=properties,
    )
    return decode_record(raw)


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        (b"0,1,3,", [0, 1, 3]),
        (b"17", [17]),  # as 4.9 wrote it
        (b"", []),
        (b",,", []),
        (b"1,x,-2,\xff,99999999999999999999,2", [1, 2]),
        ("١,2,".encode(), [2]),  # a digit, but not one of ours
    ],
)
def test_reading_op_records(body: bytes, offsets: list[int]) -> None:
    assert op_records.decode(op_record(body)) == offsets


def test_other_tags_are_none() -> None:
    assert op_records.decode(op_record(b"1,", b"TAGS\x01e\x02")) == []
    assert op_records.decode(op_record(b"1,", b"")) == []


def test_op_records_are_written_as_they_are_read() -> None:
    assert op_records.encode([0, 1, 3]) == b"0,1,3,"
    assert op_records.decode(op_record(op_records.encode(range(1_000)))) == list(range(1_000))


def test_a_record_exceeds_its_size_by_one_offset_at_most() -> None:
    pending = PendingOps(0)
    for offset in range(100, 120):
        pending.add(offset)
    assert pending.due_ms(100, 3_000) == 3_000
    assert pending.due_ms(79, 3_000) == 0
    assert pending.next_record(10) == [100, 101, 102]
    pending.written([100, 101, 102], 500, 1_000)
    assert len(pending) == 17
    assert pending.due_ms(100, 3_000) == 4_000


def test_ends_whose_records_are_lost_wait_again() -> None:
    pending = PendingOps(0)
    for offset in range(6):
        pending.add(offset)
    pending.written([0, 1], 100, 0)
    pending.written([2, 3], 200, 0)
    pending.settle(100)
    pending.cut(150, {3})
    assert pending.next_record(4_096) == [2, 4, 5]
    assert pending.due_ms(5, 0) == 0
    assert pending.due_ms(6, 7) == 7


class OpQueueModel(RuleBasedStateMachine):
    """Op records with the highest offset of each."""

    def __init__(self) -> None:
        super().__init__()
        self.highest: list[int] = []
        self.half_position = 0
        self.queue = OpQueue(0)

    @rule(highest=st.integers(-1, 50))
    def add(self, highest: int) -> None:
        self.queue.add(len(self.highest), highest)
        self.highest.append(highest)

    @rule(more=st.integers(0, 10))
    def move(self, more: int) -> None:
        self.half_position += more
        self.queue.pass_before(self.half_position)
        assert self.queue.position == self.expected()

    def expected(self) -> int:
        needed = (at for at, highest in enumerate(self.highest) if highest >= self.half_position)
        return next(needed, len(self.highest))


TestOpQueue = OpQueueModel.TestCase
TestOpQueue.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_many_op_records_are_noted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_records, "OP_RECORDS_MAX", 10)
    queue = OpQueue(0)
    for offset in range(1_000):
        queue.add(offset, offset)
    assert len(queue._noted) <= 10
    for half_position in range(0, 1_001, 50):
        queue.pass_before(half_position)
        assert queue.position <= half_position  # never too far
    assert queue.position == 1_000


@pytest.mark.parametrize("cut", [0, 3, 5])
def test_the_op_queue_is_cut(cut: int) -> None:
    queue = OpQueue(0)
    for offset in range(5):
        queue.add(offset, offset)
    queue.cut(cut)
    queue.pass_before(100)
    assert queue.position == min(cut, 5)
