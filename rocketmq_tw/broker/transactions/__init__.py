"""Transactional messages: half messages, decisions about them, and asking back.

Public: `Transactions` (`part.py`). What the queues carry: `halves.py`; which half messages wait:
`book.py`; how one is settled: `settling.py`; what a master does: `work.py`, an acting master:
`acting.py`.
"""
