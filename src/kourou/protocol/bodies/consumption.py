"""Offsets and statistics of topics and consumers, and the running info of a consumer."""

from kourou.protocol.bodies.base import Body, always
from kourou.protocol.bodies.clients import SubscriptionData
from kourou.protocol.bodies.topics import DataVersion
from kourou.protocol.java import Int32, Int64
from kourou.protocol.message import MessageQueue


class TopicOffset(Body):
    """The offsets of one queue, and when its last message was stored."""

    min_offset: Int64 = always(0)
    max_offset: Int64 = always(0)
    last_update_timestamp: Int64 = always(0)


class TopicStatsTable(Body):
    """The queues of a topic on one broker."""

    offset_table: dict[MessageQueue, TopicOffset] = always(dict)
    topic_put_tps: float = always(0.0)


class OffsetWrapper(Body):
    """The progress of a group in one queue."""

    broker_offset: Int64 = always(0)
    consumer_offset: Int64 = always(0)
    pull_offset: Int64 = always(0)
    last_timestamp: Int64 = always(0)


class ConsumeStats(Body):
    """The progress of a group."""

    offset_table: dict[MessageQueue, OffsetWrapper] = always(dict)
    consume_tps: float = always(0.0)


class ConsumeStatsList(Body):
    """The progress of all groups of a broker: a list of one-entry maps, from a group to its statistics per topic."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = always(list)
    broker_addr: str | None = None
    total_diff: Int64 = always(0)
    total_inflight_diff: Int64 = always(0)


class ConsumerOffsetSerializeWrapper(Body):
    """A broker's consumer offsets, by `topic@group` and queue id."""

    offset_table: dict[str, dict[Int32, Int64]] = always(dict)
    data_version: DataVersion | None = None


class DelayOffsetSerializeWrapper(Body):
    """The progress of a broker's delay levels."""

    offset_table: dict[Int32, Int64] = always(dict)
    data_version: DataVersion | None = None


class TimerMetric(Body):
    """The number of a topic's messages in the timer."""

    count: Int64 = always(0)
    time_stamp: Int64 = always(0)


class TimerMetricsSerializeWrapper(Body):
    """The number of messages in the timer, by topic."""

    timing_count: dict[str, TimerMetric] = always(dict)
    data_version: DataVersion = always(DataVersion)


class TransactionMetric(Body):
    """The number of open transactions of a topic."""

    count: Int64 = always(0)
    time_stamp: Int64 = always(0)


class TransactionMetricsSerializeWrapper(Body):
    """Open transactions, by topic."""

    transaction_count: dict[str, TransactionMetric] = always(dict)
    data_version: DataVersion = always(DataVersion)


class ColdDataFlowCtrInfo(Body):
    """Limits on reading cold data, and how much of them is used."""

    runtime_table: dict[str, Int64] = always(dict)
    config_table: dict[str, Int64] = always(dict)
    cg_cold_read_threshold: Int64 = always(0)
    global_cold_read_threshold: Int64 = always(0)
    global_acc: Int64 = always(0)


class QueryCorrectionOffsetBody(Body):
    """The smallest offset of several groups, by queue id."""

    correction_offsets: dict[Int32, Int64] = always(dict)


class ResetOffsetBody(Body):
    """The offsets from which consumers are to continue."""

    offset_table: dict[MessageQueue, Int64] = always(dict)


class MessageQueueForC(Body):
    """A queue and the offset to continue from."""

    topic: str
    broker_name: str
    queue_id: Int32 = always(0)
    offset: Int64 = always(0)


class ResetOffsetBodyForC(Body):
    """The same for clients that can't read objects as keys."""

    offset_table: list[MessageQueueForC] = always(list)


class GetConsumerStatusBody(Body):
    """The offsets of one consumer (`message_queue_table`) or of several, by client id."""

    message_queue_table: dict[MessageQueue, Int64] = always(dict)
    consumer_table: dict[str, dict[MessageQueue, Int64]] = always(dict)


class QueueTimeSpan(Body):
    """When the first, the last and the last consumed message of a queue were stored. Java adds them as text."""

    message_queue: MessageQueue | None = None
    min_time_stamp: Int64 = always(0)
    max_time_stamp: Int64 = always(0)
    consume_time_stamp: Int64 = always(0)
    delay_time: Int64 = always(0)
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


class QueryConsumeTimeSpanBody(Body):
    """The time spans of all queues."""

    consume_time_span_set: list[QueueTimeSpan] = always(list)


class ProcessQueueInfo(Body):
    """A consumer's buffer of one queue."""

    commit_offset: Int64 = always(0)
    cached_msg_min_offset: Int64 = always(0)
    cached_msg_max_offset: Int64 = always(0)
    cached_msg_count: Int32 = always(0)
    cached_msg_size_in_mib: Int32 = always(0, name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: Int64 = always(0)
    transaction_msg_max_offset: Int64 = always(0)
    transaction_msg_count: Int32 = always(0)
    locked: bool = always(False)
    try_unlock_times: Int64 = always(0)
    last_lock_timestamp: Int64 = always(0)
    droped: bool = always(False)
    last_pull_timestamp: Int64 = always(0)
    last_consume_timestamp: Int64 = always(0)


class PopProcessQueueInfo(Body):
    """A popping consumer's state for one queue."""

    wait_ack_count: Int32 = always(0)
    droped: bool = always(False)
    last_pop_timestamp: Int64 = always(0)


class ConsumeStatus(Body):
    """How fast a consumer pulls and consumes a topic: times in ms, rates per second."""

    pull_rt: float = always(0.0, name="pullRT")
    pull_tps: float = always(0.0, name="pullTPS")
    consume_rt: float = always(0.0, name="consumeRT")
    consume_ok_tps: float = always(0.0, name="consumeOKTPS")
    consume_failed_tps: float = always(0.0, name="consumeFailedTPS")
    consume_failed_msgs: Int64 = always(0)


class ConsumerRunningInfo(Body):
    """The internal state of a running consumer. The keys of `properties` begin with PROP_."""

    properties: dict[str, str] = always(dict)
    subscription_set: list[SubscriptionData] = always(list)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = always(dict)
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = always(dict)
    status_table: dict[str, ConsumeStatus] = always(dict)
    user_consumer_info: dict[str, str] = always(dict)
    jstack: str | None = None


class ConsumeMessageDirectlyResult(Body):
    """The result of consuming one message that a broker sent directly."""

    order: bool = always(False)
    auto_commit: bool = always(True)
    consume_result: str | None = None
    """CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION or CR_RETURN_NULL."""
    remark: str | None = None
    spent_time_mills: Int64 = always(0)


class BrokerStatsItem(Body):
    """A sum over a period, per second and per call."""

    sum: Int64 = always(0)
    tps: float = always(0.0)
    avgpt: float = always(0.0)


class BrokerStatsData(Body):
    """One of a broker's counters, over three periods."""

    stats_minute: BrokerStatsItem | None = None
    stats_hour: BrokerStatsItem | None = None
    stats_day: BrokerStatsItem | None = None


class ConsumeQueueData(Body):
    """One entry of a consume queue."""

    physic_offset: Int64 = always(0)
    physic_size: Int32 = always(0)
    tags_code: Int64 = always(0)
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = always(False)
    msg: str | None = None


class QueryConsumeQueueResponseBody(Body):
    """Entries of a consume queue, and whether they match a group's subscription."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] | None = None
    max_queue_index: Int64 = always(0)
    min_queue_index: Int64 = always(0)
