"""The proxy in the process of a broker, which it calls without the network."""
