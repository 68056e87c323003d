"""A snapshot that holds no state costs a member nothing, from any sender."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from rocketmq_tw.controller.decider import ControllerMachine
from rocketmq_tw.raft.bodies import DLedgerRequestCode
from rocketmq_tw.raft.core.codes import Code
from rocketmq_tw.raft.core.snapshot import Snapshot, SnapshotMeta
from rocketmq_tw.raft.state_machine import SnapshotError
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.store.errors import StoreError
from tests.support.raft_kv import KeyValue, Put, encode_kv_command

BAD = [b"", b"not json", b"[1]", b'{"a": 1}', b'{"a": "\xff"}', b'{"x":' + b"[" * 100_000]


def forged(group: Any, leader: str, member: str, code: int, **fields: Any) -> dict[str, Any]:
    """The answer of `member` to a request in its leader's name."""
    base = {"group": "g", "remoteId": member, "localId": leader, "leaderId": leader}
    base["term"] = group.nodes[leader].core.term
    answer: dict[str, Any] = group.ask(member, code, base | fields)
    return answer


def says_committed(group: Any, leader: str, member: str, index: int) -> None:
    """As a leader tells before it sends a snapshot."""
    push = DLedgerRequestCode.PUSH
    said = forged(group, leader, member, push, type="COMMIT", commitIndex=index)
    assert said["code"] == Code.SUCCESS


def snapshot(group: Any, leader: str, member: str, data: bytes, term: int = 1) -> Code:
    """What `member` says to a snapshot up to entry 50 in its leader's name."""
    answer = forged(
        group,
        leader,
        member,
        DLedgerRequestCode.INSTALL_SNAPSHOT,
        lastIncludedIndex=50,
        lastIncludedTerm=term,
        offset=0,
        done=True,
        nextPos=0,
        data=base64.b64encode(data).decode(),
    )
    return Code(answer["code"])


def put(group: Any, leader: str, member: str) -> None:
    (asked,) = group.nodes[leader].propose([encode_kv_command(Put("k", "v"))])
    group.run_until(lambda: asked.called)
    group.run_until(lambda: group.machines[member].values == {"k": "v"})


@pytest.mark.parametrize("data", BAD)
def test_a_member_refuses_it_and_goes_on(group: Any, data: bytes) -> None:
    leader = group.elect()
    (member, *_) = [one for one in group.nodes if one != leader]
    says_committed(group, leader, member, 60)
    assert snapshot(group, leader, member, data) is Code.UNEXPECTED_ARGUMENT
    assert not group.disks[member].list("/s/snapshot")
    for _ in range(2):
        put(group, leader, member)
        group.stop(member)
        group.start(member)


def test_an_empty_state_takes_the_place_of_none(group: Any) -> None:
    """It can be loaded, but nothing says that it is the group's."""
    leader = group.elect()
    (member, *_) = [one for one in group.nodes if one != leader]
    put(group, leader, member)
    for committed, term in ((0, 1), (60, 0), (60, 1)):
        says_committed(group, leader, member, committed)
        for _ in range(4):
            assert snapshot(group, leader, member, b"{}", term) is Code.INCONSISTENT_STATE
            group.run(1.5)
    assert group.machines[member].values == {"k": "v"}
    assert not group.disks[member].list("/s/snapshot")
    put(group, leader, member)


def test_more_than_was_committed_is_no_snapshot(group: Any) -> None:
    leader = group.elect()
    (member, *_) = [one for one in group.nodes if one != leader]
    says_committed(group, leader, member, 49)
    assert snapshot(group, leader, member, b"{}") is Code.INCONSISTENT_STATE
    assert group.nodes[member].core.log.begin_index == 0


def test_a_stored_one_is_named_at_the_start(group: Any) -> None:
    group.elect()
    group.stop("n0")
    store = MemberStore(group.disks["n0"], "/s", 4096, 32 * 64)
    store.save_snapshot(Snapshot(SnapshotMeta(50, 1, 0, 8), b"not json"))
    store.close()
    with pytest.raises(StoreError, match=r"snapshot at entry 50 .* remove this store"):
        group.start("n0")


@pytest.mark.parametrize("machine", [KeyValue(), ControllerMachine()])
def test_machines_keep_their_state(machine: Any) -> None:
    before = machine.take_snapshot()
    for data in (b"", b"not json", b"[1]", b"\xff", b'{"x":' + b"[" * 100_000):
        for take in (machine.check_snapshot, machine.load_snapshot):
            with pytest.raises(SnapshotError):
                take(data)
    machine.check_snapshot(before)
    assert machine.take_snapshot() == before
