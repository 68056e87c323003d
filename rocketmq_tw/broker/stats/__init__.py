"""Statistics: messages and bytes that come and go, of the broker and by topic and group.

Public: `Stats` (`part.py`) and its `statistics` and `traffic`, with stock's names of statistics.
"""
