"""What can be configured about a broker. The name in broker.conf is beside each field where it is another one.

The store has its own settings (`kourou.store.settings`); how both are read from files and changed by requests is in
`properties.py`.
"""

from dataclasses import dataclass
from enum import Enum

READ, WRITE, INHERIT = 4, 2, 1
"""Permission bits of brokers and topics."""


class Role(Enum):
    """Who a broker is in its group."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(slots=True)
class BrokerSettings:
    """Defaults are Apache's. All parts of a broker share one, and `properties.apply` alone changes it."""

    # Who it is.
    cluster: str = "DefaultCluster"  # brokerClusterName
    name: str = "broker-a"  # brokerName
    broker_id: int = 0  # brokerId
    role: Role = Role.ASYNC_MASTER  # brokerRole
    ip: str = "127.0.0.1"  # brokerIP1: what clients are told
    ha_ip: str = "127.0.0.1"  # brokerIP2
    port: int = 10911  # listenPort
    ha_port: int = 10912  # haListenPort
    region: str = "DefaultRegion"  # regionId
    permission: int = READ | WRITE  # brokerPermission

    # Topics and groups.
    auto_create_topics: bool = True  # autoCreateTopicEnable
    auto_create_groups: bool = True  # autoCreateSubscriptionGroup
    auto_topics_max: int = 10_000  # maxAutoCreatedTopics, ours: a peer that invents names must not fill memory and disk
    auto_groups_max: int = 10_000  # maxAutoCreatedGroups, ours
    topics_max: int = 100_000  # maxTopics, ours
    topics_per_request: int = 5_000  # maxTopicsPerRequest, ours
    queues_max: int = 2_000_000  # maxQueues, ours: of all topics
    queues_per_topic: int = 65_536  # maxQueuesPerTopic, ours
    queues_per_request: int = 200_000  # maxQueuesPerRequest, ours
    groups_max: int = 100_000  # maxGroups, ours
    groups_per_request: int = 5_000  # maxGroupsPerRequest, ours
    offsets_max: int = 1_000_000  # maxConsumerOffsets, ours: of all groups, in all queues
    default_topic_queues: int = 8  # defaultTopicQueueNums
    cluster_topic: bool = True  # clusterTopicEnable
    broker_topic: bool = True  # brokerTopicEnable
    trace_topic: bool = False  # traceTopicEnable
    trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"  # msgTraceTopicName
    revive_queues: int = 8  # reviveQueueNum
    guard_system_topics: bool = True  # validateSystemTopicWhenUpdateTopic: no request changes or deletes them
    mixed_topics: bool = False  # enableMixedMessageType: topics may be of the type MIXED
    delete_retry_topics: bool = True  # clearRetryTopicWhenDeleteTopic: those of groups that pop
    create_system_groups: bool = True  # enableCreateSysGroup, where other groups are not made either
    notify_at_once: bool = True  # realTimeNotifyConsumerChange; otherwise every 15 seconds
    notify_members: bool = True  # notifyConsumerIdsChangedEnable: groups are told when their members change

    # Sending.
    trace_on: bool = True  # traceOn
    accept_sends_from_ms: int = 0  # startAcceptSendRequestTimeStamp
    store_replies: bool = True  # storeReplyMessageEnable
    waiting_sends_max: int = 10_000  # sendThreadPoolQueueCapacity: sends that wait for disk or replicas
    max_body_size: int = 4 * 1024 * 1024  # maxMessageSize
    batch_messages_max: int = 65_536  # maxMessagesPerBatch, ours

    # Transactions.
    reject_transactions: bool = False  # rejectTransactionMessage
    transaction_timeout_ms: int = 6_000  # transactionTimeOut: how old a half message is before anybody is asked
    transaction_check_interval_ms: int = 30_000  # transactionCheckInterval
    transaction_check_max: int = 15  # transactionCheckMax: how often producers are asked about a half message
    transaction_op_size: int = 4_096  # transactionOpMsgMaxSize: of the ends that are gathered for one record
    transaction_op_interval_ms: int = 3_000  # transactionOpBatchInterval: how long they are gathered
    transaction_counts_interval_ms: int = 10_000  # transactionMetricFlushInterval

    # Pulling.
    long_polling: bool = True  # longPollingEnable
    short_polling_ms: int = 1_000  # shortPollingTimeMills
    held_pulls_max: int = 100_000  # pullThreadPoolQueueCapacity: pulls that wait for messages
    slave_read: bool = False  # slaveReadEnable
    lite_pull: bool = True  # litePullMessageEnable
    reject_pull_consumers: bool = False  # rejectPullConsumerEnable
    server_side_reset: bool = True  # useServerSideResetOffset
    disable_slow_readers: bool = False  # disableConsumeIfConsumerReadSlowly
    slow_reader_bytes: int = 16 * 1024**3  # consumerFallbehindThreshold
    bulk_ratio: int = 25  # bulkReadRatio, ours: percent of the time that readers in bulk have, beside others
    property_filter: bool = False  # enablePropertyFilter: by expressions over properties, not only by tag
    filter_retries: bool = False  # filterSupportRetry: retry topics that are subscribed to by expression
    filter_bit_map: bool = False  # enableCalcFilterBitMap: where the queues have extensions
    filter_clean_ms: int = 86_400_000  # filterDataCleanTimeSpan
    filter_memory_max: int = 64 * 1024 * 1024  # maxConsumerFilterMemory, ours: bytes that filters take, roughly
    bloom_error_percent: int = 20  # maxErrorRateOfBloomFilter
    bloom_expected: int = 32  # expectConsumerNumUseFilter
    memory_ratio: int = 40  # accessMessageInMemoryMaxRatio: percent of the memory that recent messages may take

    # Looking up.
    query_count_max: int = 64  # maxMsgsNumBatch: messages that a query by key returns
    unique_query_count: int = 32  # defaultQueryMaxNum: the same for unique keys

    # What requests may cost; ours.
    json_size_max: int = 1024 * 1024  # maxJsonBodySize
    json_objects_max: int = 16_384  # maxJsonBodyObjects
    loose_size_max: int = 64 * 1024  # maxLooseBodySize: JSON with null members, or numbers in quotes
    dialect_size_max: int = 8 * 1024  # maxDialectBodySize: fastjson's dialect
    config_size_max: int = 64 * 1024  # maxConfigBodySize: of UPDATE_BROKER_CONFIG
    long_requests_max: int = 256  # maxLongRequests: those that wait for their next slice
    long_memory_max: int = 64 * 1024 * 1024  # maxLongRequestMemory: bytes that they hold together
    long_time_ms: int = 10_000  # maxLongRequestTime: of the event loop, for one of them

    # Operators.
    unchangeable: str = "configBlackList;brokerConfigPath"  # configBlackList: properties that no request changes
    count_delayed: bool = True  # enableScheduleMessageStats: delayed messages count for their topics, too

    # Chores.
    register_interval_ms: int = 30_000  # registerNameServerPeriod
    register_timeout_ms: int = 24_000  # registerBrokerTimeoutMills
    register_compressed: bool = False  # compressedRegister
    register_split: bool = False  # enableSplitRegistration: in parts of splitRegistrationSize topics
    register_split_size: int = 800  # splitRegistrationSize
    offsets_interval_ms: int = 5_000  # flushConsumerOffsetInterval
    delay_offsets_interval_ms: int = 10_000  # flushDelayOffsetInterval
    lock_time_ms: int = 60_000  # rocketmq.broker.rebalance.lockMaxLiveTime
    client_timeout_ms: int = 120_000
    client_scan_ms: int = 10_000

    @property
    def address(self) -> str:
        """`ip:port` that clients are told."""
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"

    @property
    def ha_address(self) -> str:
        return f"[{self.ha_ip}]:{self.ha_port}" if ":" in self.ha_ip else f"{self.ha_ip}:{self.ha_port}"

    @property
    def is_writable(self) -> bool:
        return bool(self.permission & WRITE)

    @property
    def is_readable(self) -> bool:
        return bool(self.permission & READ)
