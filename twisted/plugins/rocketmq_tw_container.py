"""The broker container's command of `twistd`."""

from rocketmq_tw.twistd import ServerMaker

rmq_container = ServerMaker(
    "rmq-container", "A container of RocketMQ brokers, which come and go while it runs."
)
