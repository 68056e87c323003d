import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;
import org.apache.rocketmq.remoting.protocol.admin.RollbackStats;
import org.apache.rocketmq.remoting.protocol.body.Connection;
import org.apache.rocketmq.remoting.protocol.body.ConsumerConnection;
import org.apache.rocketmq.remoting.protocol.body.SubscriptionGroupWrapper;
import org.apache.rocketmq.remoting.protocol.header.GetConsumerConnectionListRequestHeader;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** What the dashboard's pages about groups of consumers ask for. */
final class DashboardConsumers {
    private static final String SYSTEM = "%SYS%";
    private static final Set<String> OF_SYSTEM = new HashSet<>(Arrays.asList(
        MixAll.TOOLS_CONSUMER_GROUP, MixAll.FILTERSRV_CONSUMER_GROUP,
        MixAll.SELF_TEST_CONSUMER_GROUP, MixAll.ONS_HTTP_PROXY_GROUP,
        MixAll.CID_ONSAPI_PULL_GROUP, MixAll.CID_ONSAPI_PERMISSION_GROUP,
        MixAll.CID_ONSAPI_OWNER_GROUP, MixAll.CID_SYS_RMQ_TRANS, "CID_DefaultHeartBeatSyncerTopic"));

    private final Dashboard dashboard;

    DashboardConsumers(Dashboard dashboard) {
        this.dashboard = dashboard;
    }

    void register(Map<String, Dashboard.Request> requests) {
        requests.put("GET /consumer/groupList.query", this::list);
        requests.put("GET /consumer/group.refresh.all", this::list);
        requests.put("GET /consumer/group.refresh", this::refreshed);
        requests.put("GET /consumer/group.query", parameters ->
            summary(parameters.getString("consumerGroup"), parameters.getString("address")));
        requests.put("POST /consumer/resetOffset.do", this::reset);
        requests.put("POST /consumer/skipAccumulate.do", this::reset);
        requests.put("GET /consumer/examineSubscriptionGroupConfig.query",
            parameters -> configs(group(parameters)));
        requests.put("POST /consumer/deleteSubGroup.do", this::delete);
        requests.put("POST /consumer/createOrUpdate.do", this::create);
        requests.put("GET /consumer/fetchBrokerNameList.query",
            parameters -> brokersWith(group(parameters)));
        requests.put("GET /consumer/queryTopicByConsumer.query", this::progress);
        requests.put("GET /consumer/consumerConnection.query", this::connections);
        requests.put("GET /consumer/consumerRunningInfo.query", parameters ->
            dashboard.admin.getConsumerRunningInfo(group(parameters),
                parameters.getString("clientId"), parameters.getBooleanValue("jstack")));
        requests.put("GET /topic/queryConsumerByTopic.query", this::progressOfTopic);
    }

    /** The group that parameters name, which a page may show with a mark of the system. */
    private static String group(JSONObject parameters) {
        String group = parameters.getString("consumerGroup");
        return group.startsWith(SYSTEM) ? group.substring(SYSTEM.length()) : group;
    }

    private Object list(JSONObject parameters) throws Exception {
        Map<String, SubscriptionGroupConfig> configs = new TreeMap<>();
        Map<String, List<String>> addresses = new HashMap<>();
        for (BrokerData broker : dashboard.brokers()) {
            String address = broker.selectBrokerAddr();
            dashboard.admin.getAllSubscriptionGroup(address, Clients.PATIENCE_MS)
                .getSubscriptionGroupTable().forEach((name, config) -> {
                    configs.put(name, config);
                    addresses.computeIfAbsent(name, each -> new ArrayList<>()).add(address);
                });
        }
        List<Object> groups = new ArrayList<>();
        for (SubscriptionGroupConfig config : configs.values()) {
            String name = config.getGroupName();
            JSONObject shown = summary(name, parameters.getString("address"));
            shown.put("address", addresses.get(name));
            shown.put("updateTime", System.currentTimeMillis());
            if (OF_SYSTEM.contains(name)) {
                shown.put("subGroupType", "SYSTEM");
                shown.put("group", parameters.getBooleanValue("skipSysGroup") ? name : SYSTEM + name);
            } else if (config.isConsumeMessageOrderly()) {
                shown.put("subGroupType", "FIFO");
            }
            groups.add(shown);
        }
        return groups;
    }

    private Object refreshed(JSONObject parameters) throws Exception {
        String name = parameters.getString("consumerGroup");
        List<String> addresses = new ArrayList<>();
        for (BrokerData broker : dashboard.brokers()) {
            String address = broker.selectBrokerAddr();
            if (config(address, name) != null) {
                addresses.add(address);
            }
        }
        if (addresses.isEmpty()) {
            throw new Dashboard.Refused("No consumer group information available");
        }
        JSONObject shown = summary(name, parameters.getString("address"));
        shown.put("address", addresses);
        shown.put("updateTime", System.currentTimeMillis());
        return shown;
    }

