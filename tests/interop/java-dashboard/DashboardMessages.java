import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.body.Connection;
import org.apache.rocketmq.remoting.protocol.body.ConsumeMessageDirectlyResult;

/** What the dashboard's pages about messages and dead letters ask for. */
final class DashboardMessages {
    private static final int MOST = 64;
    private static final int OF_ONE_ID = 32;
    private static final int PULL_BATCH = 32;

    private final Dashboard dashboard;

    DashboardMessages(Dashboard dashboard) {
        this.dashboard = dashboard;
    }

    void register(Map<String, Dashboard.Request> requests) {
        requests.put("GET /message/viewMessage.query", this::view);
        requests.put("GET /message/queryMessageByTopicAndKey.query", this::byKey);
        requests.put("GET /message/queryMessageByTopic.query", this::byTime);
        requests.put("POST /message/queryMessagePageByTopic.query", this::page);
        requests.put("POST /message/consumeMessageDirectly.do", parameters -> consume(
            parameters.getString("topic"), parameters.getString("msgId"),
            parameters.getString("consumerGroup"), parameters.getString("clientId")));
        requests.put("POST /dlqMessage/queryDlqMessageByConsumerGroup.query", this::deadLetters);
        requests.put("GET /dlqMessage/exportDlqMessage.do", this::exported);
        requests.put("POST /dlqMessage/batchExportDlqMessage.do", this::allExported);
        requests.put("POST /dlqMessage/batchResendDlqMessage.do", this::resent);
    }

    /** A message with the fields that the dashboard shows; its body where there is one. */
    static JSONObject shown(MessageExt message) {
        JSONObject shown = new JSONObject();
        shown.put("topic", message.getTopic());
        shown.put("flag", message.getFlag());
        shown.put("properties", new TreeMap<>(message.getProperties()));
        shown.put("messageBody", text(message.getBody()));
        shown.put("queueId", message.getQueueId());
        shown.put("storeSize", message.getStoreSize());
        shown.put("queueOffset", message.getQueueOffset());
        shown.put("sysFlag", message.getSysFlag());
        shown.put("bornTimestamp", message.getBornTimestamp());
        shown.put("bornHost", text(message.getBornHost()));
        shown.put("storeTimestamp", message.getStoreTimestamp());
        shown.put("storeHost", text(message.getStoreHost()));
        shown.put("msgId", message.getMsgId());
        shown.put("commitLogOffset", message.getCommitLogOffset());
        shown.put("bodyCRC", message.getBodyCRC());
        shown.put("reconsumeTimes", message.getReconsumeTimes());
        shown.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        return shown;
    }

    private static String text(byte[] body) {
        return body == null ? null : new String(body, StandardCharsets.UTF_8);
    }

    private static String text(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return host.getAddress().getHostAddress() + ":" + host.getPort();
    }

    /** The message of a unique id in the clusters of its topic, or null. */
    private MessageExt find(String topic, String id) throws Exception {
        Set<String> clusters = dashboard.admin.getTopicClusterList(topic);
        for (String cluster : clusters.isEmpty() ? Collections.singleton("") : clusters) {
            QueryResult found = dashboard.client().getMQAdminImpl()
                .queryMessageByUniqKey(cluster, topic, id, OF_ONE_ID, 0, Long.MAX_VALUE);
            if (!found.getMessageList().isEmpty()) {
                return found.getMessageList().get(0);
            }
        }
        return null;
    }

    JSONObject view(JSONObject parameters) {
        String id = parameters.getString("msgId");
        try {
            MessageExt message = find(parameters.getString("topic"), id);
            JSONObject answer = new JSONObject();
            answer.put("messageView", shown(message));
            answer.put("messageTrackList", tracks(message));
            return answer;
        } catch (Exception error) {
            System.err.println("no message " + id + ": " + error);
            throw new Dashboard.Refused("Failed to query message by Id: " + id);
        }
    }

    private Object tracks(MessageExt message) {
        try {
            return dashboard.admin.messageTrackDetail(message);
        } catch (Exception error) {
            System.err.println("no tracks: " + error);
            return new ArrayList<>();
        }
    }

    private Object byKey(JSONObject parameters) throws Exception {
        List<Object> shown = new ArrayList<>();
        try {
            for (MessageExt message : dashboard.admin.queryMessage(
                parameters.getString("topic"), parameters.getString("key"), MOST, 0,
                System.currentTimeMillis()).getMessageList()) {
                shown.add(shown(message));
            }
        } catch (MQClientException error) {
            throw new Dashboard.Refused(error.getErrorMessage());
        }
        return shown;
    }

    /** Those stored between two times, the newest first and without their bodies. */
    private Object byTime(JSONObject parameters) throws Exception {
        long begin = parameters.getLongValue("begin");
        long end = parameters.getLongValue("end");
        List<MessageExt> found = new ArrayList<>();
        for (MessageQueue queue : queues(parameters.getString("topic"))) {
            long offset = dashboard.puller.searchOffset(queue, begin);
            long last = dashboard.puller.searchOffset(queue, end);
            while (offset <= last) {
                PullResult pulled = dashboard.puller.pull(queue, "*", offset, PULL_BATCH);
                if (pulled.getPullStatus() != PullStatus.FOUND) {
                    break;
                }
                found.addAll(pulled.getMsgFoundList());
                offset = pulled.getNextBeginOffset();
            }
        }
        found.removeIf(message ->
            message.getStoreTimestamp() < begin || message.getStoreTimestamp() > end);
        found.sort(Comparator.comparing(MessageExt::getStoreTimestamp).reversed()
            .thenComparing(MessageExt::getQueueId).thenComparing(MessageExt::getQueueOffset));
        List<Object> shown = new ArrayList<>();
        for (MessageExt message : found) {
            message.setBody(null);
            shown.add(shown(message));
        }
        return shown;
    }

