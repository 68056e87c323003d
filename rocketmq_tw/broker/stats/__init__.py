"""What is counted.

Public: `Stats` (`part.py`) and its `statistics` and `traffic`, with the names of what is counted.
"""
