import com.alibaba.fastjson2.JSONWriter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.broker.schedule.DelayOffsetSerializeWrapper;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.TopicFilterType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.message.MessageQueueAssignment;
import org.apache.rocketmq.common.message.MessageQueueForC;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.DataVersion;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;
import org.apache.rocketmq.remoting.protocol.admin.TopicOffset;
import org.apache.rocketmq.remoting.protocol.admin.TopicStatsTable;
import org.apache.rocketmq.remoting.protocol.body.*;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.remoting.protocol.header.GetConsumerListByGroupResponseBody;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumerData;
import org.apache.rocketmq.remoting.protocol.heartbeat.HeartbeatData;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.protocol.heartbeat.ProducerData;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.route.QueueData;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;
import org.apache.rocketmq.remoting.protocol.statictopic.LogicQueueMappingItem;
import org.apache.rocketmq.remoting.protocol.statictopic.TopicConfigAndQueueMapping;
import org.apache.rocketmq.remoting.protocol.statictopic.TopicQueueMappingDetail;
import org.apache.rocketmq.remoting.protocol.statictopic.TopicQueueMappingInfo;
import org.apache.rocketmq.remoting.protocol.subscription.ExponentialRetryPolicy;
import org.apache.rocketmq.remoting.protocol.subscription.GroupForbidden;
import org.apache.rocketmq.remoting.protocol.subscription.GroupRetryPolicy;
import org.apache.rocketmq.remoting.protocol.subscription.GroupRetryPolicyType;
import org.apache.rocketmq.remoting.protocol.subscription.SimpleSubscriptionData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/**
 * Bodies, nearly all of them JSON as fastjson2 writes it. Sets hold one element or keep their order, so that
 * every run writes the same bytes.
 */
final class Bodies {
    private static final long T = 1_700_000_000_000L;

    static void record(Tape tape) throws Exception {
        routes(tape);
        registration(tape);
        clients(tape);
        consumption(tape);
        settings(tape);
        administration(tape);
    }

    private static void json(Tape tape, String name, Object body) throws Exception {
        json(tape, name, body, RemotingSerializable.encode(body));
    }

    private static void json(Tape tape, String name, Object body, byte[] bytes) throws Exception {
        tape.write("body", name, bytes,
            Tape.fields("class", body.getClass().getSimpleName(), "value", Tape.plain(bytes)));
    }

    /** Two pairs in this order; Map.of gives another order in every run. */
    private static <K, V> Map<K, V> ordered(K key1, V value1, K key2, V value2) {
        Map<K, V> map = new LinkedHashMap<>();
        map.put(key1, value1);
        map.put(key2, value2);
        return map;
    }

    // Routes and clusters.

    private static void routes(Tape tape) throws Exception {
        TopicRouteData empty = new TopicRouteData();
        empty.setQueueDatas(new ArrayList<>());
        empty.setBrokerDatas(new ArrayList<>());
        json(tape, "route, empty", empty);
        TopicRouteData route = route();
        json(tape, "route, to clients before 4.9.4", route);
        json(tape, "route, to clients since 4.9.4", route,
            route.encode(JSONWriter.Feature.BrowserCompatible, JSONWriter.Feature.MapSortField));

        ClusterInfo cluster = new ClusterInfo();
        Map<String, BrokerData> brokers = new HashMap<>();
        brokers.put("broker-a", broker("broker-a", 0, 1));
        brokers.put("broker-b", broker("broker-b", 0));
        Set<String> names = new LinkedHashSet<>(List.of("broker-a", "broker-b"));
        cluster.setBrokerAddrTable(brokers);
        cluster.setClusterAddrTable(new HashMap<>(Map.of("DefaultCluster", names)));
        json(tape, "cluster", cluster);
        json(tape, "cluster, empty", new ClusterInfo());

        BrokerMemberGroup group = new BrokerMemberGroup("DefaultCluster", "broker-a");
        group.setBrokerAddrs(addresses(0, 1, 2));
        json(tape, "broker member group", group);
        GetBrokerMemberGroupResponseBody members = new GetBrokerMemberGroupResponseBody();
        members.setBrokerMemberGroup(group);
        json(tape, "broker member group answer", members);

        TopicList topics = new TopicList();
        topics.setTopicList(new LinkedHashSet<>(List.of("TopicTest", "订单主题", "%RETRY%group")));
        json(tape, "topic list", topics);
        topics.setBrokerAddr("127.0.0.1:10911");
        json(tape, "topic list with a broker", topics);
        json(tape, "topic list, empty", new TopicList());

        KVTable table = new KVTable();
        table.setTable(new HashMap<>(ordered("TopicTest", "broker-a:4;broker-b:4", "键", "值🚀")));
        json(tape, "key-value table", table);
        json(tape, "key-value table, empty", new KVTable());
    }

