"""A group of brokers that change places, in memory, by seed: real links, simulated logs."""
