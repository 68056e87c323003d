"""The commands of `twistd`."""

from rocketmq_tw.twistd import ServerMaker

rmq_namesrv = ServerMaker("rmq-namesrv", "A RocketMQ name server.")

rmq_broker = ServerMaker("rmq-broker", "A RocketMQ broker.")

rmq_standalone = ServerMaker(
    "rmq-standalone", "A RocketMQ name server and a broker in one process, to try things."
)
