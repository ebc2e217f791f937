"""How pipelines send, without Spark: order, marks, rate and reports."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from kourou.protocol import properties
from kourou.protocol.hashes import java_hash
from kourou.spark.errors import SparkError
from kourou.spark.messages import Draft
from kourou.spark.pipelines.report import RunReport
from kourou.spark.pipelines.sending import (
    How,
    Pace,
    Shipment,
    Wave,
    check_rate,
    note_trouble,
    prepared,
    ship,
    sink_options,
)
from kourou.spark.sending import BATCH_ROWS, BATCH_SIZE, Sent

from .test_pipelines_lake import rows


class Sink:
    """Stands for a sender: keeps the waves that it was given."""

    def __init__(self) -> None:
        self.waves: list[list[Draft]] = []
        self.sent = Sent()

    def send(self, drafts: Iterable[Draft]) -> None:
        self.waves.append(list(drafts))
        self.sent.messages += len(self.waves[-1])


def shipped(batches: list[pa.RecordBatch], how: How, topic: str | None = "to") -> tuple[Shipment, Sink]:
    sink = Sink()
    sender: Any = sink  # a real one needs a broker
    return ship(iter(batches), sender, topic, how, "run/0"), sink


def test_rows_are_sent_and_told() -> None:
    how = How(write_id="run", mark="REPLAY", mark_id="id", is_remembered=True)
    shipment, sink = shipped([rows([("a", 3, 7, 0), ("a", 3, 8, 0), ("a", 3, 10, 1)])], how)
    assert (shipment.rows, shipment.sent, shipment.bytes) == (3, 3, 30)
    assert shipment.done == {"a": {"b": {"3": [(7, 9), (10, 11)]}}}
    assert shipment.newest_us is not None
    [wave] = sink.waves
    named = properties.decode(wave[0].properties)
    assert named["REPLAY_ID"] == "id" and named["REPLAY_FROM"] == "a/b/3/7" and named["n"] == "7"
    again, other = shipped([rows([("a", 3, 7, 0)])], how)
    assert properties.decode(other.waves[0][0].properties)["UNIQ_KEY"] == named["UNIQ_KEY"]
    shipment.add(again)
    assert shipment.sent == 4


def test_a_queue_s_messages_wait_for_those_before() -> None:
    """A wave is one request, whose messages are all stored or none."""
    count = BATCH_ROWS * 2 + 10
    batch = rows([("a", queue, number, 0) for queue in range(2) for number in range(count)])
    shipment, sink = shipped([batch], How(write_id="run", is_ordered=True))
    assert shipment.sent == 2 * count
    for wave in sink.waves:
        assert len(wave) <= BATCH_ROWS and len({draft.ordering_key for draft in wave}) == 1
    for queue in range(2):
        here = [draft for wave in sink.waves for draft in wave if draft.ordering_key == chr(queue)]
        assert [properties.decode(draft.properties)["n"] for draft in here] == [str(number) for number in range(count)]
    assert java_hash(chr(5)) == 5  # so that a queue's messages go to the queue of the same number


def draft(size: int = 10, key: str | None = "k", *, is_delayed: bool = False) -> Draft:
    return Draft("t", key, is_delayed, 0, b"x" * size, "")


def test_waves() -> None:
    wave = Wave(is_ordered=True, rows_max=100)
    assert not wave.is_full_for(draft(BATCH_SIZE * 2))  # a large one goes alone
    wave.take(draft(BATCH_SIZE - 100))
    assert wave.is_full_for(draft(100)) and wave.is_full_for(draft(1, "other")) and not wave.is_full_for(draft(1))
    assert len(wave.empty()) == 1
    wave.take(draft())
    assert wave.is_full_for(draft(is_delayed=True))  # which is a request of its own
    assert wave.empty() and not wave.empty() and not wave.is_full_for(draft())
    wild = Wave(is_ordered=False, rows_max=2)
    for _ in range(2):
        assert not wild.is_full_for(draft(BATCH_SIZE))
        wild.take(draft(BATCH_SIZE))
    assert wild.is_full_for(draft())


def test_marks_replace_older_ones() -> None:
    how = How(write_id="w", mark="REPLAY", mark_id="new")
    one = Draft("t", None, False, 0, b"x", properties.encode({"REPLAY_ID": "old", "a": "b"}))
    found = properties.decode(prepared(one, ("t", "b", 1, 2), how, None).properties)
    assert found == {"REPLAY_ID": "new", "REPLAY_FROM": "t/b/1/2", "a": "b"}
    full = Draft("t", None, False, 0, b"x", properties.encode({"a": "x" * 32_760}))
    with pytest.raises(SparkError, match="can't be sent"):
        prepared(full, ("t", "b", 1, 2), how, None)


def test_a_retry_goes_alone_and_knows_its_topic() -> None:
    one = prepared(draft(), ("%DLQ%g", "b", 0, 1), How(write_id="w"), "orders")
    assert one.is_delayed
    assert properties.decode(one.properties) == {"RETRY_TOPIC": "orders"}


def test_a_pace_is_kept() -> None:
    now = [100.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(50.0, lambda: now[0], sleep)
    assert pace.wave_rows == 10
    for _ in range(10):
        pace.sent(10)
        now[0] += 0.05
    assert now[0] == pytest.approx(102.0, abs=0.06)
    assert max(slept) == pytest.approx(0.2)
    assert Pace(0.1).wave_rows == 1
    Pace(None, lambda: now[0], sleep).sent(10**9)
    assert len(slept) == 10


def test_rates_of_tasks() -> None:
    assert check_rate(None, 3) is None
    assert check_rate(30.0, 3) == 10.0
    with pytest.raises(SparkError, match="the rate must be greater than 0, not 0"):
        check_rate(0, 1)


def test_trouble_is_told() -> None:
    report = RunReport(pipeline="replay", started="now")
    note_trouble(report, Shipment(sent=5))
    assert report.notes == []
    note_trouble(report, Shipment(sent=5, repeated=2, unsafe=1))
    assert [note[:10] for note in report.notes] == ["2 messages", "1 messages"]


def test_options_for_writing() -> None:
    given = {
        "namesrv": "a:1",
        "accessKey": "k",
        "startingOffsets": "earliest",
        "topic": "x",
        "group": "g",
    }
    assert sink_options("b:2", given) == {"namesrv": "b:2", "accessKey": "k"}
