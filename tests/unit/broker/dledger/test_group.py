"""Brokers that share the log of a DLedger group: roles, what is acknowledged, what is read."""

from __future__ import annotations

import pytest

from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.raft.core.messages import HeartbeatRequest
from rocketmq_tw.wire.codes import ResponseCode
from tests.support.broker import BrokerInMemory
from tests.support.dledger_brokers import IDS, DLedgerBrokers


def test_the_leader_is_master_and_the_others_slaves_by_their_number() -> None:
    group = DLedgerBrokers()
    master = group.master()
    for member, broker in group.brokers.items():
        state = broker.broker.role.state
        if broker is master:
            assert (state.role, state.broker_id) == (Role.MASTER, 0)
        else:
            assert (state.role, state.broker_id) == (Role.SLAVE, int(member[1:]) + 1)


def test_all_members_have_what_was_acknowledged() -> None:
    group = DLedgerBrokers()
    wanted = [b"%d" % number for number in range(20)]
    group.send(*wanted)
    group.settle()
    assert group.bodies() == dict.fromkeys(IDS, wanted)


def test_a_slave_refuses_messages() -> None:
    group = DLedgerBrokers()
    master = group.master()
    slave = next(one for one in group.brokers.values() if one is not master)
    (answer,) = group.ask_to_store(slave, b"x")
    assert answer.code == ResponseCode.SYSTEM_BUSY and "ask the master" in answer.remark


def test_without_a_quorum_nothing_is_acknowledged_nor_read() -> None:
    group = DLedgerBrokers()
    group.send(b"one")
    master = group.master()
    for member in IDS:
        if group.brokers[member] is not master:
            group.kill(member)
    answers = group.ask_to_store(master, b"two")
    group.run(0.5)
    assert not answers and [one.body for one in master.consume()] == [b"one"]
    group.run(3)
    assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_ERROR]
    # Without answers from others it does not lead for long.
    group.run(30)
    assert master.broker.role.role is Role.SLAVE
    assert [one.body for one in master.consume()] == [b"one"]


def test_the_next_master_goes_on_where_the_one_before_was_killed() -> None:
    group = DLedgerBrokers()
    wanted: list[bytes] = []
    for turn in range(4):
        bodies = [b"%d-%d" % (turn, number) for number in range(5)]
        group.send(*bodies)
        wanted += bodies
        master = group.master()
        (dead,) = [member for member in IDS if group.brokers[member] is master]
        # It appends what nobody else gets.
        group.ask_to_store(master, b"lost")
        group.kill(dead)
        group.master()
        group.send(b"without %d" % turn)
        wanted.append(b"without %d" % turn)
        group.start(dead)
    group.send(b"last")
    group.settle()
    found = group.bodies()
    for member in IDS:
        assert [body for body in found[member] if body != b"lost"] == [*wanted, b"last"]
    assert len({tuple(bodies) for bodies in found.values()}) == 1


def test_what_comes_in_the_turn_of_a_lost_election_is_refused_at_once() -> None:
    """What others append in its place must not be taken for it."""
    group = DLedgerBrokers()
    group.send(b"one")
    master = group.master()
    node = group.node(master)
    own, term = node.core.config.self_id, node.core.term
    other = next(member for member in IDS if member != own)
    node.answer(lambda rpc: HeartbeatRequest(source=other, target=own, term=term + 1, rpc=rpc))
    answers = group.ask_to_store(master, b"gone")
    group.run(0.02)
    assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_ERROR]
    group.send(b"two")
    group.settle()
    assert group.bodies() == {member: [b"one", b"two"] for member in IDS}


def test_a_stop_and_a_start_of_all() -> None:
    group = DLedgerBrokers()
    wanted = [b"%d" % number for number in range(10)]
    group.send(*wanted)
    group.run(5)
    for member in IDS:
        group.stop(member)
    for member in IDS:
        report = group.start(member).store.report
        assert report is not None and report.clean
    group.send(b"more")
    group.settle()
    assert group.bodies() == {member: [*wanted, b"more"] for member in IDS}


