"""The name server.

Public: `namesrv.NameServer`. `route_table` knows brokers (`living_brokers`), whose ids they are
(`broker_ids`) and, with `topic_queues`, their topics, as far as there is `room`; `liveness` removes
brokers that are gone; `kv_config` keeps names and values; `requests` answers.
"""
