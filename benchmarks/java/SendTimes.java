import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Threads that send and wait, and how long each send took. */
final class SendTimes {
    private long[] values = new long[1024];
    private int count;
    private long errors;

    /** Answers "MESSAGES NANOSECONDS ERRORS P99", the last in nanoseconds of a send. */
    static String of(DefaultMQProducer producer, String topic, int threads, int size, double seconds)
        throws InterruptedException {
        byte[] body = new byte[size];
        List<SendTimes> all = new ArrayList<>();
        List<Thread> senders = new ArrayList<>();
        long from = System.nanoTime();
        long end = from + (long) (seconds * 1e9);
        for (int i = 0; i < threads; i++) {
            SendTimes mine = new SendTimes();
            all.add(mine);
            senders.add(new Thread(() -> mine.run(producer, topic, body, end)));
        }
        for (Thread sender : senders) {
            sender.start();
        }
        for (Thread sender : senders) {
            sender.join();
        }
        long spent = System.nanoTime() - from;
        long[] times = all.stream().flatMapToLong(one -> Arrays.stream(one.values, 0, one.count)).toArray();
        Arrays.sort(times);
        long p99 = times.length == 0 ? 0 : times[Math.min((int) (times.length * 0.99), times.length - 1)];
        return times.length + " " + spent + " " + all.stream().mapToLong(one -> one.errors).sum() + " " + p99;
    }

    private void run(DefaultMQProducer producer, String topic, byte[] body, long end) {
        for (long begin = System.nanoTime(); begin < end; begin = System.nanoTime()) {
            try {
                producer.send(new Message(topic, body));
                add(System.nanoTime() - begin);
            } catch (Exception e) {
                errors++;
            }
        }
    }

    private void add(long value) {
        if (count == values.length) {
            values = Arrays.copyOf(values, 2 * count);
        }
        values[count++] = value;
    }
}
