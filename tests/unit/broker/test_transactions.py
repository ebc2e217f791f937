"""Transactions: half messages, their ends, and what is stored of both."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.broker.asking import TOPIC, bodies_of, messages, ok, request, send, send_back
from tests.unit.broker.transacting import (
    COMMIT,
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    PREPARED,
    ROLLBACK,
    UNKNOWN,
    Story,
    end,
    half,
)

from kourou.broker.settings import BrokerSettings, Role
from kourou.broker.transactions import op_records, service
from kourou.protocol import headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.store.commit_log import NewMessage
from kourou.store.errors import BadStoreError
from kourou.store.settings import FlushMode
from kourou.testing.broker import SMALL_STORE, SimulatedBroker

SYNC = replace(SMALL_STORE, flush_mode=FlushMode.SYNC)

# ── Half messages ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_half_message_is_stored_where_consumers_do_not_read() -> None:
    story = Story()
    sent = story.send_half(b"pay", queue_id=2, flag=7, properties={"KEYS": "k", "TAGS": "t", "own": "o"})
    (stored,) = story.halves()
    assert (stored.topic, stored.queue_id, stored.queue_offset) == (HALF_TOPIC, 0, 0)
    assert (stored.sys_flag, stored.flag, stored.prepared_offset) == (0, 7, 0)
    found = stored.properties
    assert sent.ext is not None
    unique_key = sent.ext["transactionId"]
    added = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
    assert found == added | {
        "UNIQ_KEY": unique_key,
        "__transactionId__": unique_key,
        "TRAN_MSG": "true",
        "PGROUP": "payers",
        "WAIT": "true",
        "KEYS": "k",
        "TAGS": "t",
        "own": "o",
        "REAL_TOPIC": TOPIC,
        "REAL_QID": "2",
    }
    assert (sent.ext["queueId"], sent.ext["queueOffset"]) == ("2", "0")
    assert story.delivered() == []
    assert messages(story.world, TOPIC, 2) == []


@pytest.mark.parametrize("word", ["true", "TRUE", "True"])
def test_the_property_in_any_case(word: str) -> None:
    story = Story()
    story.send_half(b"pay", properties={"TRAN_MSG": word})
    assert len(story.halves()) == 1


def test_transactions_can_be_rejected() -> None:
    story = Story(settings=BrokerSettings(reject_transactions=True))
    answer = story.producer.ask(half(b"pay", story.world.now_ms))
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "rejectTransactionMessage" in (answer.remark or "")


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"])
def test_a_half_message_is_not_delayed(name: str) -> None:
    story = Story()
    answer = story.producer.ask(half(b"pay", story.world.now_ms, properties={name: "3"}))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "can't be delayed" in (answer.remark or "")
    assert story.halves() == []


def test_a_retry_of_a_committed_message_is_not_a_half_message() -> None:
    """It still has the property; consumers send it back, or to their retry topic themselves."""
    story = Story()
    story.commit(story.send_half(b"pay"))
    (committed,) = messages(story.world)
    consumer = story.join("consumer")
    ok(consumer, send_back(committed.physical_offset))
    ok(consumer, send(b"again", properties={"TRAN_MSG": "true", "DELAY": "3"}, reconsume_times=1))
    assert len(story.halves()) == 1
    assert bodies_of(story.world, "SCHEDULE_TOPIC_XXXX", 2) == [b"pay", b"again"]


# ── Ends ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_commit_delivers() -> None:
    story = Story()
    sent = story.send_half(b"pay", queue_id=2, flag=7, sys_flag=PREPARED, properties={"KEYS": "k", "own": "o"})
    (prepared,) = story.halves()
    story.world.pass_time(50)
    assert ok(story.producer, end(sent, COMMIT)).remark is None
    (got,) = messages(story.world, TOPIC, 2)
    assert (got.body, got.flag, got.sys_flag, got.queue_offset) == (b"pay", 7, COMMIT, 0)
    assert got.prepared_offset == prepared.physical_offset
    assert (got.born_ms, got.born_host) == (prepared.born_ms, prepared.born_host)
    assert got.stored_ms == story.world.stamp_ms
    expected = prepared.properties
    del expected["REAL_TOPIC"], expected["REAL_QID"]
    assert got.properties == expected


def test_a_rollback_delivers_nothing() -> None:
    story = Story()
    story.roll_back(story.send_half(b"pay"))
    story.world.pass_time(120_000)
    assert story.delivered() == []
    assert story.take_questions() == []
    assert story.ops() == [b"0,"]


def test_unknown_leaves_it_open() -> None:
    story = Story()
    sent = story.send_half(b"pay")
    ok(story.producer, end(sent, UNKNOWN))
    assert story.delivered() == []
    story.commit(sent)
    assert story.delivered() == [b"pay"]


@pytest.mark.parametrize("one_way", [True, False])
@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
def test_ends_as_requests_and_one_way(outcome: int, one_way: bool) -> None:
    story = Story()
    command = end(story.send_half(b"pay"), outcome)
    if one_way:
        command.flag |= 2
    (number,) = story.producer.send(command)
    assert (number in story.producer.answers) is not one_way
    assert story.delivered() == ([b"pay"] if outcome == COMMIT else [])


def test_what_is_refused() -> None:
    """In Apache's order, with its codes."""
    story = Story()
    sent = story.send_half(b"pay")
    ordinary = ok(story.producer, send(b"x"))

    def refusal(outcome: int = COMMIT, **more: Any) -> tuple[int, str]:
        answer = story.producer.ask(end(sent, outcome, **more))
        return answer.code, answer.remark or ""

    error = int(ResponseCode.SYSTEM_ERROR)
    assert refusal(5)[0] == error
    assert refusal(commit_log_offset=7) == (error, "Find prepared transaction message failed")
    assert refusal(commit_log_offset=10**9) == (error, "Find prepared transaction message failed")
    assert refusal(commit_log_offset=-1) == (error, "Find prepared transaction message failed")
    (place,) = [message.physical_offset for message in messages(story.world)]
    assert ordinary.code == 0
    assert refusal(commit_log_offset=place) == (error, "Find prepared transaction message failed")
    assert refusal(group="others") == (error, "The producer group wrong")
    assert refusal(tran_state_table_offset=9) == (error, "The transaction state table offset wrong")
    assert refusal(ROLLBACK, group="others", tran_state_table_offset=9) == (error, "The producer group wrong")
    story.commit(sent)


