"""Topics as DStreams, which Spark keeps for programs that use them already.

Public, as `pyspark_rocketmq.dstreams` gives them: the functions of `direct` and `receiver`, and
`records.Record`. `ports`, `control` and `unconfirmed` are what the receiver service is made of.
"""
