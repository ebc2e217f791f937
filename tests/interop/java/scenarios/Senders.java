import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageQueue;

/** Producers, one for each name server and group. */
final class Senders {
    static final int PATIENCE_MS = 20_000;

    private final Map<String, DefaultMQProducer> producers = new HashMap<>();

    DefaultMQProducer producer(Words words) throws Exception {
        String group = words.text("group", "scenario-producers");
        String key = words.text("ns") + " " + group;
        DefaultMQProducer producer = producers.get(key);
        if (producer == null) {
            producer = words.has("trace")
                ? new DefaultMQProducer(group, true, words.text("trace")) : new DefaultMQProducer(group);
            producer.setNamesrvAddr(words.text("ns"));
            producer.setInstanceName("producer-" + producers.size() + "-" + ProcessHandle.current().pid());
            producer.setSendMsgTimeout(PATIENCE_MS);
            producer.setMqClientApiTimeout(PATIENCE_MS);
            producer.setRetryTimesWhenSendFailed(words.number("retries", 5));
            producer.start();
            awaitRoutes(producer);
            producers.put(key, producer);
        }
        return producer;
    }

    /** On a busy machine the first question to a name server may take longer than the client waits for it. */
    static void awaitRoutes(DefaultMQProducer producer) throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (true) {
            try {
                producer.fetchPublishMessageQueues("TBW102");
                return;
            } catch (MQClientException unknown) {
                if (System.currentTimeMillis() > end) {
                    throw unknown;
                }
            }
        }
    }

    /** send: how=sync|async|oneway|batch|queue|hash, count messages with the bodies PREFIX-0, PREFIX-1 … */
    List<Words> send(Words words) throws Exception {
        DefaultMQProducer producer = producer(words);
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < words.number("count", 1); i++) {
            messages.add(message(words, i));
        }
        if (words.text("how", "sync").equals("batch")) {
            return List.of(describe(producer.send(messages), messages.get(0)));
        }
        List<CompletableFuture<Words>> results = new ArrayList<>();
        for (Message message : messages) {
            results.add(sendOne(producer, message, words));
        }
        List<Words> done = new ArrayList<>();
        for (CompletableFuture<Words> result : results) {
            done.add(result.get(PATIENCE_MS, TimeUnit.MILLISECONDS));
        }
        return done;
    }

    private CompletableFuture<Words> sendOne(DefaultMQProducer producer, Message message, Words words)
        throws Exception {
        CompletableFuture<Words> done = new CompletableFuture<>();
        switch (words.text("how", "sync")) {
            case "sync" -> done.complete(describe(producer.send(message), message));
            case "async" -> producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    done.complete(describe(result, message));
                }

                @Override
                public void onException(Throwable problem) {
                    done.completeExceptionally(problem);
                }
            });
            case "oneway" -> {
                producer.sendOneway(message);
                done.complete(new Words().with("status", "SENT").with("crc", Inbox.crc(message.getBody())));
            }
            case "queue" -> done.complete(describe(producer.send(message, queue(producer, words)), message));
            case "hash" -> done.complete(
                describe(producer.send(message, new SelectMessageQueueByHash(), words.text("key")), message));
            default -> throw new IllegalArgumentException("how=" + words.text("how"));
        }
        return done;
    }

    private static MessageQueue queue(DefaultMQProducer producer, Words words) throws Exception {
        int wanted = words.number("queue", 0);
        return producer.fetchPublishMessageQueues(words.text("topic")).stream()
            .filter(queue -> queue.getQueueId() == wanted)
            .findFirst().orElseThrow(() -> new IllegalArgumentException("no queue " + wanted));
    }

    static Message message(Words words, int number) {
        Message message = new Message(words.text("topic"), body(words, number));
        if (words.has("tag")) {
            message.setTags(words.text("tag"));
        }
        if (words.has("keys")) {
            message.setKeys(words.text("keys"));
        }
        if (words.has("flag")) {
            message.setFlag(words.number("flag", 0));
        }
        if (words.has("delay")) {
            message.setDelayTimeLevel(words.number("delay", 0));
        }
        if (words.has("timer")) { // the client of 4.9 has no method for it
            MessageAccessor.putProperty(message, "TIMER_DELAY_MS", words.text("timer"));
        }
        words.all().forEach((name, value) -> {
            if (name.startsWith("property.")) {
                message.putUserProperty(name.substring("property.".length()), value);
            }
        });
        return message;
    }

    /** The name of the message; with a size, followed by letters (which compress well) or by noise (which does not). */
    private static byte[] body(Words words, int number) {
        byte[] name = (words.text("prefix") + "-" + number).getBytes(StandardCharsets.UTF_8);
        if (!words.has("size")) {
            return name;
        }
        byte[] body = new byte[words.number("size", 0)];
        if (words.text("fill", "letters").equals("noise")) {
            new Random(number).nextBytes(body);
        } else {
            Arrays.fill(body, (byte) 'x');
        }
        System.arraycopy(name, 0, body, 0, name.length);
        body[name.length] = ' ';
        return body;
    }

    static Words describe(SendResult result, Message message) {
        MessageQueue queue = result.getMessageQueue();
        return new Words()
            .with("status", result.getSendStatus())
            .with("id", result.getMsgId())
            .with("offsetId", result.getOffsetMsgId())
            .with("queue", queue.getQueueId())
            .with("broker", queue.getBrokerName())
            .with("offset", result.getQueueOffset())
            .with("region", result.getRegionId())
            .with("crc", Inbox.crc(message.getBody()));
    }

    /** request: waits for somebody's reply. */
    Words request(Words words) throws Exception {
        Message reply = producer(words).request(message(words, 0), words.number("seconds", 10) * 1000L);
        return new Words().with("body", new String(reply.getBody(), StandardCharsets.UTF_8));
    }
}
