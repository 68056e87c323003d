"""A decision that is answered holds, whichever broker is elected next."""

from __future__ import annotations

import pytest

from rocketmq_tw.wire.codes import ResponseCode
from tests.support.broker import ok
from tests.support.network import FakePeer
from tests.support.sim.group import ElectedGroup
from tests.support.transactions import COMMIT, ROLLBACK, bodies, end_request


def settled() -> ElectedGroup:
    """Three brokers in sync, who wait for each other."""
    group = ElectedGroup(all_ack_in_sync_state_set=True)
    group.controllers.leader()
    for number in (1, 2, 3):
        group.start(number)
    group.run_until(lambda: len(group.in_sync()) == 3)
    return group


def decide(group: ElectedGroup, sent: dict[str, str], decision: int) -> FakePeer:
    """Tells the master; the peer gets its answer."""
    peer = FakePeer()
    answer = group.master().request(end_request(sent, decision), peer)
    if answer is not None and answer not in peer.replies:
        peer.reply(answer)
    return peer


def half(group: ElectedGroup) -> dict[str, str]:
    """The answer to a half message that all have."""
    peer = FakePeer()
    properties = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "ID"}
    master = group.master()
    master.request(master.send_request(b"x", properties=properties), peer)
    group.run_until(lambda: peer.replies)
    return ok(peer.replies[0])


@pytest.mark.parametrize("later", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
def test_no_success_before_all_in_sync_have_the_decision(first: int, later: int) -> None:
    group = settled()
    sent = half(group)
    (master,) = group.masters()
    slaves = group.brokers.keys() - {master}
    for number in slaves:
        group.processes[number].pause()
    peer = decide(group, sent, first)
    group.run_until(lambda: peer.replies)
    assert peer.replies[0].code == ResponseCode.SYSTEM_ERROR
    group.kill(master)
    for number in slaves:
        group.processes[number].go_on()
    group.master()
    again = decide(group, sent, later)
    group.run_until(lambda: again.replies)
    ok(again.replies[0])
    assert bodies(group.master()) == ({b"x": 1} if later == COMMIT else {})


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_a_master_that_is_none_any_more_promises_nothing(decision: int) -> None:
    group = settled()
    sent = half(group)
    (former,) = group.masters()
    group.processes[former].pause()
    peer = decide(group, sent, decision)
    group.run_until(lambda: len(group.masters()) == 2)
    group.processes[former].go_on()
    group.run_until(lambda: peer.replies)
    assert peer.replies[0].code != ResponseCode.SUCCESS


def waiting(group: ElectedGroup) -> set[int]:
    """The brokers that tell of half messages which wait."""
    return {
        number
        for number, broker in group.brokers.items()
        for metric in broker.broker.metrics()
        if metric.name == "rocketmq_half_messages"
    }


def test_only_the_master_tells_what_waits() -> None:
    group = settled()
    half(group)
    (former,) = group.masters()
    assert waiting(group) == {former}
    group.processes[former].pause()
    group.run_until(lambda: len(group.masters()) == 2)
    group.processes[former].go_on()
    group.run_until(lambda: len(group.masters()) == 1 and len(group.in_sync()) == 3)
    assert waiting(group) == set(group.masters())
