"""Topics as DStreams, which Spark keeps for programs that use them already."""
