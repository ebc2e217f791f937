"""Routes and registrations: what name servers send to clients and receive from brokers."""

import struct
import zlib
from typing import Self

from kourou.protocol import fastjson
from kourou.protocol.bodies.base import Body, always
from kourou.protocol.bodies.topics import (
    DataVersion,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicQueueMappingInfo,
)
from kourou.protocol.codes import Version
from kourou.protocol.errors import BodyError
from kourou.protocol.java import Int32, Int64

INFLATED_LIMIT_BYTES = 32 * 1024 * 1024
"""The largest size of a decompressed registration: about 250,000 topics. Protects against decompression bombs."""


class QueueData(Body):
    """The number of queues of a topic on one broker, and their permissions."""

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
    enable_acting_master: bool = always(False)


class TopicRouteData(Body):
    """The brokers and queues of a topic."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = always(list)
    broker_datas: list[BrokerData] = always(list)
    filter_server_table: dict[str, list[str]] = always(dict)
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class ClusterInfo(Body):
    """All brokers and clusters of a name server."""

    broker_addr_table: dict[str, BrokerData] = always(dict)
    cluster_addr_table: dict[str, list[str]] = always(dict)


class BrokerMemberGroup(Body):
    """A broker group and the addresses of its members."""

    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: dict[Int64, str] = always(dict)


class GetBrokerMemberGroupResponseBody(Body):
    """The answer to GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerMemberGroup | None = None


class RegisterBrokerBody(Body):
    """The topics that a broker registers at a name server.

    It is JSON or, compressed, a zlib stream of length-prefixed parts (lengths and counts are 4-byte ints):

        DataVersion as JSON
        count, then that many TopicConfig in text form
        list of filter servers as JSON
        count, then that many TopicQueueMappingInfo as JSON       only from brokers of 5.0 and later
    """

    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = always(
        TopicConfigAndMappingSerializeWrapper
    )
    filter_server_list: list[str] = always(list)

    @classmethod
    def decompress(cls, data: bytes, version: int, *, limit_bytes: int = INFLATED_LIMIT_BYTES) -> Self:
        """Decode the compressed form, as a broker of this version writes it. Raises BodyError."""
        parts = Parts(_inflate(data, limit_bytes))
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
        """Encode the compressed form. It contains neither mapping details nor the version of the mappings."""
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
        raise BodyError(f"decompresses to more than {limit_bytes} bytes")
    return inflated


class Parts:
    """A cursor over length-prefixed parts of at most `part_max` bytes each."""

    def __init__(self, data: bytes | bytearray, part_max: int = INFLATED_LIMIT_BYTES) -> None:
        self._data = data
        self._part_max = part_max
        self._at = 0

    def count(self) -> int:
        if self._at + _INT.size > len(self._data):
            raise BodyError("the registration ends before it is complete")
        (count,) = _INT.unpack_from(self._data, self._at)
        self._at += _INT.size
        if count < 0:
            raise BodyError(f"the registration has a negative count: {count}")
        return int(count)

    def next(self) -> bytes:
        size = self.count()
        end = size + self._at
        if end > len(self._data):
            raise BodyError("the registration ends before it is complete")
        if size > self._part_max:
            raise BodyError(f"the registration has an entry of {size} bytes; the limit is {self._part_max}")
        part = bytes(self._data[self._at : end])
        self._at = end
        return part

    def next_text(self) -> str:
        try:
            return self.next().decode()
        except UnicodeDecodeError:
            raise BodyError("the registration has a topic that is not valid UTF-8") from None
