"""Which queues each consumer of a group reads, and whether it pulls or pops, as the broker divides
them for clients that leave it to the broker.

Public: `Assignment` (`part.py`) and its `modes`, which slaves copy.
"""
