"""Which role the broker has now, and how it may change.

Public: `Role`, `RoleState` and `RoleHolder`, `configured_role`.
"""
