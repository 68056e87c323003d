"""A leader's log that begins behind what a member without a state machine has: it begins anew
there only where the leader means it."""

from random import Random

import pytest

from rocketmq_tw.raft.core.codes import Code, PushKind, RaftRole
from rocketmq_tw.raft.core.config import RaftConfig
from rocketmq_tw.raft.core.entry import Entry, crc_of_body
from rocketmq_tw.raft.core.member_state import HardState
from rocketmq_tw.raft.core.messages import HeartbeatRequest, PushRequest, PushResponse
from rocketmq_tw.raft.core.raft_core import RaftCore
from tests.support.raft_store import MemoryStore, entries_of_terms

BEAT = 2000
#: Entries 2 to 999 may well lie between the member's last one and this place.
BELIEVABLE = 100_000


class Member:
    """n0, without a state machine, has entries 0 and 1, of which those up to `committed` are, and
    follows n1 in term 5."""

    def __init__(self, committed: int = 1) -> None:
        config = RaftConfig(
            self_id="n0",
            members=("n0", "n1", "n2"),
            data_file_size=1 << 20,
            state_machine=False,
            heartbeat_interval_ms=BEAT,
        )
        store = MemoryStore(entries_of_terms((3, 4)))
        self.core = RaftCore(config, store, HardState(5, None), committed, Random(1))
        self.now = 10
        self.beat(5)
        self.notices: list[str] = []

    def beat(self, term: int, source: str = "n1") -> None:
        self.core.step(HeartbeatRequest(source=source, target="n0", term=term), self.now)

    def push(
        self, kind: PushKind, *entries: Entry, commit: int = 1000, term: int = 5, source: str = "n1"
    ) -> Code:
        """The answer to a push."""
        request = PushRequest(
            source=source, target="n0", term=term, kind=kind, commit_index=commit, entries=entries
        )
        self.core.step(request, self.now)
        ready = self.core.ready()
        assert ready is not None
        self.notices += ready.notices
        self.core.advance()
        answers = [*ready.immediate, *ready.messages]
        return next(one.code for one in answers if isinstance(one, PushResponse))

    def truncate(self, index: int = 1000, pos: int = BELIEVABLE, **where: object) -> Code:
        return self.push(PushKind.TRUNCATE, entry_at(index, pos), **where)  # type: ignore[arg-type]

    def place(self) -> tuple[int, int, int]:
        return self.core.log.begin_index, self.core.log.end_index, self.core.commit_index


def entry_at(index: int, pos: int, term: int = 5) -> Entry:
    return Entry(index, term, pos, b"x", 0, crc_of_body(b"x"))


def test_what_was_compared_counts_also_behind_a_silence_of_the_leader() -> None:
    """A leader of stock's that has nothing to append sends COMMIT and looks at no answer."""
    member = Member(committed=0)
    (_, last) = entries_of_terms((3, 4))
    assert member.push(PushKind.COMPARE, last, commit=0) is Code.SUCCESS
    member.now += 4 * BEAT
    member.core.tick(member.now)
    assert member.core.role is RaftRole.CANDIDATE
    member.beat(5)
    assert member.core.role is RaftRole.FOLLOWER
    assert member.push(PushKind.COMMIT, commit=1) is Code.SUCCESS
    assert member.place() == (0, 1, 1)


def test_what_was_compared_with_a_former_leader_does_not_count() -> None:
    member = Member(committed=0)
    (_, last) = entries_of_terms((3, 4))
    assert member.push(PushKind.COMPARE, last, commit=0) is Code.SUCCESS
    member.beat(6, "n2")
    member.core.tick(member.now)
    member.beat(6, "n2")
    assert member.push(PushKind.COMMIT, commit=1, term=6, source="n2") is Code.SUCCESS
    assert member.place() == (0, 1, 0)


@pytest.mark.parametrize("pos", [0, 4096, 1 << 50])
def test_an_impossible_place_drops_nothing_committed(pos: int) -> None:
    member = Member()
    for _ in range(3):
        assert member.truncate(pos=pos) is Code.INCONSISTENT_STATE
        member.now += 3 * BEAT
    assert member.place() == (0, 1, 1)


def test_one_word_drops_nothing() -> None:
    member = Member()
    for _ in range(4):
        assert member.truncate() is Code.INCONSISTENT_STATE
        member.now += BEAT // 2
    assert member.place() == (0, 1, 1)
    assert len(member.notices) == 1
    assert "n1" in member.notices[0] and "entry 1000" in member.notices[0]


def test_a_leader_that_asks_for_it_all_the_time_is_followed() -> None:
    member = Member()
    while member.truncate() is not Code.SUCCESS:
        assert member.now < 4 * BEAT
        member.now += BEAT // 4
    assert member.now > 2 * BEAT
    # That one entry commits nothing; the leader's next word does.
    assert member.place() == (1000, 1000, 1)
    assert "drops entries 0 to 1" in member.notices[-1]
    assert member.push(PushKind.COMMIT) is Code.SUCCESS
    assert member.place() == (1000, 1000, 1000)


@pytest.mark.parametrize(
    ("kind", "entries"),
    [
        (PushKind.COMMIT, ()),
        (PushKind.COMPARE, tuple(entries_of_terms((3, 4)))[1:]),
        (PushKind.APPEND, tuple(entries_of_terms((3, 4, 5)))[2:]),
    ],
)
def test_a_leader_that_goes_on_with_our_log_did_not_ask(
    kind: PushKind, entries: tuple[Entry, ...]
) -> None:
    member = Member()
    member.truncate()
    member.now += 2 * BEAT
    assert member.push(kind, *entries, commit=1) is Code.SUCCESS
    member.now += BEAT
    assert member.truncate() is Code.INCONSISTENT_STATE
    assert member.place()[0] == 0


def test_another_place_another_leader_or_another_term_is_another_question() -> None:
    member = Member()
    member.truncate()
    member.now += 3 * BEAT
    assert member.truncate(index=1001) is Code.INCONSISTENT_STATE
    member.now += 3 * BEAT
    assert member.truncate() is Code.INCONSISTENT_STATE
    member.now += 3 * BEAT
    assert member.truncate(source="n2") is Code.INCONSISTENT_LEADER
    member.beat(6)
    member.core.tick(member.now + 10)
    member.core._state.become_follower("n1")
    member.now += 3 * BEAT
    assert member.truncate(term=member.core.term) is Code.INCONSISTENT_STATE
    assert member.place() == (0, 1, 1)


def test_who_has_nothing_begins_at_once() -> None:
    config = RaftConfig(
        self_id="n0", members=("n0", "n1"), data_file_size=1 << 20, state_machine=False
    )
    core = RaftCore(config, MemoryStore([]), HardState(5, None), -1, Random(1))
    core.step(HeartbeatRequest(source="n1", target="n0", term=5), 10)
    push = PushRequest(
        source="n1",
        target="n0",
        term=5,
        kind=PushKind.TRUNCATE,
        commit_index=1000,
        entries=(entry_at(1000, BELIEVABLE),),
    )
    core.step(push, 20)
    assert (core.log.begin_index, core.log.end_index) == (1000, 1000)
