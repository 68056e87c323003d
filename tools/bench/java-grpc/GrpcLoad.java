import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/** The load of a benchmark by stock's gRPC client. */
public final class GrpcLoad {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Duration INVISIBLE = Duration.ofSeconds(60);
    private static final long QUIET_LIMIT = 30_000_000_000L;
    private static final int GROUPS = 64;

    private interface Work {
        void run(int thread) throws Exception;
    }

    private GrpcLoad() {}

    public static void main(String[] arguments) throws Exception {
        Lines.answer(Map.of(
            "send", GrpcLoad::send,
            "receive", GrpcLoad::receive,
            "wake", GrpcLoad::wake,
            "late", GrpcLoad::late));
    }

    /**
     * Sends for a time, or a number of messages, by so many clients in turn, each with a connection; with `fifo`
     * each thread has message groups of its own.
     */
    private static String send(Lines.Arguments arguments) throws Exception {
        int threads = arguments.number("threads", 1);
        int size = arguments.number("size", 128);
        int most = arguments.number("count", Integer.MAX_VALUE);
        boolean fifo = arguments.number("fifo", 0) > 0;
        String topic = arguments.text("topic");
        Histogram times = new Histogram();
        AtomicLong sent = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        AtomicInteger number = new AtomicInteger();
        byte[] body = new byte[size];
        List<Producer> producers = new ArrayList<>();
        double seconds;
        try {
            for (int client = 0; client < arguments.number("clients", 1); client++) {
                producers.add(producer(arguments));
                producers.get(client).send(message(topic, body, fifo ? "first" : null, 0).build());
            }
            long began = System.nanoTime();
            long end = began + arguments.number("seconds", 3600) * 1_000_000_000L;
            inThreads(threads, thread -> {
                Producer producer = producers.get(thread % producers.size());
                for (int turn = 0; System.nanoTime() < end && number.incrementAndGet() <= most; turn++) {
                    String group = fifo ? thread + "-" + turn % (GROUPS / threads + 1) : null;
                    long start = System.nanoTime();
                    try {
                        producer.send(message(topic, body, group, turn).build());
                        times.record(System.nanoTime() - start);
                        sent.incrementAndGet();
                    } catch (Exception error) {
                        failed.incrementAndGet();
                    }
                }
            });
            seconds = (System.nanoTime() - began) / 1e9;
        } finally {
            for (Producer producer : producers) {
                producer.close();
            }
        }
        return json(sent.get(), failed.get(), seconds, times);
    }

    /** Receives and acknowledges as many messages as the topic has; the time of a receive counts. */
    private static String receive(Lines.Arguments arguments) throws Exception {
        int expected = arguments.number("expect", 1);
        int threads = arguments.number("threads", 8);
        int batch = arguments.number("batch", 32);
        Histogram times = new Histogram();
        AtomicLong received = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        AtomicLong last = new AtomicLong(System.nanoTime());
        double seconds;
        try (SimpleConsumer consumer = consumer(arguments, Duration.ofSeconds(2))) {
            long began = System.nanoTime();
            inThreads(threads, thread -> {
                while (received.get() < expected && System.nanoTime() - last.get() < QUIET_LIMIT) {
                    long start = System.nanoTime();
                    List<MessageView> messages = consumer.receive(batch, INVISIBLE);
                    if (!messages.isEmpty()) {
                        times.record(System.nanoTime() - start);
                    }
                    for (MessageView message : messages) {
                        try {
                            consumer.ack(message);
                            received.incrementAndGet();
                            last.set(System.nanoTime());
                        } catch (Exception error) {
                            failed.incrementAndGet();
                        }
                    }
                }
            });
            seconds = (last.get() - began) / 1e9;
        }
        if (received.get() < expected) {
            throw new IllegalStateException(received + " of " + expected + " messages came");
        }
        return json(received.get(), failed.get(), seconds, times);
    }

    /** From the begin of a send until a receive that waits for it has the message. */
    private static String wake(Lines.Arguments arguments) throws Exception {
        return arrivals(arguments, 0, arguments.number("pause", 100));
    }

