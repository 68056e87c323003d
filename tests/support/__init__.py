"""Clocks, in-memory peers, launchers of our servers and of the stock jars."""
