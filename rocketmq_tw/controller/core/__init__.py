"""The controller's state and rules as values: no clock, no socket, no Twisted."""
