import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.NotificationRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.NotificationResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/** Pops, acknowledgements and changes of invisible times as 5.x clients send them. */
public final class Pops {
    private final Clients<DefaultMQPullConsumer> clients = new Clients<>();

    void register(Map<String, Driver.Operation> operations) {
        operations.put("popper.start", this::start);
        operations.put("popper.stop", arguments -> {
            clients.remove(arguments).shutdown();
            return null;
        });
        operations.put("popper.pop", this::pop);
        operations.put("popper.ack", this::ack);
        operations.put("popper.ackAll", this::ackAll);
        operations.put("popper.notified", this::notified);
        operations.put("popper.hide", this::hide);
        new Recalls().register(operations);
    }

    private Object start(JSONObject arguments) throws Exception {
        DefaultMQPullConsumer client = new DefaultMQPullConsumer(arguments.getString("group"));
        Clients.configure(client, arguments);
        client.start();
        clients.add(arguments, client);
        return null;
    }

    private MQClientAPIImpl api(JSONObject arguments) {
        return clients.get(arguments).getDefaultMQPullConsumerImpl()
            .getRebalanceImpl().getmQClientFactory().getMQClientAPIImpl();
    }

    private Object pop(JSONObject arguments) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(arguments.getString("group"));
        header.setTopic(arguments.getString("topic"));
        header.setQueueId(arguments.getIntValue("queue"));
        header.setMaxMsgNums(arguments.getIntValue("max"));
        header.setInvisibleTime(arguments.getLongValue("invisible"));
        header.setPollTime(arguments.getLongValue("poll"));
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        header.setExpType("TAG");
        header.setExp(arguments.getString("expression"));
        header.setOrder(arguments.getBooleanValue("orderly"));
        header.setAttemptId(arguments.getString("attempt"));
        CompletableFuture<PopResult> popped = new CompletableFuture<>();
        api(arguments).popMessageAsync(arguments.getString("broker"), arguments.getString("address"),
            header, header.getPollTime() + Clients.PATIENCE_MS, new PopCallback() {
                @Override
                public void onSuccess(PopResult result) {
                    popped.complete(result);
                }

                @Override
                public void onException(Throwable error) {
                    popped.completeExceptionally(error);
                }
            });
        PopResult result = popped.get(2 * Clients.PATIENCE_MS, TimeUnit.MILLISECONDS);
        JSONObject json = new JSONObject();
        json.put("status", result.getPopStatus().name());
        json.put("rest", result.getRestNum());
        JSONArray messages = new JSONArray();
        if (result.getMsgFoundList() != null) {
            for (MessageExt message : result.getMsgFoundList()) {
                messages.add(Messages.toJson(message, arguments.getString("broker")));
            }
        }
        json.put("messages", messages);
        return json;
    }

    private Object ack(JSONObject arguments) throws Exception {
        JSONObject message = arguments.getJSONObject("message");
        String extraInfo = extraInfo(message);
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setConsumerGroup(arguments.getString("group"));
        header.setTopic(realTopic(arguments, message));
        header.setQueueId(message.getIntValue("queue"));
        header.setOffset(message.getLongValue("offset"));
        header.setExtraInfo(extraInfo);
        Answer answer = new Answer();
        api(arguments).ackMessageAsync(
            arguments.getString("address"), Clients.PATIENCE_MS, answer, header);
        return answer.await();
    }

    /** All messages, which are of one topic and broker, with one request. */
    private Object ackAll(JSONObject arguments) throws Exception {
        List<String> extraInfos = new ArrayList<>();
        JSONArray messages = arguments.getJSONArray("messages");
        for (int i = 0; i < messages.size(); i++) {
            extraInfos.add(extraInfo(messages.getJSONObject(i)));
        }
        Answer answer = new Answer();
        api(arguments).batchAckMessageAsync(arguments.getString("address"), Clients.PATIENCE_MS,
            answer, arguments.getString("topic"), arguments.getString("group"), extraInfos);
        return answer.await();
    }

    /** Whether there is a message to pop; waits for one as long as the broker is told to. */
    private Object notified(JSONObject arguments) throws Exception {
        NotificationRequestHeader header = new NotificationRequestHeader();
        header.setConsumerGroup(arguments.getString("group"));
        header.setTopic(arguments.getString("topic"));
        header.setQueueId(arguments.getIntValue("queue"));
        header.setPollTime(arguments.getLongValue("poll"));
        header.setBornTime(System.currentTimeMillis());
        header.setOrder(arguments.getBooleanValue("orderly"));
        header.setAttemptId(arguments.getString("attempt"));
        RemotingCommand answer = api(arguments).getRemotingClient().invokeSync(
            arguments.getString("address"),
            RemotingCommand.createRequestCommand(RequestCode.NOTIFICATION, header),
            header.getPollTime() + Clients.PATIENCE_MS);
        if (answer.getCode() != ResponseCode.SUCCESS) {
            throw new IllegalStateException(String.valueOf(answer));
        }
        return ((NotificationResponseHeader)
            answer.decodeCommandCustomHeader(NotificationResponseHeader.class)).isHasMsg();
    }

    private Object hide(JSONObject arguments) throws Exception {
        JSONObject message = arguments.getJSONObject("message");
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setConsumerGroup(arguments.getString("group"));
        header.setTopic(realTopic(arguments, message));
        header.setQueueId(message.getIntValue("queue"));
        header.setOffset(message.getLongValue("offset"));
        header.setExtraInfo(extraInfo(message));
        header.setInvisibleTime(arguments.getLongValue("invisible"));
        Answer answer = new Answer();
        api(arguments).changeInvisibleTimeAsync(arguments.getString("broker"),
            arguments.getString("address"), header, Clients.PATIENCE_MS, answer);
        return answer.await();
    }

    private static String extraInfo(JSONObject message) {
        return message.getJSONObject("properties").getString(MessageConst.PROPERTY_POP_CK);
    }

    private static String realTopic(JSONObject arguments, JSONObject message) {
        return ExtraInfoUtil.getRealTopic(ExtraInfoUtil.split(extraInfo(message)),
            message.getString("topic"), arguments.getString("group"));
    }

    /** The status of an acknowledgement, and the extra info that holds from now on. */
    private static final class Answer implements AckCallback {
        private final CompletableFuture<AckResult> result = new CompletableFuture<>();

        @Override
        public void onSuccess(AckResult answer) {
            result.complete(answer);
        }

        @Override
        public void onException(Throwable error) {
            result.completeExceptionally(error);
        }

        Object await() throws Exception {
            AckResult answer = result.get(2 * Clients.PATIENCE_MS, TimeUnit.MILLISECONDS);
            JSONObject json = new JSONObject();
            json.put("status", answer.getStatus().name());
            json.put("extraInfo", answer.getExtraInfo());
            return json;
        }
    }
}
