"""DLedger's Raft: a pure core and the node around it.

Public: `node.RaftNode` with its `NodeConfig`, `machine.IStateMachine` for what is replicated,
`pending.Applied`, `requests.DLedgerRequests` for a server, `store.member.MemberStore`, and `kv` as
an example; `bodies` for who speaks DLedger's JSON. docs/raft.md shows how they go together.
"""
