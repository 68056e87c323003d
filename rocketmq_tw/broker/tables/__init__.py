"""Topics, groups and consumer offsets: the books that a broker keeps in its `config/` directory."""
