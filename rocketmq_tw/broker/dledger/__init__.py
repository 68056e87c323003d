"""A broker whose log is that of a DLedger group, and whose role follows the group's elections."""
