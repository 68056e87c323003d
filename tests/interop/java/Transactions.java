import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Sends in transactions; what it decides about a message is its user property decide, and what it answers is answer. */
final class Transactions {
    private final Clients<TransactionMQProducer> producers = new Clients<>();
    private final Map<String, Decider> deciders = new ConcurrentHashMap<>();

    void register(Map<String, Driver.Operation> operations) {
        operations.put("transactions.start", this::start);
        operations.put("transactions.stop", arguments -> {
            producers.remove(arguments).shutdown();
            return null;
        });
        operations.put("transactions.send", this::send);
        operations.put("transactions.asked",
            arguments -> new ArrayList<>(deciders.get(arguments.getString("handle")).asked));
    }

    private Object start(JSONObject arguments) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(arguments.getString("group"));
        Clients.configure(producer, arguments);
        producer.setSendMsgTimeout(Clients.PATIENCE_MS);
        Decider decider = new Decider();
        producer.setTransactionListener(decider);
        producer.start();
        deciders.put(arguments.getString("handle"), decider);
        producers.add(arguments, producer);
        return null;
    }

    private Object send(JSONObject arguments) throws Exception {
        TransactionMQProducer producer = producers.get(arguments);
        JSONArray described = arguments.getJSONArray("messages");
        List<JSONObject> results = new ArrayList<>();
        for (int i = 0; i < described.size(); i++) {
            Message message = Messages.fromJson(described.getJSONObject(i));
            SendResult result = producer.sendMessageInTransaction(message, null);
            results.add(Messages.toJson(result));
        }
        return results;
    }

    private static final class Decider implements TransactionListener {
        final Queue<JSONObject> asked = new ConcurrentLinkedQueue<>();

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return state(message.getUserProperty("decide"));
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            JSONObject question = Messages.toJson(message, "");
            question.put("at", System.currentTimeMillis());
            question.put("born", message.getBornTimestamp());
            question.put("transactionId", message.getTransactionId());
            asked.add(question);
            return state(message.getUserProperty("answer"));
        }

        private static LocalTransactionState state(String word) {
            if ("commit".equals(word)) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
            return "rollback".equals(word)
                ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
        }
    }
}
