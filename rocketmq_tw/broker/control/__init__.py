"""Requests of administrators about a broker as a whole, and about the progress of groups.

Public: `Control` (`part.py`).
"""
