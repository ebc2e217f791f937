"""JSON bodies as values: routes, registrations, heartbeats, settings, statistics.

One struct per shape. Attributes are snake_case here and camelCase on the wire; defaults are Java's. What may be null in
Java is None here and left out when written; every other field is written even when it has its default, because peers in
other languages expect it there (`always`). Unknown fields are ignored when read.

Bodies are values: frozen, compared by content. `msgspec.structs.replace` makes a changed one.
"""

import struct
import zlib
from typing import Any, Self, dataclass_transform

import msgspec
from msgspec import field

from kourou.protocol import fastjson
from kourou.protocol.codes import Version
from kourou.protocol.errors import BodyError
from kourou.protocol.java import Int32, Int64

INFLATED_LIMIT_BYTES = 64 * 1024 * 1024
"""How large a compressed registration may become: some 500,000 topics. A small body that claims more is an attack."""


def always(default: Any, /) -> Any:
    """A default that is written too; msgspec leaves out only values that equal a default it can see.

    A type stands for what it makes without arguments: `dict` for a new dict, `bool` for False.
    """
    if isinstance(default, type):
        return field(default_factory=lambda: default())
    return field(default_factory=lambda: default)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Body(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base of all JSON bodies. Not tracked by the garbage collector: bodies are trees."""

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The body in these bytes. Raises BodyError."""
        return fastjson.decode(data, cls)

    def encode(self, *, standard: bool = False) -> bytes:
        """JSON as fastjson writes it or, with `standard`, as everyone else reads it."""
        return fastjson.encode(self, standard=standard)


# ---------------------------------------------------------------------------------------------------------- versions


class DataVersion(Body):
    """Which state of a table somebody has. Equal when all three are equal; none of them orders two versions."""

    state_version: Int64 = always(0)
    timestamp: Int64 = always(0)
    counter: Int64 = always(0)


# ------------------------------------------------------------------------------------------------------------ topics


class TopicConfig(Body):
    """What a broker knows of a topic."""

    topic_name: str | None = None
    read_queue_nums: Int32 = always(16)
    write_queue_nums: Int32 = always(16)
    perm: Int32 = always(6)
    topic_filter_type: str = always("SINGLE_TAG")
    topic_sys_flag: Int32 = always(0)
    order: bool = always(bool)
    attributes: dict[str, str] = always(dict)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read the one-line form that compressed registrations carry. Raises BodyError.

        It has no place for `order` and `topic_sys_flag`. Attributes that do not parse are left out, as in Java.
        """
        try:
            name, reads, writes, perm, filter_type, *rest = text.split(" ", 5)
            if filter_type not in ("SINGLE_TAG", "MULTI_TAG"):
                raise ValueError(filter_type)
            return cls(
                topic_name=name,
                read_queue_nums=int(reads),
                write_queue_nums=int(writes),
                perm=int(perm),
                topic_filter_type=filter_type,
                attributes=_attributes(rest[0]) if rest and rest[0] != "{}" else {},
            )
        except ValueError:
            raise BodyError(f"not a topic in text form: {text[:80]!r}") from None

    def to_text(self) -> str:
        """The one-line form."""
        attributes = fastjson.encode(self.attributes).decode()
        return (
            f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm} "
            f"{self.topic_filter_type} {attributes}"
        )


def _attributes(text: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        return {}


class TopicQueueMappingInfo(Body):
    """How the queues of a static topic, numbered across brokers, lie on the queues of one broker."""

    topic: str | None = None
    scope: str = always("__global__")
    total_queues: Int32 = always(0)
    bname: str | None = None
    epoch: Int64 = always(0)
    dirty: bool = always(bool)
    curr_id_map: dict[Int32, Int32] = always(dict)
    """Global queue id to the broker's own."""


class LogicQueueMappingItem(Body):
    """A stretch of a global queue on one broker's queue."""

    gen: Int32 = always(0)
    queue_id: Int32 = always(0)
    bname: str | None = None
    logic_offset: Int64 = always(0)
    start_offset: Int64 = always(0)
    end_offset: Int64 = always(-1)
    time_of_start: Int64 = always(-1)
    time_of_end: Int64 = always(-1)


class TopicQueueMappingDetail(TopicQueueMappingInfo):
    """The mapping with its history."""

    hosted_queues: dict[Int32, list[LogicQueueMappingItem]] = always(dict)


class TopicConfigSerializeWrapper(Body):
    """A broker's topics."""

    topic_config_table: dict[str, TopicConfig] = always(dict)
    data_version: DataVersion = always(DataVersion())


class TopicConfigAndMappingSerializeWrapper(TopicConfigSerializeWrapper):
    """A broker's topics and static mappings."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = always(dict)
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] = always(dict)
    mapping_data_version: DataVersion = always(DataVersion())


# ------------------------------------------------------------------------------------------------------- name server


class QueueData(Body):
    """How many queues a topic has on one broker, and what may be done with them."""

    broker_name: str | None = None
    read_queue_nums: Int32 = always(0)
    write_queue_nums: Int32 = always(0)
    perm: Int32 = always(0)
    topic_sys_flag: Int32 = always(0)


class BrokerData(Body):
    """The addresses of one broker group, by broker id."""

    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: dict[Int64, str] = always(dict)
    zone_name: str | None = None
    enable_acting_master: bool = always(bool)


class TopicRouteData(Body):
    """Where a topic is."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = always(list)
    broker_datas: list[BrokerData] = always(list)
    filter_server_table: dict[str, list[str]] = always(dict)
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class ClusterInfo(Body):
    """All brokers and clusters that a name server knows."""

    broker_addr_table: dict[str, BrokerData] = always(dict)
    cluster_addr_table: dict[str, list[str]] = always(dict)


class TopicList(Body):
    """Names of topics."""

    topic_list: list[str] = always(list)
    broker_addr: str | None = None


class KVTable(Body):
    """Strings by string: a namespace of the name server's settings, or a broker's runtime figures."""

    table: dict[str, str] = always(dict)


class BrokerMemberGroup(Body):
    """A broker group and where its members are."""

    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: dict[Int64, str] = always(dict)


class GetBrokerMemberGroupResponseBody(Body):
    """Answer of GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerMemberGroup | None = None


class RegisterBrokerBody(Body):
    """What a broker tells a name server of its topics.

    Besides JSON it has a compressed form, a zlib stream of length-prefixed parts (lengths and counts are 4-byte ints):

        DataVersion as JSON
        count, then that many TopicConfig in text form
        list of filter servers as JSON
        count, then that many TopicQueueMappingInfo as JSON       only from brokers of 5.0 and later
    """

    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = always(
        TopicConfigAndMappingSerializeWrapper()
    )
    filter_server_list: list[str] = always(list)

    @classmethod
    def decompress(cls, data: bytes, version: int, *, limit_bytes: int = INFLATED_LIMIT_BYTES) -> Self:
        """Read the compressed form, as a broker of this version writes it. Raises BodyError."""
        parts = _Parts(_inflate(data, limit_bytes))
        data_version = DataVersion.decode(parts.next())
        topics = [TopicConfig.from_text(parts.next_text()) for _ in range(parts.count())]
        filter_servers = fastjson.decode(parts.next(), list[str])
        mappings: list[TopicQueueMappingInfo] = []
        if version >= Version.V5_0_0:
            mappings = [TopicQueueMappingInfo.decode(parts.next()) for _ in range(parts.count())]
        return cls(
            topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
                data_version=data_version,
                topic_config_table={topic.topic_name or "": topic for topic in topics},
                topic_queue_mapping_info_map={mapping.topic or "": mapping for mapping in mappings},
            ),
            filter_server_list=filter_servers,
        )

    def compress(self) -> bytes:
        """The compressed form. It carries neither mapping details nor the version of the mappings."""
        wrapper = self.topic_config_serialize_wrapper
        topics = [topic.to_text().encode() for topic in wrapper.topic_config_table.values()]
        mappings = [mapping.encode() for mapping in wrapper.topic_queue_mapping_info_map.values()]
        parts = [
            _sized(wrapper.data_version.encode()),
            _INT.pack(len(topics)),
            *map(_sized, topics),
            _sized(fastjson.encode(self.filter_server_list)),
            _INT.pack(len(mappings)),
            *map(_sized, mappings),
        ]
        return zlib.compress(b"".join(parts), level=9)


_INT = struct.Struct(">i")


def _sized(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _inflate(data: bytes, limit_bytes: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, limit_bytes)
    except zlib.error as error:
        raise BodyError(f"not a zlib stream: {error}") from None
    if inflater.unconsumed_tail:
        raise BodyError(f"inflates to more than {limit_bytes} bytes")
    return inflated


class _Parts:
    """A cursor over length-prefixed parts."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def count(self) -> int:
        if self._at + _INT.size > len(self._data):
            raise BodyError("the registration ends before it is complete")
        (count,) = _INT.unpack_from(self._data, self._at)
        self._at += _INT.size
        if count < 0:
            raise BodyError(f"a negative count in the registration: {count}")
        return int(count)

    def next(self) -> bytes:
        end = self.count() + self._at
        if end > len(self._data):
            raise BodyError("the registration ends before it is complete")
        part = self._data[self._at : end]
        self._at = end
        return part

    def next_text(self) -> str:
        try:
            return self.next().decode()
        except UnicodeDecodeError:
            raise BodyError("a topic of the registration is not UTF-8") from None