    private static TopicRouteData route() {
        TopicRouteData route = new TopicRouteData();
        QueueData queues = new QueueData();
        queues.setBrokerName("broker-a");
        queues.setReadQueueNums(8);
        queues.setWriteQueueNums(4);
        queues.setPerm(6);
        queues.setTopicSysFlag(0);
        route.setQueueDatas(List.of(queues));
        BrokerData zoned = broker("broker-b", 0);
        zoned.setZoneName("zone-é");
        zoned.setEnableActingMaster(true);
        route.setBrokerDatas(List.of(broker("broker-a", 0, 1), zoned));
        route.setOrderTopicConf("broker-a:4;broker-b:4");
        route.setFilterServerTable(new HashMap<>(Map.of("127.0.0.1:10911", List.of("127.0.0.1:40000"))));
        route.setTopicQueueMappingByBroker(new HashMap<>(Map.of("broker-a", mapping("TopicTest"))));
        return route;
    }

    private static BrokerData broker(String name, long... ids) {
        return new BrokerData("DefaultCluster", name, addresses(ids));
    }

    private static HashMap<Long, String> addresses(long... ids) {
        HashMap<Long, String> addresses = new HashMap<>();
        for (long id : ids) {
            addresses.put(id, "127.0.0.1:" + (10911 + 20 * id));
        }
        return addresses;
    }

    // What a broker tells the name server.

    private static void registration(Tape tape) throws Exception {
        json(tape, "data version", version(7));

        TopicConfigAndMappingSerializeWrapper topics = new TopicConfigAndMappingSerializeWrapper();
        ConcurrentMap<String, TopicConfig> table = new ConcurrentHashMap<>();
        for (TopicConfig topic : topics()) {
            table.put(topic.getTopicName(), topic);
        }
        topics.setTopicConfigTable(table);
        topics.setDataVersion(version(3));
        topics.setMappingDataVersion(version(4));
        json(tape, "topic table", topics);
        topics.setTopicQueueMappingInfoMap(new ConcurrentHashMap<>(Map.of("StaticTopic", mapping("StaticTopic"))));
        topics.setTopicQueueMappingDetailMap(new ConcurrentHashMap<>(Map.of("StaticTopic", detail())));
        json(tape, "topic table with a static topic", topics);

        RegisterBrokerBody body = new RegisterBrokerBody();
        body.setTopicConfigSerializeWrapper(topics);
        body.setFilterServerList(List.of("127.0.0.1:40000"));
        register(tape, "registration", body, false);
        register(tape, "registration, compressed", body, true);
        TopicConfigAndMappingSerializeWrapper none = new TopicConfigAndMappingSerializeWrapper();
        none.setDataVersion(version(0));
        none.setMappingDataVersion(version(0));
        body.setTopicConfigSerializeWrapper(none);
        body.setFilterServerList(List.of());
        register(tape, "registration of nothing, compressed", body, true);

        for (TopicConfig topic : topics()) {
            String text = topic.encode();
            TopicConfig read = new TopicConfig();
            read.decode(text);
            tape.write("topic_text", topic.getTopicName(), Tape.utf8(text),
                Tape.fields("value", Tape.plain(RemotingSerializable.encode(read))));
        }
    }

    /** Records what the real decoder reads; it can't know the mapping's data version of the compressed form. */
    private static void register(Tape tape, String name, RegisterBrokerBody body, boolean compressed) throws Exception {
        byte[] bytes = body.encode(compressed);
        RegisterBrokerBody read = RegisterBrokerBody.decode(bytes, compressed, MQVersion.Version.V5_5_0);
        if (compressed) {
            read.getTopicConfigSerializeWrapper().setMappingDataVersion(null);
        }
        tape.write("register_body", name, bytes, Tape.fields("compressed", compressed, "stable", !compressed,
            "version", MQVersion.Version.V5_5_0.ordinal(), "value", Tape.plain(RemotingSerializable.encode(read))));
    }

