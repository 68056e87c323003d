"""What the Spark connectors share."""
