"""A leader's log that begins behind what a member without a state machine has committed."""

from random import Random

import pytest

from rocketmq_tw.raft.core.codes import Code, PushKind
from rocketmq_tw.raft.core.config import RaftConfig
from rocketmq_tw.raft.core.entry import Entry, crc_of_body
from rocketmq_tw.raft.core.member_state import HardState
from rocketmq_tw.raft.core.messages import HeartbeatRequest, PushRequest
from rocketmq_tw.raft.core.raft_core import RaftCore
from tests.support.raft_store import MemoryStore, entries_of_terms


@pytest.mark.parametrize("pos", [0, 4096, 1 << 50])
def test_an_impossible_place_drops_nothing_committed(pos: int) -> None:
    config = RaftConfig(
        self_id="n0", members=("n0", "n1", "n2"), data_file_size=1 << 20, state_machine=False
    )
    store = MemoryStore(entries_of_terms((3, 4)))
    core = RaftCore(config, store, HardState(5, None), 1, Random(1))
    core.step(HeartbeatRequest(source="n1", target="n0", term=5, rpc=1), 10)
    entry = Entry(1000, 5, pos, b"x", 0, crc_of_body(b"x"))
    push = PushRequest(
        source="n1",
        target="n0",
        term=5,
        rpc=2,
        kind=PushKind.TRUNCATE,
        commit_index=1000,
        entries=(entry,),
    )
    core.step(push, 20)
    assert Code.INCONSISTENT_STATE in [getattr(one, "code", None) for one in core._state.outbox]
    assert (core.log.begin_index, core.log.end_index, core.commit_index) == (0, 1, 1)
