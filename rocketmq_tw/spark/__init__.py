"""Topics as Spark's tables and streams, read and written through PySpark.

Public: `source.RocketMQDataSource`, which Spark finds by `pyspark_rocketmq`; `offsets.lag`;
`errors`; the packages `dstreams` and `jobs`. docs/spark.md has the options.
"""
