"""A route takes no more than 20 ms to read, whatever a name server answers. Measured in CPU time of the thread."""

import time
from contextlib import suppress

import pytest

from kourou.client.routes import route_of
from kourou.protocol.errors import BodyError
from kourou.protocol.route_limits import ROUTE_SIZE_MAX, decode_route

LIMIT_MS = 20.0


def body(queues: list[bytes], brokers: list[bytes], order: bytes = b"") -> bytes:
    return b'{"queueDatas":[%b],"brokerDatas":[%b],"orderTopicConf":"%b"}' % (
        b",".join(queues),
        b",".join(brokers),
        order,
    )


def wide(brokers: int, queues: int) -> bytes:
    return body(
        [
            b'{"brokerName":"b%d","perm":6,"readQueueNums":%d,"writeQueueNums":%d}' % (n, queues, queues)
            for n in range(brokers)
        ],
        [b'{"brokerName":"b%d","brokerAddrs":{"0":"10.0.0.1:10911"}}' % n for n in range(brokers)],
    )


FULL = ROUTE_SIZE_MAX - 100
BODIES = {
    "few brokers": wide(4, 4096),
    "many brokers": wide(2048, 8),
    "ordered": body([], [], b"b:16384"),
    "an order of nothing": body([], [], b"b:0;" * (FULL // 4)),
    "empty queues": body([b"{}"] * (FULL // 3), []),
    "queues of nothing": wide(6_000, 0)[:FULL],
    "empty brokers": body([], [b"{}"] * (FULL // 3)),
    "numbers as keys": body([], [b'{"brokerAddrs":{0:"a:1"}}'] * 2_000),
    "objects as keys": b'{"x":{' + b"{}:0," * 10_000 + b"{}:0}}",
    "mapped queues": b'{"topicQueueMappingByBroker":{"a":{"currIdMap":{'
    + b",".join(b'"%d":1' % n for n in range(90_000))
    + b"}}}}",
}


@pytest.mark.parametrize("name", BODIES)
def test_no_route_takes_long(name: str) -> None:
    taken = []
    for _ in range(3):  # a machine that does something else meanwhile: the shortest counts
        began = time.thread_time_ns()
        with suppress(BodyError):
            route_of("t", decode_route(BODIES[name], "t"))
        taken.append((time.thread_time_ns() - began) / 1e6)
    assert min(taken) < LIMIT_MS, taken


def test_as_many_queues_as_are_allowed_are_used() -> None:
    route = route_of("t", decode_route(BODIES["many brokers"], "t"))
    assert len(route.publish) == len(route.subscribe) == 16_384


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("an order of nothing", "more than 2048 brokers"),
        ("empty queues", "at most 16384 are read"),
        ("objects as keys", "not ordinary JSON; the limit is 12288"),
    ],
)
def test_what_would_take_long_is_refused(name: str, reason: str) -> None:
    with pytest.raises(BodyError, match=reason):
        decode_route(BODIES[name], "t")
