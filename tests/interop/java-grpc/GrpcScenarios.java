import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * What stock's gRPC client does with a proxy: each line "ENDPOINT PREFIX SCENARIO..." on stdin runs these scenarios at
 * once, on the topics and groups that begin with the prefix. What a scenario sees is a line of words, separated by tabs,
 * that begins with its name; "done" is the last one.
 */
public final class GrpcScenarios {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Duration INVISIBLE = Duration.ofSeconds(60);
    private static final long LIMIT_MS = 180_000;
    private static final int LARGE = 3 << 20;

    private final ClientConfiguration configuration;
    private final String prefix;
    private final Collection<String> names;
    private final Producer producer;

    private interface Scenario {
        void run() throws Exception;
    }

    private interface Done {
        boolean with(MessageView message) throws Exception;
    }

    private GrpcScenarios(String endpoint, String prefix, Collection<String> names) throws Exception {
        this.configuration = ClientConfiguration.newBuilder().setEndpoints(endpoint).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(30)).build();
        this.prefix = prefix;
        this.names = names;
        this.producer = PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration)
            .setTopics(names.stream().map(this::topic).toArray(String[]::new))
            .setTransactionChecker(message -> {
                note("transaction", "asked", body(message));
                // Brokers may ask about one that is decided.
                return body(message).equals("rolled back")
                    ? TransactionResolution.ROLLBACK : TransactionResolution.COMMIT;
            })
            .build();
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            try {
                new GrpcScenarios(words[0], words[1], Arrays.asList(words).subList(2, words.length)).run();
            } catch (Exception error) {
                failed("start", error);
            }
            note("done");
        }
        // A clean shutdown of every client would wait for its long polls.
        Runtime.getRuntime().halt(0);
    }

    private void run() throws InterruptedException {
        Map<String, Scenario> scenarios = new HashMap<>();
        scenarios.put("tags", this::tags);
        scenarios.put("sql", this::sql);
        scenarios.put("large", this::large);
        scenarios.put("invisible", this::invisible);
        scenarios.put("push", this::push);
        scenarios.put("fifo", this::fifo);
        scenarios.put("delay", this::delay);
        scenarios.put("transaction", this::transaction);
        scenarios.put("mixed", this::mixed);
        scenarios.put("from-classic", this::fromClassic);
        scenarios.put("to-classic", this::toClassic);
        scenarios.put("asked", this::asked);
        scenarios.keySet().retainAll(names);
        List<Thread> threads = new ArrayList<>();
        for (Map.Entry<String, Scenario> scenario : scenarios.entrySet()) {
            Thread thread = new Thread(() -> {
                try {
                    scenario.getValue().run();
                } catch (Throwable error) {
                    failed(scenario.getKey(), error);
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private void tags() throws Exception {
        SimpleConsumer consumer = consumer("tags", new FilterExpression("wanted || also"));
        for (String tag : new String[] {"wanted", "unwanted", "also"}) {
            SendReceipt sent = producer.send(message("tags", "body " + tag).setTag(tag).setKeys("k-1", "k-2")
                .addProperty("color", "red").build());
            note("tags", "sent", sent.getMessageId().toString());
        }
        receive(consumer, message -> {
            note("tags", "received", message.getMessageId().toString(), body(message), message.getTag().get(),
                String.join(",", new TreeSet<>(message.getKeys())), message.getProperties().get("color"),
                String.valueOf(message.getDeliveryAttempt()));
            consumer.ack(message);
            return message.getTag().get().equals("also");
        });
    }

    private void sql() throws Exception {
        SimpleConsumer consumer = consumer("sql",
            new FilterExpression("price > 10 AND color = 'red'", FilterExpressionType.SQL92));
        for (String[] each : new String[][] {{"red", "9"}, {"blue", "20"}, {"red", "20"}}) {
            producer.send(message("sql", each[0] + " " + each[1]).addProperty("color", each[0])
                .addProperty("price", each[1]).build());
        }
        receive(consumer, message -> {
            note("sql", "received", body(message));
            consumer.ack(message);
            return true;
        });
    }

    private void large() throws Exception {
        byte[] large = bytes(LARGE);
        SimpleConsumer consumer = consumer("large", FilterExpression.SUB_ALL);
        producer.send(PROVIDER.newMessageBuilder().setTopic(topic("large")).setBody(large).build());
        receive(consumer, message -> {
            boolean same = message.getBody().equals(ByteBuffer.wrap(large));
            note("large", same ? "same" : "other", String.valueOf(message.getBody().remaining()));
            consumer.ack(message);
            return true;
        });
    }

    private void invisible() throws Exception {
        SimpleConsumer consumer = consumer("invisible", FilterExpression.SUB_ALL);
        producer.send(message("invisible", "shown again").build());
        receive(consumer, message -> {
            note("invisible", "received", body(message), String.valueOf(message.getDeliveryAttempt()));
            if (message.getDeliveryAttempt() == 1) {
                consumer.changeInvisibleDuration(message, Duration.ofSeconds(1));
                return false;
            }
            consumer.ack(message);
            return true;
        });
    }

    private void push() throws Exception {
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        pushConsumer("push", message -> {
            String line = body(message) + " " + message.getDeliveryAttempt();
            note("push", "consumed", body(message), String.valueOf(message.getDeliveryAttempt()));
            seen.add(line);
            return line.startsWith("never") || line.equals("once 1") ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        });
        for (String body : new String[] {"good", "once", "never"}) {
            producer.send(message("push", body).build());
        }
        await(() -> seen.containsAll(Arrays.asList("good 1", "once 2", "never 2")), "push");
    }

    private void fifo() throws Exception {
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        pushConsumer("fifo", message -> {
            String line = body(message) + " " + message.getDeliveryAttempt();
            note("fifo", "consumed", message.getMessageGroup().get(), body(message),
                String.valueOf(message.getDeliveryAttempt()));
            seen.add(line);
            return line.startsWith("b-never") || line.equals("a-1 1") ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        });
        for (String body : new String[] {"a-0", "b-never", "a-1", "b-next", "a-2"}) {
            producer.send(message("fifo", body).setMessageGroup(body.substring(0, 1)).build());
        }
        await(() -> seen.containsAll(Arrays.asList("a-2 1", "b-never 2", "b-next 1")), "fifo");
    }

    private void delay() throws Exception {
        SimpleConsumer consumer = consumer("delay", FilterExpression.SUB_ALL);
        long anHour = System.currentTimeMillis() + 3_600_000;
        SendReceipt recalled = producer.send(message("delay", "recalled").setDeliveryTimestamp(anHour).build());
        String handle = recalled.getRecallHandle();
        boolean same = producer.recallMessage(topic("delay"), handle).getMessageId().equals(recalled.getMessageId());
        note("delay", "recalled", String.valueOf(same));
        long due = System.currentTimeMillis() + 3_000;
        producer.send(message("delay", "late").setDeliveryTimestamp(due).build());
        receive(consumer, message -> {
            note("delay", "received", body(message), String.valueOf(System.currentTimeMillis() - due));
            consumer.ack(message);
            return true;
        });
    }

    private void transaction() throws Exception {
        SimpleConsumer consumer = consumer("transaction", FilterExpression.SUB_ALL);
        Transaction first = producer.beginTransaction();
        producer.send(message("transaction", "committed").build(), first);
        first.commit();
        Transaction second = producer.beginTransaction();
        producer.send(message("transaction", "rolled back").build(), second);
        second.rollback();
        producer.send(message("transaction", "orphan").build(), producer.beginTransaction());
        receive(consumer, message -> {
            note("transaction", "received", body(message));
            consumer.ack(message);
            return body(message).equals("orphan");
        });
    }

    /** Each kind of message in one topic. */
    private void mixed() throws Exception {
        SimpleConsumer consumer = consumer("mixed", FilterExpression.SUB_ALL);
        producer.send(message("mixed", "plain").build());
        producer.send(message("mixed", "in order").setMessageGroup("group").build());
        long due = System.currentTimeMillis() + 2_000;
        producer.send(message("mixed", "late").setDeliveryTimestamp(due).build());
        Transaction transaction = producer.beginTransaction();
        producer.send(message("mixed", "committed").build(), transaction);
        transaction.commit();
        Set<String> seen = new HashSet<>();
        receive(consumer, message -> {
            note("mixed", "received", body(message), message.getMessageGroup().orElse("-"),
                String.valueOf(System.currentTimeMillis() - due));
            consumer.ack(message);
            seen.add(body(message));
            return seen.size() == 4;
        });
    }

    /** Messages of classic producers, each of which has a tag of its own and says how many there are. */
    private void fromClassic() throws Exception {
        SimpleConsumer consumer = consumer("from-classic", FilterExpression.SUB_ALL);
        Set<String> seen = new HashSet<>();
        receive(consumer, message -> {
            note("from-classic", "received", message.getMessageId().toString(), message.getTag().get(),
                String.join(",", message.getKeys()), String.valueOf(message.getBody().remaining()),
                crc(message.getBody()));
            consumer.ack(message);
            seen.add(message.getTag().get());
            return seen.size() == Integer.parseInt(message.getProperties().get("of"));
        });
    }

    private void toClassic() throws Exception {
        for (int size : new int[] {5_000, 2 << 20}) {
            byte[] bytes = bytes(size);
            SendReceipt sent = producer.send(PROVIDER.newMessageBuilder().setTopic(topic("to-classic")).setBody(bytes)
                .setTag("tag-" + size).setKeys("k-1", "k-2").addProperty("color", "red").build());
            note("to-classic", "sent", sent.getMessageId().toString(), String.valueOf(size),
                crc(ByteBuffer.wrap(bytes)));
        }
    }

    /** A consumer that tools may have consume its messages again: one of them it takes the first time only. */
    private void asked() throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        pushConsumer("asked", message -> {
            boolean first = seen.add(body(message));
            return first || body(message).equals("always") ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
        });
        for (String body : new String[] {"always", "once"}) {
            note("asked", "sent", body, producer.send(message("asked", body).build()).getMessageId().toString());
        }
        await(() -> seen.size() == 2, "asked");
    }

    private static byte[] bytes(int size) {
        byte[] bytes = new byte[size];
        for (int place = 0; place < size; place++) {
            bytes[place] = (byte) (place * 31 + place / 1000);
        }
        return bytes;
    }

    private static String crc(ByteBuffer bytes) {
        CRC32 crc = new CRC32();
        crc.update(bytes.duplicate());
        return String.valueOf(crc.getValue());
    }

    private String topic(String scenario) {
        return prefix + "-" + scenario;
    }

    private MessageBuilder message(String scenario, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic(scenario)).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private SimpleConsumer consumer(String scenario, FilterExpression expression) throws Exception {
        Map<String, FilterExpression> subscriptions = new HashMap<>();
        subscriptions.put(topic(scenario), expression);
        return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(topic(scenario)).setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(subscriptions).build();
    }

    private PushConsumer pushConsumer(String scenario, MessageListener listener) throws Exception {
        Map<String, FilterExpression> subscriptions = new HashMap<>();
        subscriptions.put(topic(scenario), FilterExpression.SUB_ALL);
        return PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(topic(scenario)).setConsumptionThreadCount(4)
            .setSubscriptionExpressions(subscriptions).setMessageListener(listener).build();
    }

    /** Receives until a message is the last one. */
    private static void receive(SimpleConsumer consumer, Done done) throws Exception {
        boolean[] last = {false};
        for (long end = System.currentTimeMillis() + LIMIT_MS; !last[0]; ) {
            if (System.currentTimeMillis() > end) {
                throw new IOException("not all came");
            }
            for (MessageView message : consumer.receive(16, INVISIBLE)) {
                last[0] |= done.with(message);
            }
        }
    }

    private interface Condition {
        boolean holds();
    }

    private static void await(Condition condition, String what) throws Exception {
        for (long end = System.currentTimeMillis() + LIMIT_MS; !condition.holds(); Thread.sleep(20)) {
            if (System.currentTimeMillis() > end) {
                throw new IOException("not all came: " + what);
            }
        }
    }

    private static String body(MessageView message) {
        return StandardCharsets.UTF_8.decode(message.getBody()).toString();
    }

    private static void failed(String scenario, Throwable error) {
        error.printStackTrace();
        note(scenario, "failed", String.valueOf(error).replaceAll("\\s+", " "));
    }

    private static void note(String... words) {
        synchronized (System.out) {
            System.out.println(String.join("\t", words));
            System.out.flush();
        }
    }
}
