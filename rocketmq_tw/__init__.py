"""RocketMQ's classic protocol on Twisted; ARCHITECTURE.md at the project's top is the map."""
