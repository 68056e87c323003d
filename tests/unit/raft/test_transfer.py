"""Handing over, where it does not go as it should."""

from random import Random

from rocketmq_tw.raft.core.codes import Code, RaftRole, VoteResult
from rocketmq_tw.raft.core.config import RaftConfig
from rocketmq_tw.raft.core.member_state import HardState
from rocketmq_tw.raft.core.messages import (
    PushRequest,
    RaftMessage,
    TransferRequest,
    TransferResponse,
    VoteRequest,
    VoteResponse,
)
from rocketmq_tw.raft.core.raft_core import RaftCore
from tests.support.raft_store import MemoryStore

CONFIG = RaftConfig(self_id="n0", members=("n0", "n1", "n2"))


class Lone:
    """Member n0 of three; the test plays the others, and time."""

    def __init__(self) -> None:
        self.core = RaftCore(CONFIG, MemoryStore(), HardState(1, None), -1, Random(1))
        self.now = 1000

    def said(self) -> list[RaftMessage]:
        """What it sent since the last look."""
        messages: list[RaftMessage] = []
        while (ready := self.core.ready()) is not None:
            messages += [*ready.immediate, *ready.messages]
            self.core.advance()
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
