import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer and consumers of the Java client (any version), told what to do line by line:
 *
 *   send TOPIC PREFIX COUNT               -> ok COUNT
 *   receive TOPIC GROUP COUNT SECONDS     -> ok BODY BODY …
 *
 * or "failed REASON". Run with the name server addresses. Bodies are PREFIX-0, PREFIX-1 …; "receive" answers with
 * all that came once COUNT are there or the time is up.
 */
public final class ClientDriver {
    private final String nameServers;
    private final DefaultMQProducer producer = new DefaultMQProducer("interop-producers");

    private ClientDriver(String nameServers) throws Exception {
        this.nameServers = nameServers;
        producer.setNamesrvAddr(nameServers);
        producer.setSendMsgTimeout(10_000);
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
                case "receive" -> "ok " + String.join(" ",
                    receive(words[1], words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4])));
                default -> "failed no such command";
            };
        } catch (Exception e) {
            return ("failed " + e).replace('\n', ' ');
        }
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

    private List<String> receive(String topic, String group, int count, int seconds) throws Exception {
        BlockingQueue<String> arrived = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                arrived.add(new String(message.getBody(), StandardCharsets.UTF_8));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        List<String> bodies = new ArrayList<>();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (bodies.size() < count) {
            String body = arrived.poll(end - System.nanoTime(), TimeUnit.NANOSECONDS);
            if (body == null) {
                break;
            }
            bodies.add(body);
        }
        return bodies;
    }
}
