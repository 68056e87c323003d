"""The broker among name servers and brokers.

Public: `Cluster` (`part.py`) and its `membership`; `Master`.
"""
