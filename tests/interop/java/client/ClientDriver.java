import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer and consumers of the Java client (any version), told what to do line by line:
 *
 *   send TOPIC PREFIX COUNT         -> ok COUNT
 *   subscribe TOPIC GROUP           -> ok GROUP
 *   receive GROUP COUNT SECONDS     -> ok BODY BODY …
 *   as ACCESS_KEY SECRET            -> ok ACCESS_KEY         from now on, requests are signed
 *
 * or "failed REASON". Run with the name server addresses. Bodies are PREFIX-0, PREFIX-1 …; "receive" answers when
 * COUNT have come since the last one, or with fewer when the time is up.
 */
public final class ClientDriver {
    /** Far longer than the client's own three seconds: a busy machine is no failure. */
    private static final int PATIENCE_MS = 30_000;

    /** Until the next heartbeat, the pulls of a new consumer are refused if its first ones met each other. */
    private static final int HEARTBEAT_MS = 3_000;

    private final String nameServers;
    private final Map<String, BlockingQueue<String>> arrived = new HashMap<>();
    private final Signing signing = new Signing();
    private final DefaultMQProducer producer = new DefaultMQProducer("interop-producers", signing);

    private ClientDriver(String nameServers) throws Exception {
        this.nameServers = nameServers;
        producer.setNamesrvAddr(nameServers);
        producer.setSendMsgTimeout(PATIENCE_MS);
        producer.setMqClientApiTimeout(PATIENCE_MS);
        producer.start();
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        ClientDriver driver = new ClientDriver(args[0]);
        answers.println("ready");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.println(driver.answer(line.split(" ")));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private String answer(String[] words) {
        try {
            return switch (words[0]) {
                case "send" -> "ok " + send(words[1], words[2], Integer.parseInt(words[3]));
                case "as" -> "ok " + as(words[1], words[2]);
                case "subscribe" -> "ok " + subscribe(words[1], words[2]);
                case "receive" -> "ok " + String.join(" ",
                    receive(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3])));
                default -> "failed no such command";
            };
        } catch (Exception e) {
            return ("failed " + e + " " + e.getCause()).replace('\n', ' ');
        }
    }

    private String as(String accessKey, String secret) {
        signing.use(accessKey, secret);
        return accessKey;
    }

    private int send(String topic, String prefix, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            byte[] body = (prefix + "-" + i).getBytes(StandardCharsets.UTF_8);
            SendResult result = producer.send(new Message(topic, "interop", body));
            if (result.getSendStatus() != SendStatus.SEND_OK) {
                throw new IllegalStateException(result.toString());
            }
        }
        return count;
    }

    private String subscribe(String topic, String group) throws Exception {
        BlockingQueue<String> queue = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(group, signing, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameServers);
        consumer.setMqClientApiTimeout(PATIENCE_MS);
        consumer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                queue.add(new String(message.getBody(), StandardCharsets.UTF_8));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        arrived.put(group, queue);
        return group;
    }

    private List<String> receive(String group, int count, int seconds) throws Exception {
        List<String> bodies = new ArrayList<>();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (bodies.size() < count) {
            String body = arrived.get(group).poll(end - System.nanoTime(), TimeUnit.NANOSECONDS);
            if (body == null) {
                break;
            }
            bodies.add(body);
        }
        return bodies;
    }
}
