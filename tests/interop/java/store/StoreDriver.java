import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Writes messages to one broker and asks for them in every way a client can. Run with the name server's address, the
 * cluster, the broker's name and its address. Reads one JSON array per line, answers each with one line of JSON:
 *
 *   ["topic", TOPIC, QUEUES]                  -> []
 *   ["group", GROUP]                          -> []
 *   ["send", TOPIC, QUEUE, [MESSAGE …]]       -> {"queue", "offset", "ids", "offsetIds"}; several messages are a batch
 *   ["queue", TOPIC, QUEUE]                   -> {"min", "max", "messages": [every message as it was pulled]}
 *   ["search", TOPIC, QUEUE, [TIME …]]        -> [[lower, upper] …]
 *   ["find", TOPIC, OFFSET_ID, [UNIQUE …], [KEY …], BEGIN, END]
 *                                             -> {"id": offset, "keys": [[offset …] for each, unique ones first]}
 *   ["commit", GROUP, TOPIC, QUEUE, OFFSET]   -> []
 *   ["committed", GROUP, TOPIC, QUEUE]        -> offset
 *
 * or {"error": REASON}. A MESSAGE is {"tags", "keys", "flag", "properties", "delay", "body" in base64}. Offsets that
 * "find" answers are those in the commit log.
 */
public final class StoreDriver {
    private final String cluster;
    private final String broker;
    private final String address;
    private final DefaultMQProducer producer = new DefaultMQProducer("store-producers");
    private final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("store-consumers");
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt("store-admin", 30_000);

