"""The queues of a topic that a name server's answer describes."""

from collections.abc import Mapping

from kourou.protocol.bodies import TopicRouteData
from kourou.protocol.codes import MASTER_ID, Perm
from kourou.protocol.message import MessageQueue

_READ, _WRITE = int(Perm.READ), int(Perm.WRITE)


def readable_counts(data: TopicRouteData) -> dict[str, int]:
    """How many queues may be read, by broker name. A broker that is listed twice counts once."""
    return {queue.broker_name or "": queue.read_queue_nums for queue in data.queue_datas if queue.perm & _READ}


def writable_counts(data: TopicRouteData, queues_max: int | None = None) -> dict[str, int]:
    """How many queues may be written, by broker name: only of brokers that have a master.

    `queues_max` is for the default topic: a broker gives a new topic that many queues, or as many as the default topic
    has for reading if that is fewer.
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
    """All queues, in the order in which consumers share them."""
    return tuple(MessageQueue(topic, broker, number) for broker in sorted(counts) for number in range(counts[broker]))
