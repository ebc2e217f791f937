"""The resources that a request touches, by the table of requests: topics, groups, clusters, and the rights needed."""

from collections.abc import Iterator
from typing import NamedTuple

from kourou.protocol import bodies
from kourou.protocol.bodies import SubscriptionGroupConfig
from kourou.protocol.headers import REQUESTS, Header, Resource, Right, Target
from kourou.protocol.headers.table import split_names
from kourou.protocol.system_names import RETRY_PREFIX


class Touch(NamedTuple):
    """One resource that a request touches."""

    rights: Right
    """One of them is enough."""
    resource: Resource
    name: str | None = None
    """None: the cluster that the broker belongs to, or all of a kind."""


def touches(code: int, header: Header | None) -> Iterator[Touch]:
    """The resources that a request names in its header, by the table of requests. A code without a rule has none.

    Raises HeaderError if a field has too many names.
    """
    access = REQUESTS[code].access
    if access is None:
        return
    for part in access.parts:
        for target in part.targets:
            if target.attribute is None:
                yield Touch(part.rights, target.resource)
                continue
            for name in _names(target, getattr(header, target.attribute)):
                yield touch(part.rights, target.resource, name)


def _names(target: Target, value: str | None) -> list[str]:
    if not value:
        return []
    return [value] if target.separator is None else split_names(value, target.separator)


def touch(rights: Right, resource: Resource, name: str) -> Touch:
    """A retry topic counts as its group: a user that may consume in the group may send to it."""
    if resource is Resource.TOPIC and name.startswith(RETRY_PREFIX):
        rights = (rights & ~Right.PUB) | Right.SUB if rights & Right.PUB else rights
        return Touch(rights, Resource.GROUP, name.removeprefix(RETRY_PREFIX))
    return Touch(rights, resource, name)


def names_in(body: object) -> Iterator[tuple[Resource, str]]:
    """The topics and groups in the body of a request that has them there. Raises TypeError for other bodies."""
    match body:
        case bodies.HeartbeatData(consumer_data_set=consumers):
            for consumer in consumers:
                yield from _group(consumer.group_name)
                for subscription in consumer.subscription_data_set:
                    yield from _topic(subscription.topic)
        case bodies.CheckClientRequestBody(group=group, subscription_data=subscription):
            yield from _group(group)
            yield from _topic(subscription.topic if subscription is not None else None)
        case bodies.LockBatchRequestBody(consumer_group=group, mq_set=queues):
            yield from _group(group)
            for queue in queues:
                yield from _topic(queue.topic)
        case (
            bodies.QueryAssignmentRequestBody(topic=topic, consumer_group=group)
            | bodies.SetMessageRequestModeRequestBody(topic=topic, consumer_group=group)
        ):
            yield from _group(group)
            yield from _topic(topic)
        case bodies.CreateTopicListRequestBody(topic_config_list=topics):
            for config in topics:
                yield from _topic(config.topic_name)
        case SubscriptionGroupConfig(group_name=group):
            yield from _group(group)
        case bodies.SubscriptionGroupList(group_config_list=groups):
            for group_config in groups:
                yield from _group(group_config.group_name)
        case bodies.BatchAckMessageRequestBody(acks=acks):
            for ack in acks:
                yield from _group(ack.consumer_group)
                yield from _topic(ack.topic)
        case bodies.LiteSubscriptionCtlRequestBody(subscription_set=light):
            for one in light:
                yield from _group(one.group)
                yield from _topic(one.topic)
        case _:
            raise TypeError(f"{type(body).__name__}: it is not known which topics and groups such a body names")


def _group(name: str | None) -> Iterator[tuple[Resource, str]]:
    if name:
        yield Resource.GROUP, name


def _topic(name: str | None) -> Iterator[tuple[Resource, str]]:
    if name:
        yield Resource.TOPIC, name
