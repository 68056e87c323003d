"""The state that one member has of its own: role, term, vote, leader, log. The other modules act on
it."""

from collections.abc import Callable
from random import Random

from rocketmq_tw.raft.core.codes import Code, RaftRole
from rocketmq_tw.raft.core.config import RaftConfig
from rocketmq_tw.raft.core.log import Log
from rocketmq_tw.raft.core.membership import is_quorum
from rocketmq_tw.raft.core.messages import RaftMessage
from rocketmq_tw.structs import msgspec

RaftRoleListener = Callable[[RaftRole], None]


class HardState(msgspec.Struct, frozen=True):
    """What must be on stable storage before any answer that follows from it is sent."""

    term: int = 0
    vote_for: str | None = None


class MemberState:
    """The state that the rules of the protocol share. `now` is the time of the present call."""

    def __init__(self, config: RaftConfig, log: Log, hard: HardState, random: Random) -> None:
        self.config = config
        self.log = log
        self.random = random
        self.now = 0
        self.role = RaftRole.CANDIDATE
        self.term = hard.term
        self.vote_for = hard.vote_for
        self.leader_id: str | None = None
        self.commit_index = log.base.index
        #: The highest index known to equal the present leader's log (followers).
        self.matched_index = log.base.index
        #: Whose log that is: the leader, and its term.
        self._matched_with: tuple[str, int] | None = None
        self.known_max_term = -1
        self.transferee: str | None = None
        self.term_to_take = -1
        #: Whether this member may lead: without that it votes, and is never elected.
        self.stands = True
        self.hard_dirty = False
        self.outbox: list[RaftMessage] = []
        #: Lines for the server's log.
        self.notices: list[str] = []
        self.role_listeners: list[RaftRoleListener] = []
        # Answers to an earlier life of this member must not be taken for answers to this one.
        self._last_rpc = random.getrandbits(40)

    @property
    def self_id(self) -> str:
        return self.config.self_id

    @property
    def peers(self) -> list[str]:
        """The other members."""
        return [member for member in self.config.members if member != self.config.self_id]

    def is_member(self, member: str | None) -> bool:
        return member in self.config.members

    def check_source(self, request: RaftMessage) -> Code:
        """Returns SUCCESS where a leader's message comes from another member, in the present term;
        else the answer to it."""
        if not self.is_member(request.source):
            return Code.UNKNOWN_MEMBER
        if request.source == self.self_id:
            return Code.UNEXPECTED_MEMBER
        if request.term < self.term:
            return Code.EXPIRED_TERM
        return Code.SUCCESS if request.term == self.term else Code.TERM_NOT_READY

    def is_quorum(self, count: int) -> bool:
        return is_quorum(count, len(self.config.members))

    def next_rpc(self) -> int:
        self._last_rpc += 1
        return self._last_rpc

    def send(self, message: RaftMessage) -> None:
        self.outbox.append(message)

    @property
    def taking_leadership(self) -> bool:
        """A preferred leader that was told to take over in the present term."""
        return self.term_to_take == self.term and self.self_id in self.config.preferred_leader_ids

    def next_term(self) -> int:
        """Takes a candidate to the next term, or to the highest that it has heard of; returns the
        term."""
        self.term = max(self.known_max_term, self.term + 1)
        self.vote_for = None
        self.hard_dirty = True
        return self.term

    def set_vote(self, candidate: str) -> None:
        if self.vote_for != candidate:
            self.vote_for = candidate
            self.hard_dirty = True

    def become_candidate(self, term: int) -> None:
        """Leaves a leader, or leads no longer. The term itself rises with the next round."""
        self.known_max_term = max(self.known_max_term, term)
        self._become(RaftRole.CANDIDATE, None)

    def become_follower(self, leader_id: str) -> None:
        # A member that follows it again knows what it knew: a leader only appends, and stock's asks
        # for no comparison where it has nothing to append.
        if self._matched_with != (leader_id, self.term):
            self._matched_with = (leader_id, self.term)
            # Entries of the present term came from its only leader; what is committed is in the
            # log of every later one; of the rest nothing is known.
            newest_is_leaders = self.log.end_term == self.term
            self.matched_index = self.log.end_index if newest_is_leaders else self.commit_index
        self._become(RaftRole.FOLLOWER, leader_id)

    def become_leader(self) -> None:
        self._become(RaftRole.LEADER, self.self_id)

    def _become(self, role: RaftRole, leader_id: str | None) -> None:
        self.role = role
        self.leader_id = leader_id
        self.transferee = None
        for listener in self.role_listeners:
            listener(role)

    def commit_to(self, index: int) -> None:
        """Raises the commit index; it never falls."""
        if index > self.commit_index:
            self.commit_index = index
