"""A broker whose log is kept by a DLedger group, and whose role follows the group's elections.

Public: `DLedgerGroup` (`part.py`). The member of the group: `member.py`; sends that wait for most
members: `quorum.py`; the role that elections give: `role.py`.
"""
