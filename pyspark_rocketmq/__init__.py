"""RocketMQ for PySpark: `spark.read.format("rocketmq")` needs no registration.

Spark looks for modules named `pyspark_*` and takes their `DefaultSource`. docs/spark.md has the
options.
"""

from rocketmq_tw.spark.source import RocketMQDataSource

DefaultSource = RocketMQDataSource

__all__ = ["DefaultSource"]
