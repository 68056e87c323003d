"""DLedger's Raft: a pure core and the node around it.

Public: `node.RaftNode` with its `NodeConfig`, `core.config` and `core.membership`;
`state_machine.IStateMachine` for what is replicated, `pending.Applied`, and `kv` as an example;
`requests.DLedgerRequests` for a server; `store.member.MemberStore`; `bodies` for who speaks
DLedger's JSON. docs/raft.md shows how they go together.
"""
