"""Transactional messages: half messages, decisions about them, and asking back.

Public: `Transactions` (`part.py`). What the queues carry: `halves.py`; which half messages wait:
`book.py`; how one leaves: `settling.py`.
"""
