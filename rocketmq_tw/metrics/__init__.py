"""Metrics: figures of a server with a type and labels, under the names of stock's 5.3.3.

Public: `Metric`, `counter`, `gauge`, `labelled` and `Histogram` (`instruments.py`).
"""
