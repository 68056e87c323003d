"""What a leader sends a follower that is late or behind, and what its answers are worth."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from rocketmq_tw.raft.core import messages as m
from rocketmq_tw.raft.core.codes import Code, PushKind
from rocketmq_tw.raft.core.config import RaftConfig
from rocketmq_tw.raft.core.entry import Entry
from rocketmq_tw.raft.core.member_state import HardState
from rocketmq_tw.raft.core.raft_core import RaftCore
from tests.support.raft_store import MemoryStore, entries_of_terms

TIMEOUT_MS = 1000


class CountingStore(MemoryStore):
    """Counts the entries that are read."""

    reads = 0

    def read(self, index: int) -> Entry:
        self.reads += 1
        return super().read(index)


class Leader:
    """n0, which leads n1 and n2 in term 2; what these answer is the test's."""

    def __init__(self, terms: Sequence[int] = (), **config: Any) -> None:
        self.now = 10_000
        self.store = CountingStore(entries_of_terms(terms))
        raft = RaftConfig(self_id="n0", members=("n0", "n1", "n2"), **config)
        self.core = RaftCore(raft, self.store, HardState(2, "n0"), len(terms) - 1, Random(1))
        self.core._state.now = self.now
        self.core._state.become_leader()

    def sent(self) -> list[m.PushRequest]:
        """All that it wants done is done; the pushes to n1."""
        found: list[m.PushRequest] = []
        while (pushes := self.sent_at_once()) is not None:
            found += pushes
        return found

    def sent_at_once(self) -> list[m.PushRequest] | None:
        """The pushes to n1 of one `Ready`; None where there is none."""
        ready = self.core.ready()
        if ready is None:
            return None
        self.store.store(ready)
        self.core.advance()
        every = [*ready.immediate, *ready.messages]
        return [one for one in every if isinstance(one, m.PushRequest) and one.target == "n1"]

    def wait(self, milliseconds: int) -> list[m.PushRequest]:
        """Time passes, while a quorum answers heartbeats; the pushes to n1."""
        self.now += milliseconds
        self.core.heartbeats.last_success = self.now
        self.core.tick(self.now)
        return self.sent()

    def hears(
        self, push: m.PushRequest, code: Code = Code.SUCCESS, end_index: int | None = None
    ) -> None:
        """The follower answers a push; its log ends with what was pushed, or `end_index`."""
        last = push.entries[-1].index if push.entries else -1
        answer = m.PushResponse(
            source=push.target,
            target="n0",
            term=2,
            rpc=push.rpc,
            code=code,
            index=push.first_index,
            count=len(push.entries),
            begin_index=0,
            end_index=last if end_index is None else end_index,
        )
        self.core.step(answer, self.now)

    def append_to(self, end_index: int) -> None:
        """n1 is found to have all up to `end_index`, and nothing behind."""
        (compared,) = self.sent()
        assert compared.kind is PushKind.COMPARE
        code = Code.SUCCESS if compared.first_index == end_index else Code.INCONSISTENT_STATE
        self.hears(compared, code, end_index)
        if code is not Code.SUCCESS:
            (compared,) = self.sent()
            self.hears(compared)


@pytest.fixture
def leader() -> Leader:
    """All of its three entries are stored by n1 too."""
    found = Leader([1, 2, 2])
    found.append_to(2)
    found.sent()
    return found


def appended(leader: Leader) -> m.PushRequest:
    leader.core.propose([b"x"])
    (push,) = leader.sent()
    return push


def test_a_late_answer_counts(leader: Leader) -> None:
    first = appended(leader)
    again = leader.wait(TIMEOUT_MS)
    assert [one.entries for one in again] == [first.entries]
    leader.hears(first)
    assert leader.core.commit_index == first.entries[-1].index


def test_entries_that_a_late_answer_has_are_not_sent_again(leader: Leader) -> None:
    first = appended(leader)
    leader.wait(TIMEOUT_MS)
    leader.hears(first)
    second = appended(leader)
    assert second.first_index == first.first_index + 1
    # The second sending of the first one is not answered.
    again = leader.wait(10 * TIMEOUT_MS)
    assert {one.first_index for one in again if one.entries} == {second.first_index}


