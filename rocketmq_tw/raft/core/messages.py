"""The messages between members, as values; `raft/bodies.py` has their JSON
(docs/formats/dledger.md).

A request carries an `rpc` number; its answer carries the same one. The transport may lose, repeat
and reorder messages, and may answer in a peer's place with `UNKNOWN` or `NETWORK_ERROR`.
"""

from rocketmq_tw.raft.core.codes import Code, PushKind, VoteResult
from rocketmq_tw.raft.core.entry import Entry
from rocketmq_tw.structs import msgspec


class RaftMessage(msgspec.Struct, kw_only=True, frozen=True):
    source: str
    target: str
    term: int
    rpc: int = 0


class VoteRequest(RaftMessage, frozen=True):
    """`source` wants to lead in `term`; its last entry is (end_index, end_term)."""

    end_index: int
    end_term: int


class VoteResponse(RaftMessage, frozen=True):
    result: VoteResult


class HeartbeatRequest(RaftMessage, frozen=True):
    """Says that `source` leads in `term`; keeps followers from calling an election."""


class HeartbeatResponse(RaftMessage, frozen=True):
    code: Code


class PushRequest(RaftMessage, frozen=True):
    """One entry for COMPARE and TRUNCATE, none for COMMIT, one or more in order for APPEND."""

    kind: PushKind
    commit_index: int
    entries: tuple[Entry, ...] = ()

    @property
    def first_index(self) -> int:
        return self.entries[0].index if self.entries else -1


class PushResponse(RaftMessage, frozen=True):
    """`index` and `count` repeat the request's; begin and end are the follower's log."""

    code: Code
    index: int = -1
    count: int = 0
    begin_index: int = -1
    end_index: int = -1


class SnapshotRequest(RaftMessage, frozen=True):
    """A chunk of a snapshot of all up to (last_index, last_term), from `offset`."""

    last_index: int
    last_term: int
    #: The position in the data files where the entry after the snapshot goes.
    next_pos: int
    offset: int
    data: bytes
    done: bool


class SnapshotResponse(RaftMessage, frozen=True):
    """The answer to a chunk: how many bytes of the snapshot of all up to `last_index` are there."""

    code: Code
    last_index: int
    received: int


class TransferRequest(RaftMessage, frozen=True):
    """Orders the leader (`transfer_id`) to hand over to `transferee_id`, or that member to take
    over once its log reaches `ledger_index`."""

    transfer_id: str
    transferee_id: str
    ledger_index: int = -1


class TransferResponse(RaftMessage, frozen=True):
    code: Code


def is_response(message: RaftMessage) -> bool:
    """Returns whether a message answers another one."""
    return isinstance(
        message,
        VoteResponse | HeartbeatResponse | PushResponse | SnapshotResponse | TransferResponse,
    )
