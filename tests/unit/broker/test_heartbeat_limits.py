"""Clients that say too much of themselves are refused before they are remembered."""

import json

import pytest
from tests.unit.broker.asking import TOPIC, heartbeat, lock, ok, request, send

from kourou.broker import heartbeat_limits
from kourou.broker.queue_locks import QueueLocks
from kourou.broker.settings import BrokerSettings
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.message import MessageQueue
from kourou.testing.broker import SimulatedBroker
from kourou.turns import at_once


@pytest.fixture
def world() -> SimulatedBroker:
    return SimulatedBroker()


def speaks_for(count: int, name: str = "p", client_id: str = "c") -> Command:
    """A heartbeat of so many producer groups."""
    body = {"clientID": client_id, "producerDataSet": [{"groupName": f"{name}{n}"} for n in range(count)]}
    return request(RequestCode.HEART_BEAT, body=json.dumps(body).encode())


def test_groups_of_one_connection(world: SimulatedBroker) -> None:
    client = world.connect()
    ok(client, speaks_for(1_000))
    ok(client, speaks_for(1_000))  # the same ones again
    answer = client.ask(speaks_for(1, name="one-more"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "heartbeat refused: the client has 1001 groups, the limit is 1000 (maxGroupsPerClient)"
    assert "one-more0" not in world.machine.clients.producers
    ok(world.connect(), speaks_for(1, name="one-more"))


def test_subscriptions_of_one_client() -> None:
    world = SimulatedBroker(settings=BrokerSettings(subscriptions_per_client=3))
    ok(world.connect(), subscribes(3))
    answer = world.connect().ask(subscribes(4))
    assert answer.remark == (
        "heartbeat refused: the client has 4 subscriptions, the limit is 3 (maxSubscriptionsPerClient)"
    )


def subscribes(count: int) -> Command:
    """A heartbeat of a group with so many subscriptions."""
    data = [{"topic": f"t{n}", "subString": "*"} for n in range(count)]
    body = {"clientID": "c", "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": data}]}
    return request(RequestCode.HEART_BEAT, body=json.dumps(body).encode())


def test_groups_of_all_connections(world: SimulatedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_limits, "MEMBERSHIPS_MAX", 20)
    first, second = world.connect(), world.connect()
    ok(first, speaks_for(20))
    assert second.ask(speaks_for(1, name="q")).code == ResponseCode.SYSTEM_ERROR
    ok(first, speaks_for(20))  # who is there may stay
    first.close()
    world.pass_time(2 * heartbeat_limits.COUNTED_FOR_MS)
    ok(second, speaks_for(1, name="q"))


@pytest.mark.parametrize(
    "beat",
    [
        heartbeat("c" * 1001, producers="p"),
        heartbeat("c", producers="p" * 256),
        request(
            RequestCode.HEART_BEAT,
            body=b'{"consumerDataSet":[{"groupName":"g","subscriptionDataSet":[' + b"{}," * 10_000 + b"{}]}]}",
        ),
    ],
    ids=["a long id", "a long name", "many subscriptions"],
)
def test_large_heartbeats(world: SimulatedBroker, beat: Command) -> None:
    answer = world.connect().ask(beat)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith("heartbeat refused: ")
    assert not world.machine.clients.producers
    assert not world.machine.clients.consumers


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (b" " * (1024 * 1024 + 1), "maxJsonBodySize"),
        (b'{"producerDataSet":[' + b"{}," * 16_384 + b"{}]}", "maxJsonBodyObjects"),
        (b'{"producerDataSet":null,"x":"' + b"x" * 64 * 1024 + b'"}', "maxLooseBodySize"),
        (b'{"x":{{}:1},"y":"' + b"x" * 16 * 1024 + b'"}', "maxDialectBodySize"),
        (b'{"x":{"$ref":"$"},"y":"' + b"x" * 16 * 1024 + b'"}', "maxDialectBodySize"),
    ],
)
def test_bodies_that_take_too_long_to_read(world: SimulatedBroker, body: bytes, limit: str) -> None:
    answer = world.connect().ask(request(RequestCode.HEART_BEAT, body=body))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert limit in (answer.remark or "")
    assert not world.machine.clients.producers


def test_only_queues_that_there_are_can_be_locked(world: SimulatedBroker) -> None:
    client = world.connect()
    ok(client, send())
    answer = ok(client, lock("c", 0, 3, 4, -1, 2_000_000_000))
    locked = json.loads(answer.body)["lockOKMQSet"]
    assert sorted((queue["topic"], queue["queueId"]) for queue in locked) == [(TOPIC, 0), (TOPIC, 3)]


def test_locks_have_a_limit() -> None:
    locks = QueueLocks(60_000, count_max=3)
    queues = [MessageQueue("t", "b", n) for n in range(5)]
    assert locks.lock("g", queues, "c", 0) == queues[:3]
    assert locks.lock("g", queues, "c", 1) == queues[:3], "those that it has are renewed"
    assert locks.lock("h", queues, "d", 2) == []
    locks.unlock("g", queues[:1], "c")
    assert locks.lock("h", queues, "d", 3) == queues[:1]
    at_once(locks.forget_expired(60_002))
    assert locks.lock("i", queues, "e", 60_002) == queues[:2]
