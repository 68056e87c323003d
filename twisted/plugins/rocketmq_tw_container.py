"""The broker container's command of `twistd`."""

from twisted.application.service import ServiceMaker

rmq_container = ServiceMaker(
    "rmq-container",
    "rocketmq_tw.services.container",
    "A container of RocketMQ brokers, which come and go while it runs.",
    "rmq-container",
)
