"""The rmqadmin command: mqadmin's names and letters (docs/rmqadmin.md)."""
