"""Messages for a time of their own: how far the timer of a master is.

Public: `Timer` (`part.py`) and its `progress`; `TimerCheckpoint`.
"""
