"""Who may say that the master is about to be back (906): a stranger leads no slave astray."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.broker import ExchangeHAInfoRequestHeader
from tests.support.broker import ok
from tests.support.sim.acting import NOT_ACTIVE_MS, ActingCluster

STRANGER = "10.66.0.6"


def cluster_of(*names: str, **keys: Any) -> ActingCluster:
    cluster = ActingCluster(total_replicas=2, ha_send_heartbeat_interval=500, **keys)
    for name in names:
        cluster.start_group(name).add_topic("Topic")
    cluster.run(8)
    return cluster


def announce(cluster: ActingCluster, master: str, *, by: str = STRANGER) -> int:
    """Somebody at the host `by` says to the slave of `a` that the master is about to be back at the
    host `master`; returns the answer's code."""
    client = cluster.network.client(by, clock=cluster.clock)
    header = ExchangeHAInfoRequestHeader(
        master_ha_address=f"{master}:10912",
        master_address=f"{master}:10911",
        master_flush_offset=0,
    )
    command = RemotingCommand.request(RequestCode.EXCHANGE_BROKER_HA_INFO, header)
    return int(cluster.result(client.request("10.1.0.2:10911", command, 3.0)).code)


def bodies(cluster: ActingCluster, broker_id: int) -> list[bytes]:
    return [message.body for message in cluster.broker("a", broker_id).consume("Topic")]


def test_a_stranger_leads_no_slave_to_its_own_log() -> None:
    cluster = cluster_of("a")
    master = cluster.broker("a", 0)
    ok(master.send(b"one"))
    cluster.run_until(lambda: cluster.follows("a", 1))
    # It has read the log, as anybody can, and goes on with it.
    stranger = cluster.start("other", 0, files=cluster.processes["a", 0].files.kill())
    cluster.run_until(lambda: cluster.role("other", 0) is Role.MASTER)
    ok(stranger.send(b"forged"))
    assert announce(cluster, "10.2.0.1", by="10.2.0.1") == ResponseCode.NO_PERMISSION
    assert cluster.broker("a", 1).broker[Replicas].copies_master
    ok(master.send(b"two"))
    cluster.run(10)
    assert bodies(cluster, 0) == bodies(cluster, 1) == [b"one", b"two"]


def test_a_stranger_ends_no_acting() -> None:
    cluster = cluster_of("a", "b")
    ok(cluster.broker("a", 0).send(b"one"))
    cluster.run_until(lambda: cluster.follows("a", 1))
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    assert announce(cluster, STRANGER) == ResponseCode.NO_PERMISSION
    assert cluster.acts("a", 1)


def test_a_slave_that_was_started_while_the_master_is_away_knows_it_by_its_log() -> None:
    cluster = cluster_of("a", "b")
    ok(cluster.broker("a", 0).send(b"one"))
    cluster.run_until(lambda: cluster.follows("a", 1))
    cluster.kill("a", 0)
    cluster.kill("a", 1)
    cluster.start("a", 1)
    cluster.run_until(lambda: cluster.acts("a", 1))
    assert announce(cluster, STRANGER) == ResponseCode.NO_PERMISSION
    assert cluster.acts("a", 1)
    cluster.start("a", 0)
    cluster.run_until(lambda: cluster.role("a", 0) is Role.MASTER)


def test_a_master_that_moved_is_named_in_ha_addresses() -> None:
    cluster = cluster_of("a", "b", ha_addresses="10.0.0.0/12;10.66.0.0/16")
    ok(cluster.broker("a", 0).send(b"one"))
    cluster.run_until(lambda: cluster.follows("a", 1))
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    assert announce(cluster, STRANGER) == ResponseCode.SUCCESS
    assert cluster.role("a", 1) is Role.SLAVE


@pytest.mark.parametrize("host", ["127.0.0.1", STRANGER])
def test_an_administrator_is_believed_whatever_it_asked_before(host: str) -> None:
    cluster = cluster_of("a", "b", net={"admin_addresses": "10.66.0.0/16"})
    ok(cluster.broker("a", 0).send(b"one"))
    cluster.run_until(lambda: cluster.follows("a", 1))
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    assert announce(cluster, STRANGER, by=host) == ResponseCode.SUCCESS
    assert cluster.role("a", 1) is Role.SLAVE


def test_a_master_that_dies_again_as_it_returns_keeps_no_slave_from_acting() -> None:
    cluster = cluster_of("a", "b")
    ok(cluster.broker("a", 0).send(b"one"))
    cluster.run_until(lambda: cluster.follows("a", 1))
    for _ in range(3):
        cluster.kill("a", 0)
        took = cluster.run_until(lambda: cluster.acts("a", 1))
        assert took < NOT_ACTIVE_MS / 2000, "at once, as when it died first"
        cluster.start("a", 0)
        cluster.run_until(lambda: not cluster.acts("a", 1))
