"""Checks of transactions: which producers are asked, when and how often, and what is stored meanwhile."""

import errno
from dataclasses import replace

import pytest
from tests.unit.broker.asking import TOPIC, messages, ok, send
from tests.unit.broker.transacting import (
    COMMIT,
    DISCARD_TOPIC,
    GROUP,
    HALF_TOPIC,
    OP_TOPIC,
    ROLLBACK,
    UNKNOWN,
    Story,
    end,
    end_asked,
    half,
)

from kourou.broker.settings import BrokerSettings
from kourou.broker.transactions import checking
from kourou.protocol import headers
from kourou.protocol.codes import ResponseCode
from kourou.protocol.record import decode_record
from kourou.store.commit_log import NewMessage
from kourou.store.reading import Reader
from kourou.store.settings import FlushMode
from kourou.testing.broker import SMALL_STORE

SYNC = replace(SMALL_STORE, flush_mode=FlushMode.SYNC)
FAST = BrokerSettings(transaction_check_interval_ms=1_000, transaction_timeout_ms=500)
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"


def times(story: Story) -> list[str | None]:
    """How often the producer was asked, by all copies."""
    return [record.properties.get("TRANSACTION_CHECK_TIMES") for record in story.halves()]


# ── Questions ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("store", [SMALL_STORE, SYNC], ids=["async", "sync"])
def test_a_producer_is_asked(store: object) -> None:
    story = Story(store_settings=store)
    sent = story.send_half(b"pay", queue_id=2, flag=7, properties={"KEYS": "k"})
    (question,) = story.next_questions()
    first, copy = story.halves()
    header = headers.CheckTransactionState.decode(question.ext)
    assert header.topic == HALF_TOPIC
    assert (header.tran_state_table_offset, header.commit_log_offset) == (1, copy.physical_offset)
    assert sent.ext is not None
    assert header.msg_id == header.transaction_id == sent.ext["transactionId"]
    assert header.offset_msg_id == f"7F00000100002A9F{copy.physical_offset:016X}"
    assert header.broker_name == "broker-a"
    assert question.is_one_way
    record = decode_record(question.body, crc=True)
    assert (record.topic, record.queue_id, record.body, record.flag) == (TOPIC, 2, b"pay", 7)
    assert (record.queue_offset, record.physical_offset) == (1, copy.physical_offset)
    assert copy.properties == first.properties | {"TRANSACTION_CHECK_TIMES": "1"}
    assert record.properties == copy.properties | {"WAIT": "false"}
    assert (copy.born_ms, copy.born_host, copy.sys_flag) == (first.born_ms, first.born_host, 0)
    ok(story.producer, end_asked(question, COMMIT))
    (got,) = messages(story.world, TOPIC, 2)
    assert (got.body, got.prepared_offset) == (b"pay", copy.physical_offset)
    assert got.properties["WAIT"] == first.properties["WAIT"] == "true"
    assert story.next_questions() == []


def test_rounds_come_at_multiples_of_the_interval() -> None:
    story = Story()
    begun_ms = story.world.now_ms
    story.world.pass_time(40_000)
    story.send_half(b"pay")
    asked_ms: list[int] = []
    while len(asked_ms) < 2:
        assert story.next_questions()
        asked_ms.append(story.world.now_ms - begun_ms)
    assert asked_ms == [60_100, 90_100]


def test_young_ones_are_not_asked_about() -> None:
    story = Story()
    story.world.pass_time(23_000)
    story.send_half(b"old")
    story.world.pass_time(2_000)
    story.send_half(b"young")
    assert len(story.next_questions()) == 1  # after 30 s: one is 7 s old, the other one 5 s
    assert len(story.next_questions()) == 2


def test_a_clock_that_is_ahead() -> None:
    """The message is born in the future: its store time counts. Others are asked about meanwhile."""
    story = Story()
    ok(story.producer, half(b"future", story.world.now_ms + 3_600_000))
    story.send_half(b"now")
    assert len(story.next_questions(31)) == 2


