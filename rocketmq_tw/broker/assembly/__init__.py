"""A broker put together out of its parts, and the life of these.

Public: `Broker` and `PARTS` (`broker.py`), `Part`, `Periodic`, `KeptTable`, `Metric` (`part.py`),
`Host` and `Addresses` (`host.py`), `Assembly`, `Life`.
"""
