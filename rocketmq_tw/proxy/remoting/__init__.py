"""The remoting port of a proxy: classic clients, whose requests go on to the brokers.

Public: `ClassicRequests` (`requests.py`), the handlers of a listener.

A client has the proxy's address for its name server and for each broker (`routes.py`). Which broker
it means is told by its request (`targets.py`), which goes there as it is (`passing.py`). Brokers
know a client by its heartbeats (`heartbeats.py`), so they answer for groups (`groups.py`) and ask
clients (`clients.py`).
"""
