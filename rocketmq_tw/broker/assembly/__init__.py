"""What a part of a broker is, what it is given, and how parts are led through their life.

Public: `Part`, `Periodic`, `KeptTable` (`part.py`), `Host` and `Addresses` (`host.py`),
`Truncation` and `DerivedOffsets` (`truncation.py`), `Assembly`, `Life`.
"""