def test_ended_ones_are_not_asked_about() -> None:
    story = Story()
    halves = [story.send_half(b"%d" % number) for number in range(6)]
    for number, outcome in ((0, COMMIT), (2, ROLLBACK), (5, COMMIT)):
        ok(story.producer, end(halves[number], outcome))
    ok(story.producer, end(halves[4], UNKNOWN))
    asked = [decode_record(question.body).body for question in story.next_questions()]
    assert asked == [b"1", b"3", b"4"]
    assert story.world.machine.transactions.halves.ledger.position == 6


def test_producers_take_turns() -> None:
    story = Story(settings=FAST)
    second = story.join("payer-2")
    stranger = story.join("stranger", group="others")
    for number in range(10):
        story.send_half(b"%d" % number)
    story.world.pass_time(1_600)
    assert len(story.take_questions()) == len(story.take_questions(second)) == 5
    assert story.take_questions(stranger) == []


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_the_next_check_asks_another_producer(count: int) -> None:
    """One that can't decide must not be asked each time, however many half messages there are."""
    story = Story(settings=FAST)
    second = story.join("payer-2")
    for number in range(count):
        story.send_half(b"%d" % number)
    asked: list[set[bytes]] = []
    story.world.pass_time(600)
    for _ in range(2):
        story.world.pass_time(1_000)
        asked.append({bytes(decode_record(question.body).body) for question in story.take_questions()})
        story.take_questions(second)
    assert asked[0].isdisjoint(asked[1])
    assert len(asked[0] | asked[1]) == count


def test_another_producer_of_the_group_is_asked() -> None:
    story = Story(settings=FAST)
    story.send_half(b"pay")
    story.producer.close()
    story.producer = story.join("payer-2")
    (question,) = story.next_questions()
    ok(story.producer, end_asked(question, COMMIT))
    assert story.delivered() == [b"pay"]


def test_a_producer_that_does_not_read_is_not_asked() -> None:
    """Its questions would pile up. They are asked later, and that it was not asked does not count."""
    story = Story(settings=FAST)
    story.producer.is_congested = True  # type: ignore[attr-defined]
    story.send_half(b"pay")
    story.world.pass_time(20_000)
    assert story.take_questions() == []
    assert times(story) == [None]
    story.producer.is_congested = False  # type: ignore[attr-defined]
    assert len(story.next_questions()) == 1


