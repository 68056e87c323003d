"""A broker container: several brokers that are added and removed while it runs.

`container.py` has the table of its brokers, `requests.py` what administrators ask. How the brokers
live is behind one interface (`interface.py`): in this process (`together.py`) or each in a process
of its own (`separate.py`).
"""
