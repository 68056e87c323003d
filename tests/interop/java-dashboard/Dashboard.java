import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.math.BigDecimal;
import java.math.RoundingMode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.attribute.TopicMessageType;
import org.apache.rocketmq.common.stats.Stats;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.body.BrokerStatsData;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.body.Connection;
import org.apache.rocketmq.remoting.protocol.body.ProducerConnection;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.stats.StatsAllSubCommand;

/**
 * What stock's dashboard 2.1.1 asks of servers for each request of its REST interface, with the
 * clients that it asks with, and the fields that it answers with. Each request stands in a table
 * by its method and path. What it keeps itself, such as lists of groups, is asked for anew.
 */
final class Dashboard {
    /** Makes what a request is answered with under `data`; parameters come from query and body. */
    interface Request {
        Object answer(JSONObject parameters) throws Exception;
    }

    /** A refusal in the dashboard's own words. */
    static final class Refused extends RuntimeException {
        Refused(String why) {
            super(why);
        }
    }

    final String namesrv;
    final DefaultMQAdminExt admin;
    final DefaultMQPullConsumer puller;
    private final Map<String, Request> requests = new TreeMap<>();

    Dashboard(JSONObject arguments) throws Exception {
        namesrv = arguments.getString("namesrv");
        admin = new DefaultMQAdminExt(Clients.PATIENCE_MS);
        Clients.configure(admin, arguments);
        admin.start();
        puller = new DefaultMQPullConsumer(MixAll.TOOLS_CONSUMER_GROUP);
        JSONObject ofPuller = new JSONObject(arguments);
        ofPuller.put("instance", arguments.getString("handle") + "-puller");
        Clients.configure(puller, ofPuller);
        puller.setConsumerPullTimeoutMillis(Clients.PATIENCE_MS);
        puller.start();
        requests.put("GET /cluster/list.query", this::cluster);
        requests.put("GET /cluster/brokerConfig.query",
            parameters -> admin.getBrokerConfig(parameters.getString("brokerAddr")));
        requests.put("GET /producer/producerConnection.query", this::producers);
        requests.put("GET /dashboard/broker.query", this::ratesOfBrokers);
        requests.put("GET /dashboard/topic.query", this::ratesOfTopics);
        requests.put("GET /dashboard/topicCurrent.query", this::readOfTopics);
        new DashboardTopics(this).register(requests);
        new DashboardConsumers(this).register(requests);
        DashboardMessages messages = new DashboardMessages(this);
        messages.register(requests);
        new DashboardTraces(this, messages).register(requests);
    }

    void stop() {
        puller.shutdown();
        admin.shutdown();
    }

    /** The body of the dashboard's answer. */
    JSONObject answer(String name, JSONObject parameters) {
        Request request = requests.get(name);
        if (request == null) {
            throw new IllegalArgumentException("no request " + name);
        }
        JSONObject answer = new JSONObject();
        try {
            answer.put("data", Admin.plain(request.answer(parameters)));
            answer.put("status", 0);
            answer.put("errMsg", null);
        } catch (Exception error) {
            answer.put("data", null);
            answer.put("status", -1);
            boolean told = error instanceof RuntimeException && error.getMessage() != null;
            answer.put("errMsg", told ? error.getMessage() : error.toString());
        }
        return answer;
    }

    MQClientInstance client() {
        return admin.getDefaultMQAdminExtImpl().getMqClientInstance();
    }

    /** The answer to a request that the dashboard sends by itself; a refusal is raised. */
    RemotingCommand ask(String address, int code, CommandCustomHeader header) throws Exception {
        RemotingCommand asked = RemotingCommand.createRequestCommand(code, header);
        RemotingCommand answer = client().getMQClientAPIImpl().getRemotingClient()
            .invokeSync(address, asked, Clients.PATIENCE_MS);
        if (answer.getCode() != ResponseCode.SUCCESS) {
            throw new MQBrokerException(answer.getCode(), answer.getRemark(), address);
        }
        return answer;
    }

    Collection<BrokerData> brokers() throws Exception {
        return admin.examineBrokerClusterInfo().getBrokerAddrTable().values();
    }

    String addressOf(String broker) throws Exception {
        BrokerData found = admin.examineBrokerClusterInfo().getBrokerAddrTable().get(broker);
        if (found == null) {
            throw new Refused("Broker not found: " + broker);
        }
        return found.selectBrokerAddr();
    }

    /** The brokers that a form names, by themselves or by their clusters. */
    Set<String> brokersOf(JSONObject form) throws Exception {
        Set<String> names = new HashSet<>(texts(form, "brokerNameList"));
        ClusterInfo cluster = admin.examineBrokerClusterInfo();
        for (String name : texts(form, "clusterNameList")) {
            names.addAll(cluster.getClusterAddrTable().get(name));
        }
        return names;
    }

    static List<String> texts(JSONObject form, String key) {
        return form.containsKey(key)
            ? form.getJSONArray(key).toJavaList(String.class) : Collections.emptyList();
    }

    void deleteOnNameServers(String topic) throws Exception {
        admin.deleteTopicInNameServer(new HashSet<>(Arrays.asList(namesrv.split(";"))), topic);
    }

