import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.apache.rocketmq.common.DataVersion;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.admin.ConsumeStats;
import org.apache.rocketmq.common.admin.OffsetWrapper;
import org.apache.rocketmq.common.admin.TopicOffset;
import org.apache.rocketmq.common.admin.TopicStatsTable;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.filter.FilterAPI;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.RequestCode;
import org.apache.rocketmq.common.protocol.body.ClusterInfo;
import org.apache.rocketmq.common.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.common.protocol.body.LockBatchRequestBody;
import org.apache.rocketmq.common.protocol.body.ProcessQueueInfo;
import org.apache.rocketmq.common.protocol.body.RegisterBrokerBody;
import org.apache.rocketmq.common.protocol.body.ResetOffsetBody;
import org.apache.rocketmq.common.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.common.protocol.header.SendMessageRequestHeader;
import org.apache.rocketmq.common.protocol.header.SendMessageRequestHeaderV2;
import org.apache.rocketmq.common.protocol.header.namesrv.GetRouteInfoRequestHeader;
import org.apache.rocketmq.common.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.common.protocol.heartbeat.ConsumerData;
import org.apache.rocketmq.common.protocol.heartbeat.HeartbeatData;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.common.protocol.heartbeat.ProducerData;
import org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.common.protocol.route.BrokerData;
import org.apache.rocketmq.common.protocol.route.QueueData;
import org.apache.rocketmq.common.protocol.route.TopicRouteData;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/**
 * What the 4.9.8 classes write otherwise than those of 5.5.0: fastjson 1 with its {"$ref":"…"} for an object met
 * before, bodies with fewer fields, a shorter compressed registration.
 */
public final class Recorder49 {
    private static final long T = 1_700_000_000_000L;

    public static void main(String[] args) throws Exception {
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        try (Writer out = Files.newBufferedWriter(Path.of(args[0]), StandardCharsets.UTF_8)) {
            Tape tape = new Tape(out);
            frames(tape);
            routes(tape);
            registration(tape);
            clients(tape);
            shared(tape);
            properties(tape);
        }
    }

    // Frames.

    private static void frames(Tape tape) throws Exception {
        for (SerializeType type : SerializeType.values()) {
            GetRouteInfoRequestHeader route = new GetRouteInfoRequestHeader();
            route.setTopic("订单主题");
            frame(tape, "route request", type, RequestCode.GET_ROUTEINFO_BY_TOPIC, route, null);

            SendMessageRequestHeader send = new SendMessageRequestHeader();
            send.setProducerGroup("group");
            send.setTopic("TopicTest");
            send.setDefaultTopic("TBW102");
            send.setDefaultTopicQueueNums(4);
            send.setQueueId(3);
            send.setSysFlag(1);
            send.setBornTimestamp(T);
            send.setFlag(0);
            send.setProperties("UNIQ_KEY\u00017F00000100002A9F0000000000000001\u0002TAGS\u0001🚀");
            send.setReconsumeTimes(0);
            send.setUnitMode(false);
            send.setBatch(false);
            frame(tape, "send", type, RequestCode.SEND_MESSAGE_V2,
                SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2(send), Tape.utf8("Hello 你好"));
        }
    }

    private static void frame(Tape tape, String name, SerializeType type, int code, CommandCustomHeader header, byte[] body)
        throws Exception {
        RemotingCommand command = RemotingCommand.createRequestCommand(code, header);
        command.setSerializeTypeCurrentRPC(type);
        command.setOpaque(1);
        command.setBody(body);
        ByteBuf out = Unpooled.buffer();
        command.fastEncodeHeader(out);
        if (body != null) {
            out.writeBytes(body);
        }
        byte[] bytes = new byte[out.readableBytes()];
        out.readBytes(bytes);
        RemotingCommand read = RemotingCommand.decode(Arrays.copyOfRange(bytes, 4, bytes.length));
        tape.write("frame", name + " " + type, bytes, Tape.fields(
            "type", type.name(), "header", header.getClass().getSimpleName(), "code", read.getCode(),
            "flag", read.getFlag(), "language", read.getLanguage(), "version", read.getVersion(),
            "opaque", read.getOpaque(), "remark", read.getRemark(), "ext", read.getExtFields(),
            "body", Tape.hex(read.getBody())));
    }

