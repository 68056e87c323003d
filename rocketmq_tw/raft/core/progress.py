"""Keeps how far one follower is, as its leader knows: what matches, what was sent, what comes
next."""

from enum import Enum

from rocketmq_tw.raft.core.codes import PushKind
from rocketmq_tw.structs import msgspec

#: How many pushes that timed out are remembered: all that are sent before the longest wait is over,
#: with the default window, twice.
MOST_LATE = 256
#: How often the time-out doubles while a follower answers none in time.
MOST_DOUBLINGS = 3


class Phase(Enum):
    """COMPARE looks for the last common entry, TRUNCATE cuts what is behind it, APPEND streams,
    SNAPSHOT replaces all."""

    COMPARE = "COMPARE"
    TRUNCATE = "TRUNCATE"
    APPEND = "APPEND"
    SNAPSHOT = "SNAPSHOT"


class Pending(msgspec.Struct):
    """A push that is not answered yet, with the commit index that it told."""

    kind: PushKind
    last_index: int
    commit_index: int
    sent_at: int


class PeerProgress(msgspec.Struct):
    """One follower. `match_index` falls within a term only where the follower's log is lost.

    COMPARE brackets the last common entry: `common_index` is common, `mismatch_index` is not,
    `probe_index` is compared next. The step back from a mismatch doubles until an entry is
    common, then the bracket is halved. Comparing changes nothing, so the exact end of the common
    part is known before anything is cut.
    """

    peer: str
    phase: Phase = Phase.COMPARE
    match_index: int = -1
    next_index: int = 0
    common_index: int = -1
    probe_index: int = -1
    mismatch_index: int = 0
    probe_step: int = 1
    peer_end: int = -1
    told_commit: int = -1
    #: When this follower was last sent anything.
    quiet_since: int = 0
    retry_at: int = 0
    failures: int = 0
    snapshot_offset: int = 0
    snapshot_unsupported: bool = False
    pending: dict[int, Pending] = msgspec.field(default_factory=dict)
    #: Pushes of this phase that timed out, oldest first: a follower whose disk is slow answers them
    #: yet, and would never be in time were each answer to the last sending only.
    late: dict[int, Pending] = msgspec.field(default_factory=dict)
    #: How often the time-out is doubled.
    doublings: int = 0

    def compare_from(self, end_index: int) -> None:
        """Starts over with a comparison at the leader's last entry."""
        self.phase = Phase.COMPARE
        self.pending.clear()
        self.late.clear()
        self.common_index = -1
        self.mismatch_index = end_index + 1
        self.probe_step = 1

    def compared(self, peer_end: int) -> None:
        """Takes the answer to a comparison from a follower whose log ends with `peer_end`."""
        self.peer_end = peer_end
        if peer_end < self.match_index:
            # It has lost what it had stored, so that no longer counts.
            self.match_index = self.told_commit = -1

    def probe_matched(self) -> None:
        """Notes that the probe's entry is common."""
        self.common_index = max(self.common_index, self.probe_index)
        self.match_index = max(self.match_index, self.common_index)

    def probe_mismatched(self, peer_end: int) -> None:
        """Notes that the probe's entry is not common; the follower's log ends at `peer_end`."""
        self.mismatch_index = min(self.mismatch_index, self.probe_index)
        if peer_end < self.probe_index:
            # What the follower does not have cannot be common; its last entry well may be.
            self.mismatch_index = min(self.mismatch_index, peer_end + 1)
            self.probe_step = 1

    def next_probe(self, begin_index: int) -> int | None:
        """Returns the index to compare next, or None where the last common entry is known."""
        floor = max(self.common_index, begin_index - 1)
        if self.mismatch_index - 1 <= floor:
            return None
        if self.common_index >= begin_index:
            self.probe_index = (floor + self.mismatch_index) // 2
        else:
            self.probe_index = max(begin_index, self.mismatch_index - self.probe_step)
            self.probe_step *= 2
        return self.probe_index

    def append_from(self, match_index: int) -> None:
        """Begins to append behind `match_index`, which is common and the follower's last entry."""
        self.phase = Phase.APPEND
        self.match_index = max(self.match_index, match_index)
        self.next_index = match_index + 1
        self.pending.clear()
        self.late.clear()

    def gives_up_at(self, timeout_ms: int) -> int | None:
        """Returns when the oldest push has waited for too long; None where none waits. `timeout_ms`
        is the time-out of a follower that answers in time."""
        oldest = next(iter(self.pending.values()), None)
        return None if oldest is None else oldest.sent_at + (timeout_ms << self.doublings)

    def timed_out(self) -> None:
        """Waits no more for what is pending: it is sent again, if this follower appends."""
        if self.phase is Phase.APPEND:
            self.late |= self.pending
            while len(self.late) > MOST_LATE:
                del self.late[next(iter(self.late))]
            self.next_index = self.match_index + 1
        self.pending.clear()
        self.doublings = min(self.doublings + 1, MOST_DOUBLINGS)

    def answered(self, rpc: int) -> Pending | None:
        """Takes the push out that `rpc` answers, pending or late; None for a repeated answer, and
        for one from before another phase."""
        return self.pending.pop(rpc, None) or self.late.pop(rpc, None)
