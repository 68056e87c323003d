"""Linearizable reads: the leader's commit index, once a quorum has confirmed that it leads."""

from rocketmq_tw.raft.core.codes import Code, RaftRole, Refused
from rocketmq_tw.raft.core.heartbeat import Heartbeats
from rocketmq_tw.raft.core.member_state import MemberState
from rocketmq_tw.raft.core.replication import Replication
from rocketmq_tw.structs import msgspec


class ReadState(msgspec.Struct, frozen=True):
    """The read `token` may be served from a state that has applied `index`."""

    token: int
    index: int


class Reads:
    """Reads that wait for a round of heartbeats sent after they came."""

    def __init__(
        self, state: MemberState, heartbeats: Heartbeats, replication: Replication
    ) -> None:
        self._state = state
        self._heartbeats = heartbeats
        self._replication = replication
        self._new: list[ReadState] = []
        self._waiting: list[tuple[int, ReadState]] = []
        self._failed: list[int] = []
        state.role_listeners.append(self._role_changed)

    def _role_changed(self, role: RaftRole) -> None:
        self._failed += [read.token for read in self._new]
        self._failed += [read.token for _, read in self._waiting]
        self._new.clear()
        self._waiting.clear()

    def request(self, token: int) -> None:
        """Asks for a read. Raises `Refused` where this member does not lead."""
        state = self._state
        if state.role is not RaftRole.LEADER:
            raise Refused(Code.NOT_LEADER, f"{state.leader_id or 'no member'} leads the group")
        # Until our first own entry is committed the commit index may be an old one.
        index = max(state.commit_index, self._replication.barrier_index)
        self._new.append(ReadState(token, index))

    def flush(self) -> None:
        """Sends one round for all the reads that came since the last one."""
        if self._new:
            new, self._new = self._new, []
            number = self._heartbeats.send_round()
            self._waiting += [(number, read) for read in new]

    def take_confirmed(self) -> list[ReadState]:
        """Returns the reads that a quorum has confirmed."""
        if not self._waiting:
            return []
        confirmed = self._heartbeats.confirmed_round
        done = [read for number, read in self._waiting if number <= confirmed]
        if done:
            self._waiting = self._waiting[len(done) :]
        return done

    def take_failed(self) -> list[int]:
        """Returns the tokens of reads that a change of role has ended."""
        failed, self._failed = self._failed, []
        return failed
