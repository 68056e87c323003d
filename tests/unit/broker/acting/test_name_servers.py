"""What name servers show of a group without a master, and what pauses and changes of them do."""

from __future__ import annotations

import pytest

from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.wire import permissions
from rocketmq_tw.wire.bodies.base import DataVersion
from rocketmq_tw.wire.bodies.registration import RegisterBrokerBody, encode_registration
from rocketmq_tw.wire.bodies.topics import TopicConfig, TopicConfigTable
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.namesrv import RegisterBrokerRequestHeader
from tests.support.network import FakePeer
from tests.support.sim.acting import NOT_ACTIVE_MS, ActingCluster
from tests.support.sim.brokers import CLUSTER

MASTER, SLAVE = "10.1.0.1:10911", "10.1.0.2:10911"
#: Seconds of a pause in which everybody counts as silent.
LONG = 5 * NOT_ACTIVE_MS / 1000


def group_with_topic(**settings: object) -> ActingCluster:
    cluster = ActingCluster(settings={"register_name_server_period": 10_000} | settings)
    cluster.start_group("a").add_topic("Topic")
    cluster.run(8)  # The slave copies topics every 5 s.
    return cluster


def shown(cluster: ActingCluster) -> tuple[dict[int, str], int]:
    """Brokers and permission of the group in the route."""
    route = cluster.route("Topic")
    (brokers,), (queues,) = route.broker_datas, route.queue_datas
    return brokers.broker_addrs, queues.perm


def restart_name_server(cluster: ActingCluster, *, supports: bool) -> None:
    (name_server,) = cluster.name_servers
    name_server.end()
    name_server.keys["support_acting_master"] = supports
    name_server.start()


def test_the_acting_master_is_shown_for_reads_until_the_master_is_back() -> None:
    cluster = group_with_topic()
    both = permissions.READ | permissions.WRITE
    assert shown(cluster) == ({0: MASTER, 1: SLAVE}, both)
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    assert shown(cluster) == ({0: SLAVE}, permissions.READ)
    assert cluster.members("a") == {1: SLAVE}, "the group is told as it is"
    cluster.start("a", 0)
    cluster.run_until(lambda: not cluster.acts("a", 1))
    assert shown(cluster) == ({0: MASTER, 1: SLAVE}, both)


@pytest.mark.parametrize("compatible", [True, False])
def test_a_name_server_is_switched_off_and_on_under_way(compatible: bool) -> None:
    cluster = group_with_topic(compatible_with_old_name_srv=compatible)
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    restart_name_server(cluster, supports=False)
    cluster.run_until(lambda: cluster.members("a"))
    cluster.run_until(lambda: cluster.acts("a", 1))
    assert shown(cluster)[0] == {1: SLAVE}
    restart_name_server(cluster, supports=True)
    cluster.run_until(lambda: cluster.members("a"))
    cluster.run_until(lambda: cluster.acts("a", 1))
    assert shown(cluster) == ({0: SLAVE}, permissions.READ)


def test_a_group_that_does_not_take_part_is_shown_as_it_is() -> None:
    cluster = group_with_topic(enable_slave_acting_master=False)
    cluster.kill("a", 0)
    cluster.run(LONG)
    assert shown(cluster) == ({1: SLAVE}, permissions.READ | permissions.WRITE)
    assert cluster.role("a", 1) is Role.SLAVE


def test_a_paused_name_server_takes_nobody_for_silent() -> None:
    cluster = group_with_topic()
    (name_server,) = cluster.name_servers
    name_server.pause()
    cluster.run(LONG)
    name_server.go_on()
    for _ in range(100):
        cluster.run(0.1)
        assert cluster.members("a").keys() == {0, 1}
        assert cluster.role("a", 1) is Role.SLAVE


@pytest.mark.parametrize("compatible", [True, False])
def test_a_paused_slave_takes_nobody_for_silent(compatible: bool) -> None:
    cluster = group_with_topic(compatible_with_old_name_srv=compatible)
    slave = cluster.processes["a", 1]
    slave.pause()
    cluster.run(LONG)
    slave.go_on()
    for _ in range(1000):
        cluster.run(0.01)
        assert slave.state.role is Role.SLAVE


def test_an_acting_master_that_was_paused_ends_acting_where_the_master_is_back() -> None:
    cluster = group_with_topic()
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.processes["a", 1].pause()
    cluster.run(LONG)
    cluster.start("a", 0)
    cluster.run(LONG)
    cluster.processes["a", 1].go_on()
    cluster.run_until(lambda: not cluster.acts("a", 1), limit=1)


@pytest.mark.parametrize("acting", [True, None])
def test_a_negative_id_changes_nothing_for_the_group(acting: bool | None) -> None:
    """Stock takes such registrations, so they are taken; none of its brokers makes one."""
    cluster = group_with_topic()
    register(cluster, -1, acting)
    cluster.run(3)
    addresses, permission = shown(cluster)
    assert {number: addresses[number] for number in (0, 1)} == {0: MASTER, 1: SLAVE}
    assert permission == permissions.READ | permissions.WRITE
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    addresses, permission = shown(cluster)
    assert (addresses[0], permission) == (SLAVE, permissions.READ)
    cluster.start("a", 0)
    cluster.run_until(lambda: not cluster.acts("a", 1))
    assert shown(cluster)[1] == permissions.READ | permissions.WRITE


def register(cluster: ActingCluster, broker_id: int, acting: bool | None) -> None:
    """Somebody registers one more broker of the group, with its topic, for writes."""
    server, peer = cluster.name_servers[0].server, FakePeer("10.66.0.6:5555")
    assert server is not None
    topics = {
        name: TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4)
        for name in ("Topic", "Other")
    }
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigTable(
            topic_config_table=topics, data_version=DataVersion(timestamp=5, counter=5)
        )
    )
    header = RegisterBrokerRequestHeader(
        broker_name="a",
        broker_addr="10.66.0.6:10911",
        ha_server_addr="10.66.0.6:10912",
        cluster_name=CLUSTER,
        broker_id=broker_id,
        enable_acting_master=acting,
        heartbeat_timeout_millis=600_000,
    )
    data = encode_registration(body, compressed=False)
    request = RemotingCommand.request(RequestCode.REGISTER_BROKER, header, data)
    answer = server.handlers[RequestCode.REGISTER_BROKER](request, peer)
    assert isinstance(answer, RemotingCommand) and answer.code == ResponseCode.SUCCESS
