"""The command of `twistd` that feeds Spark."""

from rocketmq_tw.twistd import ServerMaker

rmq_spark_receiver = ServerMaker(
    "rmq-spark-receiver", "A member of a RocketMQ group that feeds Spark's network receiver."
)
