"""Defines a part of a broker and what it is given, and leads parts through their life.

Public: `Part`, `Periodic`, `KeptTable` (`part.py`), `Host` and `Addresses` (`host.py`),
`Truncation` and `DerivedOffsets` (`truncation.py`), `Assembly`, `Life`.
"""
