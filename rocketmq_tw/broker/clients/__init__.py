"""Who is connected, and who holds which queue.

Public: `Clients` (`part.py`) and its `registry` and `locks`.
"""
