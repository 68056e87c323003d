"""Topics, groups and consumer offsets: the books that a broker keeps in its `config/` directory.

Public: `Tables` (`part.py`) and its `topics`, `groups`, `offsets` and `announcements`;
`permissions`, `TableFile` (`keeper.py`), `write_progress` (`progress.py`).
"""
