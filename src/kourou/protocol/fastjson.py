"""RocketMQ's JSON dialect: JSON as fastjson reads and writes it.

Java peers write maps with keys that are not strings, which only fastjson reads:

    {0:"10.0.0.1:10911",1:"10.0.0.2:10911"}                             numbers as keys
    {{"brokerName":"a","queueId":0,"topic":"T"}:{"maxOffset":7}}        objects as keys
    {"first":{"a":1},"second":{"$ref":"$.first"}}                       a reference (fastjson 1, up to 5.3)

`decode` and `encode` convert between bytes and the structs of `kourou.protocol.bodies`; `loads` returns plain Python
values. Ordinary JSON, which most bodies are, is decoded by msgspec in one step. If msgspec fails, number keys are
quoted and the body is tried again; if that fails, a parser in this module reads it, with all three extensions.

Bodies are untrusted input. Decoding takes linear time, and no more memory than the limits below allow; every failure
is a BodyError. Our own files are `trusted`: the limits on counts do not apply to them.
"""

import re
from collections.abc import Mapping
from functools import cache
from math import isfinite
from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec import inspect

from kourou.protocol.errors import BodyError

DEPTH_LIMIT = 100
"""The maximum nesting depth. RocketMQ's own bodies have a depth of less than ten."""

VALUES_LIMIT = 500_000
"""The maximum number of values in a body that is read into untyped objects, which take far more memory than text."""

NUMBER_KEYS_LIMIT = 1_000_000
"""The maximum number of number keys that are quoted to decode a struct: consumer offsets may have very many."""

NUMBER_LIMIT_CHARS = 400
"""The maximum length of a number, because parsing it takes quadratic time."""

T = TypeVar("T")


# ---------------------------------------------------------------------------------------------------------- decoding


class TooSlowError(BodyError):
    """A body that is not ordinary JSON and is too large for the slow decoders."""

    def __init__(self, size: int, limit: int, *, is_dialect: bool) -> None:
        super().__init__(f"{size} bytes that are not ordinary JSON; the limit is {limit}")
        self.is_dialect = is_dialect


