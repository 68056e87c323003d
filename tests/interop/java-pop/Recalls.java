import com.alibaba.fastjson.JSONObject;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;

/** Sends of 5.x clients whose answers have a handle, and recalls by it. */
public final class Recalls {
    private final Clients<DefaultMQProducer> producers = new Clients<>();

    void register(Map<String, Driver.Operation> operations) {
        operations.put("recaller.start", this::start);
        operations.put("recaller.stop", arguments -> {
            producers.remove(arguments).shutdown();
            return null;
        });
        operations.put("recaller.send", this::send);
        operations.put("recaller.recall", this::recall);
    }

    private Object start(JSONObject arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(arguments.getString("group"));
        Clients.configure(producer, arguments);
        producer.setSendMsgTimeout(Clients.PATIENCE_MS);
        producer.start();
        producers.add(arguments, producer);
        return null;
    }

    /** The handle of the message. */
    private Object send(JSONObject arguments) throws Exception {
        SendResult result = producers.get(arguments)
            .send(Messages.fromJson(arguments.getJSONObject("message")));
        return result.getRecallHandle();
    }

    /** The id of the message that is taken back. */
    private Object recall(JSONObject arguments) throws Exception {
        return producers.get(arguments)
            .recallMessage(arguments.getString("topic"), arguments.getString("recallHandle"));
    }
}
