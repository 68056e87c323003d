"""Producers and consumers with Deferreds, and a blocking client on the same codec."""
