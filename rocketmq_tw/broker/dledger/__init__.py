"""A broker whose log is kept by a DLedger group, and whose role follows the group's elections."""
