"""What is counted.

Public: `Stats` (`part.py`) and its `statistics` and `traffic`.
"""
