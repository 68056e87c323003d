"""The way of a message into the log."""