    private static List<TopicConfig> topics() {
        TopicConfig plain = new TopicConfig("TopicTest", 8, 4, 6);
        TopicConfig ordered = new TopicConfig("OrderTopic", 16, 16, 7, 3);
        ordered.setOrder(true);
        ordered.setTopicFilterType(TopicFilterType.MULTI_TAG);
        TopicConfig attributed = new TopicConfig("订单主题", 1, 1, 2);
        attributed.setAttributes(new LinkedHashMap<>(Map.of("message.type", "DELAY")));
        return List.of(plain, ordered, attributed);
    }

    private static TopicQueueMappingInfo mapping(String topic) {
        TopicQueueMappingInfo mapping = new TopicQueueMappingInfo(topic, 4, "broker-a", 100L);
        mapping.setCurrIdMap(new ConcurrentHashMap<>(ordered(0, 2, 3, 1)));
        return mapping;
    }

    private static TopicQueueMappingDetail detail() {
        TopicQueueMappingDetail detail = new TopicQueueMappingDetail("StaticTopic", 4, "broker-a", 100L);
        LogicQueueMappingItem item = new LogicQueueMappingItem();
        item.setBname("broker-a");
        item.setQueueId(2);
        item.setLogicOffset(1000);
        item.setEndOffset(-1);
        item.setTimeOfStart(-1);
        item.setTimeOfEnd(-1);
        detail.setHostedQueues(new ConcurrentHashMap<>(Map.of(0, List.of(item))));
        return detail;
    }

    private static DataVersion version(long counter) {
        DataVersion version = new DataVersion();
        version.setStateVersion(2);
        version.setTimestamp(T);
        version.setCounter(new AtomicLong(counter));
        return version;
    }

    // What clients tell a broker.

    private static void clients(Tape tape) throws Exception {
        HeartbeatData heartbeat = new HeartbeatData();
        heartbeat.setClientID("192.168.1.10@4711#123456789");
        ProducerData producer = new ProducerData();
        producer.setGroupName("CLIENT_INNER_PRODUCER");
        heartbeat.setProducerDataSet(new LinkedHashSet<>(List.of(producer)));
        ConsumerData consumer = new ConsumerData();
        consumer.setGroupName("group-中");
        consumer.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        consumer.setMessageModel(MessageModel.CLUSTERING);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setSubscriptionDataSet(new LinkedHashSet<>(List.of(
            subscription("TopicTest", "TagA || TagB"), subscription("%RETRY%group-中", "*"), sql())));
        heartbeat.setConsumerDataSet(new LinkedHashSet<>(List.of(consumer)));
        json(tape, "heartbeat", heartbeat);
        HeartbeatData short2 = new HeartbeatData();
        short2.setClientID("192.168.1.10@4711#123456789");
        short2.setHeartbeatFingerprint(-1234567);
        short2.setWithoutSub(true);
        json(tape, "heartbeat without subscriptions", short2);

        LockBatchRequestBody lock = new LockBatchRequestBody();
        lock.setConsumerGroup("group");
        lock.setClientId("c1");
        lock.setMqSet(new LinkedHashSet<>(List.of(queue(0), queue(1))));
        json(tape, "lock", lock);
        UnlockBatchRequestBody unlock = new UnlockBatchRequestBody();
        unlock.setConsumerGroup("group");
        unlock.setClientId("c1");
        unlock.setOnlyThisBroker(true);
        json(tape, "unlock", unlock);
        LockBatchResponseBody locked = new LockBatchResponseBody();
        locked.setLockOKMQSet(new LinkedHashSet<>(List.of(queue(1))));
        json(tape, "locked", locked);

        GetConsumerListByGroupResponseBody ids = new GetConsumerListByGroupResponseBody();
        ids.setConsumerIdList(List.of("c1", "c2"));
        json(tape, "consumer ids", ids);

        CheckClientRequestBody check = new CheckClientRequestBody();
        check.setClientId("c1");
        check.setGroup("group");
        check.setSubscriptionData(sql());
        json(tape, "check client", check);

        QueryAssignmentRequestBody ask = new QueryAssignmentRequestBody();
        ask.setTopic("TopicTest");
        ask.setConsumerGroup("group");
        ask.setClientId("c1");
        ask.setStrategyName("AVG");
        ask.setMessageModel(MessageModel.CLUSTERING);
        json(tape, "query assignment", ask);
        MessageQueueAssignment assigned = new MessageQueueAssignment();
        assigned.setMessageQueue(queue(-1));
        assigned.setMode(MessageRequestMode.POP);
        QueryAssignmentResponseBody assignment = new QueryAssignmentResponseBody();
        assignment.setMessageQueueAssignments(new LinkedHashSet<>(List.of(assigned)));
        json(tape, "assignment", assignment);
        SetMessageRequestModeRequestBody mode = new SetMessageRequestModeRequestBody();
        mode.setTopic("TopicTest");
        mode.setConsumerGroup("group");
        mode.setMode(MessageRequestMode.POP);
        mode.setPopShareQueueNum(3);
        json(tape, "set request mode", mode);

        BatchAck ack = new BatchAck();
        ack.setConsumerGroup("group");
        ack.setTopic("TopicTest");
        ack.setRetry("0");
        ack.setStartOffset(100);
        ack.setQueueId(2);
        ack.setReviveQueueId(3);
        ack.setPopTime(T);
        ack.setInvisibleTime(60_000);
        BitSet bits = new BitSet();
        bits.set(0);
        bits.set(5);
        bits.set(17);
        ack.setBitSet(bits);
        BatchAckMessageRequestBody acks = new BatchAckMessageRequestBody();
        acks.setBrokerName("broker-a");
        acks.setAcks(List.of(ack));
        json(tape, "batch ack", acks);
    }

