"""Types of messages, histograms, and what is bounded of them."""

import pytest

from kourou.broker import meters
from kourou.broker.events import Peer, Reply
from kourou.broker.meters import Histogram, Meters, Rpc, Traffic, message_type
from kourou.protocol.codes import version_name
from kourou.protocol.command import Command


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, "normal"),
        ({"__SHARDINGKEY": "k"}, "fifo"),
        ({"TRAN_MSG": "True", "__SHARDINGKEY": "k"}, "transaction"),
        ({"DELAY": "3"}, "delay"),
        ({"TIMER_DELAY_SEC": "3", "__SHARDINGKEY": "k"}, "fifo"),
        ({"__STARTDELIVERTIME": "3"}, "delay"),
    ],
)
def test_types_of_messages(properties: dict[str, str], expected: str) -> None:
    assert message_type(properties) == expected


def test_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram((1, 10))
    for value in (0, 1, 2, 10, 11):
        histogram.add(value)
    assert histogram.cumulative() == [("1.0", 2), ("10.0", 4), ("+Inf", 5)]
    assert histogram.total == 24


def test_a_batch_is_one_observation_of_its_average() -> None:
    traffic = Traffic()
    traffic.add(4, 8_000)
    assert (traffic.messages, traffic.size, traffic.sizes.total) == (4, 8_000, 2_000)
    assert traffic.sizes.buckets[:3] == [0, 1, 0]


def test_unknown_codes_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "LATENCIES_MAX", 3)
    found = Meters(lambda: 0, lambda _: False)
    for code in range(100):
        found.add(Rpc(str(code), "success", False, "success"), 1, 1)
    assert len(found.latencies) == 4
    assert sum(found.latencies[Rpc("other", "other", False, "success")].buckets) == 97


def test_requests_that_are_never_answered_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "ASKED_MAX", 3)
    found, peer = Meters(lambda: 0, lambda _: False), Peer("127.0.0.1:1", b"")
    for opaque in range(100):
        found.asked(peer, Command(10, opaque))
    assert len(peer.asked) == 3
    found.answered([Reply(peer, Command(0, opaque)) for opaque in range(100)])
    assert not peer.asked
    assert [sum(histogram.buckets) for histogram in found.latencies.values()] == [3]


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (37, "V3_0_11"),
        (85, "V3_2_9"),
        (86, "V3_3_1_SNAPSHOT"),
        (121, "V3_4_9"),
        (211, "V3_9_9"),
        (401, "V4_9_4"),
        (513, "V5_5_0"),
        (611, "V5_9_9"),
        (612, "HIGHER_VERSION"),
        (3, "V3_0_0"),
    ],
)
def test_names_of_releases(number: int, name: str) -> None:
    assert version_name(number) == name
