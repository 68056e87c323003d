"""Half messages while a slave acts for its master: another group asks about them."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import ONEWAY_FLAG, RemotingCommand
from tests.support.broker import BrokerInMemory
from tests.support.network import FakePeer
from tests.support.sim.acting import ActingCluster, RefusingSink
from tests.support.transactions import (
    COMMIT,
    HALF,
    OP,
    ROLLBACK,
    SYSTEM_GROUP,
    begin,
    connect,
    end_request,
    questions,
)


def cluster_of(*names: str, **keys: Any) -> ActingCluster:
    """A group of two for each name, and `Topic` with four queues on each master."""
    settings = {"transaction_time_out": 6_000, "transaction_check_interval": 10_000}
    cluster = ActingCluster(settings=settings, **keys)
    for name in names:
        cluster.start_group(name).add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    cluster.run(8)
    return cluster


def decide(
    cluster: ActingCluster, broker: BrokerInMemory, request: RemotingCommand
) -> RemotingCommand:
    """The answer to a decision."""
    peer = FakePeer()
    answer = broker.request(request, peer)
    if answer is None:
        cluster.run_until(lambda: peer.replies)
        answer = peer.replies[0]
    return answer


def came(cluster: ActingCluster, name: str, broker_id: int = 0) -> Counter[bytes]:
    broker = cluster.broker(name, broker_id)
    return Counter(m.body for queue in range(4) for m in broker.consume("Topic", queue))


def halves(broker: BrokerInMemory) -> Counter[bytes]:
    """The half messages that this broker was sent; no copies that it put back when it asked."""
    return Counter(
        message.body
        for message in broker.consume(HALF)
        if "TRAN_PREPARED_QUEUE_OFFSET" not in message.properties
    )


def lose_master(cluster: ActingCluster, name: str) -> BrokerInMemory:
    """Kills the master; returns the slave, which acts."""
    cluster.run_until(lambda: cluster.follows(name, 1))
    cluster.kill(name, 0)
    cluster.run_until(lambda: cluster.acts(name, 1))
    return cluster.broker(name, 1)


def refuse_all(
    cluster: ActingCluster, name: str, *bodies: bytes, at_once: bool = False
) -> RefusingSink:
    """Has the slave's escapes of these messages fail, from before it acts."""
    return RefusingSink(cluster.broker(name, 1), *bodies, at_once=at_once)


def answer_questions(
    cluster: ActingCluster, broker: BrokerInMemory, peer: FakePeer, decision: int
) -> int:
    """The producer decides about all that it was asked; returns about how many."""
    asked = questions(peer)
    peer.oneways.clear()
    for question in asked:
        sent = {
            "queueOffset": str(question.tran_state_table_offset),
            "msgId": question.offset_msg_id or "",
            "transactionId": question.transaction_id or "",
        }
        decide(cluster, broker, end_request(sent, decision, from_transaction_check=True))
    return len(asked)


def test_undecided_half_messages_are_asked_about_by_another_group() -> None:
    cluster = cluster_of("a", "b")
    bodies = [b"%d" % number for number in range(150)]
    for body in bodies:
        begin(cluster.broker("a", 0), body)
    slave = lose_master(cluster, "a")
    end = slave.store.end_offset
    cluster.run(2)
    other = cluster.broker("b", 0)
    assert halves(other) == Counter(bodies), "once each"
    peer = connect(other)
    cluster.run(7)
    assert answer_questions(cluster, other, peer, COMMIT) == 150
    cluster.run(1)
    assert came(cluster, "b") == Counter(bodies)
    assert slave.store.end_offset == end, "its log stays a copy"
    messages = [m for queue in range(4) for m in other.consume("Topic", queue)]
    assert all(m.properties["TAGS"] == "a" and "DELAY" not in m.properties for m in messages)


