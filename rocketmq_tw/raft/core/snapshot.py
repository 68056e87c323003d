"""Snapshots: the leader sends one in chunks to members behind its first entry; the follower
gathers them and starts its log anew behind it."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from rocketmq_tw.raft.core.codes import Code, RaftRole
from rocketmq_tw.raft.core.log import LogBase
from rocketmq_tw.raft.core.member_state import MemberState
from rocketmq_tw.raft.core.messages import SnapshotRequest, SnapshotResponse
from rocketmq_tw.structs import msgspec

#: Whether the bytes of a snapshot can be loaded.
SnapshotJudge = Callable[[bytes], bool]


class SnapshotMeta(msgspec.Struct, frozen=True):
    """A snapshot of all up to (index, term); the next entry lies at or behind `next_pos`."""

    index: int
    term: int
    next_pos: int
    size: int

    @property
    def base(self) -> LogBase:
        return LogBase(self.index, self.term, self.next_pos)


class Snapshot(NamedTuple):
    """A snapshot that was received completely."""

    meta: SnapshotMeta
    data: bytes


class SnapshotStore(Protocol):
    """The place from which the latest snapshot is read."""

    @property
    def snapshot(self) -> SnapshotMeta | None: ...

    def read_snapshot(self, offset: int, size: int) -> bytes: ...


class SnapshotSender:
    """Cuts the latest snapshot into chunks."""

    def __init__(self, state: MemberState, store: SnapshotStore) -> None:
        self._state = state
        self._store = store

    def covers(self, index: int) -> bool:
        """Returns whether there is a snapshot of all up to `index` at least."""
        meta = self._store.snapshot
        return meta is not None and meta.index >= index

    def is_complete(self, index: int, received: int) -> bool:
        """Returns whether `received` bytes are all of the snapshot at `index`."""
        meta = self._store.snapshot
        return meta is not None and meta.index == index and received >= meta.size

    def chunk(self, peer: str, offset: int) -> SnapshotRequest | None:
        """Returns the chunk from `offset`; None where a newer, shorter snapshot has taken its
        place."""
        state, meta = self._state, self._store.snapshot
        if meta is None or offset > meta.size:
            return None
        data = self._store.read_snapshot(offset, state.config.snapshot_chunk_bytes)
        return SnapshotRequest(
            source=state.self_id,
            target=peer,
            term=state.term,
            rpc=state.next_rpc(),
            last_index=meta.index,
            last_term=meta.term,
            next_pos=meta.next_pos,
            offset=offset,
            data=data,
            done=offset + len(data) >= meta.size,
        )


class SnapshotReceiver:
    """Gathers the chunks of one snapshot, in order, within the limit of the configuration; what
    `accepts` refuses changes nothing."""

    def __init__(self, state: MemberState, accepts: SnapshotJudge | None = None) -> None:
        self._state = state
        self._accepts = accepts
        self._place: tuple[int, int] | None = None
        self._data = bytearray()
        self._arrived: Snapshot | None = None
        state.role_listeners.append(self._role_changed)

    def _role_changed(self, role: RaftRole) -> None:
        self._forget()

    def _forget(self) -> None:
        self._place = None
        self._data = bytearray()

    def take(self) -> Snapshot | None:
        """Returns the received snapshot that has to be stored, once."""
        arrived, self._arrived = self._arrived, None
        return arrived

    def receive(self, request: SnapshotRequest) -> tuple[Code, int]:
        """Adds a chunk; returns the code for the answer, and how many bytes are there now."""
        state = self._state
        if not state.config.state_machine:
            return Code.UNSUPPORTED, 0
        end = request.offset + len(request.data)
        if self._is_known(request):
            state.matched_index = max(state.matched_index, request.last_index)
            state.commit_to(request.last_index)
            return Code.SUCCESS, 1 << 62
        place = (request.last_index, request.last_term)
        if request.offset == 0:
            self._forget()
            self._place = place
        if place != self._place or request.offset != len(self._data):
            return Code.INCONSISTENT_STATE, len(self._data)
        if end > state.config.max_snapshot_bytes:
            self._forget()
            return Code.DISK_FULL, 0
        self._data += request.data
        if request.done and not self._install(request):
            return Code.UNEXPECTED_ARGUMENT, 0
        return Code.SUCCESS, end

    def _is_known(self, request: SnapshotRequest) -> bool:
        state = self._state
        if request.last_index <= state.commit_index:
            return True
        return state.log.term_at(request.last_index) == request.last_term

    def _install(self, request: SnapshotRequest) -> bool:
        state = self._state
        data = bytes(self._data)
        if self._accepts is not None and not self._accepts(data):
            self._forget()
            return False
        meta = SnapshotMeta(request.last_index, request.last_term, request.next_pos, len(data))
        self._forget()
        self._arrived = Snapshot(meta, data)
        state.log.restart(meta.base)
        state.matched_index = meta.index
        state.commit_to(meta.index)
        return True


def snapshot_answer(
    state: MemberState, request: SnapshotRequest, code: Code, received: int
) -> SnapshotResponse:
    """Returns the answer to a chunk."""
    return SnapshotResponse(
        source=state.self_id,
        target=request.source,
        term=state.term,
        rpc=request.rpc,
        code=code,
        last_index=request.last_index,
        received=received,
    )