    // Bodies without shared objects.

    private static void json(Tape tape, String name, Object body) throws Exception {
        byte[] bytes = RemotingSerializable.encode(body);
        tape.write("body", name, bytes,
            Tape.fields("class", body.getClass().getSimpleName(), "value", Tape.plain(bytes)));
    }

    private static void routes(Tape tape) throws Exception {
        HashMap<Long, String> addresses = new HashMap<>();
        addresses.put(0L, "127.0.0.1:10911");
        addresses.put(1L, "127.0.0.1:10931");
        QueueData queues = new QueueData();
        queues.setBrokerName("broker-a");
        queues.setReadQueueNums(4);
        queues.setWriteQueueNums(4);
        queues.setPerm(6);
        TopicRouteData route = new TopicRouteData();
        route.setQueueDatas(List.of(queues));
        route.setBrokerDatas(List.of(new BrokerData("DefaultCluster", "broker-a", addresses)));
        route.setFilterServerTable(new HashMap<>());
        json(tape, "route", route);

        ClusterInfo cluster = new ClusterInfo();
        cluster.setBrokerAddrTable(new HashMap<>(Map.of("broker-a", new BrokerData("DefaultCluster", "broker-a", addresses))));
        cluster.setClusterAddrTable(new HashMap<>(Map.of("DefaultCluster", new LinkedHashSet<>(List.of("broker-a")))));
        json(tape, "cluster", cluster);
    }

    private static void registration(Tape tape) throws Exception {
        TopicConfigSerializeWrapper topics = new TopicConfigSerializeWrapper();
        ConcurrentMap<String, TopicConfig> table = new ConcurrentHashMap<>();
        table.put("TopicTest", new TopicConfig("TopicTest", 8, 4, 6));
        table.put("订单主题", new TopicConfig("订单主题", 1, 1, 2));
        topics.setTopicConfigTable(table);
        DataVersion version = new DataVersion();
        version.setTimestamp(T);
        version.setCounter(new AtomicLong(3));
        topics.setDataVersion(version);
        RegisterBrokerBody body = new RegisterBrokerBody();
        body.setTopicConfigSerializeWrapper(topics);
        body.setFilterServerList(List.of("127.0.0.1:40000"));
        for (boolean compressed : new boolean[] {false, true}) {
            byte[] bytes = body.encode(compressed);
            RegisterBrokerBody read = RegisterBrokerBody.decode(bytes, compressed);
            tape.write("register_body", compressed ? "registration, compressed" : "registration", bytes, Tape.fields(
                "compressed", compressed, "stable", !compressed, "version", MQVersion.CURRENT_VERSION,
                "value", Tape.plain(RemotingSerializable.encode(read))));
        }
    }

    private static void clients(Tape tape) throws Exception {
        ProducerData producer = new ProducerData();
        producer.setGroupName("producers");
        SubscriptionData subscription = FilterAPI.buildSubscriptionData("TopicTest", "TagA || TagB");
        subscription.setSubVersion(T);
        ConsumerData consumer = new ConsumerData();
        consumer.setGroupName("consumers");
        consumer.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        consumer.setMessageModel(MessageModel.CLUSTERING);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.setSubscriptionDataSet(new LinkedHashSet<>(List.of(subscription)));
        HeartbeatData heartbeat = new HeartbeatData();
        heartbeat.setClientID("192.168.1.10@4711");
        heartbeat.setProducerDataSet(new LinkedHashSet<>(List.of(producer)));
        heartbeat.setConsumerDataSet(new LinkedHashSet<>(List.of(consumer)));
        json(tape, "heartbeat", heartbeat);

        LockBatchRequestBody lock = new LockBatchRequestBody();
        lock.setConsumerGroup("consumers");
        lock.setClientId("c1");
        lock.setMqSet(new LinkedHashSet<>(List.of(queue(0), queue(1))));
        json(tape, "lock", lock);

        ResetOffsetBody reset = new ResetOffsetBody();
        reset.setOffsetTable(new LinkedHashMap<>(Map.of(queue(0), 7L)));
        json(tape, "reset offsets", reset);

        ConsumeStats stats = new ConsumeStats();
        OffsetWrapper wrapper = new OffsetWrapper();
        wrapper.setBrokerOffset(10);
        wrapper.setConsumerOffset(7);
        wrapper.setLastTimestamp(T);
        stats.setOffsetTable(new HashMap<>(Map.of(queue(3), wrapper)));
        json(tape, "consume stats", stats);

        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName("consumers");
        json(tape, "group, as made", group);
    }

