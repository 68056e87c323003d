"""The name server.

Public: `namesrv.NameServer`. `route_table` knows brokers and, with `topic_queues`, their topics;
`liveness` removes brokers that are gone; `kv_config` keeps names and values; `requests` answers.
"""
