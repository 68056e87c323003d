"""The command of `twistd` that feeds Spark."""

from twisted.application.service import ServiceMaker

rmq_spark_receiver = ServiceMaker(
    "rmq-spark-receiver",
    "rocketmq_tw.services.spark_receiver",
    "A member of a RocketMQ group that feeds Spark's network receiver.",
    "rmq-spark-receiver",
)
