"""The commands of `twistd`."""

from twisted.application.service import ServiceMaker

rmq_namesrv = ServiceMaker(
    "rmq-namesrv",
    "rocketmq_tw.services.namesrv",
    "A RocketMQ name server.",
    "rmq-namesrv",
)

rmq_broker = ServiceMaker(
    "rmq-broker",
    "rocketmq_tw.services.broker",
    "A RocketMQ broker.",
    "rmq-broker",
)

rmq_standalone = ServiceMaker(
    "rmq-standalone",
    "rocketmq_tw.services.standalone",
    "A RocketMQ name server and a broker in one process, to try things.",
    "rmq-standalone",
)
