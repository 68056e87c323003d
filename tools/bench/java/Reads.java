import java.nio.ByteBuffer;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers: catching up by push and by pull, and the way from send to listener. */
final class Reads {
    private static final long LIMIT_SECONDS = 300;

    private Reads() {}

    private static DefaultMQPushConsumer consumer(
            Lines.Arguments arguments, MessageListenerConcurrently listener) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments.text("group"));
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.setInstanceName(Sends.instance());
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(arguments.number("consume_batch", 1));
        consumer.subscribe(arguments.text("topic"), arguments.text("expression", "*"));
        consumer.registerMessageListener(listener);
        return consumer;
    }

    /** From the first message that arrives until `expect` did. */
    static String consume(Lines.Arguments arguments) throws Exception {
        long expected = arguments.number("expect", 0);
        AtomicLong seen = new AtomicLong();
        AtomicLong first = new AtomicLong();
        CountDownLatch all = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = consumer(arguments, (messages, context) -> {
            first.compareAndSet(0, System.nanoTime());
            if (seen.addAndGet(messages.size()) >= expected) {
                all.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        long started = System.nanoTime();
        consumer.start();
        boolean complete = all.await(LIMIT_SECONDS, TimeUnit.SECONDS);
        long ended = System.nanoTime();
        consumer.shutdown();
        return String.format(
            "{\"count\": %d, \"failed\": %d, \"seconds\": %.4f, \"first_seconds\": %.4f}",
            seen.get(), complete ? 0 : expected - seen.get(),
            (ended - first.get()) / 1e9, (first.get() - started) / 1e9);
    }

    /**
     * Every queue from its first message on, one pull after the other, again and again until
     * `seconds` are over; what a filter passes over counts as well.
     */
    static String pull(Lines.Arguments arguments) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(arguments.text("group"));
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.setInstanceName(Sends.instance());
        consumer.setVipChannelEnabled(false);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.start();
        Set<MessageQueue> queues = consumer.fetchSubscribeMessageQueues(arguments.text("topic"));
        int most = arguments.number("max", 32);
        String expression = arguments.text("expression", "*");
        String sql = arguments.text("sql", "");
        MessageSelector selector =
            sql.isEmpty() ? MessageSelector.byTag(expression) : MessageSelector.bySql(sql);
        Histogram latency = new Histogram();
        if (!sql.isEmpty()) {
            awaitVersion(consumer, queues.iterator().next(), selector);
        }
        long count = 0;
        long started = System.nanoTime();
        long end = started + TimeUnit.SECONDS.toNanos(arguments.number("seconds", 0));
        do {
            for (MessageQueue queue : queues) {
                long first = consumer.minOffset(queue);
                long offset = first;
                while (true) {
                    long before = System.nanoTime();
                    PullResult result = consumer.pull(queue, selector, offset, most, 20_000);
                    latency.record(System.nanoTime() - before);
                    if (result.getPullStatus() != PullStatus.FOUND
                            && result.getNextBeginOffset() <= offset) {
                        break;
                    }
                    offset = result.getNextBeginOffset();
                }
                count += offset - first;
            }
        } while (System.nanoTime() < end);
        double seconds = (System.nanoTime() - started) / 1e9;
        consumer.shutdown();
        return String.format(
            "{\"count\": %d, \"failed\": 0, \"seconds\": %.4f, %s}",
            count, seconds, latency.json());
    }

    /** The client filters by SQL92 once a heartbeat has told it the broker's version. */
    private static void awaitVersion(
        DefaultMQPullConsumer consumer, MessageQueue queue, MessageSelector selector)
        throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_SECONDS);
        while (true) {
            try {
                consumer.pull(queue, selector, consumer.minOffset(queue), 1, 20_000);
                return;
            } catch (MQClientException error) {
                if (System.nanoTime() > end) {
                    throw error;
                }
                Thread.sleep(100);
            }
        }
    }

    /**
     * From before `send` to the listener, at `rate` messages a second, or with 0 as fast as they are
     * taken. Messages that are to come after `delay_ms` are measured from when they are due, and
     * then the run lasts until the last one came, less that delay.
     */
    static String latency(Lines.Arguments arguments) throws Exception {
        Histogram latency = new Histogram();
        AtomicLong seen = new AtomicLong();
        AtomicLong last = new AtomicLong();
        CountDownLatch attached = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = consumer(arguments, (messages, context) -> {
            attached.countDown();
            long now = System.nanoTime();
            for (MessageExt message : messages) {
                long sent = ByteBuffer.wrap(message.getBody()).getLong();
                if (sent > 0) {
                    latency.record(now - sent);
                    seen.incrementAndGet();
                    last.set(now);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQProducer producer = Sends.producer(arguments);
        // The topic is there before the consumer asks for it: it would ask again much later.
        producer.send(new Message(arguments.text("topic"), stamped(0)));
        consumer.start();
        if (!attached.await(LIMIT_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the consumer was given no message");
        }
        int rate = arguments.number("rate", 1000);
        int delay = arguments.number("delay_ms", 0);
        long count = rate == 0
            ? arguments.number("count", 0) : (long) rate * arguments.number("seconds", 10);
        long started = System.nanoTime();
        AtomicLong next = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        Sends.inThreads(arguments.number("threads", 4), () -> {
            long number;
            while ((number = next.getAndIncrement()) < count) {
                long due = rate == 0 ? started : started + number * 1_000_000_000L / rate;
                long wait;
                while ((wait = due - System.nanoTime()) > 0) {
                    LockSupport.parkNanos(wait);
                }
                try {
                    long at = System.nanoTime() + delay * 1_000_000L;
                    Message message = new Message(arguments.text("topic"), stamped(at));
                    if (delay > 0) {
                        message.setDelayTimeMs(delay);
                    }
                    producer.send(message);
                } catch (Exception error) {
                    failed.incrementAndGet();
                }
            }
        });
        double sending = (System.nanoTime() - started) / 1e9;
        for (int i = 0; i < 200 + delay && seen.get() < count - failed.get(); i++) {
            Thread.sleep(10);
        }
        double seconds = delay == 0 ? sending : (last.get() - started) / 1e9 - delay / 1e3;
        String answer = String.format(
            "{\"count\": %d, \"failed\": %d, \"seconds\": %.4f, %s}",
            seen.get(), count - seen.get(), seconds, latency.json());
        producer.shutdown();
        consumer.shutdown();
        return answer;
    }

    private static byte[] stamped(long nanos) {
        return ByteBuffer.allocate(128).putLong(nanos).array();
    }
}
