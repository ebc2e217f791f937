"""Which of a topic's queues a message is sent to, where the caller wants to decide."""

from collections.abc import Callable, Sequence

from kourou.client.errors import InvalidMessageError
from kourou.client.session import Session
from kourou.protocol.hashes import java_hash
from kourou.protocol.message import MessageQueue
from kourou.protocol.properties import Property

Selector = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Chooses one of a topic's queues."""


def by_key(key: str) -> Selector:
    """The same queue for the same key, as long as the number of queues is the same. Java: SelectMessageQueueByHash."""
    hash_ = abs(java_hash(key))
    return lambda queues: queues[hash_ % len(queues)]


def selector_of(
    session: Session,
    ordering_key: str | None,
    queue: MessageQueue | None = None,
    selector: Selector | None = None,
) -> Selector | None:
    """The selector that these arguments of a send mean; None: queues take turns. Raises InvalidMessageError."""
    if sum(given is not None for given in (ordering_key, queue, selector)) > 1:
        raise InvalidMessageError("give only one of ordering_key, queue and selector")
    if ordering_key is not None:
        return by_key(ordering_key)
    if queue is not None:
        if not isinstance(queue, MessageQueue):
            raise InvalidMessageError(f"queue must be a MessageQueue, not {type(queue).__name__}")
        wrapped = MessageQueue(session.wrap(queue.topic), queue.broker_name, queue.queue_id)
        return lambda queues: wrapped  # noqa: ARG005
    return None if selector is None else _checked(selector)


def _checked(selector: Selector) -> Selector:
    def select(queues: Sequence[MessageQueue]) -> MessageQueue:
        chosen = selector(queues)
        if not isinstance(chosen, MessageQueue):
            raise InvalidMessageError(f"the selector must return one of the topic's queues, not {chosen!r:.80}")
        return chosen

    return select


def sharding(ordering_key: str | None) -> dict[str, str]:
    """The property that has the ordering key, if there is one. Raises InvalidMessageError."""
    if ordering_key is None:
        return {}
    if not isinstance(ordering_key, str):
        raise InvalidMessageError(f"ordering_key must be a string, not {type(ordering_key).__name__}")
    return {Property.SHARDING_KEY: ordering_key}
