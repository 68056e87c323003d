"""Controller mode, the broker's side: its lasting id, and the role that controllers give it."""
