"""Limits of routes. An answer is checked before it is decoded, and again before queues are created from it.

A route contains, for each broker group, a number of queues. The number takes a few bytes on the wire, but each queue
takes about 80 bytes of memory, so one answer could exhaust a client's memory. The limits are far above the sizes of
real clusters.
"""

from typing import Final

from kourou.protocol import fastjson
from kourou.protocol.bodies.routes import TopicRouteData
from kourou.protocol.errors import BodyError

ROUTE_SIZE_MAX: Final = 1024 * 1024
"""The size of an answer with a route, in bytes: about 4,000 broker groups."""

ROUTE_UNUSUAL_SIZE_MAX: Final = 64 * 1024
"""The same if it is not ordinary JSON, which takes about 0.2 s per megabyte to decode."""

ROUTE_NUMBER_KEYS_SIZE_MAX: Final = 160 * 1024
"""The same if it has number keys, as name servers before 4.9.4 write them: 0.1 s per megabyte."""

ROUTE_DIALECT_SIZE_MAX: Final = 12 * 1024
"""The same if it is not JSON for another reason: 0.9 s per megabyte."""

ROUTE_OBJECTS_MAX: Final = 16_384
"""The number of JSON objects in an answer: one per broker for queues, two for addresses, two for a mapping."""

ROUTE_QUEUES_MAX: Final = 16_384
"""The number of queues of a topic on all its brokers; readable and writable queues are counted separately."""

ROUTE_ADDRESSES_MAX: Final = 2_048
"""The number of broker addresses of one topic, including slaves."""


def decode_route(body: bytes, topic: str) -> TopicRouteData:
    """Decode the route in an answer's body. Raises BodyError if it is invalid or too large."""
    if len(body) > ROUTE_SIZE_MAX:
        raise BodyError(
            f"the route of topic {topic!r} takes {len(body)} bytes; at most {ROUTE_SIZE_MAX} are read. "
            "Is this the address of a name server?"
        )
    objects = body.count(b"{")
    if objects > ROUTE_OBJECTS_MAX:
        raise BodyError(
            f"the route of topic {topic!r} has {objects} JSON objects; at most {ROUTE_OBJECTS_MAX} are read. "
            "Is this the address of a name server?"
        )
    data = fastjson.decode(
        bytes(body),
        TopicRouteData,
        untyped_max=ROUTE_UNUSUAL_SIZE_MAX,
        number_keys_max=ROUTE_NUMBER_KEYS_SIZE_MAX,
        dialect_max=ROUTE_DIALECT_SIZE_MAX,
    )
    check_route(data, topic)
    return data


def check_route(data: TopicRouteData, topic: str) -> None:
    """Raises BodyError for a route with an implausible number of queues or brokers."""
    addresses = sum(len(broker.broker_addrs) for broker in data.broker_datas)
    if addresses > ROUTE_ADDRESSES_MAX:
        raise BodyError(
            f"the route of topic {topic!r} has {addresses} broker addresses; at most {ROUTE_ADDRESSES_MAX} are used"
        )
    if data.order_topic_conf and data.order_topic_conf.count(";") > ROUTE_ADDRESSES_MAX:
        raise BodyError(
            f"the order configuration of topic {topic!r} has more than {ROUTE_ADDRESSES_MAX} brokers, the limit. "
            "Correct the key of the topic in the name server's namespace ORDER_TOPIC_CONFIG: mqadmin updateKvConfig"
        )
    reading = sum(max(queue.read_queue_nums, 0) for queue in data.queue_datas)
    writing = sum(max(queue.write_queue_nums, 0) for queue in data.queue_datas)
    static: dict[str, int] = {}  # by scope: every broker tells the number of all queues
    for mapping in (data.topic_queue_mapping_by_broker or {}).values():
        static[mapping.scope] = max(static.get(mapping.scope, 0), mapping.total_queues)
    ordered = _ordered_count(data.order_topic_conf)
    for kind, count in (
        ("read", reading),
        ("write", writing),
        ("ordered", ordered),
        ("static", sum(static.values())),
    ):
        if count > ROUTE_QUEUES_MAX:
            raise BodyError(
                f"the route of topic {topic!r} has {count} {kind} queues; at most {ROUTE_QUEUES_MAX} are used. "
                "Check the topic's settings: mqadmin topicRoute"
            )


def ordered_counts(conf: str | None) -> list[tuple[str, int]]:
    """The brokers and queue counts of `broker:count;broker:count`, the order configuration of a topic."""
    found = []
    for part in (conf or "").split(";"):
        broker, _, count = part.rpartition(":")
        if broker and count.isascii() and count.isdigit():
            found.append((broker, int(count) if len(count) < 11 else 2**31))
    return found


def _ordered_count(conf: str | None) -> int:
    return sum(count for _, count in ordered_counts(conf))