def test_what_is_decided_already_does_not_move() -> None:
    cluster = cluster_of("a", "b")
    master = cluster.broker("a", 0)
    for number, decision in enumerate((COMMIT, ROLLBACK)):
        decide(cluster, master, end_request(begin(master, b"%d" % number), decision))
    begin(master, b"undecided")
    lose_master(cluster, "a")
    cluster.run(3)
    assert halves(cluster.broker("b", 0)) == Counter([b"undecided"])


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_a_decision_about_one_that_moved_is_passed_on(decision: int) -> None:
    cluster = cluster_of("a", "b")
    sent = begin(cluster.broker("a", 0), b"x")
    slave = lose_master(cluster, "a")
    cluster.run(1)
    assert halves(cluster.broker("b", 0)) == Counter([b"x"])
    answer = decide(cluster, slave, end_request(sent, decision))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    peer = connect(cluster.broker("b", 0))
    cluster.run(20)
    assert questions(peer) == [], "it is decided"
    assert came(cluster, "b") == Counter([b"x"] if decision == COMMIT else [])


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_a_decision_about_one_that_did_not_move_is_carried_out(decision: int) -> None:
    cluster = cluster_of("a", "b")
    sent = begin(cluster.broker("a", 0), b"x")
    begin(cluster.broker("a", 0), b"y")
    refusing = refuse_all(cluster, "a", b"x", b"y")
    slave = lose_master(cluster, "a")
    cluster.run(2.5)
    refusing.refused = {b"y"}
    answer = decide(cluster, slave, end_request(sent, decision))
    if answer.code != ResponseCode.SUCCESS:
        # It was moved in that moment.
        answer = decide(cluster, slave, end_request(sent, decision))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    refusing.refused = set()
    cluster.run(5)
    other = cluster.broker("b", 0)
    assert came(cluster, "b") == Counter([b"x"] if decision == COMMIT else [])
    assert halves(other)[b"y"] == 1


@pytest.mark.parametrize("properties", [{}, {"DELAY": "1"}, {"__SHARDINGKEY": "k"}])
def test_a_commit_before_it_moved_is_taken_where_topics_are_typed(
    properties: dict[str, str],
) -> None:
    """The other broker looks at the type of what is sent, and this is a half message no more."""
    cluster = ActingCluster(
        settings={"enable_topic_message_type_check": True, "enable_mixed_message_type": True}
    )
    typed: Any = {"attributes": {"+message.type": "TRANSACTION"}}
    for name in ("a", "b"):
        cluster.start_group(name).add_topic("Topic", **typed)
    cluster.run(8)
    sent = begin(cluster.broker("a", 0), b"x", **properties)
    refusing = refuse_all(cluster, "a", b"x")
    slave = lose_master(cluster, "a")
    cluster.run(2.5)
    refusing.refused = set()
    answer = decide(cluster, slave, end_request(sent, COMMIT))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    cluster.run(5)
    assert came(cluster, "b") == Counter([b"x"]) and not halves(cluster.broker("b", 0))


@pytest.mark.parametrize("at_once", [False, True])
def test_what_is_refused_for_a_while_moves_later(at_once: bool) -> None:
    cluster = cluster_of("a", "b")
    bodies = [b"%d" % number for number in range(100)]
    for body in bodies:
        begin(cluster.broker("a", 0), body)
    refusing = refuse_all(cluster, "a", *bodies[::2], at_once=at_once)
    lose_master(cluster, "a")
    cluster.run(5)
    assert halves(cluster.broker("b", 0)) == Counter(bodies[1::2])
    refusing.refused = set()
    cluster.run(5)
    assert halves(cluster.broker("b", 0)) == Counter(bodies)


def test_a_decision_that_wants_no_answer_is_passed_on_as_well() -> None:
    """As clients send them."""
    cluster = cluster_of("a", "b")
    sent = begin(cluster.broker("a", 0), b"x")
    slave, peer = lose_master(cluster, "a"), FakePeer()
    cluster.run(1)
    request = end_request(sent, COMMIT)
    request.flag |= ONEWAY_FLAG
    slave.request(request, peer)
    cluster.run(1)
    assert came(cluster, "b") == Counter([b"x"])


def test_a_committed_message_that_asked_for_a_delay_waits_at_the_other_broker() -> None:
    cluster = cluster_of("a", "b")
    sent = begin(cluster.broker("a", 0), b"late", DELAY="2")
    slave = lose_master(cluster, "a")
    cluster.run(1)
    assert decide(cluster, slave, end_request(sent, COMMIT)).code == ResponseCode.SUCCESS
    cluster.run(2)
    assert not came(cluster, "b")
    cluster.run(5)
    assert came(cluster, "b") == Counter([b"late"])


def test_wrong_decisions_are_refused_as_by_a_master() -> None:
    cluster = cluster_of("a", "b")
    sent = begin(cluster.broker("a", 0), b"x")
    slave = lose_master(cluster, "a")
    wrong = decide(cluster, slave, end_request(sent, COMMIT, producer_group="other"))
    assert wrong.code == ResponseCode.SYSTEM_ERROR and "producer group" in (wrong.remark or "")
    nothing = decide(cluster, slave, end_request(sent, COMMIT, commit_log_offset=7))
    assert nothing.code == ResponseCode.SYSTEM_ERROR


