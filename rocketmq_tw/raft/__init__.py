"""DLedger's Raft: a pure core and the node around it."""
