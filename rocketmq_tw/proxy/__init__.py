"""The proxy: clients of RocketMQ 5 come by gRPC, classic ones by remoting, and it asks the
brokers."""
