"""Messages for a time of their own."""
