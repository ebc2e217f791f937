import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.index.IndexFile;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.queue.ReferredIterator;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Does with the real classes what a script says, to queue and index files in a folder, and prints what they answer.
 *
 * A line of the script is a command and its arguments, split by tabs; each question is answered by a line.
 */
public final class QueueFiles {
    private final String folder;
    private final int queueEntries;
    private final int extSize;
    private final int slots;
    private final int indexEntries;
    private final Store store;
    private final Map<String, ConsumeQueue> queues = new HashMap<>();
    private final List<IndexFile> index = new ArrayList<>();
    private ConsumeQueueExt ext;

    private QueueFiles(String folder, String home, int queueEntries, int extSize, int slots, int indexEntries)
        throws Exception {
        this.folder = folder;
        this.queueEntries = queueEntries;
        this.extSize = extSize;
        this.slots = slots;
        this.indexEntries = indexEntries;
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(home);
        config.setStorePathCommitLog(home + File.separator + "commitlog");
        config.setMappedFileSizeCommitLog(1 << 20);
        BrokerConfig broker = new BrokerConfig();
        store = new Store(config, broker);
        store.load();
        store.log = new Log(store);
    }

    /** A log of which only the store times of its records are known. */
    private static final class Log extends CommitLog {
        private final Map<Long, Long> times = new HashMap<>();
        private long start;

        Log(DefaultMessageStore store) {
            super(store);
        }

        @Override
        public long pickupStoreTimestamp(long offset, int size) {
            return offset >= start ? times.getOrDefault(offset, -1L) : -1;
        }
    }

    private static final class Store extends DefaultMessageStore {
        private Log log;

        Store(MessageStoreConfig config, BrokerConfig broker) throws Exception {
            super(config, new BrokerStatsManager(broker), null, broker, new ConcurrentHashMap<>());
        }

        @Override
        public CommitLog getCommitLog() {
            return log == null ? super.getCommitLog() : log;
        }

        @Override
        public long getMinPhyOffset() {
            return log == null ? super.getMinPhyOffset() : log.start;
        }
    }

