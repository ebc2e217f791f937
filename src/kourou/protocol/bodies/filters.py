"""SQL filters of consumers, as a broker stores them in consumerFilter.json."""

from kourou.protocol.bodies.base import Body, always
from kourou.protocol.java import Int32, Int64


class BloomFilterData(Body):
    """The bits of a filter in the bit maps of messages."""

    bit_num: Int32 = always(0)
    bit_pos: list[Int32] = always(list)


class ConsumerFilterData(Body):
    """The filter of a group for a topic."""

    consumer_group: str | None = None
    topic: str | None = None
    expression: str | None = None
    expression_type: str | None = None
    born_time: Int64 = always(0)
    dead_time: Int64 = always(0)
    dead: bool = always(False)
    client_version: Int64 = always(0)
    bloom_filter_data: BloomFilterData | None = None


class FilterDataMapByTopic(Body):
    """The filters for a topic, by group."""

    group_filter_data: dict[str, ConsumerFilterData] = always(dict)
    topic: str | None = None


class ConsumerFilterWrapper(Body):
    """All filters, by topic."""

    filter_data_by_topic: dict[str, FilterDataMapByTopic] = always(dict)
