"""Queues are shared as the Java client shares them."""

import json
from pathlib import Path

import pytest

from kourou.client.balance import (
    Averagely,
    AveragelyByCircle,
    ByMachineRoom,
    Configured,
    ConsistentHash,
    NearbyRoom,
    Strategy,
)
from kourou.protocol.message import MessageQueue

CASES = [json.loads(line) for line in Path(__file__).with_name("allocations-5.5.0.jsonl").read_text().splitlines()]
"""What the classes of the Java client 5.5.0 gave to each consumer, for random queues and consumers."""


def room_of_queue(queue: MessageQueue) -> str:
    return queue.broker_name.split("@")[0]


def room_of_client(client: str) -> str:
    return client.split("-")[0]


STRATEGIES: list[Strategy] = [
    Averagely(),
    AveragelyByCircle(),
    ByMachineRoom({"room0", "room1"}),
    NearbyRoom(room_of_queue, room_of_client),
    ConsistentHash(),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_as_java_shares_them(strategy: Strategy) -> None:
    for case in CASES:
        queues = [MessageQueue("TopicTest", broker, number) for broker, number in case["queues"]]
        for client, share in zip(case["clients"], case["shares"][strategy.name], strict=True):
            got = strategy.allocate(client, queues, case["clients"])
            assert [[queue.broker_name, queue.queue_id] for queue in got] == share


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_a_client_that_is_not_in_the_list_gets_nothing(strategy: Strategy) -> None:
    assert strategy.allocate("room0-stranger", [MessageQueue("T", "room0@a", 0)], ["room0-x", "room1-y"]) == []


def test_configured_queues_are_always_ours() -> None:
    queue = MessageQueue("T", "a", 3)
    assert Configured((queue,)).allocate("anybody", [], []) == [queue]


def test_a_room_that_is_not_known_is_an_error() -> None:
    strategy = NearbyRoom(lambda queue: "", room_of_client)
    with pytest.raises(ValueError, match="machine room"):
        strategy.allocate("room0-x", [MessageQueue("T", "a", 0)], ["room0-x"])
