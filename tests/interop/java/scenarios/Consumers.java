import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Push consumers, by the names that the test gave them. */
final class Consumers {
    /**
     * A new consumer tells the broker of its queues a second after its start, which is when the first regular heartbeat
     * is due, too. If they meet, the former is left out, and its pulls are refused until the next heartbeat comes.
     */
    private static final int HEARTBEAT_MS = 3_000;

    private final Map<String, DefaultMQPushConsumer> consumers = new ConcurrentHashMap<>();
    private final Map<String, Inbox> inboxes = new ConcurrentHashMap<>();
    private final Senders senders;

    Consumers(Senders senders) {
        this.senders = senders;
    }

    /**
     * consume: a consumer that notes what it gets. fail=N makes the first N deliveries of each message fail, fail=-1
     * all; trace=TOPIC records traces there; sql=… filters by an expression, of the type SQL92 or type=…; reply=1
     * answers each message with the same body, in capitals; short=1 leaves subscriptions that are the same out of
     * heartbeats; ask=1 asks the broker for the queues.
     */
    void consume(Words words) throws Exception {
        String name = words.text("name");
        DefaultMQPushConsumer consumer = words.has("trace")
            ? new DefaultMQPushConsumer(words.text("group"), true, words.text("trace"))
            : new DefaultMQPushConsumer(words.text("group"));
        consumer.setNamesrvAddr(words.text("ns"));
        consumer.setMqClientApiTimeout(Senders.PATIENCE_MS);
        consumer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        consumer.setInstanceName(words.text("instance", name + "-" + ProcessHandle.current().pid()));
        consumer.setConsumeFromWhere(where(words.text("where", "first")));
        if (words.has("timestamp")) {
            consumer.setConsumeTimestamp(words.text("timestamp"));
        }
        if (words.has("model")) {
            setModel(consumer, words.text("model"));
        }
        if (words.has("max")) {
            consumer.setMaxReconsumeTimes(words.number("max", -1));
        }
        if (words.has("short")) { // the client of 4.9 has no method for it
            consumer.getClass().getMethod("setUseHeartbeatV2", boolean.class).invoke(consumer, true);
        }
        if (words.has("ask")) {
            consumer.getClass().getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        }
        consumer.setSuspendCurrentQueueTimeMillis(words.number("suspend", 1000));
        if (words.has("sql")) {
            consumer.subscribe(words.text("topic"), selector(words.text("type", "SQL92"), words.text("sql")));
        } else {
            consumer.subscribe(words.text("topic"), words.text("tags", "*"));
        }
        Inbox inbox = new Inbox();
        Failing failing = new Failing(words.number("fail", 0));
        if (words.has("order")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(inbox::add);
                return failing.fails(messages)
                    ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            DefaultMQProducer replier = words.has("reply") ? senders.producer(words.with("group", "repliers")) : null;
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(inbox::add);
                if (replier != null) {
                    messages.forEach(message -> reply(replier, message));
                }
                return failing.fails(messages)
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        inboxes.put(name, inbox);
        consumers.put(name, consumer);
        consumer.start();
    }

    private static ConsumeFromWhere where(String word) {
        return switch (word) {
            case "first" -> ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET;
            case "last" -> ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET;
            default -> ConsumeFromWhere.CONSUME_FROM_TIMESTAMP;
        };
    }

    /** A selector of any type: the public methods make those of the known ones alone. */
    private static MessageSelector selector(String type, String expression) throws Exception {
        Constructor<MessageSelector> maker = MessageSelector.class.getDeclaredConstructor(String.class, String.class);
        maker.setAccessible(true);
        return maker.newInstance(type, expression);
    }

    /** The model's class is not in the same package in all versions. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void setModel(DefaultMQPushConsumer consumer, String model) throws Exception {
        Method setter = Arrays.stream(DefaultMQPushConsumer.class.getMethods())
            .filter(method -> method.getName().equals("setMessageModel")).findFirst().orElseThrow();
        setter.invoke(consumer, Enum.valueOf((Class<Enum>) setter.getParameterTypes()[0], model));
    }

    private static void reply(DefaultMQProducer replier, MessageExt message) {
        try {
            String body = new String(message.getBody(), StandardCharsets.UTF_8).toUpperCase();
            replier.send(MessageUtil.createReplyMessage(message, body.getBytes(StandardCharsets.UTF_8)));
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }

    List<Words> received(Words words) throws InterruptedException {
        return inboxes.get(words.text("name")).take(words.number("count", 1), words.number("seconds", 30));
    }

    /** held: the queues that a consumer has at present. */
    List<Words> held(Words words) {
        return consumers.get(words.text("name")).getDefaultMQPushConsumerImpl().getRebalanceImpl()
            .getProcessQueueTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(words.text("topic")))
            .map(queue -> new Words().with("queue", queue.getQueueId())).toList();
    }

    boolean close(Words words) {
        DefaultMQPushConsumer consumer = consumers.remove(words.text("name"));
        if (consumer != null) {
            consumer.shutdown();
        }
        return consumer != null;
    }

    /** A listener's failures: so many for each message. */
    private static final class Failing {
        private final int times;
        private final Map<String, AtomicInteger> seen = new ConcurrentHashMap<>();

        Failing(int times) {
            this.times = times;
        }

        boolean fails(List<MessageExt> messages) {
            boolean failed = false;
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                int before = seen.computeIfAbsent(body, key -> new AtomicInteger()).getAndIncrement();
                failed |= times < 0 || before < times;
            }
            return failed;
        }
    }
}
