"""Plans for static topics: which of their queues are on which broker.

The queues of a static topic are numbered across brokers and keep their numbers. A plan says for each broker how many
queues of its own it has, and which numbers they have; `Topics` sends it to the brokers.

Java: TopicQueueMappingUtils.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import msgspec

from kourou.client.errors import ClientError
from kourou.protocol.bodies import LogicQueueMappingItem, TopicConfigAndQueueMapping, TopicQueueMappingDetail

Plan = dict[str, TopicConfigAndQueueMapping]
"""The topic on each broker, by broker name."""

EPOCH_STEP = 1000
BLOCK = 10_000
"""A queue that moves continues at a multiple of this offset: the old broker may still store some messages meanwhile."""


def grow(
    topic: str, count: int, brokers: Collection[str], there: Mapping[str, TopicConfigAndQueueMapping], now_ms: int
) -> Plan:
    """A topic with `count` queues, new ones on the brokers with the fewest. Raises ClientError."""
    epoch = _checked_epoch(topic, there, now_ms)
    leaders = leaders_of(there)
    if count <= len(leaders):
        raise ClientError(f"static topic {topic!r} has {len(leaders)} queues: more than that are expected, not {count}")
    if set(leaders.values()) - set(brokers):
        raise ClientError(f"static topic {topic!r} has queues on brokers that are not given: give all of them")
    plan = dict(there)
    held = Counter(leaders.values())
    for number in range(len(leaders), count):
        broker = min(sorted(brokers), key=lambda name: held[name])
        held[broker] += 1
        plan[broker] = _with_queue(topic, broker, plan.get(broker), number, [])
    return _at(plan, epoch, count)


def move(topic: str, brokers: Collection[str], there: Mapping[str, TopicConfigAndQueueMapping], now_ms: int) -> Plan:
    """The queues of a topic spread over these brokers, with as few moves as possible. Raises ClientError.

    A queue that moves has no first offset on its new broker yet: it is -1 until the old one has stopped.
    """
    epoch = _checked_epoch(topic, there, now_ms)
    leaders = leaders_of(there)
    if not leaders:
        raise ClientError(f"topic {topic!r} is not a static topic: it has no queues to move")
    plan = dict(there)
    room = _shares(len(leaders), brokers, Counter(leaders.values()))
    waiting = []
    for number, broker in sorted(leaders.items()):
        if room.get(broker, 0) > 0:
            room[broker] -= 1
        else:
            waiting.append(number)
    for broker in sorted(room):
        for _ in range(room[broker]):
            number = waiting.pop(0)
            old = leaders[number]
            detail = plan[old].mapping_detail
            assert detail is not None
            pieces = detail.hosted_queues[number]
            plan[broker] = _with_queue(topic, broker, plan.get(broker), number, pieces)
            plan[old] = _with_pieces(plan[old], number, _pieces(plan[broker], number))
    return _at(plan, epoch, len(leaders))


def moved(before: Mapping[str, TopicConfigAndQueueMapping], plan: Plan) -> dict[int, tuple[str, str]]:
    """The queues that move: from which broker, to which."""
    old, new = leaders_of(before), leaders_of(plan)
    return {number: (old[number], broker) for number, broker in new.items() if old.get(number, broker) != broker}


def begun(plan: Plan, number: int, broker: str, end: int) -> Plan:
    """A queue that moved continues after offset `end` of its old broker's queue."""
    old, new = _pieces(plan[broker], number)[-2:]
    if new.logic_offset < 0:
        offset = max(old.logic_offset, 0) + end - old.start_offset
        blocks = offset // BLOCK + (1 if offset % BLOCK < BLOCK // 2 else 2)
        pieces = [*_pieces(plan[broker], number)[:-1], msgspec.structs.replace(new, logic_offset=blocks * BLOCK)]
        hosts = (name for name, config in plan.items() if number in _hosted(config))
        return {**plan, **{name: _with_pieces(plan[name], number, pieces) for name in hosts}}
    return plan


