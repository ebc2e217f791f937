"""Attributes of topics and groups: their names and values, and how a request changes them.

A request says `+key=value` to set an attribute and `-key` to remove it; what is kept has no signs. Some attributes can
be set only when a topic is made. A change is made as a whole or not at all.

Java: AttributeParser, AttributeUtil, TopicAttributes, SubscriptionGroupAttributes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kourou.broker.events import Refused
from kourou.protocol.codes import ResponseCode

_LONG_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute that may be set: `fault` returns why a value is invalid, None if it is valid."""

    fault: Callable[[str], str | None]
    changeable: bool = True


def _one_of(*values: str) -> Callable[[str], str | None]:
    def fault(value: str) -> str | None:
        return None if value in values else f"value is not in set: [{', '.join(values)}]"

    return fault


def _between(low: int, high: int) -> Callable[[str], str | None]:
    def fault(value: str) -> str | None:
        digits = value[1:] if value[:1] in ("+", "-") else value
        if not (digits.isascii() and digits.isdigit()):
            return f'For input string: "{value}"'
        return None if low <= int(value) <= high else f"value is not in range({low}, {high})"

    return fault


def _flag(value: str) -> str | None:
    return None if value.lower() in ("true", "false") else "boolean attribute format is wrong."


def _text(_: str) -> str | None:
    return None


MESSAGE_TYPE: Final = "message.type"

OF_TOPICS: Final = {
    "queue.type": Attribute(_one_of("SimpleCQ", "BatchCQ"), changeable=False),
    "cleanup.policy": Attribute(_one_of("DELETE", "COMPACTION"), changeable=False),
    MESSAGE_TYPE: Attribute(
        _one_of("UNSPECIFIED", "MIXED", "TRANSACTION", "PRIORITY", "FIFO", "DELAY", "LITE", "NORMAL")
    ),
    "reserve.time": Attribute(_between(-1, _LONG_MAX)),
    "lite.topic.expiration": Attribute(_between(-1, 43_200)),
}

OF_GROUPS: Final = {
    "priority.factor": Attribute(_between(0, 100)),
    "lite.bind.topic": Attribute(_text),
    "lite.sub.model": Attribute(_one_of("Shared", "Exclusive")),
    "lite.sub.wildcard": Attribute(_text),
    "lite.sub.client.quota": Attribute(_between(-1, _LONG_MAX)),
    "lite.sub.client.max.event.cnt": Attribute(_between(10, _LONG_MAX)),
    "lite.sub.reset.offset.exclusive": Attribute(_flag),
    "lite.sub.reset.offset.unsubscribe": Attribute(_flag),
}


def parse(text: str | None) -> dict[str, str]:
    """Changes by signed key, from `+key=value,-key`. Raises Refused."""
    changes: dict[str, str] = {}
    for word in (text or "").split(","):
        key, is_set, value = word.partition("=")
        if not word:
            continue
        if is_set and "+" not in key:
            raise _refused(f"add/alter attribute format is wrong: {key}")
        if not is_set and "-" not in key:
            raise _refused(f"delete attribute format is wrong: {key}")
        if key in changes:
            raise _refused(f"key duplication: {key}")
        changes[key] = value
    return changes


def alter(
    known: Mapping[str, Attribute], current: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """The attributes after the changes; `current` is None for a new topic or group. Raises Refused."""
    altered = dict(current or {})
    seen: set[str] = set()
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        if not key or "+" in key or "-" in key:
            raise _refused("kv string format wrong.")
        if key in seen:
            raise _refused(f"alter duplication key. key: {key}")
        seen.add(key)
        if current is None and sign != "+":
            raise _refused(f"only add attribute is supported while creating topic. key: {key}")
        if sign not in ("+", "-"):
            raise _refused(f"wrong format key: {key}")
        if sign == "-" and key not in altered:
            raise _refused(f"attempt to delete a nonexistent key: {key}")
        _check(known, key, value if sign == "+" else None, is_new=current is None)
        if sign == "+":
            altered[key] = value
        else:
            del altered[key]
    return altered


def _check(known: Mapping[str, Attribute], key: str, value: str | None, *, is_new: bool) -> None:
    attribute = known.get(key)
    if attribute is None:
        raise _refused(f"unsupported key: {key}")
    if not is_new and not attribute.changeable:
        raise _refused(f"attempt to update an unchangeable attribute. key: {key}")
    fault = attribute.fault(value) if value is not None else None
    if fault is not None:
        raise _refused(fault)


def _refused(remark: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, remark[:200])
