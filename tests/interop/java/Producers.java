import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Sends one by one and in batches. */
final class Producers {
    private static final int ASYNC_LIMIT_SECONDS = 60;

    private final Clients<DefaultMQProducer> producers = new Clients<>();

    void register(Map<String, Driver.Operation> operations) {
        operations.put("producer.start", this::start);
        operations.put("producer.stop", arguments -> {
            producers.remove(arguments).shutdown();
            return null;
        });
        operations.put("send", this::send);
    }

    private Object start(JSONObject arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(
            arguments.getString("group"), arguments.getBooleanValue("trace"), null);
        Clients.configure(producer, arguments);
        producer.setSendMsgTimeout(arguments.containsKey("timeoutMs")
            ? arguments.getIntValue("timeoutMs") : Clients.PATIENCE_MS);
        if (arguments.containsKey("retries")) {
            producer.setRetryTimesWhenSendFailed(arguments.getIntValue("retries"));
        }
        if (arguments.containsKey("compressOver")) {
            producer.setCompressMsgBodyOverHowmuch(arguments.getIntValue("compressOver"));
        }
        if (arguments.containsKey("compressType")) {
            setCompressType(producer, arguments.getString("compressType"));
        }
        if (arguments.containsKey("maxMessageSize")) {
            producer.setMaxMessageSize(arguments.getIntValue("maxMessageSize"));
        }
        producer.start();
        producers.add(arguments, producer);
        return null;
    }

    /** 5.x has it. */
    private static void setCompressType(DefaultMQProducer producer, String name) throws Exception {
        for (Method method : DefaultMQProducer.class.getMethods()) {
            if (method.getName().equals("setCompressType")) {
                Class<?> types = method.getParameterTypes()[0];
                method.invoke(producer, types.getMethod("of", String.class).invoke(null, name));
            }
        }
    }

    /** mode sync, async, oneway or batch; one result for each message, or one for the batch. */
    private Object send(JSONObject arguments) throws Exception {
        DefaultMQProducer producer = producers.get(arguments);
        JSONArray described = arguments.getJSONArray("messages");
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < described.size(); i++) {
            messages.add(Messages.fromJson(described.getJSONObject(i)));
        }
        Integer queue = arguments.getInteger("queue");
        switch (arguments.getString("mode")) {
            case "sync":
                return sendSync(producer, messages, queue);
            case "async":
                return sendAsync(producer, messages, queue);
            case "oneway":
                for (Message message : messages) {
                    producer.sendOneway(message);
                }
                return null;
            case "batch":
                return Collections.singletonList(Messages.toJson(producer.send(messages)));
            default:
                throw new IllegalArgumentException("mode " + arguments.getString("mode"));
        }
    }

    private static MessageQueueSelector queueWithId() {
        return (queues, message, id) -> queues.stream()
            .filter(queue -> queue.getQueueId() == (Integer) id).findFirst().get();
    }

    private static JSONArray sendSync(DefaultMQProducer producer, List<Message> messages, Integer queue) {
        JSONArray results = new JSONArray();
        for (Message message : messages) {
            try {
                results.add(Messages.toJson(
                    queue == null ? producer.send(message) : producer.send(message, queueWithId(), queue)));
            } catch (Exception error) {
                results.add(Messages.toJson(error));
            }
        }
        return results;
    }

    private static JSONArray sendAsync(DefaultMQProducer producer, List<Message> messages, Integer queue)
        throws Exception {
        AtomicReferenceArray<JSONObject> results = new AtomicReferenceArray<>(messages.size());
        CountDownLatch pending = new CountDownLatch(messages.size());
        for (int i = 0; i < messages.size(); i++) {
            int index = i;
            SendCallback callback = new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    results.set(index, Messages.toJson(result));
                    pending.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    results.set(index, Messages.toJson(error));
                    pending.countDown();
                }
            };
            if (queue == null) {
                producer.send(messages.get(i), callback);
            } else {
                producer.send(messages.get(i), queueWithId(), queue, callback);
            }
        }
        if (!pending.await(ASYNC_LIMIT_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException(pending.getCount() + " async sends were never answered");
        }
        JSONArray array = new JSONArray();
        for (int i = 0; i < results.length(); i++) {
            array.add(results.get(i));
        }
        return array;
    }
}
