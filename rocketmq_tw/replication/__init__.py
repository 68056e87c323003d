"""Master and slaves of a group: link states without I/O, and the Twisted links.

Public: `ClassicHAService` and `ClassicHAClient` (`classic.py`), `AutoSwitchHAService` and
`AutoSwitchHAClient` (`auto_switch/`), what they ask of a log and are asked themselves
(`interfaces.py`), `HASettings` (`links/settings.py`) and `LinkError` (`links/ends.py`).
"""
