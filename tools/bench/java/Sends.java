import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Producers at full speed: for a time, or until a number of messages is sent. */
final class Sends {
    private static final long QUIET_LIMIT = 20_000_000_000L;
    private static final AtomicInteger INSTANCES = new AtomicInteger();

    private Sends() {}

    static String instance() {
        return "bench-" + INSTANCES.incrementAndGet();
    }

    static DefaultMQProducer producer(Lines.Arguments arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("bench-producers");
        if (arguments.number("transactional", 0) > 0) {
            TransactionMQProducer transactional = new TransactionMQProducer("bench-deciders");
            transactional.setTransactionListener(new Committer());
            producer = transactional;
        }
        producer.setNamesrvAddr(arguments.text("namesrv"));
        producer.setInstanceName(instance());
        producer.setVipChannelEnabled(false);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setSendMsgTimeout(20_000);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setMaxMessageSize(64 << 20);
        producer.start();
        return producer;
    }

    /** Commits at once, and whenever it is asked. */
    private static final class Committer implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }

    /** What the threads of one run share. */
    private static final class Run {
        final DefaultMQProducer producer;
        final Histogram latency = new Histogram();
        final AtomicLong done = new AtomicLong();
        final AtomicLong failed = new AtomicLong();
        final AtomicReference<Throwable> failure = new AtomicReference<>();
        final AtomicLong left;
        final int batch;
        private final String topic;
        private final byte[] body;
        private final int tagEvery;
        private final boolean application;
        private final String run = instance();
        private final AtomicLong numbers = new AtomicLong();
        private final long until;

        Run(Lines.Arguments arguments) throws Exception {
            producer = producer(arguments);
            topic = arguments.text("topic");
            body = new byte[arguments.number("size", 128)];
            Arrays.fill(body, (byte) 'x');
            batch = arguments.number("batch", 1);
            tagEvery = arguments.number("tag_every", 0);
            application = arguments.text("shape", "bare").equals("application");
            int count = arguments.number("count", 0);
            left = new AtomicLong(count > 0 ? count : Long.MAX_VALUE);
            producer.send(message());
            int seconds = arguments.number("seconds", 10);
            until = count > 0 ? Long.MAX_VALUE : System.nanoTime() + seconds * 1_000_000_000L;
        }

        boolean takes() {
            return System.nanoTime() < until && left.addAndGet(-batch) > -batch;
        }

        /** One message; with a key, a tag and three properties where the shape is an application's. */
        Message message() {
            long number = numbers.incrementAndGet();
            String tag = tagEvery == 0 ? "created" : number % tagEvery == 0 ? "rare" : "common";
            if (application) {
                Message message = new Message(topic, tag, run + "-" + number, body);
                message.putUserProperty("source", "checkout");
                message.putUserProperty("region", "eu-central-1");
                message.putUserProperty("customer", Long.toString(number % 10_000));
                return message;
            }
            return tagEvery == 0 ? new Message(topic, body) : new Message(topic, tag, body);
        }

        SendResult send() throws Exception {
            if (producer instanceof TransactionMQProducer) {
                return ((TransactionMQProducer) producer).sendMessageInTransaction(message(), null);
            }
            return batch > 1 ? producer.send(messages()) : producer.send(message());
        }

        List<Message> messages() {
            List<Message> messages = new ArrayList<>(batch);
            for (int i = 0; i < batch; i++) {
                messages.add(message());
            }
            return messages;
        }

        void succeeded(long started) {
            latency.record(System.nanoTime() - started);
            done.addAndGet(batch);
        }

        void failed(Throwable error) {
            failed.addAndGet(batch);
            failure.compareAndSet(null, error);
        }

        String result(long started) {
            double seconds = (System.nanoTime() - started) / 1e9;
            if (failure.get() != null) {
                failure.get().printStackTrace();
            }
            return String.format(
                "{\"count\": %d, \"failed\": %d, \"seconds\": %.4f%s}",
                done.get(), failed.get(), seconds, latency.isEmpty() ? "" : ", " + latency.json());
        }
    }

    static String sync(Lines.Arguments arguments) throws Exception {
        Run run = new Run(arguments);
        long started = System.nanoTime();
        inThreads(arguments.number("threads", 1), () -> {
            while (run.takes()) {
                long before = System.nanoTime();
                try {
                    SendResult result = run.send();
                    if (result.getSendStatus() == SendStatus.SEND_OK) {
                        run.succeeded(before);
                    } else {
                        run.failed(new IllegalStateException(result.toString()));
                    }
                } catch (Exception error) {
                    run.failed(error);
                }
            }
        });
        String answer = run.result(started);
        run.producer.shutdown();
        return answer;
    }

    /** A window of sends under way; `window` many. */
    static String async(Lines.Arguments arguments) throws Exception {
        Run run = new Run(arguments);
        int window = arguments.number("window", 256);
        Semaphore free = new Semaphore(window);
        long started = System.nanoTime();
        while (run.takes()) {
            free.acquire();
            long before = System.nanoTime();
            run.producer.send(run.message(), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    run.succeeded(before);
                    free.release();
                }

                @Override
                public void onException(Throwable error) {
                    run.failed(error);
                    free.release();
                }
            });
        }
        free.acquire(window);
        String answer = run.result(started);
        run.producer.shutdown();
        return answer;
    }

    /**
     * Counts what the broker has: nobody acknowledges a oneway message. At most `ahead` may be
     * under way, since the client cuts a connection on which a heartbeat waits for seconds.
     */
    static String oneway(Lines.Arguments arguments) throws Exception {
        Run run = new Run(arguments);
        // On a connection of its own, where nothing waits in front of the question.
        DefaultMQProducer observer = producer(arguments);
        long before = stored(observer, run.topic);
        int ahead = arguments.number("ahead", 4096);
        AtomicLong sent = new AtomicLong();
        AtomicLong stored = new AtomicLong();
        long started = System.nanoTime();
        Thread sending = new Thread(() -> inThreads(arguments.number("threads", 1), () -> {
            while (run.takes()) {
                try {
                    if (sent.get() - stored.get() >= ahead) {
                        LockSupport.parkNanos(100_000);
                        continue;
                    }
                    run.producer.sendOneway(run.message());
                    sent.incrementAndGet();
                } catch (Exception error) {
                    run.failed(error);
                }
            }
        }));
        sending.start();
        long changed = System.nanoTime();
        while ((sending.isAlive() || stored.get() < sent.get())
                && System.nanoTime() - changed < QUIET_LIMIT) {
            Thread.sleep(5);
            long now = stored(observer, run.topic) - before;
            if (now != stored.getAndSet(now)) {
                changed = System.nanoTime();
            }
        }
        sending.join();
        run.done.set(stored.get());
        run.failed.addAndGet(sent.get() - stored.get());
        String answer = run.result(started);
        observer.shutdown();
        run.producer.shutdown();
        return answer;
    }

    private static long stored(DefaultMQProducer observer, String topic) throws Exception {
        long total = 0;
        for (MessageQueue queue : observer.fetchPublishMessageQueues(topic)) {
            total += observer.maxOffset(queue);
        }
        return total;
    }

    static void inThreads(int count, Runnable work) {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Thread thread = new Thread(work);
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            try {
                thread.join();
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }
}
