import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers that fetch: plain ones, which say what from where, and lite ones, by name. */
final class Pullers {
    private final Map<String, DefaultMQPullConsumer> pullers = new HashMap<>();
    private final Map<String, DefaultLitePullConsumer> lites = new HashMap<>();
    private final Map<String, List<MessageExt>> polled = new HashMap<>();

    // The plain one.

    private DefaultMQPullConsumer puller(Words words) throws Exception {
        String key = words.text("ns") + " " + words.text("group");
        DefaultMQPullConsumer puller = pullers.get(key);
        if (puller == null) {
            puller = new DefaultMQPullConsumer(words.text("group"));
            puller.setNamesrvAddr(words.text("ns"));
            puller.setMqClientApiTimeout(Senders.PATIENCE_MS);
            puller.setInstanceName("puller-" + pullers.size() + "-" + ProcessHandle.current().pid());
            puller.start();
            pullers.put(key, puller);
        }
        return puller;
    }

    /** pull: what is in a queue from an offset on; with block=1, it waits for something. */
    List<Words> pull(Words words) throws Exception {
        DefaultMQPullConsumer puller = puller(words);
        MessageQueue queue = queue(puller.fetchSubscribeMessageQueues(words.text("topic")), words);
        long offset = Long.parseLong(words.text("offset"));
        int max = words.number("count", 32);
        String tags = words.text("tags", "*");
        PullResult result = words.has("block")
            ? puller.pullBlockIfNotFound(queue, tags, offset, max) : puller.pull(queue, tags, offset, max);
        List<Words> answer = new ArrayList<>();
        answer.add(new Words().with("status", result.getPullStatus()).with("next", result.getNextBeginOffset())
            .with("min", result.getMinOffset()).with("max", result.getMaxOffset()));
        if (result.getMsgFoundList() != null) {
            result.getMsgFoundList().forEach(message -> answer.add(Inbox.describe(message)));
        }
        return answer;
    }

    /** places: the smallest and largest offset of a queue, and that of a time. */
    Words places(Words words) throws Exception {
        DefaultMQPullConsumer puller = puller(words);
        MessageQueue queue = queue(puller.fetchSubscribeMessageQueues(words.text("topic")), words);
        Words answer = new Words().with("min", puller.minOffset(queue)).with("max", puller.maxOffset(queue));
        if (words.has("time")) {
            answer.with("at", puller.searchOffset(queue, Long.parseLong(words.text("time"))));
        }
        return answer;
    }

    /** keep: stores an offset; kept: what is stored. */
    Words keep(Words words) throws Exception {
        DefaultMQPullConsumer puller = puller(words);
        MessageQueue queue = queue(puller.fetchSubscribeMessageQueues(words.text("topic")), words);
        puller.updateConsumeOffset(queue, Long.parseLong(words.text("offset")));
        puller.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
        return kept(words);
    }

    Words kept(Words words) throws Exception {
        DefaultMQPullConsumer puller = puller(words);
        MessageQueue queue = queue(puller.fetchSubscribeMessageQueues(words.text("topic")), words);
        return new Words().with("offset", puller.fetchConsumeOffset(queue, true));
    }

    // The lite one.

    /** lite: subscribes, or with assign=1 takes all queues of the topic. */
    void lite(Words words) throws Exception {
        String name = words.text("name");
        DefaultLitePullConsumer lite = new DefaultLitePullConsumer(words.text("group"));
        lite.setNamesrvAddr(words.text("ns"));
        lite.setMqClientApiTimeout(Senders.PATIENCE_MS);
        lite.setInstanceName(name + "-" + ProcessHandle.current().pid());
        lite.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        lite.setAutoCommit(words.has("commit"));
        lite.setPollTimeoutMillis(500);
        if (!words.has("assign")) {
            lite.subscribe(words.text("topic"), words.text("tags", "*"));
        }
        lite.start();
        if (words.has("assign")) {
            lite.assign(lite.fetchMessageQueues(words.text("topic")));
        }
        lites.put(name, lite);
        polled.put(name, new ArrayList<>());
    }

    List<Words> poll(Words words) {
        DefaultLitePullConsumer lite = lites.get(words.text("name"));
        int count = words.number("count", 1);
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(words.number("seconds", 30));
        List<MessageExt> got = polled.get(words.text("name"));
        while (got.size() < count && System.nanoTime() < end) {
            got.addAll(lite.poll());
        }
        List<Words> answer = got.stream().map(Inbox::describe).toList();
        got.clear();
        return answer;
    }

    /** seek: goes on from another offset of a queue; what was polled before is forgotten. */
    void seek(Words words) throws Exception {
        DefaultLitePullConsumer lite = lites.get(words.text("name"));
        MessageQueue queue = queue(lite.fetchMessageQueues(words.text("topic")), words);
        switch (words.text("offset")) {
            case "begin" -> lite.seekToBegin(queue);
            case "end" -> lite.seekToEnd(queue);
            default -> lite.seek(queue, Long.parseLong(words.text("offset")));
        }
    }

    Words commit(Words words) throws Exception {
        DefaultLitePullConsumer lite = lites.get(words.text("name"));
        lite.commitSync();
        return new Words().with("offset", lite.committed(queue(lite.fetchMessageQueues(words.text("topic")), words)));
    }

    boolean close(Words words) {
        DefaultLitePullConsumer lite = lites.remove(words.text("name"));
        if (lite != null) {
            lite.shutdown();
        }
        return lite != null;
    }

    private static MessageQueue queue(Collection<MessageQueue> queues, Words words) {
        int wanted = words.number("queue", 0);
        return queues.stream().filter(queue -> queue.getQueueId() == wanted).findFirst()
            .orElseThrow(() -> new IllegalArgumentException("no queue " + wanted));
    }
}
