"""The proxy's command of `twistd`."""

from rocketmq_tw.twistd import ServerMaker

rmq_proxy = ServerMaker(
    "rmq-proxy", "A RocketMQ proxy: clients of RocketMQ 5 over gRPC, classic ones over remoting."
)
