"""Messages of the gRPC protocol, generated from `messaging.proto`."""
