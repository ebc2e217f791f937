"""Topics: settings, the tables that brokers exchange, and the mappings of static topics."""

from typing import Self

import msgspec

from kourou.protocol import fastjson
from kourou.protocol.bodies.base import Body, always
from kourou.protocol.errors import BodyError
from kourou.protocol.java import Int32, Int64


class DataVersion(Body):
    """The version of a table. Versions are equal if all three fields are equal; they have no order."""

    state_version: Int64 = always(0)
    timestamp: Int64 = always(0)
    counter: Int64 = always(0)


class TopicConfig(Body):
    """The settings of a topic."""

    topic_name: str | None = None
    read_queue_nums: Int32 = always(16)
    write_queue_nums: Int32 = always(16)
    perm: Int32 = always(6)
    topic_filter_type: str = always("SINGLE_TAG")
    topic_sys_flag: Int32 = always(0)
    order: bool = always(False)
    attributes: dict[str, str] = always(dict)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Decode the one-line form that compressed registrations contain. Raises BodyError.

        It does not include `order` and `topic_sys_flag`. Invalid attributes are ignored, as in Java.
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
            raise BodyError(f"invalid topic in text form: {text[:80]!r}") from None

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
    """How the queues of a static topic, numbered across brokers, map to the queues of one broker."""

    topic: str | None = None
    scope: str = always("__global__")
    total_queues: Int32 = always(0)
    bname: str | None = None
    epoch: Int64 = always(0)
    dirty: bool = always(False)
    curr_id_map: dict[Int32, Int32] = always(dict)
    """Global queue id to the broker's own."""


class LogicQueueMappingItem(Body):
    """A range of a global queue that is stored in one broker's queue."""

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
    data_version: DataVersion = always(DataVersion)


class TopicConfigAndMappingSerializeWrapper(TopicConfigSerializeWrapper):
    """A broker's topics and static mappings."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = always(dict)
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] = always(dict)
    mapping_data_version: DataVersion = always(DataVersion)


class TopicConfigAndQueueMapping(TopicConfig):
    """The answer to GET_TOPIC_CONFIG."""

    mapping_detail: TopicQueueMappingDetail | None = None


class TopicQueueMappingSerializeWrapper(Body):
    """A broker's file of static mappings."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingDetail] | None = None
    data_version: DataVersion = always(DataVersion)


class CreateTopicListRequestBody(Body):
    """Topics to create in one request."""

    topic_config_list: list[TopicConfig] = always(list)


class TopicList(Body):
    """Names of topics."""

    topic_list: list[str] = always(list)
    broker_addr: str | None = None


class KVTable(Body):
    """A map of strings: a namespace of the name server's settings, or a broker's runtime statistics."""

    table: dict[str, str] = always(dict)
