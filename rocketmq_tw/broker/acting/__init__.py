"""Slave Acting Master: a slave stands in for a master that is gone.

Public: `Acting` (`part.py`). Who lives: `living.py`. Documents: "Slave Acting Master".
"""
