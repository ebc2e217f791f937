import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Puts brokers under load with Apache's client, as it is told line by line:
 *
 *   server NAME ADDRESS                         a producer for the brokers of this name server
 *   send NAME TOPIC THREADS BATCH BODY SECONDS  each thread sends and waits; answers "ok MESSAGES NANOSECONDS ERRORS"
 *   timed NAME TOPIC THREADS BODY SECONDS DELAY the same with messages that are due DELAY ms later, and up to a second
 *                                               more; answers when all of them are in their topic
 *   commit NAME TOPIC THREADS BODY SECONDS      the same with transactions, each of which is committed
 *   times NAME TOPIC THREADS BODY SECONDS       the same; answers "ok MESSAGES NANOSECONDS ERRORS P99", see SendTimes
 *   fill NAME TOPIC COUNT BODY                  a backlog; answers "ok"
 *   drain NAME TOPIC SKIP COUNT                 answers "begin" after SKIP messages, "end MESSAGES NANOSECONDS" after
 *                                               COUNT more, then "ok"
 *
 * One process loads all brokers, so that its own warm-up counts for none of them.
 */
public final class BrokerLoad {
    private static final Map<String, String> ADDRESSES = new HashMap<>();
    private static final Map<String, DefaultMQProducer> PRODUCERS = new HashMap<>();
    private static final Map<String, TransactionMQProducer> PAYERS = new HashMap<>();
    private static int groups;

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "server" -> server(words[1], words[2]);
                case "send" -> send(words[1], words[2], number(words[3]), number(words[4]), number(words[5]),
                    Double.parseDouble(words[6]));
                case "timed" -> timed(words[1], words[2], number(words[3]), number(words[4]),
                    Double.parseDouble(words[5]), number(words[6]));
                case "commit" -> commit(words[1], words[2], number(words[3]), number(words[4]),
                    Double.parseDouble(words[5]));
                case "times" -> times(words[1], words[2], number(words[3]), number(words[4]),
                    Double.parseDouble(words[5]));
                case "fill" -> fill(words[1], words[2], number(words[3]), number(words[4]));
                case "drain" -> drain(words[1], words[2], number(words[3]), number(words[4]));
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.exit(0);
    }

    private static int number(String word) {
        return Integer.parseInt(word);
    }

    private static void server(String name, String address) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("load");
        producer.setNamesrvAddr(address);
        producer.setInstanceName(name);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        ADDRESSES.put(name, address);
        PRODUCERS.put(name, producer);
        System.out.println("ok");
    }

    /** Until a send succeeds: then the topic is there, and its route is known. */
    private static void open(DefaultMQProducer producer, String topic) throws Exception {
        for (int tries = 0; ; tries++) {
            try {
                producer.send(new Message(topic, new byte[16]));
                return;
            } catch (Exception e) {
                if (tries == 100) {
                    throw e;
                }
                Thread.sleep(100);
            }
        }
    }

    private static void sendOnce(DefaultMQProducer producer, String topic, int batch, byte[] body) throws Exception {
        if (batch == 1) {
            producer.send(new Message(topic, body));
        } else {
            List<Message> messages = new ArrayList<>(batch);
            for (int i = 0; i < batch; i++) {
                messages.add(new Message(topic, body));
            }
            producer.send(messages);
        }
    }

    /** Sends something once. */
    private interface Sending {
        void send() throws Exception;
    }

    /** Each thread sends and waits: how often that succeeded, how long it took, how often it failed. */
    private static long[] load(int threads, double seconds, Sending sending) throws Exception {
        AtomicLong sent = new AtomicLong();
        AtomicLong errors = new AtomicLong();
        List<Thread> senders = new ArrayList<>();
        long from = System.nanoTime();
        long end = from + (long) (seconds * 1e9);
        for (int i = 0; i < threads; i++) {
            Thread sender = new Thread(() -> {
                long mine = 0;
                while (System.nanoTime() < end) {
                    try {
                        sending.send();
                        mine++;
                    } catch (Exception e) {
                        errors.incrementAndGet();
                    }
                }
                sent.addAndGet(mine);
            });
            senders.add(sender);
            sender.start();
        }
        for (Thread sender : senders) {
            sender.join();
        }
        return new long[] {sent.get(), System.nanoTime() - from, errors.get()};
    }

    private static void send(String name, String topic, int threads, int batch, int size, double seconds)
        throws Exception {
        DefaultMQProducer producer = PRODUCERS.get(name);
        open(producer, topic);
        byte[] body = new byte[size];
        long[] done = load(threads, seconds, () -> sendOnce(producer, topic, batch, body));
        System.out.println("ok " + done[0] * batch + " " + done[1] + " " + done[2]);
    }

    private static void timed(String name, String topic, int threads, int size, double seconds, int delay)
        throws Exception {
        DefaultMQProducer producer = PRODUCERS.get(name);
        open(producer, topic);
        byte[] body = new byte[size];
        long before = messagesOf(producer, topic);
        long[] done = load(threads, seconds, () -> {
            Message message = new Message(topic, body);
            message.setDeliverTimeMs(
                System.currentTimeMillis() + delay + ThreadLocalRandom.current().nextInt(1000));
            producer.send(message);
        });
        await(producer, topic, before + done[0]);
        System.out.println("ok " + done[0] + " " + done[1] + " " + done[2]);
    }

    private static void commit(String name, String topic, int threads, int size, double seconds) throws Exception {
        TransactionMQProducer producer = PAYERS.get(name);
        if (producer == null) {
            producer = new TransactionMQProducer("payers");
            producer.setNamesrvAddr(ADDRESSES.get(name));
            producer.setInstanceName(name + "-payers");
            producer.setSendMsgTimeout(10_000);
            producer.setTransactionListener(new Committing());
            producer.start();
            PAYERS.put(name, producer);
        }
        open(producer, topic);
        TransactionMQProducer payer = producer;
        byte[] body = new byte[size];
        long before = messagesOf(payer, topic);
        long[] done = load(threads, seconds, () -> payer.sendMessageInTransaction(new Message(topic, body), null));
        await(payer, topic, before + done[0]);
        System.out.println("ok " + done[0] + " " + done[1] + " " + done[2]);
    }

    /** Commits every transaction. */
    private static final class Committing implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }

    /** How many messages a topic has. */
    private static long messagesOf(DefaultMQProducer producer, String topic) throws Exception {
        long count = 0;
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
            count += producer.maxOffset(queue);
        }
        return count;
    }

    /** Until a topic has so many messages. */
    private static void await(DefaultMQProducer producer, String topic, long count) throws Exception {
        long end = System.nanoTime() + 120_000_000_000L;
        while (messagesOf(producer, topic) < count) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException(topic + " has " + messagesOf(producer, topic) + " of " + count);
            }
            Thread.sleep(100);
        }
    }

    private static void fill(String name, String topic, int count, int size) throws Exception {
        DefaultMQProducer producer = PRODUCERS.get(name);
        open(producer, topic);
        byte[] body = new byte[size];
        AtomicLong left = new AtomicLong(count);
        List<Thread> senders = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            Thread sender = new Thread(() -> {
                while (left.getAndAdd(-32) > 0) {
                    for (boolean done = false; !done; ) {
                        try {
                            sendOnce(producer, topic, 32, body);
                            done = true;
                        } catch (Exception e) {
                            Thread.onSpinWait();
                        }
                    }
                }
            });
            senders.add(sender);
            sender.start();
        }
        for (Thread sender : senders) {
            sender.join();
        }
        System.out.println("ok");
    }

    private static void times(String name, String topic, int threads, int size, double seconds) throws Exception {
        open(PRODUCERS.get(name), topic);
        System.out.println("ok " + SendTimes.of(PRODUCERS.get(name), topic, threads, size, seconds));
    }

    private static void drain(String name, String topic, int skip, int count) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("drain" + System.nanoTime());
        consumer.setNamesrvAddr(ADDRESSES.get(name));
        consumer.setInstanceName(name + "-" + ++groups);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.subscribe(topic, "*");
        AtomicLong got = new AtomicLong();
        long[] times = new long[2];
        long[] counts = new long[2];
        CountDownLatch[] marks = {new CountDownLatch(1), new CountDownLatch(1)};
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long after = got.addAndGet(messages.size());
            long before = after - messages.size();
            for (int i = 0; i < 2; i++) {
                long mark = i == 0 ? skip : skip + count;
                if (before < mark && after >= mark) {
                    counts[i] = after;
                    times[i] = System.nanoTime();
                    marks[i].countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        marks[0].await(120, TimeUnit.SECONDS);
        System.out.println("begin");
        marks[1].await(120, TimeUnit.SECONDS);
        System.out.println("end " + (counts[1] - counts[0]) + " " + (times[1] - times[0]));
        consumer.shutdown();
        System.out.println("ok");
    }
}
