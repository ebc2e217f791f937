import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32;
import org.apache.rocketmq.common.message.MessageExt;

/** What a consumer got, in the order in which it came, until somebody asks for it. */
final class Inbox {
    private static final int SHORT = 200;

    private final BlockingQueue<Words> arrived = new LinkedBlockingQueue<>();

    void add(MessageExt message) {
        arrived.add(describe(message));
    }

    /** The next ones: fewer than count only if the time is up. */
    List<Words> take(int count, int seconds) throws InterruptedException {
        List<Words> taken = new ArrayList<>();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (taken.size() < count) {
            Words next = arrived.poll(end - System.nanoTime(), TimeUnit.NANOSECONDS);
            if (next == null) {
                break;
            }
            taken.add(next);
        }
        return taken;
    }

    static Words describe(MessageExt message) {
        byte[] body = message.getBody();
        String start = new String(body, 0, Math.min(body.length, SHORT), StandardCharsets.UTF_8);
        Words words = new Words()
            .with("topic", message.getTopic())
            .with("body", start)
            .with("size", body.length)
            .with("crc", crc(body))
            .with("tag", message.getTags())
            .with("keys", message.getKeys())
            .with("queue", message.getQueueId())
            .with("offset", message.getQueueOffset())
            .with("tries", message.getReconsumeTimes())
            .with("id", message.getMsgId())
            .with("flag", message.getFlag())
            .with("born", message.getBornTimestamp())
            .with("stored", message.getStoreTimestamp())
            .with("arrived", System.currentTimeMillis());
        message.getProperties().forEach((name, value) -> words.with("property." + name, value));
        return words;
    }

    static long crc(byte[] body) {
        CRC32 crc = new CRC32();
        crc.update(body);
        return crc.getValue();
    }
}
