"""A slave acts for a master that is gone, and for no other one."""

from __future__ import annotations

import pytest

from rocketmq_tw.broker.acting.part import Acting
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.replicas.slave import MasterFollower
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader
from tests.support.sim.acting import BEAT_MS, NOT_ACTIVE_MS, SCAN_MS, ActingCluster

#: Seconds within which a slave must act, or act no more: a time-out, a scan, and a question.
IN_TIME = (NOT_ACTIVE_MS + SCAN_MS + 2 * BEAT_MS) / 1000


@pytest.mark.parametrize("compatible", [True, False])
def test_the_smallest_slave_acts_until_the_master_is_back(compatible: bool) -> None:
    cluster = ActingCluster(settings={"compatible_with_old_name_srv": compatible})
    cluster.start_group("a", slaves=2)
    cluster.run(5)
    assert [cluster.role("a", number) for number in (1, 2)] == [Role.SLAVE] * 2
    cluster.kill("a", 0)
    assert cluster.run_until(lambda: cluster.acts("a", 1)) <= IN_TIME
    cluster.run(5)
    assert not cluster.acts("a", 2)
    cluster.kill("a", 1)
    assert cluster.run_until(lambda: cluster.acts("a", 2)) <= IN_TIME
    cluster.start("a", 1)
    assert cluster.run_until(lambda: cluster.acts("a", 1) and not cluster.acts("a", 2)) <= IN_TIME
    cluster.start("a", 0)
    cluster.run_until(lambda: cluster.follows("a", 1) and cluster.follows("a", 2))
    cluster.run(1)
    assert [cluster.role("a", number) for number in (0, 1, 2)] == [Role.MASTER, *[Role.SLAVE] * 2]


def test_heartbeats_keep_a_broker_registered_between_registrations() -> None:
    """The registration comes every 30 s, the time-out is 3 s."""
    cluster = ActingCluster()
    cluster.start_group("a")
    for _ in range(20):
        cluster.run(1)
        assert set(cluster.members("a")) == {0, 1}


def test_a_paused_master_is_acted_for_within_a_time_out_and_a_scan() -> None:
    """Its connections stay open, so only its silence tells."""
    cluster = ActingCluster(ha_housekeeping_interval=20_000)
    cluster.start_group("a")
    cluster.processes["a", 0].pause()
    cluster.run_until(lambda: 0 not in cluster.members("a"), limit=IN_TIME)
    cluster.run_until(lambda: cluster.acts("a", 1), limit=IN_TIME)
    cluster.processes["a", 0].go_on()
    cluster.run_until(lambda: not cluster.acts("a", 1), limit=IN_TIME)


def test_a_master_that_only_name_servers_do_not_hear_is_not_acted_for() -> None:
    cluster = ActingCluster(ha_send_heartbeat_interval=500)
    cluster.start_group("a")
    cluster.network.cut |= {("10.1.0.1", "10.9.0.1"), ("10.9.0.1", "10.1.0.1")}
    cluster.run_until(lambda: 0 not in cluster.members("a"), limit=IN_TIME)
    cluster.run(5)
    assert cluster.role("a", 1) is Role.SLAVE
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1), limit=IN_TIME)


def test_a_name_server_that_lost_the_master_is_outvoted_by_one_that_has_it() -> None:
    cluster = ActingCluster(name_servers=2)
    cluster.start_group("a")
    master, slave = "10.1.0.1", "10.1.0.2"
    cluster.network.cut |= {(master, "10.9.0.1"), (master, slave), (slave, master)}
    cluster.run_until(lambda: 0 not in cluster.members("a"), limit=IN_TIME)
    cluster.run(5)
    assert 0 in cluster.members("a", 1) and cluster.role("a", 1) is Role.SLAVE


def split(cluster: ActingCluster, *pairs: tuple[str, str]) -> None:
    """Nothing passes between the two hosts of each pair."""
    for one, other in pairs:
        cluster.network.cut |= {(one, other), (other, one)}


