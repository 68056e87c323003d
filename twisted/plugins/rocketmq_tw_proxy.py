"""The proxy's command of `twistd`."""

from twisted.application.service import ServiceMaker

rmq_proxy = ServiceMaker(
    "rmq-proxy",
    "rocketmq_tw.services.proxy",
    "A RocketMQ proxy: clients of RocketMQ 5 over gRPC, classic ones over remoting.",
    "rmq-proxy",
)