    private static MessageQueue queue(int id) {
        return new MessageQueue("TopicTest", "broker-a", id);
    }

    // Bodies in which an object stands twice: fastjson 1 writes it once, and then a path to it.

    private static void shared(Tape tape) throws Exception {
        TopicOffset same = offset();
        shared(tape, "topic stats, the same offsets twice", stats(() -> same), stats(Recorder49::offset));
        ProcessQueueInfo one = process();
        shared(tape, "consumer running info, the same queue state twice", running(() -> one), running(Recorder49::process));
    }

    /** "value" is the text as it stands, "resolved" what it means: the same body made of distinct objects. */
    private static void shared(Tape tape, String name, Object body, Object distinct) throws Exception {
        byte[] bytes = RemotingSerializable.encode(body);
        tape.write("body", name, bytes, Tape.fields("class", body.getClass().getSimpleName(),
            "value", Tape.plain(bytes), "resolved", Tape.plain(RemotingSerializable.encode(distinct))));
    }

    private static TopicOffset offset() {
        TopicOffset offset = new TopicOffset();
        offset.setMinOffset(5);
        offset.setMaxOffset(9);
        offset.setLastUpdateTimestamp(T);
        return offset;
    }

    private static TopicStatsTable stats(Supplier<TopicOffset> offsets) {
        HashMap<MessageQueue, TopicOffset> table = new LinkedHashMap<>();
        table.put(queue(0), offsets.get());
        table.put(queue(1), offsets.get());
        TopicStatsTable stats = new TopicStatsTable();
        stats.setOffsetTable(table);
        return stats;
    }

    private static ProcessQueueInfo process() {
        ProcessQueueInfo process = new ProcessQueueInfo();
        process.setCommitOffset(7);
        process.setCachedMsgCount(3);
        process.setLastPullTimestamp(T);
        return process;
    }

    private static ConsumerRunningInfo running(Supplier<ProcessQueueInfo> processes) throws Exception {
        ConsumerRunningInfo info = new ConsumerRunningInfo();
        Properties properties = new Properties();
        properties.setProperty(ConsumerRunningInfo.PROP_CONSUME_TYPE, "CONSUME_PASSIVELY");
        info.setProperties(properties);
        SubscriptionData subscription = FilterAPI.buildSubscriptionData("TopicTest", "*");
        subscription.setSubVersion(T);
        info.setSubscriptionSet(new TreeSet<>(List.of(subscription)));
        TreeMap<MessageQueue, ProcessQueueInfo> table = new TreeMap<>();
        table.put(queue(0), processes.get());
        table.put(queue(1), processes.get());
        info.setMqTable(table);
        return info;
    }

    private static void properties(Tape tape) throws Exception {
        Map<String, String> map = new LinkedHashMap<>();
        map.put("KEYS", "k1 k2");
        map.put("TAGS", "标签");
        String text = MessageDecoder.messageProperties2String(map);
        // 4.9 leaves out the last separator.
        tape.write("properties", "two", Tape.utf8(text), Tape.fields(
            "properties", MessageDecoder.string2messageProperties(text), "parse_only", true));
    }
}
