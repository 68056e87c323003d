"""Consumer groups: the table of their configurations, and requests."""
