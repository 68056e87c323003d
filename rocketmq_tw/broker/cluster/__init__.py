"""The broker's place among name servers and brokers."""
