"""Raft as a pure object, with DLedger's election and push protocol (docs/raft.md)."""
