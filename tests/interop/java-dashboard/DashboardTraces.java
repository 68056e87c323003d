import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.topic.TopicValidator;

/** What the dashboard's pages about traces ask for. */
final class DashboardTraces {
    private static final int MOST = 64;

    private final Dashboard dashboard;
    private final DashboardMessages messages;

    DashboardTraces(Dashboard dashboard, DashboardMessages messages) {
        this.dashboard = dashboard;
        this.messages = messages;
    }

    void register(Map<String, Dashboard.Request> requests) {
        requests.put("GET /messageTrace/viewMessage.query", parameters -> {
            JSONObject answer = messages.view(parameters);
            answer.remove("messageTrackList");
            return answer;
        });
        requests.put("GET /messageTrace/viewMessageTraceDetail.query", parameters ->
            traces(TopicValidator.RMQ_SYS_TRACE_TOPIC, parameters.getString("msgId")));
        requests.put("GET /messageTrace/viewMessageTraceGraph.query", this::graph);
    }

    /** What clients told of a message in a topic of traces. */
    private List<JSONObject> traces(String topic, String id) {
        List<JSONObject> traces = new ArrayList<>();
        try {
            for (MessageExt message : dashboard.admin.queryMessage(
                topic, id, MOST, 0, System.currentTimeMillis()).getMessageList()) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(body)) {
                    TraceBean bean = context.getTraceBeans().get(0);
                    if (bean.getMsgId().equals(id)) {
                        traces.add(shown(context, bean, message.getBornHostString()));
                    }
                }
            }
        } catch (Exception error) {
            System.err.println("no traces of " + id + ": " + error);
            throw new Dashboard.Refused("Failed to query message trace by msgId " + id);
        }
        return traces;
    }

    private static JSONObject shown(TraceContext context, TraceBean bean, String client) {
        JSONObject shown = new JSONObject();
        shown.put("requestId", context.getRequestId());
        shown.put("msgId", bean.getMsgId());
        shown.put("tags", bean.getTags());
        shown.put("keys", bean.getKeys());
        shown.put("storeHost", bean.getStoreHost());
        shown.put("clientHost", client);
        shown.put("costTime", context.getCostTime());
        shown.put("msgType", bean.getMsgType());
        shown.put("offSetMsgId", bean.getOffsetMsgId());
        shown.put("timeStamp", context.getTimeStamp());
        shown.put("topic", bean.getTopic());
        shown.put("groupName", context.getGroupName());
        shown.put("retryTimes", bean.getRetryTimes());
        shown.put("status", context.isSuccess() ? "success" : "failed");
        shown.put("transactionState", bean.getTransactionState());
        shown.put("transactionId", bean.getTransactionId());
        shown.put("fromTransactionCheck", bean.isFromTransactionCheck());
        shown.put("traceType", context.getTraceType());
        return shown;
    }

    /** The same as a tree: who sent the message, and what each group did with it, by attempts. */
    private Object graph(JSONObject parameters) {
        String topic = parameters.getString("traceTopic");
        List<JSONObject> traces = traces(
            topic == null ? TopicValidator.RMQ_SYS_TRACE_TOPIC : topic,
            parameters.getString("msgId"));
        JSONObject sent = null;
        List<JSONObject> decisions = new ArrayList<>();
        Map<String, List<JSONObject>> groups = new TreeMap<>();
        for (JSONObject trace : traces) {
            switch (String.valueOf(trace.get("traceType"))) {
                case "Pub":
                    sent = trace;
                    break;
                case "EndTransaction":
                    decisions.add(trace);
                    break;
                default:
                    groups.computeIfAbsent(trace.getString("groupName"), each -> new ArrayList<>())
                        .add(trace);
            }
        }
        JSONObject answer = new JSONObject();
        answer.put("messageTraceViews", traces);
        answer.put("producerNode", sent);
        answer.put("transactionNodeList", decisions);
        answer.put("subscriptionNodeList", groups);
        return answer;
    }
}
