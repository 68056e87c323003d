import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicAttributes;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.body.TopicList;
import org.apache.rocketmq.remoting.protocol.header.GetTopicConfigRequestHeader;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.statictopic.TopicConfigAndQueueMapping;
import org.apache.rocketmq.tools.command.CommandUtil;

/** What the dashboard's pages about topics ask for. */
final class DashboardTopics {
    private static final String SYSTEM = "%SYS%";
    private static final String TYPE = TopicAttributes.TOPIC_MESSAGE_TYPE_ATTRIBUTE.getName();

    private final Dashboard dashboard;

    DashboardTopics(Dashboard dashboard) {
        this.dashboard = dashboard;
    }

    void register(Map<String, Dashboard.Request> requests) {
        requests.put("GET /topic/list.query", this::list);
        requests.put("GET /topic/list.queryTopicType", this::types);
        requests.put("GET /topic/stats.query", parameters ->
            dashboard.admin.examineTopicStats(parameters.getString("topic")));
        requests.put("GET /topic/route.query", parameters ->
            dashboard.admin.examineTopicRouteInfo(parameters.getString("topic")));
        requests.put("POST /topic/createOrUpdate.do", this::create);
        requests.put("GET /topic/queryTopicConsumerInfo.query", parameters ->
            dashboard.admin.queryTopicConsumeByWho(parameters.getString("topic")));
        requests.put("GET /topic/examineTopicConfig.query",
            parameters -> configs(parameters.getString("topic")));
        requests.put("POST /topic/sendTopicMessage.do", this::send);
        requests.put("POST /topic/deleteTopic.do", this::delete);
        requests.put("POST /topic/deleteTopicByBroker.do", this::deleteOnBroker);
    }

    private Set<String> systemTopics() throws Exception {
        return dashboard.client().getMQClientAPIImpl()
            .getSystemTopicList(Clients.PATIENCE_MS).getTopicList();
    }

    private Object list(JSONObject parameters) throws Exception {
        TopicList all = dashboard.admin.fetchAllTopicList();
        Set<String> ofSystem = systemTopics();
        Set<String> topics = new TreeSet<>();
        for (String topic : all.getTopicList()) {
            boolean marked = !parameters.getBooleanValue("skipSysProcess") && ofSystem.contains(topic);
            boolean left = parameters.getBooleanValue("skipRetryAndDlq")
                && (topic.startsWith(MixAll.RETRY_GROUP_TOPIC_PREFIX)
                || topic.startsWith(MixAll.DLQ_GROUP_TOPIC_PREFIX));
            if (!left) {
                topics.add(marked ? SYSTEM + topic : topic);
            }
        }
        all.setTopicList(topics);
        return all;
    }

    private Object types(JSONObject parameters) throws Exception {
        Set<String> ofSystem = systemTopics();
        Map<String, String> types = new TreeMap<>();
        for (BrokerData broker : dashboard.brokers()) {
            Map<String, TopicConfig> configs = dashboard.admin.getAllTopicConfig(
                broker.getBrokerAddrs().get(MixAll.MASTER_ID), Clients.PATIENCE_MS)
                .getTopicConfigTable();
            configs.forEach((topic, config) -> {
                if (topic.startsWith("%R")) {
                    types.put(topic, "RETRY");
                } else if (topic.startsWith("%D")) {
                    types.put(topic, "DLQ");
                } else if (ofSystem.contains(topic) || topic.startsWith("rmq_sys")
                    || topic.equals("DefaultHeartBeatSyncerTopic")) {
                    types.put(SYSTEM + topic, "SYSTEM");
                } else {
                    types.put(topic, typeOf(config));
                }
            });
        }
        ofSystem.forEach(topic -> types.put(SYSTEM + topic, "SYSTEM"));
        JSONObject answer = new JSONObject();
        answer.put("topicNameList", types.keySet());
        answer.put("messageTypeList", types.values());
        return answer;
    }

    private static String typeOf(TopicConfig config) {
        Map<String, String> attributes = config.getAttributes();
        String type = attributes == null ? null : attributes.get(TYPE);
        return type == null || type.isEmpty() ? "UNSPECIFIED" : type;
    }

