"""Heartbeat sync: what the proxies of a cluster tell each other of their consumers, in stock's way
(HeartbeatSyncer): messages in a topic that each of them reads.

Public: `HeartbeatSync` (`sync.py`). What a message holds: `records.py`; the topic: `topic.py`;
telling: `telling.py`; hearing: `reading.py`, `members.py`.

Stock's proxies know the members of a group from these messages alone. Ours register clients with
brokers, and learn from there who is at another one of ours: what ours tell says so, and is passed
over by ours. So a proxy that dies leaves no member behind at ours. Clients beyond the connections
that a proxy may have to a broker are told of without that.
"""