    /** Connections with the name of each client's version. */
    static List<Object> described(Collection<Connection> connections) {
        List<Object> described = new ArrayList<>();
        for (Connection connection : connections) {
            JSONObject json = (JSONObject) JSON.toJSON(connection);
            json.put("versionDesc", MQVersion.getVersionDesc(connection.getVersion()));
            described.add(json);
        }
        return described;
    }

    private Object cluster(JSONObject parameters) throws Exception {
        ClusterInfo cluster = admin.examineBrokerClusterInfo();
        Map<String, Object> figures = new TreeMap<>();
        for (BrokerData broker : cluster.getBrokerAddrTable().values()) {
            Map<Long, Object> byId = new TreeMap<>();
            for (Map.Entry<Long, String> server : broker.getBrokerAddrs().entrySet()) {
                byId.put(server.getKey(),
                    admin.fetchBrokerRuntimeStats(server.getValue()).getTable());
            }
            figures.put(broker.getBrokerName(), byId);
        }
        Map<String, String> types = new TreeMap<>();
        for (TopicMessageType type : TopicMessageType.values()) {
            types.put(type.getValue(), "MESSAGE_TYPE_" + type.getValue());
        }
        JSONObject answer = new JSONObject();
        answer.put("clusterInfo", cluster);
        answer.put("brokerServer", figures);
        answer.put("messageTypes", types);
        return answer;
    }

    private Object producers(JSONObject parameters) throws Exception {
        ProducerConnection found = admin.examineProducerConnectionInfo(
            parameters.getString("producerGroup"), parameters.getString("topic"));
        JSONObject answer = (JSONObject) JSON.toJSON(found);
        answer.put("connectionSet", described(found.getConnectionSet()));
        return answer;
    }

    /** What the dashboard collects each minute of brokers: time and messages read in a second. */
    private Object ratesOfBrokers(JSONObject parameters) throws Exception {
        Map<String, Object> rates = new TreeMap<>();
        for (BrokerData broker : brokers()) {
            for (Map.Entry<Long, String> server : broker.getBrokerAddrs().entrySet()) {
                String told = admin.fetchBrokerRuntimeStats(server.getValue())
                    .getTable().get("getTotalTps");
                double mean = Arrays.stream(told.split(" "))
                    .mapToDouble(Double::parseDouble).average().orElse(0);
                rates.put(broker.getBrokerName() + ":" + server.getKey(),
                    Collections.singletonList(System.currentTimeMillis() + "," + fixed(mean)));
            }
        }
        return rates;
    }

    /** As above of topics: time, what came in a second and today, what was read likewise. */
    private Object ratesOfTopics(JSONObject parameters) throws Exception {
        Map<String, Object> rates = new TreeMap<>();
        for (String topic : userTopics()) {
            String[] told = rates(topic);
            rates.put(topic, Collections.singletonList(
                System.currentTimeMillis() + "," + String.join(",", told)));
        }
        String asked = parameters.getString("topicName");
        return asked == null ? rates : rates.get(asked);
    }

    private Object readOfTopics(JSONObject parameters) throws Exception {
        List<String> read = new ArrayList<>();
        for (String topic : userTopics()) {
            read.add(topic + "," + rates(topic)[3]);
        }
        return read;
    }

    private Set<String> userTopics() throws Exception {
        ClusterInfo cluster = admin.examineBrokerClusterInfo();
        Set<String> topics = new TreeSet<>(admin.fetchAllTopicList().getTopicList());
        topics.removeIf(topic -> topic.startsWith(MixAll.RETRY_GROUP_TOPIC_PREFIX)
            || topic.startsWith(MixAll.DLQ_GROUP_TOPIC_PREFIX)
            || TopicValidator.isSystemTopic(topic)
            || cluster.getBrokerAddrTable().containsKey(topic)
            || cluster.getClusterAddrTable().containsKey(topic)
            || cluster.getClusterAddrTable().keySet().stream()
                .anyMatch(name -> topic.equals(MixAll.getReplyTopic(name))));
        return topics;
    }

    private String[] rates(String topic) throws Exception {
        Set<String> groups = admin.queryTopicConsumeByWho(topic).getGroupList();
        double[] inASecond = new double[2];
        long[] today = new long[2];
        for (BrokerData broker : admin.examineTopicRouteInfo(topic).getBrokerDatas()) {
            String master = broker.getBrokerAddrs().get(MixAll.MASTER_ID);
            add(inASecond, today, 0, master, Stats.TOPIC_PUT_NUMS, topic);
            for (String group : groups) {
                add(inASecond, today, 1, master, Stats.GROUP_GET_NUMS, topic + "@" + group);
            }
        }
        return new String[] {
            fixed(inASecond[0]), "" + today[0], fixed(inASecond[1]), "" + today[1]};
    }

    /** A broker refuses to tell of what it has not counted yet; the dashboard expects that. */
    private void add(
        double[] inASecond, long[] today, int place, String address, String name, String key) {
        try {
            BrokerStatsData data = admin.viewBrokerStatsData(address, name, key);
            inASecond[place] += data.getStatsMinute().getTps();
            today[place] += StatsAllSubCommand.compute24HourSum(data);
        } catch (Exception notCounted) {
            System.err.println(name + " of " + key + ": " + notCounted);
        }
    }

    private static String fixed(double number) {
        return new BigDecimal(number).setScale(5, RoundingMode.HALF_UP).toString();
    }
}
