"""What consumers filter by, tags or SQL92 expressions over properties.

Public: `Filters` (`part.py`) with its `filters`, which make the filter of a read, and its `table`.
"""
