import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/** Members of a group that pop a topic empty and acknowledge each message. */
final class Pops {
    private static final long LIMIT_SECONDS = 300;

    private Pops() {}

    /** Until `expect` messages are acknowledged; the latency is that of a pop with all its acks. */
    static String pop(Lines.Arguments arguments) throws Exception {
        DefaultMQPullConsumer client = new DefaultMQPullConsumer(arguments.text("group"));
        client.setNamesrvAddr(arguments.text("namesrv"));
        client.setInstanceName(Sends.instance());
        client.setVipChannelEnabled(false);
        client.start();
        MQClientAPIImpl api = client.getDefaultMQPullConsumerImpl()
            .getRebalanceImpl().getmQClientFactory().getMQClientAPIImpl();
        long expected = arguments.number("expect", 0);
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_SECONDS);
        Histogram latency = new Histogram();
        AtomicLong acked = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        long started = System.nanoTime();
        Sends.inThreads(arguments.number("threads", 8), () -> {
            while (acked.get() < expected && System.nanoTime() < deadline) {
                long before = System.nanoTime();
                try {
                    int count = round(api, arguments, failed);
                    if (count > 0) {
                        latency.record(System.nanoTime() - before);
                        acked.addAndGet(count);
                    }
                } catch (Exception error) {
                    failed.incrementAndGet();
                }
            }
        });
        double seconds = (System.nanoTime() - started) / 1e9;
        client.shutdown();
        return String.format(
            "{\"count\": %d, \"failed\": %d, \"seconds\": %.4f, %s}",
            acked.get(), failed.get(), seconds, latency.json());
    }

    private static int round(MQClientAPIImpl api, Lines.Arguments arguments, AtomicLong failed)
            throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(arguments.text("group"));
        header.setTopic(arguments.text("topic"));
        header.setQueueId(-1);
        header.setMaxMsgNums(32);
        header.setInvisibleTime(60_000);
        header.setPollTime(1_000);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        header.setExpType("TAG");
        header.setExp("*");
        CompletableFuture<PopResult> popped = new CompletableFuture<>();
        api.popMessageAsync(arguments.text("broker"), arguments.text("address"), header, 20_000,
            new PopCallback() {
                @Override
                public void onSuccess(PopResult result) {
                    popped.complete(result);
                }

                @Override
                public void onException(Throwable error) {
                    popped.completeExceptionally(error);
                }
            });
        PopResult result = popped.get(30, TimeUnit.SECONDS);
        if (result.getMsgFoundList() == null) {
            return 0;
        }
        CountDownLatch left = new CountDownLatch(result.getMsgFoundList().size());
        for (MessageExt message : result.getMsgFoundList()) {
            AckMessageRequestHeader ack = new AckMessageRequestHeader();
            ack.setConsumerGroup(arguments.text("group"));
            ack.setTopic(arguments.text("topic"));
            ack.setQueueId(message.getQueueId());
            ack.setOffset(message.getQueueOffset());
            ack.setExtraInfo(message.getProperty(MessageConst.PROPERTY_POP_CK));
            api.ackMessageAsync(arguments.text("address"), 20_000, new AckCallback() {
                @Override
                public void onSuccess(AckResult done) {
                    left.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    failed.incrementAndGet();
                    left.countDown();
                }
            }, ack);
        }
        left.await(30, TimeUnit.SECONDS);
        return result.getMsgFoundList().size();
    }
}
