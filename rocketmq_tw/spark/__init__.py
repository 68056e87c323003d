"""Topics as Spark's tables and streams: data source, DStreams and ready jobs."""
