"""The broker among name servers and brokers.

Public: `Cluster` (`part.py`) and its `membership`; `Master`, what name servers tell of a master;
the addresses of this machine (`addresses.py`).
"""
