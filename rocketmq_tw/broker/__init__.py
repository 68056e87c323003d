"""A broker: a folder for each of its capabilities (see ARCHITECTURE.md, *The rooms of a broker*).

Public: `Broker` and `PARTS` (`broker.py`).
"""
