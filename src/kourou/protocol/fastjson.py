"""RocketMQ's JSON dialect: what fastjson makes of Java objects, read and written.

Java's peers write maps whose keys are not strings the way Java holds them, which no JSON parser but fastjson reads:

    {0:"10.0.0.1:10911",1:"10.0.0.2:10911"}                             numbers as keys
    {{"brokerName":"a","queueId":0,"topic":"T"}:{"maxOffset":7}}        objects as keys

`encode` and `decode` go between bytes and the structs of `kourou.protocol.bodies`. Most bodies have neither kind of
key, and go through msgspec in one step.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from kourou.protocol.errors import BodyError

T = TypeVar("T")


def decode(data: bytes, wanted: type[T]) -> T:
    """The value of type `wanted` in a body. Raises BodyError when it is not there."""
    try:
        return _decoder(wanted).decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BodyError(f"not a {wanted.__name__}: {error}") from None


def _decoder(wanted: type[T]) -> msgspec.json.Decoder[T]:
    decoder = _decoders.get(wanted)
    if decoder is None:
        decoder = _decoders[wanted] = msgspec.json.Decoder(wanted)
    return decoder


_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def encode(value: Any, *, standard: bool = False) -> bytes:
    """The value as compact JSON, with number and object keys as fastjson writes them.

    `standard` asks for JSON as everyone else knows it: numbers as keys are quoted. Objects as keys have no such form
    and raise TypeError.
    """
    if standard:
        return msgspec.json.encode(value)
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def _write(value: Any, parts: list[bytes]) -> None:
    if isinstance(value, msgspec.Struct):
        _write_struct(value, parts)
    elif isinstance(value, Mapping):
        _write_mapping(value, parts)
    elif isinstance(value, list | tuple | set | frozenset):
        separator = b"["
        for item in value:
            parts.append(separator)
            _write(item, parts)
            separator = b","
        parts.append(b"]" if value else b"[]")
    else:
        parts.append(msgspec.json.encode(value))


def _write_struct(value: msgspec.Struct, parts: list[bytes]) -> None:
    plan = _struct_plan(type(value))
    if plan is None:
        parts.append(msgspec.json.encode(value))
        return
    separator = b"{"
    for attribute, key, plain in plan:
        member = getattr(value, attribute)
        if member is None:
            continue
        parts += (separator, key)
        if plain:
            parts.append(msgspec.json.encode(member))
        else:
            _write(member, parts)
        separator = b","
    parts.append(b"}" if separator == b"," else b"{}")


def _write_mapping(value: Mapping[Any, Any], parts: list[bytes]) -> None:
    separator = b"{"
    for key, member in value.items():
        parts.append(separator)
        if type(key) is int:
            parts.append(b"%d" % key)
        else:
            _write(key, parts)
        parts.append(b":")
        _write(member, parts)
        separator = b","
    parts.append(b"}" if value else b"{}")


@cache
def _struct_plan(cls: type[msgspec.Struct]) -> tuple[tuple[str, bytes, bool], ...] | None:
    """(attribute, `"key":`, is plain JSON) for each field, or None when the whole struct is plain JSON."""
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    plan = tuple(
        (field.name, msgspec.json.encode(field.encode_name) + b":", _is_plain(field.type)) for field in info.fields
    )
    return None if all(plain for _, _, plain in plan) else plan


def _is_plain(info: inspect.Type) -> bool:
    """Whether values of this type have only strings as keys, at any depth. The structs here are trees, never loops."""
    match info:
        case inspect.DictType():
            return isinstance(info.key_type, inspect.StrType) and _is_plain(info.value_type)
        case inspect.StructType():
            return _struct_plan(info.cls) is None
        case inspect.CollectionType():
            return _is_plain(info.item_type)
        case inspect.UnionType():
            return all(_is_plain(arm) for arm in info.types)
        case inspect.AnyType():
            return False
        case _:
            return True
