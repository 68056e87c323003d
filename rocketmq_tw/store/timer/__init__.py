"""Timed messages on disk: stock's `timerwheel` and `timerlog` (docs/formats/timers.md).

Public: `TimerFiles`, and `TimerUnit` of which it has one for each message that waits.
"""