    private static MessageQueue queue(int id) {
        return new MessageQueue("TopicTest", "broker-a", id);
    }

    private static SubscriptionData subscription(String topic, String expression) throws Exception {
        SubscriptionData data = FilterAPI.buildSubscriptionData(topic, expression);
        data.setSubVersion(T);
        return data;
    }

    private static SubscriptionData sql() throws Exception {
        SubscriptionData data = FilterAPI.build("TopicTest", "a > 3 AND b = '中'", "SQL92");
        data.setSubVersion(T);
        return data;
    }

    // Offsets and consumption; most maps here have objects as keys.

    private static void consumption(Tape tape) throws Exception {
        TopicOffset offset = new TopicOffset();
        offset.setMinOffset(5);
        offset.setMaxOffset(5_000_000_000L);
        offset.setLastUpdateTimestamp(T);
        TopicStatsTable stats = new TopicStatsTable();
        stats.setTopicPutTps(1.5);
        stats.setOffsetTable(new ConcurrentHashMap<>(ordered(queue(0), offset, queue(1), offset)));
        json(tape, "topic stats, the same offsets twice", stats);
        json(tape, "topic stats, empty", new TopicStatsTable());

        ConsumeStats consume = new ConsumeStats();
        OffsetWrapper wrapper = new OffsetWrapper();
        wrapper.setBrokerOffset(10);
        wrapper.setConsumerOffset(7);
        wrapper.setPullOffset(9);
        wrapper.setLastTimestamp(T);
        consume.setOffsetTable(new ConcurrentHashMap<>(Map.of(queue(3), wrapper)));
        json(tape, "consume stats", consume);
        ConsumeStatsList list = new ConsumeStatsList();
        list.setBrokerAddr("127.0.0.1:10911");
        list.setConsumeStatsList(List.of(Map.of("group", List.of(consume))));
        list.setTotalDiff(3);
        list.setTotalInflightDiff(2);
        json(tape, "consume stats list", list);

        ResetOffsetBody reset = new ResetOffsetBody();
        reset.setOffsetTable(new HashMap<>(ordered(queue(0), 7L, queue(1), Long.MAX_VALUE)));
        json(tape, "reset offsets", reset);
        ResetOffsetBodyForC forC = new ResetOffsetBodyForC();
        forC.setOffsetTable(List.of(new MessageQueueForC("TopicTest", "broker-a", 0, 7L)));
        json(tape, "reset offsets, list form", forC);

        GetConsumerStatusBody status = new GetConsumerStatusBody();
        status.setMessageQueueTable(new HashMap<>(Map.of(queue(0), 7L)));
        status.setConsumerTable(new HashMap<>(Map.of("c1", new HashMap<>(Map.of(queue(1), 8L)))));
        json(tape, "consumer status", status);

        QueryCorrectionOffsetBody correction = new QueryCorrectionOffsetBody();
        correction.setCorrectionOffsets(new HashMap<>(ordered(0, 7L, 3, 5_000_000_000L)));
        json(tape, "correction offsets", correction);

        ConcurrentMap<Integer, Long> queues = new ConcurrentHashMap<>(ordered(0, 5L, 1, 7L));
        ConsumerOffsetSerializeWrapper offsets = new ConsumerOffsetSerializeWrapper();
        offsets.setOffsetTable(new ConcurrentHashMap<>(Map.of("TopicTest@group", queues)));
        offsets.setDataVersion(version(9));
        json(tape, "consumer offsets", offsets);
        DelayOffsetSerializeWrapper delays = new DelayOffsetSerializeWrapper();
        delays.setOffsetTable(new ConcurrentHashMap<>(ordered(1, 5L, 18, 7L)));
        delays.setDataVersion(version(1));
        json(tape, "delay offsets", delays);

        json(tape, "consumer running info", running());

        QueueTimeSpan span = new QueueTimeSpan();
        span.setMessageQueue(queue(0));
        span.setMinTimeStamp(T);
        span.setMaxTimeStamp(T + 1000);
        span.setConsumeTimeStamp(T + 500);
        span.setDelayTime(500);
        QueryConsumeTimeSpanBody spans = new QueryConsumeTimeSpanBody();
        spans.setConsumeTimeSpanSet(List.of(span));
        json(tape, "consume time span", spans);

        ConsumeMessageDirectlyResult directly = new ConsumeMessageDirectlyResult();
        directly.setConsumeResult(CMResult.CR_THROW_EXCEPTION);
        directly.setRemark("java.lang.IllegalStateException: no\n\tat A.b(A.java:1)");
        directly.setSpentTimeMills(12);
        json(tape, "consume directly result", directly);
    }