@pytest.mark.parametrize("end_index", [2, 5])
def test_an_answer_from_before_a_comparison_counts_no_more(leader: Leader, end_index: int) -> None:
    """The follower may have lost meanwhile what it had stored."""
    first = appended(leader)
    (again,) = leader.wait(TIMEOUT_MS)
    leader.hears(again, Code.INCONSISTENT_STATE)
    leader.hears(first, end_index=end_index)
    assert leader.core.commit_index < first.first_index
    (compared,) = leader.sent()
    assert compared.kind is PushKind.COMPARE
    leader.hears(compared, Code.INCONSISTENT_STATE, 1)
    leader.hears(first, end_index=end_index)
    assert leader.core.commit_index < first.first_index


def test_nor_one_from_an_earlier_term(leader: Leader) -> None:
    first = appended(leader)
    leader.wait(TIMEOUT_MS)
    state = leader.core._state
    state.become_candidate(3)
    state.next_term()
    state.become_leader()
    leader.sent()
    leader.hears(first)
    assert leader.core.commit_index < first.first_index


def resends(leader: Leader, milliseconds: int) -> list[int]:
    """When something was sent to n1 again, in seconds."""
    began, found = leader.now, []
    while leader.now < began + milliseconds:
        if any(push.entries for push in leader.wait(100)):
            found.append((leader.now - began) // 1000)
    return found


def test_the_time_out_doubles_while_nothing_is_answered(leader: Leader) -> None:
    appended(leader)
    assert resends(leader, 40_000) == [1, 3, 7, 15, 23, 31, 39]


def test_it_is_back_once_the_follower_is(leader: Leader) -> None:
    appended(leader)
    resends(leader, 16_000)
    for push in leader.wait(7000):
        leader.hears(push)
    leader.sent()
    appended(leader)
    assert resends(leader, 2000) == [1]


def test_what_is_kept_for_late_answers_is_bounded() -> None:
    leader = Leader([1, 2, 2], max_batch_entries=1)
    leader.append_to(2)
    leader.core.propose([b"x"] * 100)
    pushes = leader.sent()
    assert len(pushes) == 32
    for _ in range(100):
        pushes += leader.wait(8 * TIMEOUT_MS)
    progress = leader.core.replication.progress["n1"]
    assert len(progress.late) < 300 < len(pushes)
    # The newest count.
    leader.hears(pushes[-40])
    assert progress.match_index == pushes[-40].first_index


# A follower that is far behind


def far_behind(**config: Any) -> Leader:
    """A leader that was started anew, with n1 at the begin of its log."""
    leader = Leader([1] + [2] * 2000, max_batch_entries=10, **config)
    (compared,) = leader.sent()
    # Its log has but the first entry.
    leader.hears(compared, Code.INCONSISTENT_STATE, 0)
    (compared,) = leader.sent()
    assert compared.first_index == 0
    leader.store.reads = 0
    leader.hears(compared)
    return leader


def test_a_follower_that_is_behind_gets_little_of_the_disk_at_once() -> None:
    leader = far_behind()
    found: list[m.PushRequest] = []
    most = leader.store.reads
    while True:
        leader.store.reads = 0
        pushes = leader.sent_at_once()
        most = max(most, leader.store.reads)
        if pushes is None:
            break
        found += pushes
    assert most <= 20 and len(found) == 32, "many pushes on their way, few read at once"
    assert not leader.core.has_more_to_push
    for push in found:
        leader.store.reads = 0
        leader.hears(push)
        assert not leader.store.reads, "answers come many at once"
    assert leader.sent_at_once() and leader.core.has_more_to_push


def test_it_gets_all_in_the_end() -> None:
    leader = far_behind()
    pushes = leader.sent()
    for push in pushes:
        leader.hears(push)
        pushes += [one for one in leader.sent() if one.entries]
    indexes = [entry.index for push in pushes for entry in push.entries]
    assert indexes == list(range(1, 2001))
    assert leader.core.replication.progress["n1"].match_index == 2000


def test_what_is_in_memory_goes_at_once() -> None:
    leader = Leader([1, 2, 2], max_batch_entries=1)
    leader.append_to(2)
    leader.sent()
    leader.core.propose([b"x"] * 100)
    pushes = leader.sent_at_once()
    assert pushes is not None and len(pushes) == 32
