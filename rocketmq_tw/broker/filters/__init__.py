"""Tags and SQL92 expressions over properties, by which consumers filter.

Public: `Filters` (`part.py`) with its `filters`, which make the filter of a read, and its `table`.
"""
