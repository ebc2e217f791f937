"""Offsets of queues as users and checkpoints write them: {topic: {broker: {queue: offset}}}.

Spark compares offsets as JSON text, so they are always written in the same order. In users' input, -2 means the first
message that still exists, and -1 the end.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from kourou.protocol.message import MessageQueue
from kourou.spark.errors import OptionError

EARLIEST: Final = -2
LATEST: Final = -1

Offsets: TypeAlias = dict[MessageQueue, int]
Nested: TypeAlias = dict[str, dict[str, dict[str, int]]]

_EXAMPLE: Final = '{"orders": {"broker-a": {"0": 23, "1": -2}}}'


def to_nested(offsets: Mapping[MessageQueue, int]) -> Nested:
    """Offsets in the form of a checkpoint."""
    nested: Nested = {}
    for queue in sorted(offsets):
        nested.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return nested


def from_nested(nested: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Offsets:
    return {
        MessageQueue(topic, broker, int(queue)): _whole(offset)
        for topic, brokers in nested.items()
        for broker, queues in brokers.items()
        for queue, offset in queues.items()
    }


def _whole(number: object) -> int:
    """A number of JSON that is neither a fraction nor true or false. Raises TypeError."""
    if type(number) is not int:
        raise TypeError(number)
    return number


def parse_offsets(text: str, option: str) -> Offsets:
    """Offsets that a user wrote. Raises OptionError."""
    try:
        offsets = from_nested(_json(text, option))
    except (AttributeError, TypeError, ValueError):
        hint = _KAFKA_HINT if _has_no_brokers(text, int) else ""
        raise OptionError(f"option {option} must look like {_EXAMPLE}, not like {text[:80]!r}{hint}") from None
    bad = next(
        (f"{queue.topic}/{queue.broker_name}/{queue.queue_id}" for queue in offsets if offsets[queue] < -2), None
    )
    if bad is not None:
        raise OptionError(f"option {option}: an offset below -2 for {bad}")
    return offsets


def parse_assignment(text: str) -> list[MessageQueue]:
    """Queues that a user wrote, each once: {topic: {broker: [queue, …]}}. Raises OptionError."""
    try:
        queues = {
            MessageQueue(topic, broker, _whole(queue))
            for topic, brokers in _json(text, "assign").items()
            for broker, queues in brokers.items()
            for queue in queues
        }
    except (AttributeError, TypeError):
        example = '{"orders": {"broker-a": [0, 1]}}'
        hint = _KAFKA_HINT if _has_no_brokers(text, list) else ""
        raise OptionError(f"option assign must look like {example}, not like {text[:80]!r}{hint}") from None
    if not queues:
        raise OptionError(f"option assign contains no queue: {text[:80]!r}")
    return sorted(queues)


_KAFKA_HINT: Final = ": each broker numbers its queues from 0, so put the broker's name in between"


def _has_no_brokers(text: str, inner: type) -> bool:
    """Is this Kafka's form: {topic: {partition: offset}}, or {topic: [partition, …]}?"""
    given = json.loads(text)
    if not isinstance(given, dict) or not given:
        return False
    found = [part for one in given.values() for part in (one.values() if isinstance(one, dict) else [one])]
    return all(type(one) is inner for one in found)


def _json(text: str, option: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"option {option} is not valid JSON: {error}") from None
