"""Messages for a time of their own.

Public: `Timer` (`part.py`) and its `progress`.
"""
