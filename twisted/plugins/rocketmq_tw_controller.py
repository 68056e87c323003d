"""The controller's command of `twistd`."""

from rocketmq_tw.twistd import ServerMaker

rmq_controller = ServerMaker(
    "rmq-controller",
    "A RocketMQ controller, which elects the masters of brokers in controller mode.",
)