def test_leadership_goes_to_the_preferred_member() -> None:
    group = DLedgerBrokers(preferred_leader_id="n1")
    group.send(b"one")
    group.run(20)
    assert group.masters == ["n1"]
    group.send(b"two")
    group.settle()
    assert group.bodies() == {member: [b"one", b"two"] for member in IDS}


def plain_store(*bodies: bytes) -> MemoryFiles:
    """What a broker without a group has stored."""
    files = MemoryFiles()
    broker = BrokerInMemory(files)
    broker.put("Topic", *bodies)
    broker.stop()
    return files


def test_messages_from_before_the_group_stay_readable() -> None:
    before = [b"old %d" % number for number in range(5)]
    group = DLedgerBrokers({member: plain_store(*before) for member in IDS})
    group.send(b"new 1")
    group.settle()
    assert group.bodies() == {member: [*before, b"new 1"] for member in IDS}
    master = group.master()
    (first,) = [member for member in IDS if group.brokers[member] is master]
    # The log of the group begins with a file, behind the plain log's files.
    assert group.node(master).core.log.read(0).pos == 1 << 20
    group.stop(first)
    group.send(b"new 2")
    group.start(first)
    group.send(b"new 3")
    group.settle()
    wanted = [*before, b"new 1", b"new 2", b"new 3"]
    assert group.bodies() == dict.fromkeys(IDS, wanted)


def test_a_member_without_the_messages_from_before_gets_what_came_since() -> None:
    before = [b"old %d" % number for number in range(5)]
    group = DLedgerBrokers({member: plain_store(*before) for member in ("n0", "n1")})
    # It comes when the others have begun: as leader it would begin at 0.
    group.stop("n2")
    group.send(b"new 1")
    group.start("n2")
    group.send(b"new 2")
    group.settle()
    found = group.bodies()
    assert found["n0"] == found["n1"] == [*before, b"new 1", b"new 2"]
    assert found["n2"] == [b"new 1", b"new 2"]
    assert group.brokers["n2"].store.min_queue_offset("Topic", 0) == 5


@pytest.mark.parametrize("is_leader", [False, True])
def test_who_was_away_until_old_files_went_begins_where_the_leader_does(is_leader: bool) -> None:
    leader = "n2" if is_leader else "n0"
    group = DLedgerBrokers(
        mapped_file_size_commit_log=8192, file_reserved_time=0, preferred_leader_id=leader
    )
    group.master()
    group.run(20)
    assert group.masters == [leader]
    group.send(*(b"%d" % number * 300 for number in range(5)))
    group.stop("n2")
    group.send(*(b"%d" % number * 300 for number in range(5, 60)))
    for broker in group.brokers.values():
        broker.store.checkpoint()
        assert sum(broker.store.clean(1 << 50, at_any_hour=True))
    group.run(1)
    group.start("n2")
    group.send(b"last")
    group.settle()
    found = group.bodies()
    assert found["n2"] == found["n0"] == found["n1"]
    assert found["n2"][-1] == b"last" and 1 < len(found["n2"]) < 60
    group.stop("n2")
    group.start("n2")
    group.settle()
    assert group.bodies() == found


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"dledger_group": ""}, "dLegerGroup"),
        ({"dledger_peers": "n0"}, "dLegerPeers: 'n0' is no peer"),
        ({"dledger_self_id": "n7"}, "dLegerSelfId=n7: give one of n0, n1, n2"),
        ({"preferred_leader_id": "n9"}, "preferredLeaderId=n9"),
        ({"enabled_append_prop_crc": True}, "enabledAppendPropCRC"),
        ({"store_path_dledger_commit_log": "/a,/b"}, "storePathDLedgerCommitLog"),
    ],
)
def test_keys_that_make_no_group_are_refused(keys: dict[str, object], said: str) -> None:
    with pytest.raises(Exception, match=said):
        DLedgerBrokers(**keys)