def completed(topic: str, plan: Plan, brokers: Iterable[str]) -> Plan:
    """The other brokers of the cluster know the topic, and have no queue of it."""
    detail = next(iter(plan.values())).mapping_detail
    assert detail is not None
    empty = {
        name: TopicConfigAndQueueMapping(
            topic_name=topic,
            read_queue_nums=0,
            write_queue_nums=0,
            mapping_detail=TopicQueueMappingDetail(
                topic=topic, total_queues=detail.total_queues, bname=name, epoch=detail.epoch
            ),
        )
        for name in brokers
    }
    return {**empty, **plan}


def leaders_of(there: Mapping[str, TopicConfigAndQueueMapping]) -> dict[int, str]:
    """The broker that leads each queue."""
    return {
        number: name
        for name, config in there.items()
        for number, pieces in _hosted(config).items()
        if pieces and pieces[-1].bname == name
    }


def _hosted(config: TopicConfigAndQueueMapping) -> dict[int, list[LogicQueueMappingItem]]:
    return {} if config.mapping_detail is None else config.mapping_detail.hosted_queues


def _pieces(config: TopicConfigAndQueueMapping, number: int) -> list[LogicQueueMappingItem]:
    return _hosted(config)[number]


def _checked_epoch(topic: str, there: Mapping[str, TopicConfigAndQueueMapping], now_ms: int) -> int:
    """The epoch of a change. Raises ClientError unless all brokers agree about the topic."""
    epochs = set()
    for name, config in there.items():
        if config.mapping_detail is None:
            raise ClientError(f"topic {topic!r} on broker {name!r} is not a static topic: choose another name")
        epochs.add(config.mapping_detail.epoch)
    if len(epochs) > 1:
        raise ClientError(f"brokers disagree about static topic {topic!r}: their epochs are {sorted(epochs)}")
    return max(now_ms, max(epochs, default=0) + EPOCH_STEP)


def _shares(count: int, brokers: Collection[str], held: Counter[str]) -> dict[str, int]:
    """How many queues each broker gets. If they can't be divided evenly, the brokers with most now get one more."""
    each, more = divmod(count, len(brokers))
    ordered = sorted(brokers, key=lambda name: (-held[name], name))
    return {name: each + (place < more) for place, name in enumerate(ordered)}


def _with_queue(
    topic: str,
    broker: str,
    config: TopicConfigAndQueueMapping | None,
    number: int,
    before: list[LogicQueueMappingItem],
) -> TopicConfigAndQueueMapping:
    """One more queue on a broker."""
    if config is None:
        config = TopicConfigAndQueueMapping(
            topic_name=topic,
            read_queue_nums=0,
            write_queue_nums=0,
            mapping_detail=TopicQueueMappingDetail(topic=topic, bname=broker),
        )
    piece = LogicQueueMappingItem(
        gen=before[-1].gen + 1 if before else 0,
        queue_id=config.write_queue_nums,
        bname=broker,
        logic_offset=-1 if before else 0,
    )
    wider = msgspec.structs.replace(
        config, read_queue_nums=config.read_queue_nums + 1, write_queue_nums=config.write_queue_nums + 1
    )
    return _with_pieces(wider, number, [*before, piece])


def _with_pieces(
    config: TopicConfigAndQueueMapping, number: int, pieces: list[LogicQueueMappingItem]
) -> TopicConfigAndQueueMapping:
    detail = config.mapping_detail
    assert detail is not None
    hosted = {**detail.hosted_queues, number: pieces}
    return msgspec.structs.replace(config, mapping_detail=msgspec.structs.replace(detail, hosted_queues=hosted))


def _at(plan: Plan, epoch: int, count: int) -> Plan:
    found = {}
    for name, config in plan.items():
        assert config.mapping_detail is not None
        detail = msgspec.structs.replace(config.mapping_detail, epoch=epoch, total_queues=count)
        found[name] = msgspec.structs.replace(config, mapping_detail=detail)
    return found
