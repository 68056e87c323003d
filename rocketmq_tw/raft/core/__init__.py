"""Raft as a pure object, with DLedger's election and push protocol (docs/raft.md).

Public: `raft_core.RaftCore` and its `Ready`, `config.RaftConfig`, the `messages`, `codes`,
`entry.Entry`, `member_state.HardState`, and what a store has to be: `raft_core.CoreStore`.
"""
