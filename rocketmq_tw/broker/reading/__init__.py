"""The way of messages out of the log.

Public: `Reading` (`part.py`) and its `long_polling`; `ANY_QUEUE`, for who waits on all of a topic.
"""