def test_a_slave_ends_nothing() -> None:
    story = Story()
    sent = story.send_half(b"pay")
    story.world.settings.role = Role.SLAVE
    assert story.ask_end(sent, COMMIT).code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert story.ask_end(sent, 5).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("seconds", "after_ms", "code"),
    [
        ("10", 10_000, ResponseCode.SUCCESS),
        ("10", 10_001, ResponseCode.ILLEGAL_OPERATION),
        ("1", 6_000, ResponseCode.SUCCESS),  # never before the time-out
        ("1", 6_001, ResponseCode.ILLEGAL_OPERATION),
        ("soon", 6_001, ResponseCode.ILLEGAL_OPERATION),
    ],
)
def test_an_end_after_the_immunity_is_refused(seconds: str, after_ms: int, code: int) -> None:
    story = Story()
    sent = story.send_half(b"pay", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": seconds})
    story.world.pass_time(after_ms)
    assert story.ask_end(sent, COMMIT).code == code
    assert story.ask_end(sent, COMMIT, checked=True).code == ResponseCode.SUCCESS


def test_without_immunity_an_end_is_never_too_late() -> None:
    story = Story()
    sent = story.send_half(b"pay")
    story.world.pass_time(25_000)
    story.commit(sent)


# ── Once ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_repeated_commit_commits_once() -> None:
    story = Story()
    sent = story.send_half(b"pay")
    for _ in range(3):
        story.commit(sent)
    assert story.delivered() == [b"pay"]


@pytest.mark.parametrize("how", ["stop", "kill", "crash"])
@pytest.mark.parametrize("store", [SMALL_STORE, SYNC], ids=["async", "sync"])
def test_a_repeated_commit_after_a_restart(how: str, store: object) -> None:
    story = Story(store_settings=store)
    sent = story.send_half(b"pay")
    story.commit(sent)
    story.world.pass_time(12_000)  # async flush
    story = story.again(how)
    story.commit(sent)
    assert story.delivered() == [b"pay"]


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_a_commit_without_its_op_record_is_found_after_a_crash(how: str) -> None:
    story = Story(store_settings=SYNC)
    first, second = story.send_half(b"first"), story.send_half(b"second")
    story.commit(first)
    story.commit(second)
    assert story.ops() == []  # the first of them comes three seconds after the start
    story = story.again(how)
    assert story.world.machine.transactions.halves.ledger.position == 2
    story.world.pass_time(60_000)
    assert story.take_questions() == []
    assert story.ops() == [b"0,1,"]
    story.commit(second)
    assert story.delivered() == [b"first", b"second"]


def test_a_commit_whose_op_record_is_lost_with_others_of_its_batch() -> None:
    """Many ends take several op records, which are written together. A crash may leave only the first of them."""
    story = Story(store_settings=SYNC)
    sent = [story.send_half(b"%d" % number) for number in range(9)]
    for one in sent:
        story.commit(one)
    story.world.store.append([NewMessage(OP_TOPIC, 0, b"0,1,", b"TAGS\x01d\x02", 1, bytes(8))], story.world.now_ms)
    story = story.again("kill")
    assert story.ops() == [b"0,1,"]
    assert story.world.machine.transactions.halves.ledger.position == 9
    story.world.pass_time(60_000)
    assert story.take_questions() == []
    assert len(story.delivered()) == 9


def test_the_first_decision_counts() -> None:
    story = Story()
    paid, failed = story.send_half(b"paid"), story.send_half(b"failed")
    story.commit(paid)
    story.roll_back(failed)
    answer = story.ask_end(failed, COMMIT)
    assert failed.ext is not None
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        f"the transaction of message {failed.ext['transactionId']} was rolled back before: the commit has no effect",
    )
    answer = story.ask_end(paid, ROLLBACK)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "was committed before: the rollback has no effect" in (answer.remark or "")
    assert story.delivered() == [b"paid"]


