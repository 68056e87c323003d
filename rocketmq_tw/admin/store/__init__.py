"""`rmqadmin store`: commands for the files of a store (docs/store-tools.md).

Public: `commands.store`, the group of them.
"""
