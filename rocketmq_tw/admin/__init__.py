"""The rmqadmin command: mqadmin's names and letters."""
