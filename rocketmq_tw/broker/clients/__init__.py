"""Connected clients, and the locks of orderly consumers on queues.

Public: `Clients` (`part.py`) and its `registry` and `locks`.
"""