    private Object create(JSONObject form) throws Exception {
        TopicConfig config = new TopicConfig(form.getString("topicName"));
        config.setWriteQueueNums(form.getIntValue("writeQueueNums"));
        config.setReadQueueNums(form.getIntValue("readQueueNums"));
        config.setPerm(form.getIntValue("perm"));
        config.setOrder(form.getBooleanValue("order"));
        String type = form.getString("messageType");
        config.setAttributes(
            Collections.singletonMap("+" + TYPE, type == null ? "NORMAL" : type));
        for (String broker : dashboard.brokersOf(form)) {
            dashboard.admin.createAndUpdateTopicConfig(dashboard.addressOf(broker), config);
        }
        return true;
    }

    private List<Object> configs(String topic) throws Exception {
        List<Object> configs = new ArrayList<>();
        for (BrokerData broker :
            dashboard.admin.examineTopicRouteInfo(topic).getBrokerDatas()) {
            GetTopicConfigRequestHeader header = new GetTopicConfigRequestHeader();
            header.setTopic(topic);
            byte[] body = dashboard.ask(dashboard.addressOf(broker.getBrokerName()),
                RequestCode.GET_TOPIC_CONFIG, header).getBody();
            TopicConfig config =
                RemotingSerializable.decode(body, TopicConfigAndQueueMapping.class);
            JSONObject shown = new JSONObject();
            shown.put("clusterNameList", null);
            shown.put("brokerNameList", Collections.singletonList(broker.getBrokerName()));
            shown.put("topicName", config.getTopicName());
            shown.put("writeQueueNums", config.getWriteQueueNums());
            shown.put("readQueueNums", config.getReadQueueNums());
            shown.put("perm", config.getPerm());
            shown.put("order", config.isOrder());
            shown.put("messageType", typeOf(config));
            configs.add(shown);
        }
        return configs;
    }

    private Object send(JSONObject form) throws Exception {
        String topic = form.getString("topic");
        JSONObject config = (JSONObject) configs(topic).get(0);
        boolean inTransaction = config.getString("messageType").equals("TRANSACTION");
        boolean traced = form.getBooleanValue("traceEnabled");
        DefaultMQProducer producer = inTransaction
            ? new TransactionMQProducer(MixAll.SELF_TEST_PRODUCER_GROUP, null, traced,
                TopicValidator.RMQ_SYS_TRACE_TOPIC)
            : new DefaultMQProducer(MixAll.SELF_TEST_PRODUCER_GROUP, null, traced,
                TopicValidator.RMQ_SYS_TRACE_TOPIC);
        producer.setNamesrvAddr(dashboard.namesrv);
        producer.setInstanceName("sender-" + System.nanoTime());
        producer.setSendMsgTimeout(Clients.PATIENCE_MS);
        Message message = new Message(topic, form.getString("tag"), form.getString("key"),
            form.getString("messageBody").getBytes(StandardCharsets.UTF_8));
        try {
            if (!inTransaction) {
                producer.start();
                return producer.send(message);
            }
            ((TransactionMQProducer) producer).setTransactionListener(new Committing());
            producer.start();
            return producer.sendMessageInTransaction(message, null);
        } finally {
            producer.shutdown();
        }
    }

    private Object delete(JSONObject parameters) throws Exception {
        String topic = parameters.getString("topic");
        Set<String> clusters = new HashSet<>();
        if (parameters.containsKey("clusterName")) {
            clusters.add(parameters.getString("clusterName"));
        } else {
            clusters.addAll(
                dashboard.admin.examineBrokerClusterInfo().getClusterAddrTable().keySet());
        }
        for (String cluster : clusters) {
            dashboard.admin.deleteTopicInBroker(
                CommandUtil.fetchMasterAddrByClusterName(dashboard.admin, cluster), topic);
            dashboard.deleteOnNameServers(topic);
        }
        return true;
    }

    private Object deleteOnBroker(JSONObject parameters) throws Exception {
        String address = dashboard.addressOf(parameters.getString("brokerName"));
        dashboard.admin.deleteTopicInBroker(
            new HashSet<>(Collections.singleton(address)), parameters.getString("topic"));
        return true;
    }

    private static final class Committing implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }
}
