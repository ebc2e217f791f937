"""Names of topics and groups: which are allowed, which are reserved, and namespaces.

A namespace separates the topics and groups of applications by a prefix that users do not see:

    orders           ns%orders
    %RETRY%billing   %RETRY%ns%billing

`wrap` adds the prefix on the way to a broker, `unwrap` removes it. Java: NamespaceUtil, TopicValidator, Validators.
"""

from functools import lru_cache
from typing import Final

from kourou.client.errors import InvalidNameError
from kourou.protocol.system_names import (
    BENCHMARK_TOPIC,
    CHECKPOINT_TOPIC,
    DEAD_LETTER_PREFIX as DEAD_LETTER_PREFIX,
    DEFAULT_TOPIC as DEFAULT_TOPIC,
    GROUP_LENGTH_MAX,
    NOT_FOR_SENDING,
    PREDEFINED_GROUPS,
    RETRY_PREFIX as RETRY_PREFIX,
    RETRY_TOPIC_LENGTH_MAX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_PREFIX,
    TOPIC_LENGTH_MAX,
    TRACE_TOPIC as TRACE_TOPIC,
    dead_letter_topic as dead_letter_topic,
    is_allowed,
    retry_topic as retry_topic,
)

NAMESPACE_SEPARATOR: Final = "%"
SYSTEM_TOPICS: Final = NOT_FOR_SENDING | {DEFAULT_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC, CHECKPOINT_TOPIC}


def is_system_topic(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether clients and tools do not take it for a user's group."""
    return group in PREDEFINED_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def check_topic(topic: str) -> None:
    """Raises InvalidNameError for a name that no broker takes."""
    _check("topic", topic)
    is_groups = topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    limit = RETRY_TOPIC_LENGTH_MAX if is_groups else TOPIC_LENGTH_MAX
    if len(topic) > limit:
        raise InvalidNameError(f"topic {topic[:40]!r}… has {len(topic)} characters; {limit} are allowed")


def check_sendable(topic: str) -> None:
    """Raises InvalidNameError for a topic that clients must not send to."""
    try:
        _check_sendable(topic)
    except TypeError:  # not hashable, such as a list
        check_topic(topic)
        raise


@lru_cache(maxsize=4096)
def _check_sendable(topic: str) -> None:
    check_topic(topic)
    if topic in NOT_FOR_SENDING:
        raise InvalidNameError(f"topic {topic!r} belongs to the broker: clients may not send to it")


def check_group(group: str) -> None:
    """Raises InvalidNameError for a name that no broker takes."""
    _check("group", group)
    if len(group) > GROUP_LENGTH_MAX:
        raise InvalidNameError(f"group {group[:40]!r}… has {len(group)} characters; {GROUP_LENGTH_MAX} are allowed")
    if group in ("DEFAULT_PRODUCER", "DEFAULT_CONSUMER"):
        raise InvalidNameError(f"group {group!r} is reserved: choose a name of your own")


def _check(what: str, name: str) -> None:
    if not isinstance(name, str):
        raise InvalidNameError(f"the name of a {what} must be a string, not {type(name).__name__}")
    if not name or not name.strip():
        raise InvalidNameError(f"the name of the {what} is empty")
    if not is_allowed(name):
        raise InvalidNameError(f"{what} {name[:80]!r} contains characters other than letters, digits, % | _ and -")


def wrap(name: str, namespace: str | None) -> str:
    """The name of a topic or group as brokers know it."""
    if not namespace or not name or is_system_topic(name) or is_system_group(name):
        return name
    kind, rest = _split(name)
    start = namespace + NAMESPACE_SEPARATOR
    return name if rest.startswith(start) else kind + start + rest


def unwrap(name: str, namespace: str | None) -> str:
    """The name as the user knows it."""
    if not namespace:
        return name
    kind, rest = _split(name)
    return kind + rest.removeprefix(namespace + NAMESPACE_SEPARATOR)


def _split(name: str) -> tuple[str, str]:
    for kind in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(kind):
            return kind, name[len(kind) :]
    return "", name
