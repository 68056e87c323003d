"""Reads of queues: pulls, which may be held until a message comes, and views of messages, queues
and offsets.

Public: `Reading` (`part.py`) and its `held`; `HeldRequests` (`held_requests.py`), for requests of
other kinds that are held.
"""