def test_a_commit_waits_for_the_disk() -> None:
    """Under SYNC_FLUSH, its answer promises that it is durable, and no consumer sees it before."""
    story = Story(store_settings=SYNC)
    sent = story.send_half(b"pay")
    story.world.lazy = True
    (number,) = story.producer.send(end(sent, COMMIT))
    assert number not in story.producer.answers
    assert story.delivered() == []
    (again,) = story.producer.send(end(sent, COMMIT))
    assert again not in story.producer.answers  # nor does a repeated one promise more than the disk has
    story.world.work()
    assert story.producer.answers[number].code == story.producer.answers[again].code == 0
    assert story.delivered() == [b"pay"]


# ── Op records ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ends_are_gathered() -> None:
    story = Story()
    sent = [story.send_half(b"%d" % number) for number in range(5)]
    for one in sent[:3]:
        story.commit(one)
    story.world.pass_time(2_999)
    assert story.ops() == []  # three seconds after the start
    story.world.pass_time(101)
    assert story.ops() == [b"0,1,2,"]
    story.commit(sent[4])
    story.world.pass_time(2_000)
    assert story.ops() == [b"0,1,2,"]
    story.world.pass_time(1_100)
    assert story.ops() == [b"0,1,2,", b"4,"]
    story.world.pass_time(4_000)
    story.commit(sent[3])
    story.world.pass_time(1)
    assert story.ops()[2:] == [b"3,"]  # at once, after a quiet time


def test_many_ends_are_written_at_once() -> None:
    story = Story(settings=BrokerSettings(transaction_op_size=10))
    for number in range(12):
        story.commit(story.send_half(b"%d" % number))
    story.world.tick()
    assert story.ops() == [b"0,1,2,3,4,", b"5,6,7,8,9,", b"10,11,"]


def test_op_records_as_apache_writes_them() -> None:
    story = Story()
    story.roll_back(story.send_half(b"pay"))
    (record,) = messages(story.world, OP_TOPIC)
    assert (record.queue_id, record.sys_flag, record.flag) == (0, 0, 0)
    assert record.properties == {"TAGS": "d", "WAIT": "true"}
    assert record.born_address == story.world.settings.address
    assert op_records.decode(record) == [0]


def test_a_clean_stop_writes_what_is_pending() -> None:
    story = Story()
    story.commit(story.send_half(b"pay"))
    open_half = story.send_half(b"open")
    assert story.ops() == []
    story = story.again("stop")
    assert story.ops() == [b"0,"]
    assert (story.kept(), story.kept(OP_TOPIC)) == (1, 1)
    story.commit(open_half)
    assert story.delivered() == [b"pay", b"open"]


def test_positions_never_say_more_than_the_disk_has() -> None:
    story = Story()
    ok(story.producer, send(b"the topic is there"))
    story.world.lazy = True
    story.commit(story.send_half(b"pay"))
    story.world.pass_time(100)
    assert story.world.machine.transactions.halves.ledger.position == 1
    assert story.kept() == -1
    story.world.work()
    story.world.pass_time(12_000)
    story.world.work()
    assert story.kept() == 1