    private StoreDriver(String nameServers, String cluster, String broker, String address) throws Exception {
        this.cluster = cluster;
        this.broker = broker;
        this.address = address;
        producer.setNamesrvAddr(nameServers);
        producer.setSendMsgTimeout(30_000);
        producer.setMqClientApiTimeout(30_000);
        producer.start();
        consumer.setNamesrvAddr(nameServers);
        consumer.setMqClientApiTimeout(30_000);
        consumer.start();
        admin.setNamesrvAddr(nameServers);
        admin.start();
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        StoreDriver driver = new StoreDriver(args[0], args[1], args[2], args[3]);
        answers.println("ready");
        answers.flush();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.println(JSON.toJSONString(driver.answer(JSON.parseArray(line))));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private Object answer(JSONArray command) {
        try {
            return switch (command.getString(0)) {
                case "topic" -> makeTopic(command.getString(1), command.getIntValue(2));
                case "group" -> makeGroup(command.getString(1));
                case "send" -> send(command.getString(1), command.getIntValue(2), command.getJSONArray(3));
                case "queue" -> queue(mq(command.getString(1), command.getIntValue(2)));
                case "search" -> search(mq(command.getString(1), command.getIntValue(2)), command.getJSONArray(3));
                case "find" -> find(command);
                case "commit" -> commit(command.getString(1), mq(command.getString(2), command.getIntValue(3)),
                    command.getLongValue(4));
                case "committed" -> committed(command.getString(1), command.getString(2), command.getIntValue(3));
                default -> throw new IllegalArgumentException(command.getString(0));
            };
        } catch (Exception e) {
            return JSONObject.of("error", e.toString());
        }
    }

    private MessageQueue mq(String topic, int queue) {
        return new MessageQueue(topic, broker, queue);
    }

    private Object makeTopic(String topic, int queues) throws Exception {
        admin.createAndUpdateTopicConfig(address, new TopicConfig(topic, queues, queues));
        return List.of();
    }

    private Object makeGroup(String group) throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group);
        admin.createAndUpdateSubscriptionGroupConfig(address, config);
        return List.of();
    }

    private Object send(String topic, int queue, JSONArray messages) throws Exception {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < messages.size(); i++) {
            batch.add(message(topic, messages.getJSONObject(i)));
        }
        SendResult result = batch.size() == 1
            ? producer.send(batch.get(0), mq(topic, queue)) : producer.send(batch, mq(topic, queue));
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.toString());
        }
        return JSONObject.of("queue", result.getMessageQueue().getQueueId(), "offset", result.getQueueOffset(),
            "ids", result.getMsgId(), "offsetIds", result.getOffsetMsgId());
    }

    private static Message message(String topic, JSONObject wanted) {
        Message message = new Message(topic, Base64.getDecoder().decode(wanted.getString("body")));
        if (wanted.getString("tags") != null) {
            message.setTags(wanted.getString("tags"));
        }
        if (!wanted.getJSONArray("keys").isEmpty()) {
            message.setKeys(wanted.getJSONArray("keys").toJavaList(String.class));
        }
        message.setFlag(wanted.getIntValue("flag"));
        wanted.getJSONObject("properties").forEach((name, value) -> message.putUserProperty(name, (String) value));
        if (wanted.getIntValue("delay") > 0) {
            message.setDelayTimeLevel(wanted.getIntValue("delay"));
        }
        return message;
    }

    private Object queue(MessageQueue queue) throws Exception {
        long min = admin.minOffset(queue);
        long max = admin.maxOffset(queue);
        List<JSONObject> messages = new ArrayList<>();
        for (long at = min; at < max; ) {
            PullResult pulled = consumer.pull(queue, "*", at, 32, 20_000);
            if (pulled.getPullStatus() != PullStatus.FOUND) {
                throw new IllegalStateException(queue + " at " + at + ": " + pulled);
            }
            for (MessageExt message : pulled.getMsgFoundList()) {
                if (message.getQueueOffset() < max) {  // what was delivered meanwhile is for the next time
                    messages.add(describe(message));
                }
            }
            at = pulled.getNextBeginOffset();
        }
        return JSONObject.of("min", min, "max", max, "messages", messages);
    }

    private static JSONObject describe(MessageExt message) throws Exception {
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(message.getBody());
        JSONObject described = new JSONObject();
        described.put("topic", message.getTopic());
        described.put("queue", message.getQueueId());
        described.put("offset", message.getQueueOffset());
        described.put("physical", message.getCommitLogOffset());
        described.put("size", message.getStoreSize());
        described.put("crc", message.getBodyCRC());
        described.put("flag", message.getFlag());
        described.put("sysFlag", message.getSysFlag());
        described.put("born", message.getBornTimestamp());
        described.put("stored", message.getStoreTimestamp());
        described.put("digest", HexFormat.of().formatHex(digest));
        described.put("properties", message.getProperties());
        return described;
    }

    private Object search(MessageQueue queue, JSONArray times) throws Exception {
        List<List<Long>> found = new ArrayList<>();
        for (int i = 0; i < times.size(); i++) {
            long time = times.getLongValue(i);
            found.add(List.of(admin.searchLowerBoundaryOffset(queue, time), admin.searchUpperBoundaryOffset(queue, time)));
        }
        return found;
    }

    private Object find(JSONArray command) throws Exception {
        String topic = command.getString(1);
        long begin = command.getLongValue(5);
        long end = command.getLongValue(6);
        MessageExt byId = admin.viewMessage(topic, command.getString(2));
        List<List<Long>> byKeys = new ArrayList<>();
        for (String unique : command.getJSONArray(3).toJavaList(String.class)) {
            byKeys.add(offsets(admin.queryMessageByUniqKey(cluster, topic, unique, 32, begin, end).getMessageList()));
        }
        for (String key : command.getJSONArray(4).toJavaList(String.class)) {
            byKeys.add(offsets(admin.queryMessage(topic, key, 64, begin, end).getMessageList()));
        }
        return JSONObject.of("id", byId.getCommitLogOffset(), "keys", byKeys);
    }

    private static List<Long> offsets(List<MessageExt> messages) {
        return messages.stream().map(MessageExt::getCommitLogOffset).toList();
    }

    private Object commit(String group, MessageQueue queue, long offset) throws Exception {
        admin.updateConsumeOffset(address, group, queue, offset);
        return List.of();
    }

    private Object committed(String group, String topic, int queue) throws Exception {
        return admin.examineConsumeStats(address, group, topic, 20_000).getOffsetTable().get(mq(topic, queue)).getConsumerOffset();
    }
}