    /** How far a group is and who is connected; what a broker does not know stays away. */
    private JSONObject summary(String name, String address) {
        JSONObject shown = new JSONObject();
        shown.put("group", name);
        shown.put("version", null);
        shown.put("count", 0);
        shown.put("consumeType", null);
        shown.put("messageModel", null);
        shown.put("address", null);
        shown.put("consumeTps", 0);
        shown.put("diffTotal", -1);
        shown.put("subGroupType", "NORMAL");
        shown.put("updateTime", null);
        try {
            ConsumeStats stats = dashboard.admin.examineConsumeStats(name);
            shown.put("consumeTps", (int) stats.getConsumeTps());
            shown.put("diffTotal", stats.computeTotalDiff());
        } catch (Exception unknown) {
            System.err.println("progress of " + name + ": " + unknown);
        }
        try {
            ConsumerConnection members = address == null || address.isEmpty()
                ? dashboard.admin.examineConsumerConnectionInfo(name) : membersAt(address, name);
            shown.put("count", members.getConnectionSet().size());
            shown.put("messageModel", members.getMessageModel());
            shown.put("consumeType", members.getConsumeType());
            shown.put("version", MQVersion.getVersionDesc(members.computeMinVersion()));
        } catch (Exception away) {
            System.err.println("members of " + name + ": " + away);
        }
        return shown;
    }

    /** As the dashboard asks a proxy. */
    private ConsumerConnection membersAt(String address, String name) throws Exception {
        GetConsumerConnectionListRequestHeader header =
            new GetConsumerConnectionListRequestHeader();
        header.setConsumerGroup(name);
        byte[] body = dashboard.ask(
            address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header).getBody();
        return RemotingSerializable.decode(body, ConsumerConnection.class);
    }

    private Object reset(JSONObject form) throws Exception {
        JSONObject answer = new JSONObject();
        for (String group : Dashboard.texts(form, "consumerGroupList")) {
            JSONObject outcome = new JSONObject();
            outcome.put("errMsg", null);
            try {
                outcome.put("rollbackStatsList", reset(form, group));
                outcome.put("status", true);
            } catch (Exception refused) {
                outcome.put("rollbackStatsList", Collections.emptyList());
                outcome.put("status", false);
                outcome.put("errMsg", refused.getMessage());
            }
            answer.put(group, outcome);
        }
        return answer;
    }

    /** Members take new offsets at once; of a group without any they are set on the broker. */
    private List<RollbackStats> reset(JSONObject form, String group) throws Exception {
        String topic = form.getString("topic");
        long time = form.getLongValue("resetTime");
        List<RollbackStats> changes = new ArrayList<>();
        try {
            dashboard.admin.resetOffsetByTimestamp(
                topic, group, time, form.getBooleanValue("force")).forEach((queue, offset) -> {
                    RollbackStats change = new RollbackStats();
                    change.setBrokerName(queue.getBrokerName());
                    change.setQueueId(queue.getQueueId());
                    change.setRollbackOffset(offset);
                    changes.add(change);
                });
        } catch (MQClientException refused) {
            if (refused.getResponseCode() != ResponseCode.CONSUMER_NOT_ONLINE) {
                throw refused;
            }
            changes.addAll(
                dashboard.admin.resetOffsetByTimestampOld(group, topic, time, true));
        }
        changes.sort(Comparator.comparing(RollbackStats::getBrokerName)
            .thenComparing(RollbackStats::getQueueId));
        return changes;
    }

    private SubscriptionGroupConfig config(String address, String group) throws Exception {
        byte[] body = dashboard.ask(
            address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, null).getBody();
        return RemotingSerializable.decode(body, SubscriptionGroupWrapper.class)
            .getSubscriptionGroupTable().get(group);
    }

    private List<Object> configs(String group) throws Exception {
        List<Object> configs = new ArrayList<>();
        for (BrokerData broker : dashboard.brokers()) {
            SubscriptionGroupConfig config = config(broker.selectBrokerAddr(), group);
            if (config != null) {
                JSONObject shown = new JSONObject();
                shown.put("clusterNameList", null);
                shown.put("brokerNameList", Collections.singletonList(broker.getBrokerName()));
                shown.put("subscriptionGroupConfig", config);
                configs.add(shown);
            }
        }
        return configs;
    }

    private Set<String> brokersWith(String group) throws Exception {
        Set<String> names = new TreeSet<>();
        for (BrokerData broker : dashboard.brokers()) {
            if (config(broker.selectBrokerAddr(), group) != null) {
                names.add(broker.getBrokerName());
            }
        }
        return names;
    }

