"""How large a route may be: an answer is bounded before it is decoded, and before queues are made of it.

A route names broker groups and, for each, a number of queues. A number takes a few bytes on the wire, and some 80 bytes
of memory for every queue that it stands for, so one answer could ask for all the memory of a client. The limits lie far
above what real clusters have.
"""

from typing import Final

from kourou.protocol import fastjson
from kourou.protocol.bodies.routes import TopicRouteData
from kourou.protocol.errors import BodyError

ROUTE_SIZE_MAX: Final = 1024 * 1024
"""Bytes of an answer with a route: some 4,000 broker groups."""

ROUTE_UNUSUAL_SIZE_MAX: Final = 64 * 1024
"""The same where it is not ordinary JSON, which takes some 0.2 s a megabyte to read."""

ROUTE_NUMBER_KEYS_SIZE_MAX: Final = 160 * 1024
"""The same where it has numbers as keys, as name servers before 4.9.4 write them: 0.1 s a megabyte."""

ROUTE_DIALECT_SIZE_MAX: Final = 12 * 1024
"""The same where it is not JSON for any other reason: 0.9 s a megabyte."""

ROUTE_OBJECTS_MAX: Final = 16_384
"""JSON objects in an answer: one for the queues of each broker, two for its addresses, two for a mapping."""

ROUTE_QUEUES_MAX: Final = 16_384
"""Queues of one topic, on all its brokers together; those for reading and those for writing are counted apart."""

ROUTE_ADDRESSES_MAX: Final = 2_048
"""Addresses of the brokers of one topic, slaves included."""


def decode_route(body: bytes, topic: str) -> TopicRouteData:
    """The route in an answer's body. Raises BodyError for what is no route, or for one that is too large."""
    if len(body) > ROUTE_SIZE_MAX:
        raise BodyError(
            f"the route of topic {topic!r} takes {len(body)} bytes; at most {ROUTE_SIZE_MAX} are read. "
            "Is the address a name server's?"
        )
    objects = body.count(b"{")
    if objects > ROUTE_OBJECTS_MAX:
        raise BodyError(
            f"the route of topic {topic!r} has {objects} JSON objects; at most {ROUTE_OBJECTS_MAX} are read. "
            "Is the address a name server's?"
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
    """Raises BodyError for a route whose queues or brokers can't be meant."""
    addresses = sum(len(broker.broker_addrs) for broker in data.broker_datas)
    if addresses > ROUTE_ADDRESSES_MAX:
        raise BodyError(
            f"the route of topic {topic!r} has {addresses} broker addresses; at most {ROUTE_ADDRESSES_MAX} are used"
        )
    if data.order_topic_conf and data.order_topic_conf.count(";") > ROUTE_ADDRESSES_MAX:
        raise BodyError(
            f"the order configuration of topic {topic!r} names more than {ROUTE_ADDRESSES_MAX} brokers, the limit. "
            "Correct the key of the topic in the name server's namespace ORDER_TOPIC_CONFIG: mqadmin updateKvConfig"
        )
    reading = sum(max(queue.read_queue_nums, 0) for queue in data.queue_datas)
    writing = sum(max(queue.write_queue_nums, 0) for queue in data.queue_datas)
    for kind, count in (("read", reading), ("write", writing), ("ordered", _ordered_count(data.order_topic_conf))):
        if count > ROUTE_QUEUES_MAX:
            raise BodyError(
                f"the route of topic {topic!r} has {count} {kind} queues; at most {ROUTE_QUEUES_MAX} are used. "
                "Look at the topic's settings: mqadmin topicRoute"
            )


def ordered_counts(conf: str | None) -> list[tuple[str, int]]:
    """The brokers and queue counts of `broker:count;broker:count`, as an admin fixed them for an ordered topic."""
    found = []
    for part in (conf or "").split(";"):
        broker, _, count = part.rpartition(":")
        if broker and count.isascii() and count.isdigit():
            found.append((broker, int(count) if len(count) < 11 else 2**31))
    return found


def _ordered_count(conf: str | None) -> int:
    return sum(count for _, count in ordered_counts(conf))
