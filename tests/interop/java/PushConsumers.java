import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Push consumers that note what they received and fail as often as the test says. */
final class PushConsumers {
    private final Clients<Consumer> consumers = new Clients<>();

    void register(Map<String, Driver.Operation> operations) {
        operations.put("consumer.start", this::start);
        operations.put("consumer.stop", arguments -> {
            // What it received is still asked for.
            consumers.get(arguments).push.shutdown();
            return null;
        });
        operations.put("consumer.received", arguments -> consumers.get(arguments).received(arguments));
        operations.put("consumer.assigned", arguments -> Messages.toJson(
            consumers.get(arguments).push.getDefaultMQPushConsumerImpl()
                .getRebalanceImpl().getProcessQueueTable().keySet()));
    }

    private Object start(JSONObject arguments) throws Exception {
        Consumer consumer = new Consumer(arguments);
        try {
            consumer.push.start();
        } catch (Exception refused) {
            // With a wrong expression it may run by then: 4.9's would ask its brokers for ever, also
            // when they are gone. Its end takes seconds.
            new Thread(consumer.push::shutdown).start();
            throw refused;
        }
        consumers.add(arguments, consumer);
        return null;
    }

    private static final class Consumer {
        private final DefaultMQPushConsumer push;
        private final int failTimes;
        private final int workMs;
        private final List<JSONObject> received = new ArrayList<>();
        private final Map<String, Integer> attempts = new HashMap<>();

        Consumer(JSONObject arguments) throws Exception {
            push = new DefaultMQPushConsumer(
                arguments.getString("group"), arguments.getBooleanValue("trace"), null);
            failTimes = arguments.getIntValue("failTimes");
            workMs = arguments.getIntValue("workMs");
            Clients.configure(push, arguments);
            push.setConsumeFromWhere(
                ConsumeFromWhere.valueOf("CONSUME_FROM_" + arguments.getString("from")));
            push.setConsumeThreadMin(4);
            push.setConsumeThreadMax(4);
            push.setSuspendCurrentQueueTimeMillis(100);
            // A stop commits what the listener has taken, also what it took at the last moment.
            push.setAwaitTerminationMillisWhenShutdown(Clients.PATIENCE_MS);
            if (arguments.containsKey("maxReconsumeTimes")) {
                push.setMaxReconsumeTimes(arguments.getIntValue("maxReconsumeTimes"));
            }
            if (arguments.getBooleanValue("broadcast")) {
                setBroadcasting(push);
            }
            if (arguments.containsKey("clientRebalance")) {
                // 5.x has it.
                DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class)
                    .invoke(push, arguments.getBooleanValue("clientRebalance"));
            }
            if (arguments.containsKey("popInvisibleTime")) {
                DefaultMQPushConsumer.class.getMethod("setPopInvisibleTime", long.class)
                    .invoke(push, arguments.getLongValue("popInvisibleTime"));
            }
            JSONObject subscriptions = arguments.getJSONObject("subscriptions");
            for (String topic : subscriptions.keySet()) {
                String expression = subscriptions.getString(topic);
                if (arguments.getBooleanValue("sql")) {
                    push.subscribe(topic, MessageSelector.bySql(expression));
                } else {
                    push.subscribe(topic, expression);
                }
            }
            if (arguments.getBooleanValue("orderly")) {
                push.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                    work(messages) ? ConsumeOrderlyStatus.SUCCESS
                        : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
            } else {
                push.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                    work(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                        : ConsumeConcurrentlyStatus.RECONSUME_LATER);
            }
        }

        /** 5.x moved MessageModel to another package. */
        private static void setBroadcasting(DefaultMQPushConsumer push) throws Exception {
            for (Method method : DefaultMQPushConsumer.class.getMethods()) {
                if (method.getName().equals("setMessageModel")) {
                    for (Object model : method.getParameterTypes()[0].getEnumConstants()) {
                        if (model.toString().equals("BROADCASTING")) {
                            method.invoke(push, model);
                        }
                    }
                }
            }
        }

        /** As `note`; consuming takes `workMs`. */
        private boolean work(List<MessageExt> messages) {
            boolean taken = note(messages);
            try {
                Thread.sleep(workMs);
            } catch (InterruptedException stopping) {
                Thread.currentThread().interrupt();
            }
            return taken;
        }

        /** Whether the messages were taken; a message fails the first `failTimes` times. */
        private synchronized boolean note(List<MessageExt> messages) {
            boolean taken = true;
            for (MessageExt message : messages) {
                JSONObject json = Messages.toJson(message, null);
                json.put("thread", Thread.currentThread().getName());
                received.add(json);
                taken &= attempts.merge(message.getMsgId(), 1, Integer::sum) > failTimes;
            }
            notifyAll();
            return taken;
        }

        /** What came after the first `from` messages; waits until `count` are there or the time is up. */
        synchronized JSONArray received(JSONObject arguments) throws InterruptedException {
            int from = arguments.getIntValue("from");
            int count = from + arguments.getIntValue("count");
            long deadline = System.nanoTime() + arguments.getLongValue("limitMs") * 1_000_000;
            while (received.size() < count) {
                long left = (deadline - System.nanoTime()) / 1_000_000;
                if (left <= 0) {
                    break;
                }
                wait(left);
            }
            JSONArray array = new JSONArray();
            array.addAll(received.subList(Math.min(from, received.size()), received.size()));
            return array;
        }
    }
}
