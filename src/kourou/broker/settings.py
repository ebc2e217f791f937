"""The settings of a broker. A field whose property in broker.conf has another name has it beside it.

Properties that are marked as ours are Kourou's own: Apache's brokers do not have them.

The store has its own settings (`kourou.store.settings`); how both are read from files and changed by requests is in
`properties.py`.
"""

from dataclasses import dataclass
from enum import Enum

from kourou.access.plain_acl import PlainAcl
from kourou.access.users import User
from kourou.protocol.signing import Credentials

READ, WRITE, INHERIT = 4, 2, 1
"""Permission bits of brokers and topics."""


class Role(Enum):
    """The role of a broker in its group."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(slots=True)
class BrokerSettings:
    """Defaults are Apache's. All parts of a broker share one, and `properties.apply` alone changes it."""

    # Identity.
    cluster: str = "DefaultCluster"  # brokerClusterName
    name: str = "broker-a"  # brokerName
    broker_id: int = 0  # brokerId
    role: Role = Role.ASYNC_MASTER  # brokerRole
    ip: str = "127.0.0.1"  # brokerIP1: the address that clients use
    ha_ip: str = "127.0.0.1"  # brokerIP2
    port: int = 10911  # listenPort
    ha_port: int = 10912  # haListenPort
    region: str = "DefaultRegion"  # regionId
    permission: int = READ | WRITE  # brokerPermission
    end_in_doubt: bool = False  # no property: a newer master may lack the end of this log, so consumers do not see it

    # Replication.
    in_sync_replicas: int = 1  # inSyncReplicas: so many brokers have a message before SYNC_MASTER answers
    min_in_sync_replicas: int = 1  # minInSyncReplicas: with fewer of them, sends are refused
    auto_in_sync_replicas: bool = False  # enableAutoInSyncReplicas: as many as are in sync
    slave_timeout_ms: int = 3_000  # slaveTimeout: how long a sender waits for slaves
    ha_master_address: str = ""  # haMasterAddress: a slave's master; otherwise the name servers tell it
    ha_heartbeat_ms: int = 5_000  # haSendHeartbeatInterval
    ha_silence_ms: int = 20_000  # haHousekeepingInterval
    ha_batch_size: int = 32 * 1024  # haTransferBatchSize
    ha_max_gap: int = 256 * 1024 * 1024  # haMaxGapNotInSync: bytes that a slave which is in sync is behind at most
    ha_connections_max: int = 64  # maxHaConnections, ours
    ha_allowed_peers: str = ""  # haAllowedPeers, ours: addresses and networks; empty: all that reach the port

    # A controller, which elects the master.
    controller_mode: bool = False  # enableControllerMode: brokerId and brokerRole are the controller's decision
    controllers: str = ""  # controllerAddr: `host:port;host:port`
    all_in_sync: bool = False  # allAckInSyncStateSet: every member of the in-sync set has a message before it counts
    ha_behind_ms: int = 15_000  # haMaxTimeSlaveNotCatchup: a replica that is behind for longer leaves the in-sync set
    is_learner: bool = False  # asyncLearner: this broker never belongs to the in-sync set
    election_priority: int = 2**31 - 1  # brokerElectionPriority: the smallest is preferred
    controller_heartbeat_ms: int = 1_000  # brokerHeartbeatInterval
    controller_alive_ms: int = 10_000  # controllerHeartBeatTimeoutMills: a broker that is silent for longer is dead
    controller_leader_ms: int = 10_000  # syncControllerMetadataPeriod
    controller_master_ms: int = 5_000  # syncBrokerMetadataPeriod

    # A Raft group.
    raft: bool = False  # enableDLegerCommitLog
    raft_group: str = ""  # dLegerGroup
    raft_peers: str = ""  # dLegerPeers: `n0-host:port;n1-host:port`
    raft_self: str = ""  # dLegerSelfId
    raft_preferred: str = ""  # preferredLeaderIds, preferredLeaderId: `n0;n1`
    raft_election_ms: int = 1_000  # raftElectionTimeout, ours
    raft_heartbeat_ms: int = 200  # raftHeartbeatInterval, ours
    raft_adopt: bool = False  # raftAdoptLog, ours: found a group with the messages that are here

    # Topics and groups.
    auto_create_topics: bool = True  # autoCreateTopicEnable
    auto_create_groups: bool = True  # autoCreateSubscriptionGroup
    auto_topics_max: int = 10_000  # maxAutoCreatedTopics, ours: a peer that invents names must not fill memory and disk
    auto_groups_max: int = 10_000  # maxAutoCreatedGroups, ours
    topics_max: int = 100_000  # maxTopics, ours
    topics_per_request: int = 5_000  # maxTopicsPerRequest, ours
    queues_max: int = 2_000_000  # maxQueues, ours: of all topics
    queues_per_topic: int = 65_536  # maxQueuesPerTopic, ours
    groups_per_client: int = 1_000  # maxGroupsPerClient, ours
    subscriptions_per_client: int = 10_000  # maxSubscriptionsPerClient, ours
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

    shares_queues: bool = True  # serverLoadBalancerEnable: a client that asks for its queues gets its share of them
    request_mode: str = "PULL"  # defaultMessageRequestMode: of groups without a mode of their own

    # Sending.
    trace_on: bool = True  # traceOn
    accept_sends_from_ms: int = 0  # startAcceptSendRequestTimeStamp
    store_replies: bool = True  # storeReplyMessageEnable
    waiting_sends_max: int = 10_000  # sendThreadPoolQueueCapacity: sends that wait for disk or replicas
    max_body_size: int = 4 * 1024 * 1024  # maxMessageSize
    batch_messages_max: int = 65_536  # maxMessagesPerBatch, ours

    # Transactions.
    reject_transactions: bool = False  # rejectTransactionMessage
    transaction_timeout_ms: int = 6_000  # transactionTimeOut: how old a half message is before its producer is asked
    transaction_check_interval_ms: int = 30_000  # transactionCheckInterval
    transaction_check_max: int = 15  # transactionCheckMax: how often producers are asked about a half message
    transaction_op_size: int = 4_096  # transactionOpMsgMaxSize: of the ends that are gathered for one record
    transaction_op_interval_ms: int = 3_000  # transactionOpBatchInterval: how long they are gathered
    transaction_counts_interval_ms: int = 10_000  # transactionMetricFlushInterval

    # Timers.
    timers: bool = True  # timerWheelEnable
    timer_max_delay_s: int = 259_200  # timerMaxDelaySec
    timer_slot_max: int = 2**31 - 1  # timerCongestNumEachSlot: messages that are due in the same second
    timer_roll_slots: int = 172_800  # timerRollWindowSlot: messages due after more slots are stored again on the way
    timer_flush_ms: int = 1_000  # timerFlushIntervalMs: between two checkpoints
    timer_stop_enqueue: bool = False  # timerStopEnqueue
    timer_stop_dequeue: bool = False  # timerStopDequeue
    recall: bool = False  # recallMessageEnable
    recall_if_read_only: bool = True  # allowRecallWhenBrokerNotWriteable
    recall_by_topic: bool = False  # appendTopicForTimerDeleteKey: recalls name the topic, too

    # Pulling.
    long_polling: bool = True  # longPollingEnable
    short_polling_ms: int = 1_000  # shortPollingTimeMills
    held_pulls_max: int = 100_000  # pullThreadPoolQueueCapacity: pulls that wait for messages
    slave_read: bool = False  # slaveReadEnable
    slave_acting_master: bool = False  # enableSlaveActingMaster
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

    # Access control.
    authenticates: bool = False  # authenticationEnabled: requests are signed by users
    authorizes: bool = False  # authorizationEnabled: users may do what their policies allow
    unsigned_codes: frozenset[int] = frozenset()  # authenticationWhitelist
    unruled_codes: frozenset[int] = frozenset()  # authorizationWhitelist
    first_user: User | None = None  # initAuthenticationUser: a super user, created if missing
    inner_user: User | None = None  # innerClientAuthenticationCredentials: it signs the broker's requests
    plain_acl: PlainAcl | None = None  # aclEnable: the accounts in plain_acl.yml
    open_ports: str = ""  # no property: ports that other machines can reach without authentication
    migrated: PlainAcl | None = None  # migrateAuthFromV1Enabled: the same, as users

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
    strict_locks: bool = False  # lockInStrictMode: a majority of the group has to grant locks on queues
    replicas_total: int = 1  # totalReplicas: brokers of the group
    client_timeout_ms: int = 120_000
    client_scan_ms: int = 10_000

    @property
    def problem_of_role(self) -> str | None:
        """Why the broker can't take its place in a group, and what to do."""
        if self.controller_mode:
            return None if self.controllers.strip(" ;") else "enableControllerMode=true: set controllerAddr as well"
        if self.role is Role.SLAVE and self.broker_id == 0:
            return "brokerRole=SLAVE: brokerId must be greater than 0, and different for each slave of a group"
        return None

    @property
    def inner_credentials(self) -> Credentials | None:
        """The credentials with which the broker signs its own requests."""
        user = self.inner_user
        return None if user is None else Credentials(user.name, user.password)

    @property
    def address(self) -> str:
        """`ip:port` that is announced to clients."""
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"

    @property
    def ha_address(self) -> str:
        return f"[{self.ha_ip}]:{self.ha_port}" if ":" in self.ha_ip else f"{self.ha_ip}:{self.ha_port}"

    @property
    def is_writable(self) -> bool:
        return bool(self.permission & WRITE)

    @property
    def is_readable(self) -> bool:
        return bool(self.permission & READ) and not self.end_in_doubt