    private Object delete(JSONObject form) throws Exception {
        String group = form.getString("groupName");
        List<String> brokers = Dashboard.texts(form, "brokerNameList");
        boolean everywhere = brokers.containsAll(brokersWith(group));
        for (String broker : brokers) {
            String address = dashboard.addressOf(broker);
            dashboard.admin.deleteSubscriptionGroup(address, group, true);
            for (String prefix : new String[] {
                MixAll.RETRY_GROUP_TOPIC_PREFIX, MixAll.DLQ_GROUP_TOPIC_PREFIX}) {
                dashboard.admin.deleteTopicInBroker(
                    new HashSet<>(Collections.singleton(address)), prefix + group);
                if (everywhere) {
                    dashboard.deleteOnNameServers(prefix + group);
                }
            }
        }
        return true;
    }

    private Object create(JSONObject form) throws Exception {
        SubscriptionGroupConfig config =
            form.getObject("subscriptionGroupConfig", SubscriptionGroupConfig.class);
        for (String broker : dashboard.brokersOf(form)) {
            dashboard.admin.createAndUpdateSubscriptionGroupConfig(
                dashboard.addressOf(broker), config);
        }
        return true;
    }

    private Object progress(JSONObject parameters) throws Exception {
        List<Object> topics = new ArrayList<>();
        String group = group(parameters);
        for (String address : parameters.getString("address").split(",")) {
            topics.addAll(topics(group, null, dashboard.admin.examineConsumeStats(
                address, group, null, Clients.PATIENCE_MS)));
        }
        return topics;
    }

    private Object progressOfTopic(JSONObject parameters) throws Exception {
        String topic = parameters.getString("topic");
        JSONObject answer = new JSONObject();
        for (String group : dashboard.admin.queryTopicConsumeByWho(topic).getGroupList()) {
            List<JSONObject> topics = Collections.emptyList();
            try {
                topics = topics(group, topic, dashboard.admin.examineConsumeStats(group, topic));
            } catch (Exception unknown) {
                System.err.println("progress of " + group + ": " + unknown);
            }
            answer.put(group, topics.isEmpty() ? topic(topic) : topics.get(0));
        }
        return answer;
    }

    private static JSONObject topic(String name) {
        JSONObject topic = new JSONObject();
        topic.put("topic", name);
        topic.put("diffTotal", 0L);
        topic.put("lastTimestamp", 0L);
        topic.put("queueStatInfoList", new ArrayList<>());
        return topic;
    }

    /** Progress queue by queue, with the client that reads each; of one topic where it is named. */
    private List<JSONObject> topics(String group, String only, ConsumeStats stats) {
        Map<MessageQueue, String> readers = readers(group);
        Map<String, JSONObject> topics = new TreeMap<>();
        for (MessageQueue queue : new TreeSet<>(stats.getOffsetTable().keySet())) {
            if (only != null && !only.equals(queue.getTopic())) {
                continue;
            }
            OffsetWrapper offset = stats.getOffsetTable().get(queue);
            JSONObject topic =
                topics.computeIfAbsent(queue.getTopic(), DashboardConsumers::topic);
            JSONObject shown = (JSONObject) JSON.toJSON(offset);
            shown.remove("pullOffset");
            shown.put("brokerName", queue.getBrokerName());
            shown.put("queueId", queue.getQueueId());
            shown.put("clientInfo", readers.get(queue));
            topic.getJSONArray("queueStatInfoList").add(shown);
            topic.put("diffTotal", topic.getLongValue("diffTotal")
                + offset.getBrokerOffset() - offset.getConsumerOffset());
            topic.put("lastTimestamp",
                Math.max(topic.getLongValue("lastTimestamp"), offset.getLastTimestamp()));
        }
        return new ArrayList<>(topics.values());
    }

    private Map<MessageQueue, String> readers(String group) {
        Map<MessageQueue, String> readers = new HashMap<>();
        try {
            Collection<Connection> members =
                dashboard.admin.examineConsumerConnectionInfo(group).getConnectionSet();
            for (Connection member : members) {
                String client = member.getClientId();
                dashboard.admin.getConsumerRunningInfo(group, client, false).getMqTable()
                    .keySet().forEach(queue -> readers.put(queue, client));
            }
        } catch (Exception away) {
            System.err.println("members of " + group + ": " + away);
        }
        return readers;
    }

    private Object connections(JSONObject parameters) throws Exception {
        ConsumerConnection found = dashboard.admin.examineConsumerConnectionInfo(
            group(parameters), parameters.getString("address").split(",")[0]);
        JSONObject answer = (JSONObject) JSON.toJSON(found);
        answer.put("connectionSet", Dashboard.described(found.getConnectionSet()));
        return answer;
    }
}
