"""Topics, groups and consumer offsets: the tables that a broker keeps in its `config/` directory.

Public: `Tables` (`part.py`) with its `topics`, `groups`, `offsets`, `mappings` and `announcements`;
for tables of other rooms `VersionedTable`, `TableWriter` and `TableFile` (`versioned.py`),
`WriteBehindTable` and `write_progress` (`write_behind.py`).
"""
