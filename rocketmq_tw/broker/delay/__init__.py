"""Messages that wait for one of the delay levels."""
