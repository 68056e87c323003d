"""Handing over, where it does not go as it should."""

from collections.abc import Sequence
from random import Random

from rocketmq_tw.raft.core.codes import Code, PushKind, RaftRole, VoteResult
from rocketmq_tw.raft.core.config import RaftConfig
from rocketmq_tw.raft.core.member_state import HardState
from rocketmq_tw.raft.core.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    PushRequest,
    PushResponse,
    RaftMessage,
    TransferRequest,
    TransferResponse,
    VoteRequest,
    VoteResponse,
)
from rocketmq_tw.raft.core.raft_core import RaftCore
from rocketmq_tw.structs import replace
from tests.support.raft_store import MemoryStore, entries_of_terms

CONFIG = RaftConfig(self_id="n0", members=("n0", "n1", "n2"))


class Lone:
    """Member n0 of three; the test plays the others, and time."""

    def __init__(self, config: RaftConfig = CONFIG, terms: Sequence[int] = ()) -> None:
        """`terms`: of the entries that it begins with."""
        store = MemoryStore(entries_of_terms(terms))
        self.core = RaftCore(config, store, HardState(1, None), -1, Random(1))
        self.now = 1000
        self.pushed: list[PushRequest] = []

    def said(self) -> list[RaftMessage]:
        """What it sent since the last look."""
        messages: list[RaftMessage] = []
        while (ready := self.core.ready()) is not None:
            messages += [*ready.immediate, *ready.messages]
            self.core.advance()
        self.pushed += [one for one in messages if isinstance(one, PushRequest)]
        return [one for one in messages if not isinstance(one, PushRequest)]

    def step(self, message: RaftMessage) -> None:
        self.core.step(message, self.now)

    def lead(self) -> None:
        """Time passes until it asks for votes, and both are given."""
        while self.core.role is not RaftRole.LEADER:
            self.now += 10
            self.core.tick(self.now)
            for asked in self.said():
                if isinstance(asked, VoteRequest):
                    self.step(
                        VoteResponse(
                            source=asked.target,
                            target="n0",
                            term=asked.term,
                            rpc=asked.rpc,
                            result=VoteResult.ACCEPT,
                        )
                    )

    def order(self, rpc: int, target: str = "n1") -> None:
        """A client's order to hand over."""
        self.step(
            TransferRequest(
                source="",
                target="n0",
                term=self.core.term,
                rpc=rpc,
                transfer_id="n0",
                transferee_id=target,
            )
        )

    def answers(self) -> dict[int, Code]:
        said = self.said()
        return {one.rpc: one.code for one in said if isinstance(one, TransferResponse)}


def test_every_order_is_answered_also_where_the_same_member_leads_again() -> None:
    lone = Lone()
    lone.lead()
    lone.order(7)
    assert lone.answers() == {}
    # n1 goes for the next term but does not win it.
    end = lone.core.log
    lone.step(
        VoteRequest(
            source="n1",
            target="n0",
            term=lone.core.term + 1,
            rpc=1,
            end_index=end.end_index,
            end_term=end.end_term,
        )
    )
    lone.lead()
    lone.order(8)
    answers = lone.answers()
    while lone.now < 20_000:
        lone.now += 100
        lone.core.tick(lone.now)
        answers |= lone.answers()
    assert set(answers) == {7, 8}
    assert Code.SUCCESS not in answers.values()


def test_a_second_order_has_to_wait() -> None:
    lone = Lone()
    lone.lead()
    lone.order(7)
    lone.order(8, "n2")
    assert lone.answers() == {8: Code.LEADER_TRANSFERRING}


def test_a_preferred_leader_takes_over_once_its_log_is_compared() -> None:
    """Its entries may be others, and more: nobody elects it, and it is asked again in each term
    before it is compared."""
    preferred = replace(CONFIG, preferred_leader_ids=("n1",))
    lone = Lone(preferred, terms=(1, 1))
    lone.lead()
    asked: list[RaftMessage] = []

    def two_seconds() -> None:
        for _ in range(20):
            lone.now += 100
            lone.core.tick(lone.now)
            for one in lone.said():
                if isinstance(one, HeartbeatRequest):
                    lone.step(
                        HeartbeatResponse(
                            source=one.target,
                            target="n0",
                            term=one.term,
                            rpc=one.rpc,
                            code=Code.SUCCESS,
                        )
                    )
                elif isinstance(one, TransferRequest):
                    asked.append(one)

    two_seconds()
    assert not asked
    comparison = [one for one in lone.pushed if one.target == "n1"][-1]
    assert comparison.kind is PushKind.COMPARE
    lone.step(
        PushResponse(
            source="n1",
            target="n0",
            term=comparison.term,
            rpc=comparison.rpc,
            code=Code.SUCCESS,
            index=1,
            count=1,
            begin_index=0,
            end_index=1,
        )
    )
    two_seconds()
    assert [one.target for one in asked] == ["n1"]
