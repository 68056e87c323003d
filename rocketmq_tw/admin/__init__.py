"""The rmqadmin command: mqadmin's names and letters (docs/rmqadmin.md).

Public: `main.main`, the console script. A module for each family of commands stands beside it.
"""
