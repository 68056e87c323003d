"""Divides queues among the consumers of a group, which pull or pop them, for clients that leave
that to the broker.

Public: `Assignment` (`part.py`) and its `modes`, which slaves copy.
"""
