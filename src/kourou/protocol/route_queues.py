"""The queues of a topic, computed from its route."""

from collections.abc import Mapping
from typing import Final

from kourou.protocol.bodies import TopicRouteData
from kourou.protocol.codes import MASTER_ID, Perm
from kourou.protocol.message import MessageQueue

LOGICAL_PREFIX: Final = "__syslo__"
"""The queues of a static topic are numbered across brokers. In place of a broker's name they have this and a scope."""

_GLOBAL: Final = "__global__"

_READ, _WRITE = int(Perm.READ), int(Perm.WRITE)


def readable_counts(data: TopicRouteData) -> dict[str, int]:
    """The number of readable queues, by broker name. A broker that is listed twice counts once."""
    return {queue.broker_name or "": queue.read_queue_nums for queue in data.queue_datas if queue.perm & _READ}


def writable_counts(data: TopicRouteData, queues_max: int | None = None) -> dict[str, int]:
    """The number of writable queues, by broker name, for brokers that have a master.

    `queues_max` is for the default topic: a broker gives a new topic that many queues, or as many as the default topic
    has readable queues if that is fewer.
    """
    with_master = {broker.broker_name for broker in data.broker_datas if MASTER_ID in broker.broker_addrs}
    return {
        queue.broker_name or "": queue.write_queue_nums
        if queues_max is None
        else min(queues_max, queue.read_queue_nums)
        for queue in data.queue_datas
        if queue.perm & _WRITE and queue.broker_name in with_master
    }


def queues_of(topic: str, counts: Mapping[str, int]) -> tuple[MessageQueue, ...]:
    """All queues, in the order in which consumers divide them."""
    return tuple(MessageQueue(topic, broker, number) for broker in sorted(counts) for number in range(counts[broker]))


def is_logical(queue: MessageQueue) -> bool:
    """Whether it is a queue of a static topic, numbered across brokers."""
    return queue.broker_name.startswith(LOGICAL_PREFIX)


def logical_queues(topic: str, data: TopicRouteData) -> dict[MessageQueue, str]:
    """The queues of a static topic, in order, and the broker that has each; empty text for one that no broker has.

    Nothing for other topics. Of two brokers that claim a queue, that with the newer mapping has it. Java:
    MQClientInstance.topicRouteData2EndpointsForStaticTopic.
    """
    totals: dict[str, int] = {}
    brokers: dict[MessageQueue, str] = {}
    mappings = data.topic_queue_mapping_by_broker or {}
    for name, mapping in sorted(mappings.items(), key=lambda item: item[1].epoch):
        place = LOGICAL_PREFIX + (_GLOBAL[2:] if mapping.scope == _GLOBAL else mapping.scope)
        totals[place] = max(totals.get(place, 0), mapping.total_queues)
        for number in mapping.curr_id_map:
            brokers[MessageQueue(topic, place, number)] = mapping.bname or name
    queues = (MessageQueue(topic, place, number) for place in sorted(totals) for number in range(totals[place]))
    return {queue: brokers.get(queue, "") for queue in queues}
