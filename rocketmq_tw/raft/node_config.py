"""The settings of a member as a process has it."""

import msgspec

from rocketmq_tw.raft.core.config import RaftConfig


class NodeConfig(msgspec.Struct, kw_only=True, frozen=True):
    """A group, the addresses of its members, and what the core does not know of."""

    group: str
    peers: dict[str, str]
    raft: RaftConfig
    #: Milliseconds a request between members may take.
    request_timeout_ms: int = 3000
    #: Milliseconds an append waits for a quorum.
    max_wait_ack_time_ms: int = 2500
    checkpoint_interval_ms: int = 3000
    #: Entries between two snapshots of the state machine; 0: none.
    snapshot_every: int = 10_000
