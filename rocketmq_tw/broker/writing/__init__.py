"""The way of a message into the log.

Public: `Writing` (`part.py`) and its `store`, `commit`, `flusher` and `redirects`; `Stage`.
"""
