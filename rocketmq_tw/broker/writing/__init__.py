"""The way of a message into the log.

Public: `Writing` (`part.py`) and its `store`, `commit`, `sink`, `truncation`, `dispatcher`,
`flusher` and `redirects`; `Stage` and `Draft`.
"""