def test_the_offsets_say_that_nothing_waits_any_more() -> None:
    """A master that comes back takes them over with those of consumers."""
    cluster = cluster_of("a", "b")
    master = cluster.broker("a", 0)
    decide(cluster, master, end_request(begin(master, b"decided"), ROLLBACK))
    for number in range(20):
        begin(master, b"%d" % number)
    slave = lose_master(cluster, "a")
    cluster.run(3)
    assert slave.offsets.query(SYSTEM_GROUP, HALF, 0) == 21
    assert slave.offsets.query(SYSTEM_GROUP, OP, 0) == 1
    cluster.run(6)
    cluster.kill("a", 1)
    assert cluster.start("a", 1).offsets.query(SYSTEM_GROUP, HALF, 0) == 21, "written"


def test_a_slave_whose_acting_is_interrupted_moves_nothing_again() -> None:
    cluster = cluster_of("a", "b")
    for number in range(10):
        begin(cluster.broker("a", 0), b"%d" % number)
    lose_master(cluster, "a")
    cluster.run(3)
    cluster.network.cut |= {("10.1.0.2", "10.9.0.1"), ("10.9.0.1", "10.1.0.2")}
    cluster.run_until(lambda: not cluster.acts("a", 1))
    cluster.network.heal()
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.run(3)
    assert halves(cluster.broker("b", 0)) == Counter(b"%d" % number for number in range(10))


@pytest.mark.parametrize("ends_by", ["the name server", "the master"])
@pytest.mark.parametrize("asked_before", [False, True])
def test_what_nobody_took_moves_when_the_slave_acts_again(ends_by: str, asked_before: bool) -> None:
    """Where the master asked before, a copy of each waits behind where all is settled."""
    cluster = cluster_of("a", "b")
    bodies = [b"%d" % number for number in range(40)]
    for body in bodies:
        begin(cluster.broker("a", 0), body)
    if asked_before:
        cluster.run(12)
    refusing = refuse_all(cluster, "a", *bodies)
    lose_master(cluster, "a")
    cluster.run(3)
    if ends_by == "the master":
        cluster.start("a", 0)
        cluster.run_until(lambda: cluster.role("a", 1) is Role.SLAVE and cluster.follows("a", 1))
        cluster.kill("a", 0)
    else:
        cluster.network.cut |= {("10.1.0.2", "10.9.0.1"), ("10.9.0.1", "10.1.0.2")}
        cluster.run_until(lambda: not cluster.acts("a", 1))
        cluster.network.heal()
    refusing.refused = set()
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.run(5)
    assert halves(cluster.broker("b", 0)) == Counter(bodies)


def test_what_a_master_without_that_progress_asked_about_does_not_move_again() -> None:
    cluster = cluster_of("a", "b")
    for number in range(10):
        begin(cluster.broker("a", 0), b"%d" % number)
    lose_master(cluster, "a")
    cluster.run(3)
    cluster.start("a", 0)
    cluster.run_until(lambda: cluster.role("a", 1) is Role.SLAVE and cluster.follows("a", 1))
    begin(cluster.broker("a", 0), b"new")
    lose_master(cluster, "a")
    cluster.run(3)
    found = halves(cluster.broker("b", 0))
    assert found == Counter([*(b"%d" % number for number in range(10)), b"new"])


def test_a_master_that_is_back_does_not_take_a_rollback_of_one_that_moved() -> None:
    """It would be told that it is done, while the other broker still asks."""
    cluster = cluster_of("a", "b", total_replicas=2)
    master = cluster.broker("a", 0)
    moved, settled = begin(master, b"moved"), begin(master, b"settled")
    assert decide(cluster, master, end_request(settled, ROLLBACK)).code == ResponseCode.SUCCESS
    lose_master(cluster, "a")
    cluster.run(3)
    assert halves(cluster.broker("b", 0)) == Counter([b"moved"])
    master = cluster.start("a", 0)
    cluster.run_until(lambda: cluster.role("a", 0) is Role.MASTER)
    cluster.run(3)
    again = decide(cluster, master, end_request(settled, ROLLBACK))
    assert again.code == ResponseCode.SUCCESS
    for decision in (ROLLBACK, COMMIT):
        answer = decide(cluster, master, end_request(moved, decision))
        assert answer.code == ResponseCode.ILLEGAL_OPERATION
        assert "moved it to another broker" in (answer.remark or "")


@pytest.mark.parametrize("seed", range(3))
def test_whoever_is_killed_each_is_asked_about(seed: int) -> None:
    chance = Random(seed)
    cluster = cluster_of("a", "b", "c")
    bodies = {b"%d" % number for number in range(200)}
    for body in sorted(bodies):
        begin(cluster.broker("a", 0), body)
    lose_master(cluster, "a")
    for _ in range(3):
        cluster.run(chance.uniform(0, 0.05))
        cluster.kill("a", 1)
        cluster.run(chance.uniform(0, 2))
        cluster.start("a", 1)
        cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.run(5)
    found = halves(cluster.broker("b", 0)) + halves(cluster.broker("c", 0))
    assert found.keys() == bodies, seed