    /** From the time that a message is to be delivered at until a receive has it. */
    private static String late(Lines.Arguments arguments) throws Exception {
        return arrivals(arguments, arguments.number("delay", 3000), arguments.number("pause", 100));
    }

    private static String arrivals(Lines.Arguments arguments, int delay, int pause) throws Exception {
        int count = arguments.number("count", 100);
        String topic = arguments.text("topic");
        Histogram times = new Histogram();
        AtomicInteger received = new AtomicInteger();
        AtomicLong last = new AtomicLong(System.nanoTime());
        long began = System.nanoTime();
        try (Producer producer = producer(arguments);
            SimpleConsumer consumer = consumer(arguments, Duration.ofSeconds(10))) {
            Thread reader = new Thread(() -> {
                while (received.get() < count && System.nanoTime() - last.get() < QUIET_LIMIT) {
                    try {
                        for (MessageView message : consumer.receive(16, INVISIBLE)) {
                            long due = Long.parseLong(text(message.getBody()));
                            times.record(delay > 0
                                ? (System.currentTimeMillis() - due) * 1_000_000
                                : System.nanoTime() - due);
                            received.incrementAndGet();
                            last.set(System.nanoTime());
                            consumer.ack(message);
                        }
                    } catch (Exception error) {
                        error.printStackTrace();
                    }
                }
            });
            reader.start();
            Thread.sleep(1000);
            for (int number = 0; number < count; number++) {
                long due = delay > 0 ? System.currentTimeMillis() + delay : System.nanoTime();
                MessageBuilder message = PROVIDER.newMessageBuilder().setTopic(topic)
                    .setBody(Long.toString(due).getBytes(StandardCharsets.US_ASCII));
                if (delay > 0) {
                    message.setDeliveryTimestamp(due);
                }
                producer.send(message.build());
                Thread.sleep(pause);
            }
            reader.join();
        }
        if (received.get() < count) {
            throw new IllegalStateException(received + " of " + count + " messages came");
        }
        return json(received.get(), 0, (System.nanoTime() - began) / 1e9, times);
    }

    private static void inThreads(int count, Work work) throws Exception {
        List<Thread> threads = new ArrayList<>();
        List<Exception> errors = Collections.synchronizedList(new ArrayList<>());
        for (int number = 0; number < count; number++) {
            int thread = number;
            threads.add(new Thread(() -> {
                try {
                    work.run(thread);
                } catch (Exception error) {
                    errors.add(error);
                }
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        if (!errors.isEmpty()) {
            throw errors.get(0);
        }
    }

    private static MessageBuilder message(String topic, byte[] body, String group, int number) {
        MessageBuilder message = PROVIDER.newMessageBuilder().setTopic(topic).setBody(body)
            .setKeys("order-" + number).setTag("tag").addProperty("region", "north").addProperty("kind", "paid")
            .addProperty("source", "bench");
        return group == null ? message : message.setMessageGroup(group);
    }

    private static Producer producer(Lines.Arguments arguments) throws Exception {
        return PROVIDER.newProducerBuilder().setClientConfiguration(configuration(arguments))
            .setTopics(arguments.text("topic")).setMaxAttempts(1).build();
    }

    private static SimpleConsumer consumer(Lines.Arguments arguments, Duration wait) throws Exception {
        return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration(arguments))
            .setConsumerGroup(arguments.text("group")).setAwaitDuration(wait)
            .setSubscriptionExpressions(Map.of(arguments.text("topic"), FilterExpression.SUB_ALL)).build();
    }

    private static ClientConfiguration configuration(Lines.Arguments arguments) {
        return ClientConfiguration.newBuilder().setEndpoints(arguments.text("endpoint")).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(30)).build();
    }

    private static String text(ByteBuffer body) {
        return StandardCharsets.US_ASCII.decode(body).toString();
    }

    private static String json(long count, long failed, double seconds, Histogram times) {
        return String.format("{\"count\": %d, \"failed\": %d, \"seconds\": %.6f, %s}",
            count, failed, seconds, times.json());
    }
}