    public static void main(String[] arguments) throws Exception {
        int[] sizes = new int[4];
        for (int i = 0; i < 4; i++) {
            sizes[i] = Integer.parseInt(arguments[3 + i]);
        }
        QueueFiles files = new QueueFiles(arguments[0], arguments[1], sizes[0], sizes[1], sizes[2], sizes[3]);
        StringBuilder answers = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[2]), StandardCharsets.UTF_8)) {
            String answer = files.run(line.split("\t", -1));
            if (answer != null) {
                answers.append(answer).append('\n');
            }
        }
        files.flush();
        System.out.write(answers.toString().getBytes(StandardCharsets.UTF_8));
        System.out.flush();
        System.exit(0);
    }

    private String run(String[] words) throws Exception {
        switch (words[0]) {
            case "put":
                queue(words[1], words[2]).putMessagePositionInfoWrapper(new DispatchRequest(words[1],
                    Integer.parseInt(words[2]), number(words[3]), (int) number(words[4]), number(words[5]), 0,
                    number(words[6]), null, null, 0, 0, null));
                return null;
            case "stored":
                store.log.times.put(number(words[1]), number(words[2]));
                return null;
            case "time":
                return String.valueOf(
                    byTime(queue(words[1], words[2]), number(words[3]), number(words[4]), words[5]));
            case "queue":
                return describe(queue(words[1], words[2]), number(words[3]));
            case "key":
                putKey(words[1], number(words[2]), number(words[3]));
                return null;
            case "find":
                return find(words[1], (int) number(words[2]), number(words[3]), number(words[4]));
            case "ext":
                return String.valueOf(ext().put(
                    new ConsumeQueueExt.CqExtUnit(number(words[1]), number(words[2]), bytes(words[3]))));
            case "unit":
                return unit(ext().get(number(words[1])));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private ConsumeQueue queue(String topic, String id) {
        return queues.computeIfAbsent(topic + "/" + id, key -> {
            ConsumeQueue queue = new ConsumeQueue(topic, Integer.parseInt(id), folder + "/consumequeue",
                queueEntries * ConsumeQueue.CQ_STORE_UNIT_SIZE, store);
            queue.load();
            queue.recover();
            return queue;
        });
    }

    private static String describe(ConsumeQueue queue, long logStart) {
        queue.deleteExpiredFile(logStart);
        StringBuilder text = new StringBuilder();
        text.append(queue.getMinOffsetInQueue()).append(' ').append(queue.getMaxOffsetInQueue());
        text.append(' ').append(queue.getMaxPhysicOffset());
        for (long at = queue.getMinOffsetInQueue(); at < queue.getMaxOffsetInQueue();) {
            ReferredIterator<CqUnit> units = queue.iterateFrom(at);
            while (units.hasNext()) {
                CqUnit unit = units.next();
                text.append(' ').append(unit.getPos()).append(',').append(unit.getSize());
                text.append(',').append(unit.getTagsCode());
                at++;
            }
            units.release();
        }
        return text.toString();
    }

    private long byTime(ConsumeQueue queue, long logStart, long time, String boundary) {
        store.log.start = logStart;
        queue.deleteExpiredFile(logStart);
        long offset = queue.getOffsetInQueueByTime(time, BoundaryType.getType(boundary));
        return Math.min(Math.max(offset, queue.getMinOffsetInQueue()), queue.getMaxOffsetInQueue());
    }

    private void putKey(String key, long offset, long time) throws Exception {
        IndexFile last = index().isEmpty() ? null : index.get(index.size() - 1);
        if (last == null || !last.putKey(key, offset, time)) {
            String name = String.format("%017d", 20250101000000000L + index.size());
            last = new IndexFile(folder + "/index/" + name, slots, indexEntries,
                last == null ? 0 : last.getEndPhyOffset(), last == null ? 0 : last.getEndTimestamp());
            index.add(last);
            last.putKey(key, offset, time);
        }
    }

    private List<IndexFile> index() throws Exception {
        File[] names = new File(folder, "index").listFiles();
        if (index.isEmpty() && names != null) {
            java.util.Arrays.sort(names);
            for (File name : names) {
                IndexFile file = new IndexFile(name.getPath(), slots, indexEntries, 0, 0);
                file.load();
                index.add(file);
            }
        }
        return index;
    }

    private String find(String key, int limit, long begin, long end) throws Exception {
        List<Long> offsets = new ArrayList<>();
        for (int i = index().size() - 1; i >= 0 && offsets.size() < limit; i--) {
            IndexFile file = index.get(i);
            if (file.isTimeMatched(begin, end)) {
                file.selectPhyOffset(offsets, key, limit, begin, end);
            }
            if (file.getBeginTimestamp() < begin) {
                break;
            }
        }
        StringBuilder text = new StringBuilder("found");
        offsets.forEach(offset -> text.append(' ').append(offset));
        return text.toString();
    }

    private ConsumeQueueExt ext() {
        if (ext == null) {
            ext = new ConsumeQueueExt("Topic", 0, folder + "/consumequeue_ext", extSize, 64);
            ext.load();
            ext.recover();
        }
        return ext;
    }

    private static String unit(ConsumeQueueExt.CqExtUnit unit) {
        if (unit == null) {
            return "none";
        }
        StringBuilder text = new StringBuilder();
        text.append(unit.getTagsCode()).append(' ').append(unit.getMsgStoreTime()).append(' ');
        if (unit.getFilterBitMap() != null) {
            for (byte b : unit.getFilterBitMap()) {
                text.append(String.format("%02x", b));
            }
        }
        return text.toString();
    }

    private void flush() {
        queues.values().forEach(queue -> queue.flush(0));
        index.forEach(IndexFile::flush);
        if (ext != null) {
            ext.flush(0);
        }
    }

    private static long number(String word) {
        return Long.parseLong(word);
    }

    private static byte[] bytes(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return bytes;
    }
}