    private static ConsumerRunningInfo running() throws Exception {
        ConsumerRunningInfo info = new ConsumerRunningInfo();
        Properties properties = new Properties();
        properties.setProperty(ConsumerRunningInfo.PROP_CONSUME_TYPE, "CONSUME_PASSIVELY");
        properties.setProperty(ConsumerRunningInfo.PROP_THREADPOOL_CORE_SIZE, "20");
        properties.setProperty(ConsumerRunningInfo.PROP_CONSUMER_START_TIMESTAMP, Long.toString(T));
        info.setProperties(properties);
        info.setSubscriptionSet(new TreeSet<>(List.of(subscription("TopicTest", "TagA"))));
        ProcessQueueInfo process = new ProcessQueueInfo();
        process.setCommitOffset(7);
        process.setCachedMsgMinOffset(7);
        process.setCachedMsgMaxOffset(9);
        process.setCachedMsgCount(3);
        process.setCachedMsgSizeInMiB(1);
        process.setLocked(true);
        process.setLastPullTimestamp(T);
        info.setMqTable(new TreeMap<>(ordered(queue(0), process, queue(1), process)));
        PopProcessQueueInfo pop = new PopProcessQueueInfo();
        pop.setWaitAckCount(2);
        pop.setLastPopTimestamp(T);
        info.setMqPopTable(new TreeMap<>(Map.of(queue(-1), pop)));
        ConsumeStatus status = new ConsumeStatus();
        status.setPullRT(1.25);
        status.setConsumeFailedMsgs(4);
        info.setStatusTable(new TreeMap<>(Map.of("TopicTest", status)));
        info.setJstack("\"main\" prio=5\n\tjava.lang.Thread.State: RUNNABLE\n");
        return info;
    }

    // Groups and topics as a broker keeps them.

    private static void settings(Tape tape) throws Exception {
        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName("group");
        json(tape, "group, as made", group);
        SubscriptionGroupConfig set = new SubscriptionGroupConfig();
        set.setGroupName("group-中");
        set.setConsumeEnable(false);
        set.setConsumeMessageOrderly(true);
        set.setRetryMaxTimes(-1);
        set.setBrokerId(1);
        set.setConsumeTimeoutMinute(30);
        set.setAttributes(new HashMap<>(Map.of("k", "v")));
        set.setSubscriptionDataSet(new LinkedHashSet<>(List.of(new SimpleSubscriptionData("TopicTest", "TAG", "*", T))));
        GroupRetryPolicy policy = new GroupRetryPolicy();
        policy.setType(GroupRetryPolicyType.EXPONENTIAL);
        policy.setExponentialRetryPolicy(new ExponentialRetryPolicy(1000, 60_000, 2));
        set.setGroupRetryPolicy(policy);
        json(tape, "group, changed", set);

        SubscriptionGroupWrapper groups = new SubscriptionGroupWrapper();
        groups.setSubscriptionGroupTable(new ConcurrentHashMap<>(Map.of("group", group)));
        groups.setForbiddenTable(new ConcurrentHashMap<>(
            Map.of("group", new ConcurrentHashMap<>(Map.of("TopicTest", 1)))));
        groups.setDataVersion(version(2));
        json(tape, "group table", groups);
        SubscriptionGroupList groupList = new SubscriptionGroupList();
        groupList.setGroupConfigList(List.of(group));
        json(tape, "group list", groupList);

        for (TopicConfig topic : topics()) {
            json(tape, "topic " + topic.getTopicName(), topic);
        }
        json(tape, "topic with mapping", new TopicConfigAndQueueMapping(topics().get(0), detail()));
        json(tape, "topics to make", new CreateTopicListRequestBody(topics().subList(0, 1)));
        TopicQueueMappingSerializeWrapper mappings = new TopicQueueMappingSerializeWrapper();
        mappings.setTopicQueueMappingInfoMap(new HashMap<>(Map.of("StaticTopic", detail())));
        mappings.setDataVersion(version(2));
        json(tape, "mapping table", mappings);

        MessageRequestModeSerializeWrapper modes = new MessageRequestModeSerializeWrapper();
        json(tape, "request modes, empty", modes);
        GroupForbidden forbidden = new GroupForbidden();
        forbidden.setTopic("TopicTest");
        forbidden.setGroup("group");
        forbidden.setReadable(false);
        json(tape, "group forbidden", forbidden);
    }

