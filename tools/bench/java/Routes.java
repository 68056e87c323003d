import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.namesrv.GetRouteInfoRequestHeader;

/** Route look-ups at a name server. */
final class Routes {
    private Routes() {}

    static String lookUp(Lines.Arguments arguments) throws Exception {
        NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());
        client.start();
        String address = arguments.text("namesrv");
        int topics = arguments.number("topics", 1000);
        long until = System.nanoTime() + arguments.number("seconds", 10) * 1_000_000_000L;
        Histogram latency = new Histogram();
        AtomicLong next = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        long started = System.nanoTime();
        Sends.inThreads(arguments.number("threads", 16), () -> {
            while (System.nanoTime() < until) {
                GetRouteInfoRequestHeader header = new GetRouteInfoRequestHeader();
                header.setTopic("bench-route-" + next.getAndIncrement() % topics);
                RemotingCommand request = RemotingCommand.createRequestCommand(
                    RequestCode.GET_ROUTEINFO_BY_TOPIC, header);
                long before = System.nanoTime();
                try {
                    RemotingCommand response = client.invokeSync(address, request, 10_000);
                    if (response.getCode() == 0 && response.getBody() != null) {
                        latency.record(System.nanoTime() - before);
                    } else {
                        failed.incrementAndGet();
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
            next.get() - failed.get(), failed.get(), seconds, latency.json());
    }
}
