"""Topics: the table, how static ones lie on this broker, their announcement, and requests."""
