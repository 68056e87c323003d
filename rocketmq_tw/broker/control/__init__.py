"""What administrators ask of a broker.

Public: `Control` (`part.py`).
"""