    // What mqadmin asks for.

    private static void administration(Tape tape) throws Exception {
        Connection connection = new Connection();
        connection.setClientId("c1");
        connection.setClientAddr("127.0.0.1:50000");
        connection.setLanguage(LanguageCode.GO);
        connection.setVersion(317);
        ConsumerConnection consumers = new ConsumerConnection();
        consumers.setConnectionSet(new HashSet<>(List.of(connection)));
        consumers.setSubscriptionTable(new ConcurrentHashMap<>(Map.of("TopicTest", subscription("TopicTest", "*"))));
        consumers.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        consumers.setMessageModel(MessageModel.BROADCASTING);
        consumers.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
        json(tape, "consumer connections", consumers);
        ProducerConnection producers = new ProducerConnection();
        producers.setConnectionSet(new HashSet<>(List.of(connection)));
        json(tape, "producer connections", producers);
        json(tape, "producer table", new ProducerTableInfo(new HashMap<>(Map.of("group",
            List.of(new ProducerInfo("c1", "127.0.0.1:50000", LanguageCode.JAVA, 513, T))))));

        GroupList groups = new GroupList();
        groups.setGroupList(new LinkedHashSet<>(List.of("group", "group-中")));
        json(tape, "group names", groups);

        BrokerStatsItem item = new BrokerStatsItem();
        item.setSum(120);
        item.setTps(0.03333333333333333);
        item.setAvgpt(1.0E-5);
        BrokerStatsData stats = new BrokerStatsData();
        stats.setStatsMinute(item);
        stats.setStatsHour(new BrokerStatsItem());
        stats.setStatsDay(new BrokerStatsItem());
        json(tape, "broker stats", stats);

        ConsumeQueueData entry = new ConsumeQueueData();
        entry.setPhysicOffset(1024);
        entry.setPhysicSize(109);
        entry.setTagsCode(2598919);
        QueryConsumeQueueResponseBody entries = new QueryConsumeQueueResponseBody();
        entries.setSubscriptionData(subscription("TopicTest", "*"));
        entries.setQueueData(List.of(entry));
        entries.setMaxQueueIndex(1);
        json(tape, "consume queue entries", entries);

        QuerySubscriptionResponseBody subscribed = new QuerySubscriptionResponseBody();
        subscribed.setSubscriptionData(subscription("TopicTest", "*"));
        subscribed.setGroup("group");
        subscribed.setTopic("TopicTest");
        json(tape, "subscription", subscribed);

        HARuntimeInfo ha = new HARuntimeInfo();
        ha.setMaster(true);
        ha.setMasterCommitLogMaxOffset(1000);
        ha.setInSyncSlaveNums(1);
        HARuntimeInfo.HAConnectionRuntimeInfo slave = new HARuntimeInfo.HAConnectionRuntimeInfo();
        slave.setAddr("127.0.0.1:50001");
        slave.setSlaveAckOffset(990);
        slave.setDiff(10);
        slave.setInSync(true);
        ha.setHaConnectionInfo(List.of(slave));
        json(tape, "ha status", ha);
        json(tape, "sync state set", new SyncStateSet(new LinkedHashSet<>(Arrays.asList(1L, 2L)), 5));

        json(tape, "user", UserInfo.of("alice", "secret", "Normal"));
        json(tape, "acl", AclInfo.of("User:alice", List.of("Topic:T"), List.of("Pub", "Sub"), List.of("10.0.0.0/8"), "Allow"));
    }
}
