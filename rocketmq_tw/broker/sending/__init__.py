"""Messages that producers send and consumers give back.

Public: `Sending` (`part.py`) and its `send`.
"""
