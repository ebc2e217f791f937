"""The machinery behind the table of requests: how a header class is declared, read and written.

A header is what a request or an answer says beside its body: a few named fields, which travel as a map of strings
(`extFields`). One small class declares them:

    @request(RequestCode.QUERY_CONSUMER_OFFSET, access=needs(SUB | GET, "topic", "consumer_group"), ...)
    class QueryConsumerOffset(Header):
        consumer_group: str
        topic: str
        queue_id: Int32
        set_zero_if_not_found: bool | None = None

The key on the wire is the camelCase of the attribute, or what `field(name=...)` says. A field without default must be
there; one that may be None is left out when it is None. Reading, writing, checking, access rules and the generated page
docs/rpc.md all come from these lines, and `REQUESTS` has an entry for every request code that is declared.
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
"""How much of a wrong value an error message repeats: the peer chose it, and it may be long."""


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Header(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Base of all request and answer headers: immutable, made with keyword arguments."""

    codes: ClassVar[tuple[RequestCode, ...]] = ()
    """The requests that carry this header, in the order they were declared; none for the header of an answer."""

    _plan: ClassVar["_Plan | None"] = None
    """Worked out at first use."""

    @classmethod
    def decode(cls, ext: Mapping[str, str] | None) -> Self:
        """The header in a command's `extFields`. Unknown keys are ignored.

        Raises HeaderError when a required field is missing or a value is not what the field needs.
        """
        if ext is None:
            ext = {}
        # msgspec takes "1" for true, Java does not: that one spelling goes the slow way. (It also takes "1.0" for 1,
        # which nobody sends.)
        for key in (cls._plan or _make_plan(cls)).booleans:
            if ext.get(key) == "1":
                return _decode_slowly(cls, ext)
        try:
            return convert(ext, cls, strict=False)
        except ValidationError:
            return _decode_slowly(cls, ext)

    def encode(self) -> dict[str, str]:
        """The `extFields` of this header: every value a string, None left out."""
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


class _FieldPlan(NamedTuple):
    attribute: str
    key: str
    kind: type  # str, int or bool
    low: int  # what an int may be
    high: int
    required: bool


class _Plan(NamedTuple):
    """What decode and encode need to know of a header class, worked out once."""

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
    """As Java reads the fields one by one; what Java could not read either is a HeaderError that says which and why."""
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
        # int() also takes blanks and underscores, which Java's parser does not.
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
    """What somebody may do with a topic, a group or the cluster. `SUB | GET` is for a need that either one meets."""

    PUB = auto()
    SUB = auto()
    CREATE = auto()
    UPDATE = auto()
    DELETE = auto()
    GET = auto()
    LIST = auto()


PUB, SUB, CREATE, UPDATE, DELETE, GET, LIST = Right


class Resource(Enum):
    """What a right is about."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"


class Target(NamedTuple):
    """One resource that a request touches."""

    resource: Resource
    attribute: str | None = None
    """The header's attribute with its name; None for the cluster that the server belongs to, or for all of a kind."""
    separator: str | None = None
    """Stands between several names in one field."""


class Access(NamedTuple):
    """What a request needs: one of `rights`, on each of `targets` that the request names.

    A topic that is a group's retry topic (%RETRY%group) counts as that group, and PUB on it as SUB. `in_body` says that
    the names are in the body, not in the header; who serves the request finds them there.
    """

    rights: Right
    targets: tuple[Target, ...]
    in_body: bool = False


_TARGETS = {
    "topic": Target(Resource.TOPIC, "topic"),
    "origin_topic": Target(Resource.TOPIC, "origin_topic"),
    "topic_list": Target(Resource.TOPIC, "topic_list", ";"),
    "group": Target(Resource.GROUP, "group"),
    "consumer_group": Target(Resource.GROUP, "consumer_group"),
    "producer_group": Target(Resource.GROUP, "producer_group"),
    "group_name": Target(Resource.GROUP, "group_name"),
    "dest_group": Target(Resource.GROUP, "dest_group"),
    "compare_group": Target(Resource.GROUP, "compare_group"),
    "filter_groups": Target(Resource.GROUP, "filter_groups", ","),
    "cluster_name": Target(Resource.CLUSTER, "cluster_name"),
    "broker_cluster_name": Target(Resource.CLUSTER, "broker_cluster_name"),
}


def needs(rights: Right, *targets: str | Resource, in_body: bool = False) -> Access:
    """Access to the resources that the named header attributes name, or to a resource as a whole."""
    found = tuple(Target(target) if isinstance(target, Resource) else _TARGETS[target] for target in targets)
    return Access(rights, found, in_body)


READ_CLUSTER = needs(GET, Resource.CLUSTER)
CHANGE_CLUSTER = needs(UPDATE, Resource.CLUSTER)

RECORDS = "stored records, one after the other"
PROPERTIES = "properties as text, `key=value` lines"
"""Bodies that are not JSON."""


class Direction(Enum):
    """Who asks whom."""

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
    """All that the table knows of one request code."""

    code: RequestCode
    direction: Direction
    about: str
    header: type[Header] | None = None
    body: type | str | None = None
    answer: type[Header] | None = None
    answer_body: type | str | None = None
    access: Access | None = None
    one_way: bool = False
    """Senders do not wait. Whether there is an answer, the flag of the command says."""

    @property
    def name(self) -> str:
        """Apache's name of the code."""
        return self.code.name


REQUESTS: dict[int, RequestInfo] = {}
"""Request code to what is known of it."""


def _declare(info: RequestInfo) -> None:
    if info.code in REQUESTS:
        raise TypeError(f"request code {info.code} ({info.name}) is declared already: {REQUESTS[info.code].about}")
    for target in info.access.targets if info.access else ():
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
    """Declare a header class as that of a request code. Several codes with one header: several decorators.

    Raises TypeError when the code is taken, or `access` names a field that the class does not have.
    """

    def declare(cls: type[HeaderT]) -> type[HeaderT]:
        about = (cls.__doc__ or "").strip().partition("\n")[0]
        _declare(RequestInfo(code, direction, about, cls, body, answer, answer_body, access, one_way))
        cls.codes = (code, *cls.codes)
        return cls

    return declare


def request_without_header(code: RequestCode, direction: Direction, about: str, **rest: Any) -> None:
    """Declare a request that has no header fields of its own. `rest` is as for `request`."""
    _declare(RequestInfo(code, direction, about, **rest))
