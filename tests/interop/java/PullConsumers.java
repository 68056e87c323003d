import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.Map;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Pulls by offset, and the questions about offsets and single messages. */
final class PullConsumers {
    private static final int PULL_BATCH = 32;

    private final Clients<DefaultMQPullConsumer> consumers = new Clients<>();

    void register(Map<String, Driver.Operation> operations) {
        operations.put("puller.start", this::start);
        operations.put("puller.stop", arguments -> {
            consumers.remove(arguments).shutdown();
            return null;
        });
        operations.put("puller.queues", arguments -> Messages.toJson(
            consumers.get(arguments).fetchSubscribeMessageQueues(arguments.getString("topic"))));
        operations.put("puller.pull", this::pull);
        operations.put("puller.drain", this::drain);
        operations.put("puller.minOffset", arguments ->
            consumers.get(arguments).minOffset(Messages.queue(arguments)));
        operations.put("puller.maxOffset", arguments ->
            consumers.get(arguments).maxOffset(Messages.queue(arguments)));
        operations.put("puller.searchOffset", arguments -> consumers.get(arguments)
            .searchOffset(Messages.queue(arguments), arguments.getLongValue("timestamp")));
        operations.put("puller.commit", this::commit);
        operations.put("puller.committed", arguments ->
            consumers.get(arguments).fetchConsumeOffset(Messages.queue(arguments), true));
        operations.put("puller.view", arguments -> Messages.toJson(
            consumers.get(arguments).viewMessage(
                arguments.getString("topic"), arguments.getString("msgId")), null));
        operations.put("puller.query", this::query);
    }

    private Object start(JSONObject arguments) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(arguments.getString("group"));
        Clients.configure(consumer, arguments);
        consumer.setConsumerPullTimeoutMillis(Clients.PATIENCE_MS);
        consumer.start();
        consumers.add(arguments, consumer);
        return null;
    }

    private Object pull(JSONObject arguments) throws Exception {
        MessageQueue queue = Messages.queue(arguments);
        DefaultMQPullConsumer consumer = consumers.get(arguments);
        String expression = arguments.getString("expression");
        long offset = arguments.getLongValue("offset");
        int most = arguments.getIntValue("max");
        PullResult result = arguments.getBooleanValue("sql")
            ? consumer.pull(queue, MessageSelector.bySql(expression), offset, most)
            : consumer.pull(queue, expression, offset, most);
        JSONObject json = new JSONObject();
        json.put("status", result.getPullStatus().name());
        json.put("next", result.getNextBeginOffset());
        json.put("min", result.getMinOffset());
        json.put("max", result.getMaxOffset());
        json.put("messages", messages(result, queue));
        return json;
    }

    private static JSONArray messages(PullResult result, MessageQueue queue) {
        JSONArray messages = new JSONArray();
        if (result.getMsgFoundList() != null) {
            for (MessageExt message : result.getMsgFoundList()) {
                messages.add(Messages.toJson(message, queue.getBrokerName()));
            }
        }
        return messages;
    }

    /** Every message of a topic, queue by queue, from the smallest offset to the largest. */
    private Object drain(JSONObject arguments) throws Exception {
        DefaultMQPullConsumer consumer = consumers.get(arguments);
        JSONArray all = new JSONArray();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(arguments.getString("topic"))) {
            long offset = consumer.minOffset(queue);
            long end = consumer.maxOffset(queue);
            while (offset < end) {
                PullResult result = consumer.pull(queue, "*", offset, PULL_BATCH);
                if (result.getPullStatus() != PullStatus.FOUND
                    && result.getNextBeginOffset() <= offset) {
                    throw new IllegalStateException(
                        queue + " at " + offset + " of " + end + ": " + result);
                }
                all.addAll(messages(result, queue));
                offset = result.getNextBeginOffset();
            }
        }
        return all;
    }

    private Object commit(JSONObject arguments) throws Exception {
        DefaultMQPullConsumer consumer = consumers.get(arguments);
        MessageQueue queue = Messages.queue(arguments);
        consumer.getOffsetStore().updateConsumeOffsetToBroker(
            queue, arguments.getLongValue("offset"), false);
        return null;
    }

    private Object query(JSONObject arguments) throws Exception {
        QueryResult result = consumers.get(arguments).queryMessage(
            arguments.getString("topic"), arguments.getString("key"), 32,
            arguments.getLongValue("begin"), arguments.getLongValue("end"));
        JSONArray found = new JSONArray();
        for (MessageExt message : result.getMessageList()) {
            found.add(Messages.toJson(message, null));
        }
        return found;
    }
}
