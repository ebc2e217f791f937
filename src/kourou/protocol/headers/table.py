"""How the headers in the table of requests are declared, decoded and encoded.

A header is a map of strings (`extFields`) that a request or an answer has beside its body. A small class declares its
fields:

    @request(RequestCode.QUERY_CONSUMER_OFFSET, access=needs(SUB | GET, "topic", "consumer_group"), ...)
    class QueryConsumerOffset(Header):
        consumer_group: str
        topic: str
        queue_id: Int32
        set_zero_if_not_found: bool | None = None

The key on the wire is the camelCase of the attribute, or the `name` given to `field`. A field without a default is
required; a field that is None is omitted. Decoding, encoding, validation, access rules and the generated page
docs/rpc.md all come from these declarations, and `REQUESTS` has an entry for every declared request code.
"""

from collections.abc import Callable, Mapping
from enum import Enum, Flag, auto
from types import UnionType
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar, dataclass_transform, get_args, get_origin

import msgspec
from msgspec import ValidationError, convert

from kourou.protocol.codes import RequestCode
from kourou.protocol.errors import HeaderError
from kourou.protocol.java import Int32 as Int32, Int64 as Int64

SHOWN_VALUE_CHARS = 40
"""How much of an invalid value an error message repeats: the peer chose the value, and it may be long."""


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Header(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Base of all request and answer headers: immutable, created with keyword arguments."""

    codes: ClassVar[tuple[RequestCode, ...]] = ()
    """The requests that have this header, in the order of declaration; empty for the header of an answer."""

    _plan: ClassVar["_Plan | None"] = None
    """Computed at first use."""

    @classmethod
    def decode(cls, ext: Mapping[str, str] | None) -> Self:
        """Decode the header from a command's `extFields`. Unknown keys are ignored.

        Raises HeaderError if a required field is missing or a value is invalid.
        """
        if ext is None:
            ext = {}
        # msgspec accepts "1" as true, Java does not: that spelling takes the slow path. (msgspec also accepts "1.0" as
        # 1, which no client sends.)
        for key in (cls._plan or _make_plan(cls)).booleans:
            if ext.get(key) == "1":
                return _decode_slowly(cls, ext)
        try:
            return convert(ext, cls, strict=False)
        except ValidationError:
            return _decode_slowly(cls, ext)

    def encode(self) -> dict[str, str]:
        """The `extFields` of this header: all values are strings, None is omitted."""
        ext: dict[str, str] = {}
        for attribute, key in (self._plan or _make_plan(type(self))).keys:
            value = getattr(self, attribute)
            if type(value) is str:
                ext[key] = value
            elif value is True:
                ext[key] = "true"
            elif value is False:
                ext[key] = "false"
            elif value is not None:
                ext[key] = str(value)
        return ext


HeaderT = TypeVar("HeaderT", bound=Header)

NAMES_MAX = 2_000
"""The most names in one field. Each of them is looked up, and a header of 1 MiB has room for half a million."""


def split_names(text: str, separator: str) -> list[str]:
    """The names in a header field that has several. Raises HeaderError if there are too many."""
    count = text.count(separator) + 1
    if count > NAMES_MAX:
        raise HeaderError(f"a header field has {count} names, the limit is {NAMES_MAX}: send several requests")
    return [name for name in text.split(separator) if name]


class _FieldPlan(NamedTuple):
    attribute: str
    key: str
    kind: type  # str, int or bool
    low: int  # the smallest int
    high: int
    required: bool


class _Plan(NamedTuple):
    """What decode and encode need to know about a header class, computed once."""

    fields: tuple[_FieldPlan, ...]
    keys: tuple[tuple[str, str], ...]  # (attribute, key on the wire)
    booleans: tuple[str, ...]  # keys on the wire


def _make_plan(cls: type[Header]) -> _Plan:
    fields = tuple(_field_plan(info) for info in msgspec.structs.fields(cls))
    plan = cls._plan = _Plan(
        fields,
        tuple((field.attribute, field.key) for field in fields),
        tuple(field.key for field in fields if field.kind is bool),
    )
    return plan


def _field_plan(info: msgspec.structs.FieldInfo) -> _FieldPlan:
    wanted = info.type
    if isinstance(wanted, UnionType) or type(None) in get_args(wanted):
        (wanted,) = (arm for arm in get_args(wanted) if arm is not type(None))
    low = high = 0
    if get_origin(wanted) is Annotated:
        wanted, meta = get_args(wanted)
        low, high = meta.ge, meta.le
    if wanted not in (str, int, bool) or (wanted is int and not high):
        raise TypeError(f"a header field is a str, Int32, Int64 or bool; {info.name} is {info.type}")
    return _FieldPlan(info.name, info.encode_name, wanted, low, high, info.required)


def _decode_slowly(cls: type[HeaderT], ext: Mapping[str, str]) -> HeaderT:
    """Read the fields one by one, as Java does. Raises HeaderError with the field and the reason."""
    values = {}
    for field in (cls._plan or _make_plan(cls)).fields:
        text = ext.get(field.key)
        if text is not None:
            values[field.attribute] = _parse(cls, field, text)
        elif field.required:
            raise HeaderError(f"{_title(cls)}: the field {field.key} is missing")
    return cls(**values)


def _parse(cls: type[Header], field: _FieldPlan, text: str) -> str | int | bool:
    if field.kind is str:
        return text
    if field.kind is bool:
        return text.lower() == "true"
    try:
        # int() also accepts blanks and underscores, which Java's parser does not.
        if text.isascii() and "_" not in text and text.strip() == text:
            value = int(text)
            if field.low <= value <= field.high:
                return value
    except ValueError:
        pass
    shown = text if len(text) <= SHOWN_VALUE_CHARS else text[:SHOWN_VALUE_CHARS] + "…"
    bits = field.high.bit_length() + 1
    raise HeaderError(f"{_title(cls)}: the field {field.key} is {shown!r}, expected an integer of {bits} bits")


def _title(cls: type[Header]) -> str:
    return cls.codes[0].name if cls.codes else cls.__name__


class Right(Flag):
    """An action on a topic, a group or the cluster. `SUB | GET` means that either right is enough."""

    PUB = auto()
    SUB = auto()
    CREATE = auto()
    UPDATE = auto()
    DELETE = auto()
    GET = auto()
    LIST = auto()


PUB, SUB, CREATE, UPDATE, DELETE, GET, LIST = Right


class Resource(Enum):
    """The kind of resource that a right applies to."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"


class Target(NamedTuple):
    """One resource that a request accesses."""

    resource: Resource
    attribute: str | None = None
    """The header attribute with its name; None for the server's own cluster, or for all resources of the kind."""
    separator: str | None = None
    """The separator between several names in one field."""


class Access(NamedTuple):
    """The access that a request needs: one of `rights`, on each of `targets` that the request names.

    A group's retry topic (%RETRY%group) counts as that group, and PUB on it as SUB. `in_body` means that the names are
    in the body, not in the header; the handler of the request finds them there. `also` is needed as well.
    """

    rights: Right
    targets: tuple[Target, ...]
    in_body: bool = False
    also: "Access | None" = None

    @property
    def parts(self) -> "tuple[Access, ...]":
        """All that is needed."""
        return (self,) if self.also is None else (self, *self.also.parts)


_TARGETS = {
    "topic": Target(Resource.TOPIC, "topic"),
    "origin_topic": Target(Resource.TOPIC, "origin_topic"),
    "topic_list": Target(Resource.TOPIC, "topic_list", ";"),
    "group": Target(Resource.GROUP, "group"),
    "consumer_group": Target(Resource.GROUP, "consumer_group"),
    "producer_group": Target(Resource.GROUP, "producer_group"),
    "group_name": Target(Resource.GROUP, "group_name"),
    "src_group": Target(Resource.GROUP, "src_group"),
    "dest_group": Target(Resource.GROUP, "dest_group"),
    "compare_group": Target(Resource.GROUP, "compare_group"),
    "filter_groups": Target(Resource.GROUP, "filter_groups", ","),
    "cluster_name": Target(Resource.CLUSTER, "cluster_name"),
    "broker_cluster_name": Target(Resource.CLUSTER, "broker_cluster_name"),
}


def needs(rights: Right, *targets: str | Resource, in_body: bool = False, also: Access | None = None) -> Access:
    """Access to the resources named by these header attributes, or to all resources of a kind."""
    found = tuple(Target(target) if isinstance(target, Resource) else _TARGETS[target] for target in targets)
    return Access(rights, found, in_body, also)


READ_CLUSTER = needs(GET, Resource.CLUSTER)
CHANGE_CLUSTER = needs(UPDATE, Resource.CLUSTER)

RECORDS = "stored records, one after the other"
PROPERTIES = "properties as text, `key=value` lines"
"""Bodies that are not JSON."""


class Direction(Enum):
    """Sender and receiver."""

    CLIENT_TO_BROKER = "client → broker"
    BROKER_TO_CLIENT = "broker → client"
    CLIENT_TO_NAMESERVER = "client, admin → name server"
    BROKER_TO_NAMESERVER = "broker → name server"
    NAMESERVER_TO_BROKER = "name server → broker"
    ADMIN_TO_BROKER = "admin → broker"
    ADMIN_TO_CLIENT = "admin → broker → client"
    BROKER_TO_BROKER = "broker → broker"
    TO_CONTROLLER = "broker, admin → controller"
    CONTROLLER_TO_BROKER = "controller → broker"


class RequestInfo(NamedTuple):
    """The table's entry for one request code."""

    code: RequestCode
    direction: Direction
    about: str
    header: type[Header] | None = None
    body: type | str | None = None
    answer: type[Header] | None = None
    answer_body: type | str | None = None
    access: Access | None = None
    one_way: bool = False
    """Senders do not wait. The flag of the command decides whether there is an answer."""

    @property
    def name(self) -> str:
        """Apache's name for the code."""
        return self.code.name


REQUESTS: dict[int, RequestInfo] = {}
"""The entries by request code."""


def _declare(info: RequestInfo) -> None:
    if info.code in REQUESTS:
        raise TypeError(f"request code {info.code} ({info.name}) is already declared: {REQUESTS[info.code].about}")
    for target in [target for part in info.access.parts for target in part.targets] if info.access else ():
        declared = info.header.__struct_fields__ if info.header else ()
        if target.attribute is not None and target.attribute not in declared:
            raise TypeError(f"{info.name} names {target.attribute} in its access, but has no such field")
    REQUESTS[info.code] = info


def request(
    code: RequestCode,
    direction: Direction,
    *,
    access: Access | None = None,
    body: type | str | None = None,
    answer: type[Header] | None = None,
    answer_body: type | str | None = None,
    one_way: bool = False,
) -> Callable[[type[HeaderT]], type[HeaderT]]:
    """Declare a header class for a request code. Use several decorators for several codes with one header.

    Raises TypeError if the code is already declared, or if `access` names a field that the class does not have.
    """

    def declare(cls: type[HeaderT]) -> type[HeaderT]:
        about = (cls.__doc__ or "").strip().partition("\n")[0]
        _declare(RequestInfo(code, direction, about, cls, body, answer, answer_body, access, one_way))
        cls.codes = (code, *cls.codes)
        return cls

    return declare


def request_without_header(code: RequestCode, direction: Direction, about: str, **rest: Any) -> None:
    """Declare a request without header fields. `rest` is as for `request`."""
    _declare(RequestInfo(code, direction, about, **rest))
