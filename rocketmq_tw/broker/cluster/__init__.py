"""The broker among name servers and other brokers.

Public: `Cluster` (`part.py`) and its `membership`; `Master` (`name_server_links.py`), what name
servers tell of a master; `BrokerClient`, which asks the other brokers of the cluster; the addresses
of this machine (`addresses.py`).
"""