def test_after_the_last_question_it_is_discarded() -> None:
    story = Story(settings=replace(FAST, transaction_check_max=3))
    story.send_half(b"pay")
    for number in (1, 2, 3):
        (question,) = story.next_questions()
        assert decode_record(question.body).properties["TRANSACTION_CHECK_TIMES"] == str(number)
    assert story.next_questions() == []
    (discarded,) = messages(story.world, DISCARD_TOPIC)
    assert discarded.body == b"pay"
    assert discarded.properties["TRANSACTION_CHECK_TIMES"] == "3"
    topic = story.world.machine.topics.get(DISCARD_TOPIC)
    assert topic is not None and (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
    assert not story.world.machine.transactions.halves.has_open
    ok(story.producer, end_asked(question, COMMIT))  # better late than never
    ok(story.producer, end_asked(question, COMMIT))
    assert story.delivered() == [b"pay"]


def test_without_producers_it_is_discarded_too() -> None:
    story = Story(settings=replace(FAST, transaction_check_max=2))
    story.send_half(b"pay")
    story.producer.close()
    story.world.pass_time(10_000)
    assert times(story) == [None, "1", "2"]
    assert len(messages(story.world, DISCARD_TOPIC)) == 1


def test_older_than_messages_are_kept() -> None:
    """It is discarded while its record is there; but not before its producer was asked."""
    story = Story(settings=FAST)
    old_ms = story.world.now_ms - 73 * 3_600_000
    ok(story.producer, half(b"pay", old_ms))
    assert len(story.next_questions()) == 1
    assert story.next_questions() == []
    assert len(messages(story.world, DISCARD_TOPIC)) == 1


# ── Immunity ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_immune_half_messages_are_copied_and_no_producer_is_asked() -> None:
    story = Story(settings=replace(FAST, transaction_check_max=2))
    sent = story.send_half(b"pay", flag=7, properties={IMMUNITY: "10"})
    story.world.pass_time(5_000)
    assert story.take_questions() == []
    first, *copies = story.halves()
    assert len(copies) >= 4
    for copy in copies:
        expected = first.properties | {"TRAN_PREPARED_QUEUE_OFFSET": "0", "WAIT": "false"}
        assert copy.properties == expected  # copies count as no checks
        assert copy.flag == 7
    assert story.world.machine.transactions.halves.ledger.position == len(copies)
    story.commit(sent)  # by its first copy
    assert story.delivered() == [b"pay"]
    story.world.pass_time(30_000)
    assert story.take_questions() == []
    assert len(story.halves()) == 1 + len(copies)
    assert messages(story.world, DISCARD_TOPIC) == []


def test_after_its_immunity_it_is_asked_about() -> None:
    story = Story(settings=replace(FAST, transaction_check_max=2))
    story.send_half(b"pay", properties={IMMUNITY: "3"})
    asked = story.next_questions() + story.next_questions()
    assert [decode_record(question.body).properties["TRANSACTION_CHECK_TIMES"] for question in asked] == ["1", "2"]
    assert story.world.now_ms > decode_record(asked[0].body).born_ms + 3_000


def test_a_clock_that_is_set_back_makes_no_half_message_younger() -> None:
    story = Story(settings=FAST)
    story.send_half(b"plain")
    story.send_half(b"immune", properties={IMMUNITY: "3"})
    story.world.set_clock(-86_400_000)
    story.world.pass_time(5_000)
    assert {bytes(decode_record(question.body).body) for question in story.take_questions()} == {b"plain", b"immune"}


def test_nonsense_is_the_time_out() -> None:
    story = Story(settings=FAST)
    story.send_half(b"pay", properties={IMMUNITY: "soon"})
    assert len(story.next_questions(3)) == 1


# ── Older copies ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("rounds", [1, 3])
def test_an_end_of_an_older_copy_ends_all(outcome: int, rounds: int) -> None:
    """A producer that takes long ends the first copy, while others are asked about later ones."""
    story = Story(settings=FAST)
    sent = story.send_half(b"pay")
    asked = [question for _ in range(rounds) for question in story.next_questions()]
    ok(story.producer, end(sent, outcome))
    assert story.next_questions(5) == []
    for question in asked:
        ok(story.producer, end_asked(question, outcome))
    assert story.delivered() == ([b"pay"] if outcome == COMMIT else [])
    assert story.world.machine.transactions.counts.open[TOPIC].count == 0


@pytest.mark.parametrize("how", ["stop", "crash"])
def test_an_end_of_an_older_copy_after_a_restart(how: str) -> None:
    story = Story(settings=FAST, store_settings=SYNC)
    sent = story.send_half(b"pay")
    story.next_questions()
    story = story.again(how)
    story.commit(sent)
    story = story.again(how)
    story.commit(sent)
    assert story.delivered() == [b"pay"]
    assert story.next_questions(5) == []


def test_an_end_while_the_copy_is_not_durable_yet() -> None:
    story = Story(settings=FAST, store_settings=SYNC)
    sent = story.send_half(b"pay")
    story.world.lazy = True
    story.world.pass_time(1_100)
    assert len(story.halves()) == 1  # the copy is appended, and not visible
    (number,) = story.producer.send(end(sent, COMMIT))
    story.world.work()
    assert story.producer.answers[number].code == 0
    story.world.lazy = False
    story.world.pass_time(5_000)
    assert story.take_questions() == []
    assert story.delivered() == [b"pay"]


def test_an_end_waits_for_an_index_that_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the index it is not known whether another copy has ended: the message must not be delivered twice."""
    story = Story(settings=FAST)
    sent = story.send_half(b"pay")
    (question,) = story.next_questions()
    store = story.world.store
    with monkeypatch.context() as broken:
        broken.setattr(store.reader, "query", _fail)
        answer = story.producer.ask(end_asked(question, COMMIT))
        assert (answer.code, "asked again later" in (answer.remark or "")) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
    with monkeypatch.context() as rebuilding:
        rebuilding.setattr(store.index_repair, "behind", True)
        assert story.ask_end(sent, COMMIT).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert story.delivered() == []
    (question,) = story.next_questions()
    ok(story.producer, end_asked(question, COMMIT))
    story.commit(sent)
    assert story.delivered() == [b"pay"]


def _fail(*_: object) -> None:
    raise OSError(errno.EMFILE, "too many open files")


def test_a_commit_is_found_after_a_crash_while_its_copies_can_not_be_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(settings=FAST, store_settings=SYNC)
    sent = story.send_half(b"pay")
    (question,) = story.next_questions()
    ok(story.producer, end_asked(question, COMMIT))
    assert story.ops() == []
    with monkeypatch.context() as broken:
        broken.setattr(Reader, "query", _fail)
        story = story.again("kill")
    assert story.next_questions(5) == []
    story.commit(sent)
    assert story.delivered() == [b"pay"]


def test_two_messages_with_one_unique_key() -> None:
    """A client may send the same message twice, in two transactions."""
    story = Story(settings=FAST)
    first = story.send_half(b"pay", properties={"UNIQ_KEY": "A" * 32})
    story.world.pass_time(1)
    second = story.send_half(b"pay", properties={"UNIQ_KEY": "A" * 32})
    story.next_questions()
    story.commit(first)
    assert story.delivered() == [b"pay"]
    story.commit(second)
    assert story.delivered() == [b"pay", b"pay"]


# ── Restarts ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["stop", "kill", "crash"])
def test_open_ones_survive(how: str) -> None:
    story = Story(settings=FAST, store_settings=SYNC)
    halves = [story.send_half(b"%d" % number) for number in range(4)]
    story.commit(halves[1])
    story.next_questions()
    story = story.again(how)
    questions = story.next_questions()
    assert [decode_record(question.body).body for question in questions] == [b"0", b"2", b"3"]
    for question in questions:
        ok(story.producer, end_asked(question, COMMIT))
    assert story.delivered() == [b"1", b"0", b"2", b"3"]
    story = story.again(how)
    assert story.next_questions(5) == []


def test_op_records_of_4_9_are_read() -> None:
    """One offset each, and no comma; and such as make no sense are passed over."""
    story = Story(settings=FAST)
    for number in range(5):
        story.send_half(b"%d" % number)
    for body, properties in (
        (b"1", b"TAGS\x01d\x02"),
        (b"", b"TAGS\x01d\x02"),
        (b"x,3,99999999999999999999999,-1,", b"TAGS\x01d\x02"),
        (b"0,2,", b"TAGS\x01other\x02"),
        (b"0,2,", b""),
    ):
        message = NewMessage(OP_TOPIC, 0, body, properties, 1, bytes(8))
        story.world.store.append([message], story.world.now_ms)
    story = story.again("stop")
    asked = [decode_record(question.body).body for question in story.next_questions()]
    assert asked == [b"0", b"2", b"4"]


# ── Trouble ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_disk_that_refuses_copies_makes_checks_wait() -> None:
    story = Story(settings=FAST)
    story.send_half(b"pay")
    story.world.store._cleaner.refusal = "the disk is full"
    story.world.pass_time(10_000)
    assert story.take_questions() == []
    assert times(story) == [None]
    story.world.store._cleaner.refusal = None
    assert len(story.next_questions(3)) == 1


def test_a_half_message_that_can_not_be_copied_delays_no_other() -> None:
    story = Story(settings=FAST)
    story.roll_back(story.send_half(b"probe", properties={"long": "x"}))
    room = 32_767 - len(story.halves()[0].raw_properties)
    sent = story.send_half(b"long", properties={"long": "x" * room})
    story.send_half(b"short")
    assert len(story.next_questions()) == 2  # both are asked about, the first one once
    assert [decode_record(question.body).body for question in story.next_questions()] == [b"short"]
    story.commit(sent)
    assert story.delivered() == [b"long"]


def test_invalid_half_messages_delay_no_other() -> None:
    story = Story(settings=replace(FAST, transaction_check_max=2))
    for properties in (b"", b"PGROUP\x01payers\x02REAL_TOPIC\x01x\x02REAL_QID\x01y\x02", b"\xff\x01\xff\x02"):
        story.world.store.append([NewMessage(HALF_TOPIC, 0, b"?", properties, 1, bytes(8))], story.world.now_ms)
    story.send_half(b"pay")
    assert [decode_record(question.body).body for question in story.next_questions()] == [b"pay"]
    story.world.pass_time(10_000)
    assert len(messages(story.world, DISCARD_TOPIC)) == 4


def test_a_damaged_record_delays_no_other() -> None:
    story = Story(settings=FAST, store_settings=SYNC)
    halves = [story.send_half(b"number %d" % number) for number in range(3)]
    story.world.pass_time(200)
    assert len(halves) == 3
    place = story.halves()[1].physical_offset
    story = Story(story.world.stop())
    story.world.store.log.segments.file(place).buffer[place + 90 : place + 94] = b"\xff\xff\xff\xff"
    asked = [decode_record(question.body).body for question in story.next_questions()]
    assert asked == [b"number 0", b"number 2"]


def test_an_entry_that_can_not_be_read_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(settings=FAST)
    for number in range(3):
        story.send_half(b"number %d" % number)
    reader = story.world.store.reader
    bad = story.halves()[1].physical_offset
    read = reader._read

    def failing(physical: int, size: int, trusted: int) -> memoryview | None:
        if physical == bad:
            raise OSError(errno.EIO, "Input/output error")
        return read(physical, size, trusted)

    monkeypatch.setattr(reader, "_read", failing)
    asked = [decode_record(question.body).body for question in story.next_questions()]
    assert asked == [b"number 0", b"number 2"]
    ledger = story.world.machine.transactions.halves.ledger
    assert ledger.position == 1  # it may be read later
    monkeypatch.setattr(checking, "WINDOW_MAX", 1)
    story.next_questions()
    assert ledger.position > 1  # nobody waits for it for ever


def test_checks_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "SLICE", 4)
    monkeypatch.setattr(checking, "QUESTIONS_MAX", 6)
    story = Story(settings=FAST)
    for number in range(30):
        story.send_half(b"%d" % number)
    seen: list[int] = []
    story.world.pass_time(2_000, lambda: seen.append(len(story.take_questions())))
    assert sum(seen) >= 30
    assert max(seen) <= 6


def test_op_records_that_are_refused_are_written_later() -> None:
    story = Story()
    story.roll_back(story.send_half(b"first"))
    sent = story.send_half(b"second")
    story.world.store._cleaner.refusal = "the disk is full"
    command = end(sent, ROLLBACK)
    command.flag |= 2
    story.producer.send(command)
    story.world.pass_time(10_000)
    assert story.ops() == [b"0,"]
    story.world.store._cleaner.refusal = None
    story.world.pass_time(1_100)
    assert story.ops() == [b"0,", b"1,"]


def test_half_messages_that_have_expired() -> None:
    story = Story(settings=FAST)
    story.producer.close()
    for number in range(3):
        ok(story.world.connect(), half(b"%d" % number, story.world.now_ms))
    ledger = story.world.machine.transactions.halves.ledger
    assert ledger.skip_to(2) == 2
    assert ledger.position == 2


def test_a_group_that_is_not_asked_about_pays_nothing() -> None:
    """Nothing is open: no timer is set, however many transactions there were."""
    story = Story()
    for number in range(10):
        story.commit(story.send_half(b"%d" % number))
    story.world.pass_time(4_000)
    assert story.world.machine.transactions.due_ms(story.world.now_ms) is None
    ok(story.producer, send(b"ordinary"))
    assert story.world.machine.transactions.due_ms(story.world.now_ms) is None
    assert GROUP in story.world.machine.clients.producers
