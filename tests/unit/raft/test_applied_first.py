"""What is committed and stored is applied before a member stores what came behind it."""

from collections.abc import Sequence
from random import Random
from typing import Any

from rocketmq_tw.raft.core import messages as m
from rocketmq_tw.raft.core.codes import PushKind
from rocketmq_tw.raft.core.config import RaftConfig
from rocketmq_tw.raft.core.entry import Entry
from rocketmq_tw.raft.core.member_state import HardState
from rocketmq_tw.raft.core.raft_core import RaftCore, Ready
from tests.support.raft_store import MemoryStore, entries_of_terms

ENTRIES = entries_of_terms([2, 2, 2, 2])


class Follower:
    """n0, which follows n1 in term 2."""

    def __init__(self, **config: Any) -> None:
        self.store = MemoryStore()
        raft = RaftConfig(self_id="n0", members=("n0", "n1", "n2"), **config)
        self.core = RaftCore(raft, self.store, HardState(2, None), -1, Random(1))
        self.core.step(m.HeartbeatRequest(source="n1", target="n0", term=2), 10_000)
        self.drain()

    def gets(
        self, entries: Sequence[Entry], commit_index: int, kind: PushKind = PushKind.APPEND
    ) -> None:
        push = m.PushRequest(
            source="n1",
            target="n0",
            term=2,
            rpc=7,
            kind=kind,
            commit_index=commit_index,
            entries=tuple(entries),
        )
        self.core.step(push, 10_000)

    def next(self) -> Ready:
        """The next thing to be done, which is done."""
        ready = self.core.ready()
        assert ready is not None
        self.store.store(ready)
        self.core.advance()
        return ready

    def drain(self) -> None:
        while self.core.ready() is not None:
            self.core.advance()


def indexes(entries: Sequence[Entry]) -> list[int]:
    return [entry.index for entry in entries]


def answers(ready: Ready) -> list[m.PushResponse]:
    every = [*ready.immediate, *ready.messages]
    return [one for one in every if isinstance(one, m.PushResponse)]


def follower_with(count: int, **config: Any) -> Follower:
    """`count` entries are stored, none of them is known to be committed."""
    follower = Follower(**config)
    follower.gets(ENTRIES[:count], -1)
    follower.next()
    assert follower.core.ready() is None
    return follower


def test_entries_that_are_stored_are_applied_first() -> None:
    follower = follower_with(2)
    follower.gets(ENTRIES[2:], 2)
    ready = follower.next()
    assert indexes(ready.committed) == [0, 1] and not ready.must_store
    ready = follower.next()
    assert indexes(ready.writes.entries) == [2, 3] and indexes(ready.committed) == [2]
    assert follower.core.ready() is None


def test_no_answer_says_meanwhile_that_the_others_are_stored() -> None:
    follower = follower_with(2)
    follower.gets(ENTRIES[2:], 2)
    follower.core.step(m.HeartbeatRequest(source="n1", target="n0", term=2, rpc=8), 10_000)
    ready = follower.next()
    assert not ready.must_store and not answers(ready)
    assert [type(one) for one in ready.immediate] == [m.HeartbeatResponse]
    ready = follower.next()
    assert ready.must_store and answers(ready) == ready.messages
    assert ready.messages[0].end_index == 3


def test_a_checkpoint_meanwhile_vouches_for_what_is_stored_only() -> None:
    follower = follower_with(2)
    follower.gets(ENTRIES[2:], 3)
    follower.next()
    assert follower.core.stored_commit_index == 1
    follower.next()
    assert follower.core.stored_commit_index == 3


def test_storing_waits_for_one_piece_of_a_long_log_only() -> None:
    follower = follower_with(3, max_apply_bytes=1)
    follower.gets(ENTRIES[3:], 2)
    assert indexes(follower.next().committed) == [0]
    ready = follower.next()
    assert indexes(ready.writes.entries) == [3] and indexes(ready.committed) == [1]


def test_a_term_is_stored_first() -> None:
    follower = follower_with(2)
    follower.gets(ENTRIES[2:], 1)
    later = m.VoteRequest(source="n2", target="n0", term=3, end_index=9, end_term=2)
    follower.core.step(later, 10_000)
    follower.core.tick(10_001)
    ready = follower.next()
    assert ready.hard_state == HardState(3, None) and indexes(ready.committed) == [0, 1]


def test_a_cut_is_stored_first() -> None:
    follower = Follower()
    follower.store = MemoryStore(entries_of_terms([1, 1, 1]))
    raft = follower.core.config
    follower.core = RaftCore(raft, follower.store, HardState(2, None), -1, Random(1))
    follower.core.step(m.HeartbeatRequest(source="n1", target="n0", term=2), 10_000)
    follower.drain()
    others = entries_of_terms([1, 2])
    follower.gets(others[:1], -1, PushKind.COMPARE)
    follower.next()
    follower.gets(others[1:], 0)
    ready = follower.next()
    assert ready.writes.truncate_after == 0 and indexes(ready.committed) == [0]