    private Set<MessageQueue> queues(String topic) throws Exception {
        return new TreeSet<>(dashboard.puller.fetchSubscribeMessageQueues(topic));
    }

    /** The first messages of a topic between two times, and how many there are. */
    private Object page(JSONObject form) throws Exception {
        int size = form.getIntValue("pageSize");
        long begin = form.getLongValue("begin");
        long end = form.getLongValue("end");
        long total = 0;
        List<Object> content = new ArrayList<>();
        for (MessageQueue queue : queues(form.getString("topic"))) {
            long first = dashboard.puller.searchOffset(queue, begin);
            long last = dashboard.puller.searchOffset(queue, end);
            PullResult head = dashboard.puller.pull(queue, "*", first, PULL_BATCH);
            if (head.getPullStatus() != PullStatus.FOUND || last == first) {
                continue;
            }
            long tail = Math.max(first, last - PULL_BATCH);
            PullResult newest =
                dashboard.puller.pull(queue, "*", tail, (int) (last - tail));
            long tooNew = newest.getPullStatus() != PullStatus.FOUND ? 0
                : newest.getMsgFoundList().stream()
                    .filter(message -> message.getStoreTimestamp() > end).count();
            total += last - first - tooNew;
            for (MessageExt message : head.getMsgFoundList()) {
                if (content.size() < size && message.getStoreTimestamp() <= end) {
                    content.add(shown(message));
                }
            }
        }
        return page(form, content, total);
    }

    private static JSONObject page(JSONObject form, List<Object> content, long total) {
        JSONObject page = new JSONObject();
        page.put("content", content);
        page.put("totalElements", total);
        page.put("size", form.getIntValue("pageSize"));
        page.put("number", Math.max(0, form.getIntValue("pageNum") - 1));
        JSONObject answer = new JSONObject();
        answer.put("page", page);
        answer.put("taskId", form.getString("taskId"));
        return answer;
    }

    /** Gives a message to one member of a group: the one that is named, or the first. */
    private ConsumeMessageDirectlyResult consume(
        String topic, String id, String group, String client) throws Exception {
        if (client != null) {
            return dashboard.admin.consumeMessageDirectly(group, client, topic, id);
        }
        for (Connection member :
            dashboard.admin.examineConsumerConnectionInfo(group).getConnectionSet()) {
            return dashboard.admin.consumeMessageDirectly(
                group, member.getClientId(), topic, id);
        }
        throw new Dashboard.Refused("NO CONSUMER");
    }

    /** A page of dead letters, which is empty where a group has none. */
    private Object deadLetters(JSONObject form) throws Exception {
        try {
            dashboard.admin.examineTopicRouteInfo(form.getString("topic"));
        } catch (MQClientException error) {
            if (error.getResponseCode() != ResponseCode.TOPIC_NOT_EXIST) {
                throw error;
            }
            return page(form, new ArrayList<>(), 0);
        }
        return page(form);
    }

    /** The row of a sheet; the dashboard makes a file of it. */
    private JSONObject row(String group, String id) throws Exception {
        JSONObject shown = shown(find(MixAll.DLQ_GROUP_TOPIC_PREFIX + group, id));
        JSONObject row = new JSONObject();
        for (String column : new String[] {
            "topic", "msgId", "bornHost", "bornTimestamp", "storeTimestamp", "reconsumeTimes",
            "properties", "messageBody", "bodyCRC"}) {
            row.put(column, shown.get(column));
        }
        return row;
    }

    private Object exported(JSONObject parameters) {
        String id = parameters.getString("msgId");
        try {
            return row(parameters.getString("consumerGroup"), id);
        } catch (Exception error) {
            System.err.println("no dead letter " + id + ": " + error);
            throw new Dashboard.Refused("Failed to query message by Id: " + id);
        }
    }

    private Object allExported(JSONObject form) {
        List<Object> rows = new ArrayList<>();
        for (JSONObject asked : asked(form)) {
            String id = asked.getString("msgId");
            try {
                rows.add(row(asked.getString("consumerGroup"), id));
            } catch (Exception error) {
                JSONObject row = new JSONObject();
                row.put("msgId", id);
                row.put("exception", error.getMessage());
                rows.add(row);
            }
        }
        return rows;
    }

    private Object resent(JSONObject form) throws Exception {
        List<Object> results = new ArrayList<>();
        for (JSONObject asked : asked(form)) {
            ConsumeMessageDirectlyResult consumed = consume(
                asked.getString("topicName"), asked.getString("msgId"),
                asked.getString("consumerGroup"), asked.getString("clientId"));
            JSONObject result = new JSONObject();
            result.put("consumeResult", consumed.getConsumeResult());
            result.put("remark", consumed.getRemark());
            result.put("msgId", asked.getString("msgId"));
            results.add(result);
        }
        return results;
    }

    /** A body that is a list stands under the empty name. */
    private static List<JSONObject> asked(JSONObject form) {
        JSONArray list = form.getJSONArray("");
        return list.toJavaList(JSONObject.class);
    }
}
