"""MessagingService: what clients of RocketMQ 5 ask, as requests to brokers."""
