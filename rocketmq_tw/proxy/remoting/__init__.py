"""The remoting port of a proxy: classic clients, whose requests go on to the brokers."""