# ── Counts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_open_transactions_are_counted() -> None:
    story = Story()
    first, second, _ = (story.send_half(b"%d" % number) for number in range(3))
    counts = story.world.machine.transactions.counts
    assert counts.open[TOPIC].count == 3
    story.commit(first)
    story.commit(first)
    story.roll_back(second)
    assert counts.open[TOPIC].count == 1
    assert (counts.commits[TOPIC], counts.rollbacks[TOPIC]) == (1, 1)
    story = story.again("stop")
    assert story.world.machine.transactions.counts.open[TOPIC].count == 1


# ── Discarded ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_discarded_message_can_be_resumed() -> None:
    story = Story(settings=BrokerSettings(transaction_check_max=1))
    story.send_half(b"pay", flag=7)
    story.next_questions()
    story.world.pass_time(60_000)
    (discarded,) = messages(story.world, DISCARD_TOPIC)
    assert (discarded.body, discarded.flag, discarded.properties["REAL_TOPIC"]) == (b"pay", 7, TOPIC)
    assert story.take_questions() == []
    host = "7F00000100002A9F"
    header = headers.ResumeCheckHalfMessage(topic=TOPIC, msg_id=f"{host}{discarded.physical_offset:016X}")
    ok(story.producer, request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header))
    assert story.halves()[-1].properties["TRANSACTION_CHECK_TIMES"] == "0"
    assert len(story.next_questions()) == 1


@pytest.mark.parametrize("message_id", ["", "no id", "7F00000100002A9F0000000000000000"])
def test_only_half_messages_can_be_resumed(message_id: str) -> None:
    story = Story()
    ok(story.producer, send(b"ordinary"))
    header = headers.ResumeCheckHalfMessage(topic=TOPIC, msg_id=message_id)
    answer = story.producer.ask(request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header))
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_a_world_without_transactions_has_nothing_due() -> None:
    world = SimulatedBroker()
    assert world.machine.transactions.due_ms(world.now_ms) is None


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_ended_transactions_end_no_second_time_while_a_start_still_reads(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has more than is read before the broker serves."""
    story = Story()
    committed, rolled_back = story.send_half(b"committed"), story.send_half(b"rolled back")
    story.commit(committed)
    story.roll_back(rolled_back)
    story.send_half(b"open")
    story.world.pass_time(5_000)
    monkeypatch.setattr(service, "STEPS_AT_START", 1)
    monkeypatch.setattr(service, "STEPS_IN_SLICE", 0)
    story = story.again(how)
    answers = [story.ask_end(sent, COMMIT) for sent in (committed, rolled_back)]
    assert [answer.code for answer in answers] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
    monkeypatch.setattr(service, "STEPS_IN_SLICE", 4)
    story.world.pass_time(100)
    assert story.ask_end(committed, COMMIT).code == 0
    story.ask_end(rolled_back, COMMIT)
    assert story.delivered() == [b"committed"]


def test_a_store_that_can_not_be_read_is_read_again(caplog: pytest.LogCaptureFixture) -> None:
    story = Story()
    sent = story.send_half(b"pay")
    story.commit(sent)
    story.world.pass_time(5_000)
    world, transactions = story.world, story.world.machine.transactions
    transactions.give_up()
    kept, transactions.halves.settle = transactions.halves.settle, failing  # type: ignore[method-assign]
    transactions.take_over(world.now_ms)
    world.pass_time(100)
    assert "retried" in caplog.text
    assert story.ask_end(sent, COMMIT).code == ResponseCode.SERVICE_NOT_AVAILABLE
    transactions.halves.settle = kept  # type: ignore[method-assign]
    world.pass_time(2_000)
    assert story.ask_end(sent, COMMIT).code == 0
    assert story.delivered() == [b"pay"]


def failing() -> None:
    raise BadStoreError("commitlog: can't be read")


def test_a_rollback_is_answered_when_its_record_is_written() -> None:
    story = Story()
    sent = story.send_half(b"pay")
    story.world.store._cleaner.refusal = "the disk is full"
    for _ in range(2):  # asked again, too
        answer = story.ask_end(sent, ROLLBACK)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "the disk is full" in (answer.remark or "")
    assert story.ops() == []
    story.world.store._cleaner.refusal = None
    story.roll_back(sent)
    assert story.ops() == [b"0,"]
    assert story.ask_end(sent, COMMIT).code == ResponseCode.SYSTEM_ERROR
    assert story.delivered() == []