def decode(
    data: bytes,
    wanted: type[T],
    *,
    untyped_max: int | None = None,
    dialect_max: int | None = None,
    number_keys_max: int | None = None,
    trusted: bool = False,
) -> T:
    """Decode a body into a value of type `wanted`. Raises BodyError.

    As in Java, a null member counts as missing, and numbers and booleans may be quoted. Decoding those, or
    anything else through untyped objects, takes about 0.2 s per megabyte: `untyped_max` limits the size of such bodies.
    The dialect takes up to 0.9 s per megabyte: `dialect_max` limits the size of bodies that are not JSON. With
    `number_keys_max`, larger ones are accepted if number keys are the only extension used, at 0.1 s per megabyte.
    """
    is_dialect = False
    keys_max = dialect_max if number_keys_max is None else number_keys_max
    try:
        if b"$" not in data or b"$ref" not in data:  # a single byte is searched with memchr
            decoder = _decoder(wanted)
            try:
                return decoder.decode(data)
            except msgspec.ValidationError:
                pass  # JSON with null or quoted values
            except msgspec.DecodeError:
                is_dialect = True
                if keys_max is not None and len(data) > keys_max:
                    raise TooSlowError(len(data), keys_max, is_dialect=True) from None
                try:
                    return decoder.decode(_quote_number_keys(data, None if trusted else NUMBER_KEYS_LIMIT))
                except msgspec.DecodeError:
                    pass  # object keys, or not JSON at all
        elif dialect_max is not None and len(data) > dialect_max:
            raise TooSlowError(len(data), dialect_max, is_dialect=True)
        if untyped_max is not None and len(data) > untyped_max:
            raise TooSlowError(len(data), untyped_max, is_dialect=is_dialect)
        values = _without_nulls(loads(data, dialect_max=dialect_max, trusted=trusted))
        return msgspec.convert(values, wanted, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise BodyError(f"not a {_name(wanted)}: {error}") from None
    except UnicodeDecodeError as error:
        raise BodyError(f"invalid UTF-8 at byte {error.start} of a string") from None
    except RecursionError:
        raise BodyError("nested too deeply") from None


def loads(data: bytes | str, *, dialect_max: int | None = None, trusted: bool = False) -> Any:
    """Decode plain values: dict, list, str, int, float, bool, None. An object that is a key becomes an `ObjectKey`.

    The last of two equal keys counts. References are replaced by their targets. Raises BodyError, also for bodies
    larger than `dialect_max` that are not JSON.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if not trusted and raw.count(b",") + raw.count(b"{") + raw.count(b"[") > VALUES_LIMIT:
        raise BodyError(f"more than {VALUES_LIMIT} values")
    try:
        if b"$ref" not in raw:
            try:
                return msgspec.json.decode(raw)
            except msgspec.DecodeError:
                pass
        if dialect_max is not None and len(raw) > dialect_max:
            raise TooSlowError(len(raw), dialect_max, is_dialect=True)
        return _Reader(raw.decode(), None if trusted else VALUES_LIMIT).read()
    except UnicodeDecodeError as error:
        raise BodyError(f"invalid UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise BodyError("nested too deeply") from None


class ObjectKey(dict[str, Any]):
    """An object that is a key of a map. It must not be modified."""

    def __hash__(self) -> int:  # type: ignore[override]
        # By text, not by members: hash collisions of integers can be forced, those of strings can't.
        return hash(repr(sorted(self.items())))

    def java_text(self) -> str:
        """Java's `toString` of MessageQueue, the only class of keys; references name keys in this form."""
        members = (self.get("topic"), self.get("brokerName"), self.get("queueId"))
        return "MessageQueue [topic={}, brokerName={}, queueId={}]".format(*members)


def _decoder(wanted: type[T]) -> msgspec.json.Decoder[T]:
    decoder = _decoders.get(wanted)
    if decoder is None:
        decoder = _decoders[wanted] = msgspec.json.Decoder(wanted)
    return decoder


_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def _name(wanted: type) -> str:
    return wanted.__name__ if isinstance(wanted, type) else str(wanted)


_UP_TO_A_NUMBER_KEY = re.compile(
    rb"""
  ( (?: [^"{,]++                        # anything but strings and characters before a key
      | "[^"\\]*+(?:\\.[^"\\]*+)*+"     # a string
      | [{,](?!\s*+-?\d++\s*+:)         # not followed by a number key
    )*+
    [{,]\s*+ )
  (-?\d++) (?=\s*+:)                    # a number as key
    """,
    re.VERBOSE | re.DOTALL,
).match


def _quote_number_keys(data: bytes, limit: int | None) -> bytes:
    parts: list[bytes] = []
    at = 0
    while found := _UP_TO_A_NUMBER_KEY(data, at):
        parts += found.groups()
        at = found.end()
        if limit is not None and len(parts) > 2 * limit:
            raise BodyError(f"more than {limit} numbers as keys")
    parts.append(data[at:])
    return b'"'.join(parts)


def _without_nulls(value: Any) -> Any:
    """Remove null members, in place."""
    if isinstance(value, dict):
        for key in [key for key, member in value.items() if member is None]:
            del value[key]
        for member in value.values():
            _without_nulls(member)
    elif isinstance(value, list):
        for item in value:
            _without_nulls(item)
    return value


_TOKEN = re.compile(
    r"""[ \t\n\r]*+
    (?: ([\[\]{},:])                                           # 1 punctuation
      | ("[^"\\\x00-\x1f]*+((?:\\.[^"\\\x00-\x1f]*+)*+)")      # 2 a string; 3 is not empty if it has escapes
      | (-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?([eE][-+]?[0-9]++)?)  # 4 a number, with 5 fraction and 6 exponent
      | (true|false|null)                                      # 7 a word
    )""",
    re.VERBOSE,
).match

_WORDS = {"true": True, "false": False, "null": None}


class _Reference:
    """A placeholder for `{"$ref":path}` until the whole text is read and the path can be resolved."""

    def __init__(self, path: str) -> None:
        self.path = path


class _Reader:
    """A recursive-descent parser. `_at` is the position of the next token."""

    def __init__(self, text: str, values_max: int | None) -> None:
        self._text = text
        self._values_max = values_max
        self._at = 0
        self._has_references = False

    def read(self) -> Any:
        value = self._value(self._token(), DEPTH_LIMIT)
        if self._text[self._at :].strip(" \t\n\r"):
            self._fail("extra text after the value")
        if self._has_references:
            value = _References(value, self._values_max).resolve()
        return value

    def _fail(self, why: str) -> NoReturn:
        raise BodyError(f"not JSON at character {self._at}: {why}")

    def _token(self) -> re.Match[str]:
        token = _TOKEN(self._text, self._at)
        if token is None:
            rest = self._text[self._at : self._at + 20].lstrip(" \t\n\r")
            self._fail(f"{rest!r} does not begin a value" if rest else "the text ends early")
        self._at = token.end()
        return token

    def _value(self, token: re.Match[str], depth: int) -> Any:
        if token[1] == "{":
            return self._object(depth - 1)
        if token[1] == "[":
            return self._array(depth - 1)
        if token[1]:
            self._fail(f"a value is expected before {token[1]!r}")
        if token[2]:
            return self._string(token)
        return _WORDS[token[7]] if token[7] else self._number(token)

    def _string(self, token: re.Match[str]) -> str:
        if not token[3]:
            return token[2][1:-1]
        try:
            return msgspec.json.decode(token[2], type=str)
        except msgspec.DecodeError as error:
            self._fail(str(error))

    def _number(self, token: re.Match[str]) -> int | float:
        if len(token[4]) > NUMBER_LIMIT_CHARS:
            self._fail("a number is too long")
        if not (token[5] or token[6]):
            return int(token[4])
        number = float(token[4])
        if not isfinite(number):
            self._fail("a number is too large")
        return number

    def _array(self, depth: int) -> list[Any]:
        if depth < 0:
            self._fail("nested too deeply")
        items: list[Any] = []
        token = self._token()
        if token[1] == "]":
            return items
        while True:
            items.append(self._value(token, depth))
            token = self._token()
            if token[1] == "]":
                return items
            if token[1] != ",":
                self._fail("a comma or the end of the list is expected")
            token = self._token()

    def _object(self, depth: int) -> dict[Any, Any] | _Reference:
        if depth < 0:
            self._fail("nested too deeply")
        members: dict[Any, Any] = {}
        token = self._token()
        if token[1] == "}":
            return members
        while True:
            key = self._key(token, depth)
            if self._token()[1] != ":":
                self._fail("a colon is expected")
            members[key] = self._value(self._token(), depth)
            token = self._token()
            if token[1] == "}":
                break
            if token[1] != ",":
                self._fail("a comma or the end of the object is expected")
            token = self._token()
        if "$ref" in members and len(members) == 1 and isinstance(members["$ref"], str):
            self._has_references = True
            return _Reference(members["$ref"])
        return members

    def _key(self, token: re.Match[str], depth: int) -> str | int | ObjectKey:
        if token[2]:
            return self._string(token)
        if token[1] == "{":
            members = self._object(depth - 1)
            if isinstance(members, dict) and all(type(m) in (str, int, bool) for m in members.values()):
                return ObjectKey(members)
        elif token[4]:
            number = self._number(token)
            if isinstance(number, int) and -(2**63) <= number < 2**63:
                return number
        return self._fail("a string, an integer or a simple object is expected as key")


class _References:
    """Replaces the references in a tree of `_Reader` by their targets.

    A path is `$` and then `.name` or `[index]`; fastjson escapes all characters of a name but letters and digits.
    Two kinds of references are errors: loops (`$`, `..` and `@` always make one), and those that make the tree too
    large when every reference is expanded, because later steps copy shared objects.
    """

    _SEGMENT = re.compile(r"\.((?:[^\\.\[\]]|\\.)++)|\[([0-9]{1,9})\]", re.DOTALL)
    _OPEN = -1

    def __init__(self, root: Any, values_max: int | None) -> None:
        self._root = [root]
        self._values_max = values_max
        self._sizes: dict[int, int] = {}  # id of a container -> number of values, expanded; _OPEN while counting
        self._java_keys: dict[int, dict[str, Any]] = {}  # id of a map with object keys -> its values by `java_text`

    def resolve(self) -> Any:
        self._settle(self._root)
        return self._root[0]

    def _settle(self, container: Any) -> int:
        if not isinstance(container, dict | list):
            return 1
        size = self._sizes.get(id(container))
        if size == self._OPEN:
            raise BodyError("a reference makes a loop")
        if size is None:
            self._sizes[id(container)] = self._OPEN
            size = 1
            for key, member in container.items() if isinstance(container, dict) else enumerate(container):
                if isinstance(member, _Reference):
                    member = container[key] = self._find(member)
                size += self._settle(member)
                if self._values_max is not None and size > self._values_max:
                    raise BodyError(f"references expand to more than {self._values_max} values")
            self._sizes[id(container)] = size
        return size

    def _find(self, reference: _Reference) -> Any:
        path = reference.path
        if path in ("..", "@"):
            raise BodyError("a reference makes a loop")
        here = self._root[0]
        at = len("$")
        while at < len(path):
            segment = self._SEGMENT.match(path, at)
            if segment is None:
                break
            at = segment.end()
            here = self._member(here, segment, path)
            if isinstance(here, _Reference):
                here = self._find(here)
        if not path.startswith("$") or at < len(path):
            raise BodyError(f"invalid reference: {path[:80]!r}")
        return here

    def _member(self, here: Any, segment: re.Match[str], path: str) -> Any:
        try:
            if segment[2]:
                return here[int(segment[2])]
            if isinstance(here, dict):
                name = re.sub(r"\\(.)", r"\1", segment[1], flags=re.DOTALL)
                if name in here:
                    return here[name]
                return here[int(name)] if name.isdecimal() else self._by_java_text(here)[name]
        except (LookupError, TypeError, ValueError):
            pass
        raise BodyError(f"reference to a missing object: {path[:80]!r}")

    def _by_java_text(self, here: dict[Any, Any]) -> dict[str, Any]:
        table = self._java_keys.get(id(here))
        if table is None:
            table = {key.java_text(): member for key, member in here.items() if isinstance(key, ObjectKey)}
            self._java_keys[id(here)] = table
        return table


# ---------------------------------------------------------------------------------------------------------- encoding


def encode(value: Any, *, standard: bool = False) -> bytes:
    """A struct or plain value as compact JSON, with number and object keys as fastjson writes them.

    `standard` gives RFC 8259 JSON: number keys are quoted. Object keys have no such form and raise TypeError.
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
    """True if values of this type have only string keys, at any depth. The structs here are trees without loops."""
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
