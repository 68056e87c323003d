"""Consumer offsets: the table, its index by topic and group, pull offsets, and requests."""
