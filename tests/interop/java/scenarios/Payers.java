import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Producers with transactions, one for each name server and group, and the questions that they were asked. */
final class Payers {
    private final Map<String, Payer> payers = new HashMap<>();

    private static final class Payer implements TransactionListener {
        final List<Words> questions = new ArrayList<>();
        TransactionMQProducer producer;

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object outcome) {
            return state((String) outcome);
        }

        /** The message says what to answer the first time, the second time and so on; the last answer is repeated. */
        @Override
        public synchronized LocalTransactionState checkLocalTransaction(MessageExt message) {
            String[] plan = message.getUserProperty("plan").split("/");
            int times = Integer.parseInt(message.getUserProperty("TRANSACTION_CHECK_TIMES"));
            questions.add(new Words()
                .with("body", new String(message.getBody(), StandardCharsets.UTF_8))
                .with("times", times)
                .with("topic", message.getTopic())
                .with("tag", message.getTags())
                .with("id", message.getMsgId())
                .with("transaction", message.getTransactionId()));
            return state(plan[Math.min(times, plan.length) - 1]);
        }

        synchronized List<Words> taken() {
            List<Words> taken = new ArrayList<>(questions);
            questions.clear();
            return taken;
        }
    }

    private static LocalTransactionState state(String word) {
        return switch (word) {
            case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
            case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
            default -> LocalTransactionState.UNKNOW;
        };
    }

    private Payer payer(Words words) throws Exception {
        String group = words.text("group");
        String key = words.text("ns") + " " + group;
        Payer payer = payers.get(key);
        if (payer == null) {
            payer = new Payer();
            payer.producer = new TransactionMQProducer(group);
            payer.producer.setNamesrvAddr(words.text("ns"));
            payer.producer.setInstanceName("payer-" + payers.size() + "-" + ProcessHandle.current().pid());
            payer.producer.setSendMsgTimeout(Senders.PATIENCE_MS);
            payer.producer.setMqClientApiTimeout(Senders.PATIENCE_MS);
            payer.producer.setHeartbeatBrokerInterval(1000);
            payer.producer.setTransactionListener(payer);
            payer.producer.start();
            Senders.awaitRoutes(payer.producer);
            payers.put(key, payer);
        }
        return payer;
    }

    /** transact: half messages; outcome=commit|rollback|unknown is what the local transaction says. */
    List<Words> transact(Words words) throws Exception {
        Payer payer = payer(words);
        List<Words> done = new ArrayList<>();
        for (int i = 0; i < words.number("count", 1); i++) {
            Message message = Senders.message(words, i);
            TransactionSendResult result = payer.producer.sendMessageInTransaction(message, words.text("outcome"));
            done.add(Senders.describe(result, message).with("transaction", result.getTransactionId()));
        }
        return done;
    }

    /** questions: those of the brokers since this was last asked. */
    List<Words> questions(Words words) throws Exception {
        return payer(words).taken();
    }
}
