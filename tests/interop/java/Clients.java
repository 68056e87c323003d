import com.alibaba.fastjson.JSONObject;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.ClientConfig;

/** The started clients of one kind, by the handle that the test gave them. */
final class Clients<T> {
    /** Stock's three to five seconds for an answer are too few for a busy machine. */
    static final int PATIENCE_MS = 20_000;

    private final Map<String, T> byHandle = new ConcurrentHashMap<>();

    void add(JSONObject arguments, T client) {
        byHandle.put(arguments.getString("handle"), client);
    }

    T get(JSONObject arguments) {
        T client = byHandle.get(arguments.getString("handle"));
        if (client == null) {
            throw new IllegalArgumentException("no client " + arguments.getString("handle"));
        }
        return client;
    }

    T remove(JSONObject arguments) {
        T client = get(arguments);
        byHandle.remove(arguments.getString("handle"));
        return client;
    }

    /** An instance name of its own keeps clients of one JVM apart; short intervals keep tests short. */
    static void configure(ClientConfig config, JSONObject arguments) {
        config.setNamesrvAddr(arguments.getString("namesrv"));
        config.setInstanceName(
            arguments.containsKey("instance")
                ? arguments.getString("instance") : arguments.getString("handle"));
        config.setPollNameServerInterval(
            arguments.containsKey("pollMs") ? arguments.getIntValue("pollMs") : 500);
        config.setHeartbeatBrokerInterval(
            arguments.containsKey("heartbeatMs") ? arguments.getIntValue("heartbeatMs") : 1000);
        config.setPersistConsumerOffsetInterval(500);
        config.setPullTimeDelayMillsWhenException(200);
        config.setMqClientApiTimeout(PATIENCE_MS);
    }
}
