"""Offsets that administrators set, and copy from group to group."""

from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.queues import (
    ResetOffsetBody,
)
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.headers.offsets import (
    CloneGroupOffsetRequestHeader,
    ResetOffsetRequestHeader,
)
from tests.support.asked import commit_offset, query_offset, refused
from tests.support.broker import BrokerInMemory
from tests.support.network import FakePeer


def test_a_commit_does_not_undo_a_reset(plane: BrokerInMemory) -> None:
    plane.groups.get("G")
    plane.put("T", b"one", b"two")
    commit_offset(plane, 2)
    header = ResetOffsetRequestHeader(group="G", topic="T", timestamp=0)
    answer = plane.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    assert len(decode_body(ResetOffsetBody, answer.body).offset_table) == 2
    assert commit_offset(plane, 2).code == 0
    assert query_offset(plane) == 0
    assert plane.offsets.take_reset("G", "T", 0) == 0
    commit_offset(plane, 1)
    assert query_offset(plane) == 1


def test_a_reset_to_an_offset_stays_in_the_queue(plane: BrokerInMemory) -> None:
    plane.groups.get("G")
    plane.put("T", b"one", b"two")
    right = ResetOffsetRequestHeader(group="G", topic="T", queue_id=0, offset=1)
    plane.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, right)
    assert plane.offsets.query("G", "T", 0) == 1
    for header in (
        ResetOffsetRequestHeader(group="G", topic="T", queue_id=0, offset=99),
        ResetOffsetRequestHeader(group="G", topic="T", queue_id=5, offset=0),
    ):
        with refused(ResponseCode.SYSTEM_ERROR):
            plane.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


def test_a_slave_resets_and_copies_nothing() -> None:
    """Its offsets are the master's, and would be again a little later."""
    master = BrokerInMemory()
    master.topics.update(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
    master.groups.get("G")
    master.groups.get("H")
    master.offsets.commit("G", "T", 0, 5)
    master.become(RoleState(Role.SLAVE, 1))
    reset = ResetOffsetRequestHeader(topic="T", group="G", queue_id=0, offset=0, timestamp=0)
    clone = CloneGroupOffsetRequestHeader(src_group="G", dest_group="H", topic="T")
    for code, header in (
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset),
        (RequestCode.CLONE_GROUP_OFFSET, clone),
    ):
        with refused(ResponseCode.SYSTEM_ERROR) as refusal:
            master.ask(code, header)
        assert "master" in refusal.value.remark
    assert (master.offsets.query("G", "T", 0), master.offsets.query("H", "T", 0)) == (5, -1)


def test_without_server_side_reset_the_clients_are_told() -> None:
    plane = BrokerInMemory(broker={"use_server_side_reset_offset": False})
    plane.topics.update(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
    header = ResetOffsetRequestHeader(group="G", topic="T", timestamp=0)
    with refused(ResponseCode.CONSUMER_NOT_ONLINE):
        plane.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    plane.heartbeat("c1", plane.peer)
    plane.offsets.commit("G", "T", 0, 5)
    plane.peer.oneways.clear()
    plane.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    (order,) = plane.peer.oneways
    assert order.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    assert order.is_oneway


def test_many_clients_are_told_of_a_reset_bit_by_bit() -> None:
    broker = BrokerInMemory(broker={"use_server_side_reset_offset": False})
    broker.topics.update(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
    peers = [FakePeer() for _ in range(500)]
    for peer in peers:
        broker.subscribe("G", peer, topic="T")
    broker.offsets.commit("G", "T", 0, 5)
    header = ResetOffsetRequestHeader(group="G", topic="T", timestamp=0)
    broker.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    assert sum(len(peer.oneways) for peer in peers) < 500, "others are served in between"
    broker.clock.pump([0] * 20)
    assert [len(peer.oneways) for peer in peers] == [1] * 500


def test_offsets_are_cloned_to_a_group_that_is_there(plane: BrokerInMemory) -> None:
    plane.offsets.commit("G", "T", 0, 5)
    plane.groups.get("H")
    header = CloneGroupOffsetRequestHeader(src_group="G", dest_group="H", topic="T")
    plane.ask(RequestCode.CLONE_GROUP_OFFSET, header)
    assert plane.offsets.query("H", "T", 0) == 5


def test_offsets_are_cloned_to_no_group_that_would_have_to_be_made(plane: BrokerInMemory) -> None:
    plane.offsets.commit("G", "T", 0, 5)
    header = CloneGroupOffsetRequestHeader(src_group="G", dest_group="nogroup", topic="T")
    with refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
        plane.ask(RequestCode.CLONE_GROUP_OFFSET, header)
    assert "nogroup" not in plane.groups.table().subscription_group_table
    assert plane.offsets.of("nogroup", "T") == {}


def test_a_reset_that_waits_ends_with_the_role() -> None:
    """Another master moves the offsets meanwhile: what was reset here counts no more."""
    broker = BrokerInMemory()
    broker.topics.update(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
    broker.groups.get("G")
    broker.put("T", b"0", b"1", b"2", b"3")
    broker.offsets.commit("G", "T", 0, 4)
    broker.pull(3, topic="T", consumer_group="G")
    reset = ResetOffsetRequestHeader(topic="T", group="G", queue_id=0, offset=1, timestamp=0)
    broker.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
    broker.become(RoleState(Role.SLAVE, 1))
    # As the new master's table has it.
    broker.offsets.commit("G", "T", 0, 3)
    assert query_offset(broker) == 3
    broker.become(RoleState(Role.MASTER, 0))
    assert query_offset(broker) == 3
    answer = broker.pull(3, topic="T", consumer_group="G")
    assert answer is not None and answer.code == ResponseCode.SUCCESS
    assert commit_offset(broker, 4).code == 0
    assert query_offset(broker) == 4


def test_where_pulls_go_on_is_forgotten_with_the_role() -> None:
    broker = BrokerInMemory()
    broker.topics.update(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
    broker.groups.get("G")
    broker.put("T", b"0", b"1")
    broker.pull(0, topic="T", consumer_group="G")
    assert broker.offsets.pulled.query("G", "T", 0) == 2
    broker.become(RoleState(Role.SLAVE, 1))
    assert broker.offsets.pulled.query("G", "T", 0) == -1
