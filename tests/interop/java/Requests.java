import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** Producers that wait for a reply to what they send, and consumers that reply. */
final class Requests {
    private final Clients<DefaultMQProducer> requesters = new Clients<>();
    private final Clients<Replier> repliers = new Clients<>();

    void register(Map<String, Driver.Operation> operations) {
        operations.put("requester.start", arguments -> {
            requesters.add(arguments, producer(arguments, arguments.getString("group"), "", 2));
            return null;
        });
        operations.put("requester.stop", arguments -> {
            requesters.remove(arguments).shutdown();
            return null;
        });
        operations.put("requester.ask", this::ask);
        operations.put("replier.start", arguments -> {
            repliers.add(arguments, new Replier(arguments));
            return null;
        });
        operations.put("replier.stop", arguments -> {
            repliers.remove(arguments).stop();
            return null;
        });
        operations.put("replier.replied",
            arguments -> new ArrayList<>(repliers.get(arguments).replied));
        operations.put("replier.replyTo", arguments -> repliers.get(arguments).replyTo(arguments));
    }

    private static DefaultMQProducer producer(
        JSONObject arguments, String group, String instance, int retries) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        Clients.configure(producer, arguments);
        producer.setInstanceName(producer.getInstanceName() + instance);
        producer.setSendMsgTimeout(Clients.PATIENCE_MS);
        producer.setRetryTimesWhenSendFailed(retries);
        producer.start();
        return producer;
    }

    private Object ask(JSONObject arguments) throws Exception {
        DefaultMQProducer producer = requesters.get(arguments);
        Message message = Messages.fromJson(arguments.getJSONObject("message"));
        long timeout = arguments.getLongValue("timeoutMs");
        if (arguments.getBooleanValue("blocking")) {
            return Messages.toJson((MessageExt) producer.request(message, timeout), "");
        }
        String broker = arguments.getString("broker");
        CompletableFuture<Message> reply = new CompletableFuture<>();
        producer.request(message, (queues, asked, none) -> queues.stream()
            .filter(queue -> broker.isEmpty() || queue.getBrokerName().equals(broker))
            .findFirst().get(), null, new RequestCallback() {
                @Override
                public void onSuccess(Message message) {
                    reply.complete(message);
                }

                @Override
                public void onException(Throwable error) {
                    reply.completeExceptionally(error);
                }
            }, timeout);
        return Messages.toJson((MessageExt) reply.get(60, TimeUnit.SECONDS), "");
    }

    private static final class Replier {
        final Queue<JSONObject> replied = new ConcurrentLinkedQueue<>();
        private final DefaultMQPushConsumer consumer;
        private final DefaultMQProducer producer;
        private final DefaultMQProducer once;

        Replier(JSONObject arguments) throws Exception {
            String group = arguments.getString("group");
            producer = producer(arguments, group + "-replies", "-replies", 5);
            once = producer(arguments, group + "-once", "-once", 0);
            consumer = new DefaultMQPushConsumer(group);
            Clients.configure(consumer, arguments);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setPullTimeDelayMillsWhenException(200);
            consumer.subscribe(arguments.getString("topic"), "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                reply(messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
        }

        private void reply(List<MessageExt> messages) {
            for (MessageExt message : messages) {
                try {
                    byte[] body = ("re: " + new String(message.getBody(), "UTF-8")).getBytes("UTF-8");
                    Message reply = MessageUtil.createReplyMessage(message, body);
                    replied.add(Messages.toJson(producer.send(reply)));
                } catch (Exception error) {
                    replied.add(Messages.toJson(error));
                }
            }
        }

        Object replyTo(JSONObject arguments) {
            Message message = new Message(arguments.getString("topic"), new byte[] {1});
            MessageAccessor.putProperty(message, "MSG_TYPE", "reply");
            MessageAccessor.putProperty(message, "CORRELATION_ID", "none");
            if (arguments.containsKey("clientId")) {
                MessageAccessor.putProperty(
                    message, "REPLY_TO_CLIENT", arguments.getString("clientId"));
            }
            try {
                return Messages.toJson(once.send(message));
            } catch (MQClientException error) {
                JSONObject answer = Messages.toJson(error);
                answer.put("code", error.getResponseCode());
                return answer;
            } catch (Exception error) {
                return Messages.toJson(error);
            }
        }

        void stop() {
            consumer.shutdown();
            producer.shutdown();
            once.shutdown();
        }
    }
}
