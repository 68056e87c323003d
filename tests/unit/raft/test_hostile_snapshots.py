"""A snapshot that holds no state, whoever sends it, costs a member nothing."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from rocketmq_tw.controller.machine import ControllerMachine
from rocketmq_tw.raft.bodies import DLedgerRequestCode
from rocketmq_tw.raft.core.codes import Code
from rocketmq_tw.raft.core.snapshot import Snapshot, SnapshotMeta
from rocketmq_tw.raft.kv import KeyValue, Put, encode_kv_command
from rocketmq_tw.raft.state_machine import SnapshotError
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.store.errors import StoreError

BAD = [b"", b"not json", b"[1]", b'{"a": 1}', b'{"a": "\xff"}', b'{"x":' + b"[" * 100_000]


def forged(group: Any, leader: str, member: str, data: bytes) -> dict[str, Any]:
    """The answer of `member` to a snapshot in its leader's name."""
    answer: dict[str, Any] = group.ask(
        member,
        DLedgerRequestCode.INSTALL_SNAPSHOT,
        {
            "group": "g",
            "remoteId": member,
            "localId": leader,
            "leaderId": leader,
            "term": group.nodes[leader].core.term,
            "lastIncludedIndex": 50,
            "lastIncludedTerm": 1,
            "offset": 0,
            "done": True,
            "nextPos": 0,
            "data": base64.b64encode(data).decode(),
        },
    )
    return answer


@pytest.mark.parametrize("data", BAD)
def test_a_member_refuses_it_and_goes_on(group: Any, data: bytes) -> None:
    leader = group.elect()
    (member, *_) = [one for one in group.nodes if one != leader]
    assert forged(group, leader, member, data)["code"] == Code.UNEXPECTED_ARGUMENT
    assert not group.disks[member].list("/s/snapshot")
    for _ in range(2):
        (put,) = group.nodes[leader].propose([encode_kv_command(Put("k", "v"))])
        group.run_until(lambda put=put: put.called)
        group.run_until(lambda: group.machines[member].values == {"k": "v"})
        group.stop(member)
        group.start(member)


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
