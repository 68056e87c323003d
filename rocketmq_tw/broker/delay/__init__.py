"""Messages that wait for one of the delay levels.

Public: `Delay` (`part.py`) and its `levels`, `offsets` and `work`.
"""
