"""Consumer offsets: the table, what stands at a pair of topic and group, and requests."""
