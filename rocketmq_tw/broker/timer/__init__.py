"""Timed messages: sent now, delivered at a time that the sender names.

Public: `Timer` (`part.py`) and its `progress`; `TimerCheckpoint`. What is known: `books.py`; from
the topic into the wheel: `intake.py`; from the wheel into topics: `delivery.py`; what is done in a
role: `work.py`; its life: `engine.py`, without a timer `off.py`.
"""
