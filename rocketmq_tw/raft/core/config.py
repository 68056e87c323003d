"""The settings of one member, with DLedger's defaults; times in milliseconds, sizes in bytes."""

from rocketmq_tw.structs import msgspec


class RaftConfig(msgspec.Struct, kw_only=True, frozen=True):
    """All that the core has to be told. `members` holds every id of the group, ours too."""

    self_id: str
    members: tuple[str, ...]
    heartbeat_interval_ms: int = 2000
    max_heartbeat_leak: int = 3
    min_vote_interval_ms: int = 300
    max_vote_interval_ms: int = 1000
    #: How long a round waits for answers, beside a random part below `max_vote_interval_ms`.
    vote_round_ms: int = 2000
    preferred_leader_ids: tuple[str, ...] = ()
    min_take_leadership_vote_interval_ms: int = 30
    max_take_leadership_vote_interval_ms: int = 100
    max_leadership_transfer_wait_index: int = 1000
    leadership_transfer_wait_timeout_ms: int = 1000
    preferred_check_interval_ms: int = 1000
    #: The pause between two looks at the role where something is to be done "at once".
    maintain_interval_ms: int = 10
    max_pending_requests: int = 10_000
    #: An unanswered push is sent again after this.
    push_timeout_ms: int = 1000
    #: A peer that cannot be reached or is not ready is tried again after this.
    push_retry_ms: int = 50
    #: A follower that is behind on the commit index alone is told after this.
    commit_interval_ms: int = 100
    max_batch_bytes: int = 256 * 1024
    max_batch_entries: int = 512
    max_inflight_pushes: int = 32
    max_apply_bytes: int = 1024 * 1024
    max_body_bytes: int = 4 * 1024 * 1024 - 48
    snapshot_chunk_bytes: int = 1024 * 1024
    max_snapshot_bytes: int = 256 * 1024 * 1024
    data_file_size: int = 1024 * 1024 * 1024
    #: Without a state machine a log may begin anywhere, so a leader without snapshots (stock) can
    #: restart a follower that is behind the leader's first entry.
    state_machine: bool = True


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
