"""The controller's command of `twistd`."""

from twisted.application.service import ServiceMaker

rmq_controller = ServiceMaker(
    "rmq-controller",
    "rocketmq_tw.services.controller",
    "A RocketMQ controller, which elects the masters of brokers in controller mode.",
    "rmq-controller",
)
