"""RaftCore: one member of a group as an object without clock, disk or network.

The caller's duty, for every `Ready`, in this order:

1. store `hard_state`, `snapshot`, then `writes` (reset, cut, entries) and wait until all of it is
   on stable storage;
2. send `messages`; those in `immediate` need not wait for 1;
3. load `snapshot` into the state machine, apply `committed` in order, serve `reads` whose index
   is applied, fail `failed_reads`;
4. call `advance()`.

Messages, ticks, proposals and reads may come in between, but the next `ready()` only after
`advance()`; meanwhile `take_beats()` has the heartbeats that need not wait for it.
`next_deadline()` says when `tick` is next needed.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol

from rocketmq_tw.raft.core import messages as m
from rocketmq_tw.raft.core.codes import Code, RaftRole, Refused
from rocketmq_tw.raft.core.config import RaftConfig
from rocketmq_tw.raft.core.election import Election
from rocketmq_tw.raft.core.entry import Entry, largest_body
from rocketmq_tw.raft.core.follower import Follower
from rocketmq_tw.raft.core.heartbeat import Heartbeats
from rocketmq_tw.raft.core.log import Log, LogBase, LogStore, LogWrites
from rocketmq_tw.raft.core.member_state import HardState, MemberState
from rocketmq_tw.raft.core.membership import is_reachable
from rocketmq_tw.raft.core.reads import Reads, ReadState
from rocketmq_tw.raft.core.replication import OpeningBody, Replication, empty_body
from rocketmq_tw.raft.core.snapshot import (
    Snapshot,
    SnapshotJudge,
    SnapshotReceiver,
    SnapshotSender,
    SnapshotStore,
)
from rocketmq_tw.raft.core.transfer import LeadershipTransfer
from rocketmq_tw.structs import msgspec

_BEATS = (m.HeartbeatRequest, m.HeartbeatResponse)
#: Messages that promise nothing about our storage but the term, so they need not wait for it.
_UNBOUND = (
    *_BEATS,
    m.PushRequest,
    m.SnapshotRequest,
    m.TransferRequest,
)


class CoreStore(LogStore, SnapshotStore, Protocol):
    """The storage as the core reads it."""


class Ready(msgspec.Struct):
    """What the caller has to do now; see the module."""

    hard_state: HardState | None
    snapshot: Snapshot | None
    writes: LogWrites
    immediate: list[m.RaftMessage]
    messages: list[m.RaftMessage]
    committed: list[Entry]
    reads: list[ReadState]
    failed_reads: list[int]
    roles: list[RaftRole]
    #: Lines for the server's log; they come together with other work.
    notices: list[str] = msgspec.field(default_factory=list)

    @property
    def must_store(self) -> bool:
        return self.hard_state is not None or self.snapshot is not None or bool(self.writes)


class LogUse(NamedTuple):
    """What the log of a group is used for, the same at all its members.

    `opening` makes the body of the entry with which a new leader commits what others left it. The
    group's first entry lies at the position `first_pos`, in bytes. `applies_anew`: what was
    committed before a restart is applied once more after it. `accepts` says whether a snapshot's
    bytes can be loaded; None: all can.
    """

    opening: OpeningBody = empty_body
    first_pos: int = 0
    applies_anew: bool = True
    accepts: SnapshotJudge | None = None


PLAIN_USE = LogUse()


class RaftCore:
    """One member of a group. All times are milliseconds of one clock that never steps back."""

    def __init__(
        self,
        config: RaftConfig,
        store: CoreStore,
        hard_state: HardState,
        commit_index: int,
        random: Random,
        use: LogUse = PLAIN_USE,
    ) -> None:
        """`hard_state` and `commit_index` are what `store` had when it was opened. Raises
        `ValueError` where the member is none of its group."""
        if config.self_id not in config.members:
            raise ValueError(f"{config.self_id} is none of the members {config.members}")
        meta = store.snapshot
        base = LogBase(next_pos=use.first_pos) if meta is None else meta.base
        log = Log(store, base, config.data_file_size)
        self._store = store
        self._state = state = MemberState(config, log, hard_state, random)
        floor = log.base.index if meta is None else meta.index
        state.commit_to(max(floor, min(commit_index, log.end_index)))
        state.matched_index = state.commit_index
        self.applied_index = floor if use.applies_anew else state.commit_index
        #: The commit index that what is on stable storage vouches for: of the last `Ready` done.
        self.stored_commit_index = state.commit_index
        self._commit_in_flight = state.commit_index
        self._roles: list[RaftRole] = []
        state.role_listeners.append(self._roles.append)
        self.election = Election(state)
        self.heartbeats = Heartbeats(state, self.election)
        self._snapshots = SnapshotReceiver(state, use.accepts)
        self.replication = Replication(state, SnapshotSender(state, store), use.opening)
        self._follower = Follower(state, self.election, self._snapshots)
        self._transfer = LeadershipTransfer(state, self.election, self.heartbeats, self.replication)
        self._reads = Reads(state, self.heartbeats, self.replication)
        self._in_flight: Ready | None = None
        #: Whether the last `Ready` left entries for the next one to store.
        self._left_writes = False
        self._steps: dict[type, Callable[[Any], None]] = {
            m.VoteRequest: self.election.on_request,
            m.VoteResponse: self.election.on_response,
            m.HeartbeatRequest: self.heartbeats.on_request,
            m.HeartbeatResponse: self.heartbeats.on_response,
            m.PushRequest: self._follower.on_push,
            m.PushResponse: self.replication.on_response,
            m.SnapshotRequest: self._follower.on_snapshot,
            m.SnapshotResponse: self.replication.on_snapshot_response,
            m.TransferRequest: self._transfer.on_request,
            m.TransferResponse: self._transfer.on_response,
        }

    # What others may look at.

    @property
    def role(self) -> RaftRole:
        return self._state.role

    @property
    def term(self) -> int:
        return self._state.term

    @property
    def vote_for(self) -> str | None:
        return self._state.vote_for

    @property
    def leader_id(self) -> str | None:
        return self._state.leader_id

    @property
    def commit_index(self) -> int:
        return self._state.commit_index

    @property
    def log(self) -> Log:
        return self._state.log

    @property
    def config(self) -> RaftConfig:
        return self._state.config

    @property
    def transferring(self) -> bool:
        return self._state.transferee is not None

    @property
    def has_more_to_push(self) -> bool:
        """Whether the next `ready()` sends more of what has to be read from the store: others may
        come in between."""
        return self._state.role is RaftRole.LEADER and self.replication.has_more

    # What drives the object.

    def tick(self, now: int) -> None:
        """Does what is due by `now`."""
        state = self._state
        state.now = max(state.now, now)
        if state.role is RaftRole.LEADER:
            self.heartbeats.maintain_leader()
        elif state.role is RaftRole.FOLLOWER:
            self.heartbeats.maintain_follower()
        else:
            self.election.maintain()
        self._transfer.maintain()

    def next_deadline(self) -> int:
        """Returns when `tick` must be called at the latest, in ms of the core's clock."""
        state = self._state
        if state.role is RaftRole.CANDIDATE:
            times = [max(self.election.deadline, state.now + state.config.maintain_interval_ms)]
        elif state.role is RaftRole.FOLLOWER:
            times = [self.heartbeats.follower_deadline]
        else:
            times = [self.heartbeats.leader_deadline]
            push = self.replication.deadline
            if push is not None:
                times.append(push)
        transfer = self._transfer.deadline
        if transfer is not None:
            times.append(transfer)
        return min(times)

    def next_beat(self) -> int | None:
        """Returns when `tick` must be called at the latest while a `Ready` is being carried out:
        for heartbeats, or for their absence; None for a candidate, which sends nothing before that
        is done. In ms of the core's clock."""
        if self._state.role is RaftRole.CANDIDATE:
            return None
        if self._state.role is RaftRole.FOLLOWER:
            return self.heartbeats.follower_deadline
        return self.heartbeats.leader_deadline

    def step(self, message: m.RaftMessage, now: int) -> None:
        """Takes a message of another member. Messages for another target, and those that `check`
        refuses, are ignored."""
        state = self._state
        state.now = max(state.now, now)
        if message.target == state.self_id and is_reachable(message.term, state.term):
            self._steps[type(message)](message)

    def check(self, message: m.RaftMessage) -> None:
        """Raises `Refused` for a message whose term no member can have reached."""
        own = self._state.term
        if not is_reachable(message.term, own):
            raise Refused(
                Code.UNEXPECTED_ARGUMENT,
                f"no member can be in term {message.term} while this one is in {own}",
            )

    def propose(self, bodies: Sequence[bytes]) -> list[Entry]:
        """Appends entries as the leader, in order. Raises `Refused`; then none is appended."""
        state, config = self._state, self._state.config
        if state.role is not RaftRole.LEADER:
            raise Refused(Code.NOT_LEADER, f"{state.leader_id or 'no member'} leads the group")
        if state.transferee is not None:
            raise Refused(Code.LEADER_TRANSFERRING, f"handing over to {state.transferee}")
        if state.log.end_index - state.commit_index > config.max_pending_requests:
            raise Refused(Code.LEADER_PENDING_FULL, "too many entries wait for a quorum")
        most = min(config.max_body_bytes, largest_body(config.data_file_size))
        if len(bodies) > config.max_pending_requests:
            raise Refused(
                Code.UNEXPECTED_ARGUMENT,
                f"{len(bodies)} bodies at once: send {config.max_pending_requests} at most",
            )
        if any(len(body) > most for body in bodies):
            raise Refused(Code.UNEXPECTED_ARGUMENT, f"a body is over {most} bytes: split it")
        return [state.log.make(state.term, body) for body in bodies]

    def stand(self, stands: bool) -> None:
        """Lets this member be elected, or no longer: a leader gives its leadership up."""
        self._state.stands = stands
        if not stands:
            self.election.withdraw()

    def request_read(self, token: int) -> None:
        """Asks for a linearizable read; a later Ready has `token`. Raises `Refused`."""
        self._reads.request(token)

    def request_transfer(self, transferee: str, now: int, rpc: int = 0, source: str = "") -> None:
        """Orders the leader to hand over, as a client does."""
        state = self._state
        self.step(
            m.TransferRequest(
                source=source,
                target=state.self_id,
                term=state.term,
                rpc=rpc,
                transfer_id=state.self_id,
                transferee_id=transferee,
            ),
            now,
        )

    def snapshot_place(self) -> LogBase | None:
        """Returns what a snapshot of the state machine, taken now, would cover; None while a write
        or an installed snapshot is under way, and where nothing was applied since the last one."""
        log = self._state.log
        if self._in_flight is not None or log.has_writes:
            return None
        if not log.begin_index <= self.applied_index <= log.stable_index:
            return None
        entry = log.read(self.applied_index)
        return LogBase(entry.index, entry.term, entry.end_pos)

    def compacted(self) -> None:
        """Notes that the store has a snapshot and has dropped entries that it covers."""
        meta = self._store.snapshot
        self._state.log.compacted(self._store.begin_index, LogBase() if meta is None else meta.base)

    # What it wants done.

    def ready(self) -> Ready | None:
        """Returns what has to be done now, or None."""
        if self._in_flight is not None:
            raise RuntimeError("advance() has to follow the last ready()")
        state = self._state
        if state.role is RaftRole.LEADER:
            # Followers take pushes only after the first heartbeat, so that one goes first.
            self.heartbeats.maintain_leader()
        if state.role is RaftRole.LEADER:
            self._reads.flush()
            self.replication.advance_commit()
            self.replication.maintain()
        self._left_writes = not self._left_writes and self._may_apply_first()
        if self._left_writes:
            self._in_flight = ready = self._ready_without_writes()
            self._commit_in_flight = min(state.commit_index, state.log.stable_index)
            return ready
        hard_state = HardState(state.term, state.vote_for) if state.hard_dirty else None
        committed = self._committed_to(state.commit_index)
        ready = Ready(
            hard_state=hard_state,
            snapshot=self._snapshots.take(),
            writes=state.log.take_writes(),
            immediate=[],
            messages=state.outbox,
            committed=committed,
            reads=self._reads.take_confirmed(),
            failed_reads=self._reads.take_failed(),
            roles=self._roles[:],
            notices=state.notices,
        )
        state.outbox, state.notices = [], []
        state.hard_dirty = False
        self._roles.clear()
        if not (
            ready.must_store
            or ready.messages
            or committed
            or ready.reads
            or ready.failed_reads
            or ready.roles
        ):
            return None
        self._split_messages(ready)
        self._commit_in_flight = state.commit_index
        self._in_flight = ready
        return ready

    def _may_apply_first(self) -> bool:
        """Returns whether entries are committed and stored, while behind them only entries are to
        be stored. Those need not be waited for."""
        state = self._state
        log = state.log
        first = self.applied_index + 1
        return (
            log.begin_index <= first <= min(state.commit_index, log.stable_index)
            and log.has_writes
            and log.only_grows
            and not state.hard_dirty
        )

    def _ready_without_writes(self) -> Ready:
        """Returns what can be done before entries are stored; the next `Ready` has them, and the
        answers and roles that go with them."""
        state = self._state
        messages = state.outbox
        state.outbox = [one for one in messages if not isinstance(one, _UNBOUND)]
        return Ready(
            hard_state=None,
            snapshot=None,
            writes=LogWrites(),
            immediate=[one for one in messages if isinstance(one, _UNBOUND)],
            messages=[],
            committed=self._committed_to(min(state.commit_index, state.log.stable_index)),
            reads=self._reads.take_confirmed(),
            failed_reads=self._reads.take_failed(),
            roles=[],
        )

    def _committed_to(self, last: int) -> list[Entry]:
        """Returns entries up to `last` that are to be applied next."""
        first, log = self.applied_index + 1, self._state.log
        if not log.begin_index <= first <= last:
            return []
        return log.slice(first, last - first + 1, self._state.config.max_apply_bytes)

    def _split_messages(self, ready: Ready) -> None:
        if not ready.must_store:
            ready.immediate, ready.messages = ready.messages, []
        elif ready.hard_state is None:
            messages = ready.messages
            ready.immediate = [one for one in messages if isinstance(one, _UNBOUND)]
            ready.messages = [one for one in messages if not isinstance(one, _UNBOUND)]

    def take_beats(self) -> list[m.RaftMessage]:
        """Returns heartbeats and answers to heartbeats that may be sent before the last `Ready` is
        carried out: they promise nothing but that this member is in its term. None where that is
        not stored yet."""
        state, ready = self._state, self._in_flight
        if state.hard_dirty or (ready is not None and ready.hard_state is not None):
            return []
        beats: list[m.RaftMessage] = [one for one in state.outbox if isinstance(one, _BEATS)]
        if beats:
            state.outbox = [one for one in state.outbox if not isinstance(one, _BEATS)]
        return beats

    def advance(self) -> None:
        """Tells the core that all of the last `Ready` was carried out."""
        ready = self._in_flight
        if ready is None:
            raise RuntimeError("advance() without a ready()")
        self._in_flight = None
        self.stored_commit_index = self._commit_in_flight
        if ready.writes.entries:
            self._state.log.stored(ready.writes.entries[-1].index)
            self.replication.advance_commit()
        if ready.writes.reset is not None:
            self.applied_index = max(self.applied_index, ready.writes.reset.index)
        if ready.snapshot is not None:
            self.applied_index = max(self.applied_index, ready.snapshot.meta.index)
        if ready.committed:
            self.applied_index = max(self.applied_index, ready.committed[-1].index)
