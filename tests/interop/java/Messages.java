import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Random;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages, queues and send results from and to JSON. */
final class Messages {
    private static final int LONGEST_BODY_SHOWN = 4096;

    private Messages() {
    }

    /**
     * topic, body (text) or size with random bytes from seed; tags, keys, properties, delayLevel,
     * flag; rawProperties may have any name, as a message that is passed on or that asks for a time has.
     */
    static Message fromJson(JSONObject json) {
        Message message = new Message(json.getString("topic"), body(json));
        if (json.containsKey("tags")) {
            message.setTags(json.getString("tags"));
        }
        if (json.containsKey("keys")) {
            message.setKeys(json.getString("keys"));
        }
        if (json.containsKey("delayLevel")) {
            message.setDelayTimeLevel(json.getIntValue("delayLevel"));
        }
        if (json.containsKey("flag")) {
            message.setFlag(json.getIntValue("flag"));
        }
        JSONObject properties = json.getJSONObject("properties");
        if (properties != null) {
            for (Map.Entry<String, Object> property : properties.entrySet()) {
                message.putUserProperty(property.getKey(), (String) property.getValue());
            }
        }
        JSONObject raw = json.getJSONObject("rawProperties");
        if (raw != null) {
            for (Map.Entry<String, Object> property : raw.entrySet()) {
                MessageAccessor.putProperty(
                    message, property.getKey(), String.valueOf(property.getValue()));
            }
        }
        return message;
    }

    static byte[] body(JSONObject json) {
        if (json.containsKey("body")) {
            return json.getString("body").getBytes(StandardCharsets.UTF_8);
        }
        byte[] body = new byte[json.getIntValue("size")];
        new Random(json.getLongValue("seed")).nextBytes(body);
        return body;
    }

    static long crc(byte[] body) {
        CRC32 crc = new CRC32();
        crc.update(body);
        return crc.getValue();
    }

    static JSONObject toJson(MessageExt message, String broker) {
        JSONObject json = new JSONObject();
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        json.put("topic", message.getTopic());
        json.put("size", body.length);
        json.put("crc", crc(body));
        if (body.length <= LONGEST_BODY_SHOWN) {
            json.put("body", new String(body, StandardCharsets.UTF_8));
        }
        json.put("tags", message.getTags());
        json.put("keys", message.getKeys());
        json.put("flag", message.getFlag());
        json.put("sysFlag", message.getSysFlag());
        json.put("properties", new JSONObject(new java.util.TreeMap<>(message.getProperties())));
        json.put("msgId", message.getMsgId());
        json.put("broker", broker != null ? broker : message.getBrokerName());
        json.put("queue", message.getQueueId());
        json.put("offset", message.getQueueOffset());
        json.put("physicalOffset", message.getCommitLogOffset());
        json.put("reconsumeTimes", message.getReconsumeTimes());
        json.put("born", message.getBornTimestamp());
        json.put("stored", message.getStoreTimestamp());
        json.put("storeHost", String.valueOf(message.getStoreHost()));
        json.put("received", System.currentTimeMillis());
        return json;
    }

    static JSONObject toJson(MessageQueue queue) {
        JSONObject json = new JSONObject();
        json.put("topic", queue.getTopic());
        json.put("broker", queue.getBrokerName());
        json.put("queue", queue.getQueueId());
        return json;
    }

    static JSONArray toJson(Iterable<MessageQueue> queues) {
        JSONArray array = new JSONArray();
        for (MessageQueue queue : queues) {
            array.add(toJson(queue));
        }
        return array;
    }

    /** The queue that topic, broker and queue of the arguments name. */
    static MessageQueue queue(JSONObject json) {
        return new MessageQueue(
            json.getString("topic"), json.getString("broker"), json.getIntValue("queue"));
    }

    static JSONObject toJson(SendResult result) {
        JSONObject json = new JSONObject();
        json.put("status", result.getSendStatus().name());
        json.put("msgId", result.getMsgId());
        json.put("offsetMsgId", result.getOffsetMsgId());
        json.put("broker", result.getMessageQueue().getBrokerName());
        json.put("queue", result.getMessageQueue().getQueueId());
        json.put("offset", result.getQueueOffset());
        return json;
    }

    static JSONObject toJson(Throwable error) {
        JSONObject json = new JSONObject();
        json.put("status", "FAILED");
        json.put("error", error.getClass().getSimpleName() + ": " + error.getMessage());
        return json;
    }
}
