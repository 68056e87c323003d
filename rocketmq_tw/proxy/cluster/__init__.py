"""The cluster over the network: routes, brokers by name, and connections that stand for clients."""
