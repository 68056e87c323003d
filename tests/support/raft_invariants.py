"""What must hold in a group after every step, checked against all that was ever seen of it."""

from rocketmq_tw.raft.core.codes import Code, RaftRole
from rocketmq_tw.raft.core.entry import Entry, crc_of_body
from rocketmq_tw.raft.core.messages import PushResponse, RaftMessage
from rocketmq_tw.raft.core.raft_core import RaftCore, Ready


class Violation(AssertionError):
    """A promise of Raft's that was broken."""


class Invariants:
    """One leader a term, one vote a term and member, log matching, leader completeness, and
    committed entries that stay. No entry is answered for or applied before it is stored."""

    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}
        self.committed: dict[int, Entry] = {}
        self.last_committed = -1
        self._votes: dict[tuple[str, int], str] = {}
        self._terms: dict[str, int] = {}
        self._entries: dict[tuple[int, int], tuple[int, int, int | None]] = {}
        self._commit_seen: dict[str, int] = {}

    def check_step(self, member: str, core: RaftCore) -> None:
        """After anything that `member` did."""
        if core.term < self._terms.get(member, 0):
            raise Violation(f"{member} fell back to term {core.term}")
        self._terms[member] = core.term
        if core.role is RaftRole.LEADER:
            self._check_leader(member, core)
        commit = core.commit_index
        seen = self._commit_seen.get(member, -1)
        if commit > seen:
            self._check_commits(member, core, max(seen + 1, core.log.begin_index), commit)
            self._commit_seen[member] = commit

    def _check_leader(self, member: str, core: RaftCore) -> None:
        known = self.leaders.setdefault(core.term, member)
        if known != member:
            raise Violation(f"{known} and {member} both lead in term {core.term}")
        last = self.last_committed
        if last >= 0:
            term = core.log.term_at(last)
            whole = core.log.begin_index > last or term == self.committed[last].term
            if core.term >= self.committed[last].term and not whole:
                raise Violation(f"leader {member} lacks committed entry {last}: {core.log!r}")

    def _check_commits(self, member: str, core: RaftCore, first: int, last: int) -> None:
        for index in range(first, last + 1):
            entry = core.log.read(index)
            known = self.committed.setdefault(index, entry)
            if known.term != entry.term or known.body != entry.body or known.pos != entry.pos:
                raise Violation(f"{member} committed {entry}, another member {known}")
        self.last_committed = max(self.last_committed, last)

    def check_stored(self, member: str, core: RaftCore, ready: Ready) -> None:
        """What a member has stored, before it tells anybody."""
        if ready.hard_state is not None and ready.hard_state.vote_for is not None:
            key = (member, ready.hard_state.term)
            vote = self._votes.setdefault(key, ready.hard_state.vote_for)
            if vote != ready.hard_state.vote_for:
                raise Violation(f"{member} voted twice in term {ready.hard_state.term}")
        for entry in ready.writes.entries:
            if core.log.term_at(entry.index) != entry.term:
                continue  # cut while it was written
            before = core.log.term_at(entry.index - 1)
            mark = (crc_of_body(entry.body), entry.pos, before)
            known = self._entries.setdefault((entry.index, entry.term), mark)
            if known[:2] != mark[:2] or (None not in (known[2], before) and known[2] != before):
                raise Violation(f"{member} has another entry {entry.index} of term {entry.term}")

    def check_sent(self, message: RaftMessage, stored_end: int) -> None:
        """What a member says it has, while its files end with `stored_end`."""
        if not isinstance(message, PushResponse) or message.code is not Code.SUCCESS:
            return
        if message.index + message.count - 1 > stored_end:
            raise Violation(f"{message.source} has stored up to {stored_end}: {message}")

    def check_applied(self, member: str, stored_end: int, applied: int) -> None:
        """What a member applies, while its files end with `stored_end`."""
        if applied > stored_end:
            raise Violation(f"{member} applies {applied}, and has stored up to {stored_end}")

    def member_restarted(self, member: str, core: RaftCore, stored_term: int) -> None:
        """What a member finds after a crash must hold all that it promised."""
        self._commit_seen[member] = core.commit_index
        if core.term < stored_term:
            raise Violation(f"{member} forgot term {stored_term}")
        self._terms[member] = core.term
