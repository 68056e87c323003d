"""The role that the broker has now, and how it may change.

Public: `RoleHolder` (`holder.py`); `Role`, `RoleState`, `TRANSITIONS` and `configured_role`
(`state.py`).
"""