def test_a_slave_that_no_name_server_tells_of_its_master_finds_it() -> None:
    """It is started while one name server sees the master alone, and the other one the slave. The
    newest message of its log says who stored it."""
    cluster = ActingCluster(name_servers=2, ha_send_heartbeat_interval=500)
    master = cluster.start_group("a")
    master.add_topic("Topic")
    master.send(b"one")
    cluster.run(2)
    split(cluster, ("10.1.0.1", "10.9.0.2"), ("10.1.0.2", "10.9.0.1"))
    cluster.kill("a", 1)
    cluster.run_until(lambda: 0 not in cluster.members("a", 1))
    cluster.start("a", 1)
    cluster.run_until(lambda: cluster.follows("a", 1), limit=IN_TIME)
    for _ in range(100):
        cluster.run(0.1)
        assert not cluster.acts("a", 1)
    # What it has of its own is not replaced by what the master has, as long as name servers do not
    # list that one: it may have acted before, and the master takes that over first.
    master.offsets.commit("G", "Topic", 0, 1)
    cluster.run(10)
    assert cluster.broker("a", 1).offsets.query("G", "Topic", 0) < 1
    cluster.network.heal()
    cluster.run_until(lambda: cluster.broker("a", 1).offsets.query("G", "Topic", 0) == 1)
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1), limit=IN_TIME)


def test_a_slave_acts_where_who_stored_its_newest_message_does_not_lead() -> None:
    """That broker is gone, or answers and is a slave by now."""
    cluster = ActingCluster()
    master = cluster.start_group("a", slaves=2)
    master.add_topic("Topic")
    master.send(b"one")
    cluster.run(2)
    cluster.kill("a", 0)
    cluster.kill("a", 1)
    cluster.start("a", 1)
    cluster.run_until(lambda: cluster.acts("a", 1), limit=IN_TIME)


def test_an_acting_master_that_reaches_no_name_server_stops() -> None:
    """Another slave may act by then."""
    cluster = ActingCluster()
    cluster.start_group("a", slaves=2)
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.network.cut |= {("10.1.0.2", "10.9.0.1"), ("10.9.0.1", "10.1.0.2")}
    cluster.run_until(lambda: cluster.acts("a", 2), limit=IN_TIME)
    assert not cluster.acts("a", 1)
    cluster.network.heal()
    cluster.run_until(lambda: cluster.acts("a", 1) and not cluster.acts("a", 2), limit=IN_TIME)


def test_a_notice_of_the_name_server_begins_and_ends_acting_at_once() -> None:
    """Request 905."""
    cluster = ActingCluster(settings={"sync_broker_member_group_period": 60_000})
    cluster.start_group("a")
    cluster.kill("a", 0)
    cluster.run_until(lambda: 0 not in cluster.members("a"))
    cluster.run_until(lambda: cluster.acts("a", 1), limit=0.5)
    cluster.start("a", 0)
    cluster.run_until(lambda: 0 in cluster.members("a"))
    cluster.run_until(lambda: cluster.role("a", 1) is Role.SLAVE, limit=0.5)


def test_a_notice_that_name_servers_do_not_confirm_changes_nothing() -> None:
    """Anybody may send one: what name servers answer counts."""
    cluster = ActingCluster(settings={"sync_broker_member_group_period": 60_000})
    cluster.start_group("a")
    slave = cluster.broker("a", 1)
    slave.ask(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, notice(1, "10.1.0.2:10911"))
    cluster.run(1)
    assert cluster.role("a", 1) is Role.SLAVE


def test_a_notice_leads_no_slave_to_another_log() -> None:
    """Anybody may send one: its addresses are not believed."""
    cluster = ActingCluster()
    cluster.start_group("a")
    slave, stranger = cluster.broker("a", 1), "10.0.0.66"
    said = notice(0, f"{stranger}:10911")
    said.ha_broker_addr = f"{stranger}:10912"
    follower = slave.broker[Replicas].slave
    assert isinstance(follower, MasterFollower)
    slave.ask(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, said)
    for _ in range(20):
        assert follower.client.linked
        assert follower.client.master_address == "10.1.0.1:10912"
        cluster.run(0.1)


def test_a_thousand_notices_at_once_are_one_or_two_questions() -> None:
    cluster = ActingCluster()
    cluster.start_group("a")
    slave, asked = cluster.broker("a", 1), []
    group = slave.broker.parts[Acting]._membership.group
    ask = group.ask
    group.ask = lambda: asked.append(1) or ask()  # type: ignore[func-returns-value,method-assign]
    for _ in range(1000):
        slave.ask(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, notice(1, "10.1.0.2:10911"))
    cluster.run(0.2)
    assert len(asked) <= 3


def test_without_the_key_nobody_acts() -> None:
    cluster = ActingCluster(settings={"enable_slave_acting_master": False})
    cluster.start_group("a")
    cluster.kill("a", 0)
    cluster.run(10)
    assert cluster.role("a", 1) is Role.SLAVE


def notice(number: int, address: str) -> NotifyMinBrokerIdChangeRequestHeader:
    return NotifyMinBrokerIdChangeRequestHeader(
        min_broker_id=number, broker_name="a", min_broker_addr=address
    )
