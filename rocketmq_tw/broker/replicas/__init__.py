"""A broker's part in its group of replicas.

Public: `Replicas` (`part.py`) and its `master` or `slave`.
"""
