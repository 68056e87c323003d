"""What a slave answers, and how it serves reads."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.broker.assignment.part import Assignment
from rocketmq_tw.broker.sending.part import STORING
from rocketmq_tw.broker.tables.part import CHANGING
from rocketmq_tw.broker.writing.dispatcher import SLAVE_SECONDS
from rocketmq_tw.config.change import change
from rocketmq_tw.wire.bodies.base import Body, decode_body, encode_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupList
from rocketmq_tw.wire.bodies.queues import SetMessageRequestModeRequestBody
from rocketmq_tw.wire.bodies.stats import HARuntimeInfo, KVTable
from rocketmq_tw.wire.bodies.topics import (
    CreateTopicListBody,
    TopicConfig,
    TopicQueueMappingDetail,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.broker import ResetMasterFlushOffsetHeader
from rocketmq_tw.wire.headers.clients import DeleteSubscriptionGroupRequestHeader
from rocketmq_tw.wire.headers.topics import CreateTopicRequestHeader, DeleteTopicRequestHeader
from tests.support.broker import BrokerInMemory
from tests.support.master_and_slaves import FILE_SIZE, HA, MasterAndSlaves, Replica
from tests.support.stores import make_message


def slave_with_entries() -> BrokerInMemory:
    """A slave with a topic and a group."""
    plane = MasterAndSlaves().slave_plane()
    change(plane.config, {"autoCreateSubscriptionGroup": "false"})
    plane.add_topic("Topic")
    plane.groups.update(SubscriptionGroupConfig(group_name="Group"))
    return plane


def asked(
    plane: BrokerInMemory, code: RequestCode, header: Header | None, body: Body | None
) -> RemotingCommand:
    """The answer to a request, also where it is a refusal."""
    data = b"" if body is None else encode_body(body)
    answer = plane.request(RemotingCommand.request(code, header, data))
    assert answer is not None
    return answer


def topic_change(name: str) -> tuple[CreateTopicRequestHeader, None]:
    header = CreateTopicRequestHeader(
        topic=name, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6,
        topic_filter_type="SINGLE_TAG", order=False,
    )  # fmt: skip
    return header, None


def test_a_slave_stores_nothing() -> None:
    plane = MasterAndSlaves().slave_plane()
    for code in STORING:
        with pytest.raises(RequestError, match="master") as raised:
            plane.ask(code)
        assert raised.value.code == ResponseCode.SYSTEM_BUSY


#: For each change a slave may be asked for, what its master takes and what no broker does.
CHANGES = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: (topic_change("T"), topic_change("bad name")),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: (
        (None, CreateTopicListBody(topic_config_list=[TopicConfig(topic_name="T")])),
        (None, CreateTopicListBody(topic_config_list=[TopicConfig(topic_name="T", perm=9)])),
    ),
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: (
        (topic_change("T")[0], TopicQueueMappingDetail(topic="T")),
        (topic_change("T")[0], TopicQueueMappingDetail(topic="U")),
    ),
    RequestCode.DELETE_TOPIC_IN_BROKER: (
        (DeleteTopicRequestHeader(topic="Topic"), None),
        (DeleteTopicRequestHeader(topic="TBW102"), None),
    ),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (
        (None, SubscriptionGroupConfig(group_name="G")),
        (None, SubscriptionGroupConfig(group_name="G", attributes={"+nix": "1"})),
    ),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (
        (None, SubscriptionGroupList(group_config_list=[SubscriptionGroupConfig(group_name="G")])),
        (None, SubscriptionGroupList(group_config_list=[SubscriptionGroupConfig(group_name=" ")])),
    ),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: (
        (DeleteSubscriptionGroupRequestHeader(group_name="Group"), None),
        (None, None),
    ),
}


def test_all_changes_are_asked_for() -> None:
    assert set(CHANGES) == set(CHANGING)


@pytest.mark.parametrize("code", CHANGING)
def test_what_a_slave_is_asked_to_change_is_left_to_its_master(code: RequestCode) -> None:
    """Stock's tools ask slaves too, and fail where one refuses."""
    plane = slave_with_entries()
    before = plane.topics.table(), plane.groups.table()
    answer = asked(plane, code, *CHANGES[code][0])
    assert answer.code == ResponseCode.SUCCESS
    assert "master" in (answer.remark or "")
    assert (plane.topics.table(), plane.groups.table()) == before


@pytest.mark.parametrize("code", CHANGING)
def test_what_no_broker_does_a_slave_refuses_as_its_master(code: RequestCode) -> None:
    answers = [
        asked(plane, code, *CHANGES[code][1])
        for plane in (MasterAndSlaves().master.plane, slave_with_entries())
    ]
    assert answers[0].code != ResponseCode.SUCCESS
    assert (answers[0].code, answers[0].remark) == (answers[1].code, answers[1].remark)


def test_how_a_group_reads_is_left_to_the_master_too() -> None:
    plane = slave_with_entries()

    def set_mode(**fields: str) -> RemotingCommand:
        body = {"topic": "Topic", "consumer_group": "Group", "mode": "POP"} | fields
        mode = SetMessageRequestModeRequestBody(**body)
        return asked(plane, RequestCode.SET_MESSAGE_REQUEST_MODE, None, mode)

    answer = set_mode()
    assert answer.code == ResponseCode.SUCCESS and "master" in (answer.remark or "")
    assert plane.broker[Assignment].modes.get("Topic", "Group") is None
    assert set_mode(topic="nix").code == ResponseCode.TOPIC_NOT_EXIST
    assert set_mode(consumer_group="nix").code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_the_flush_offset_of_a_master_is_taken_and_not_needed() -> None:
    """Stock's tools may set it (908)."""
    group = MasterAndSlaves()
    group.send(b"message")
    before = group.master.plane.store.end_offset
    for plane in (group.master.plane, group.slave_plane()):
        answer = plane.ask(
            RequestCode.RESET_MASTER_FLUSH_OFFSET,
            ResetMasterFlushOffsetHeader(master_flush_offset=0),
        )
        assert answer.code == ResponseCode.SUCCESS
    assert group.master.plane.store.end_offset == before


def test_a_slave_is_not_active() -> None:
    group = MasterAndSlaves()
    shown = [
        decode_body(KVTable, plane.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
        for plane in (group.master.plane, group.slave_plane())
    ]
    assert [table["brokerActive"] for table in shown] == ["true", "false"]


def test_many_appends_of_a_slave_share_the_work_of_its_queues() -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    store = slave.plane.store
    for number in range(1, 4):
        group.send(b"message")
        for _ in range(5):
            group.clock.advance(0)
        (link,) = group.part.service.slaves
        assert link.link.acknowledged == group.master.plane.store.written_offset
        assert store.max_queue_offset("Topic", 0) == 0, f"{number} acknowledged, none in its queue"
    group.clock.advance(SLAVE_SECONDS)
    assert store.max_queue_offset("Topic", 0) == 3


def test_whoever_asks_need_not_wait_for_it() -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    group.send(b"first")
    for _ in range(5):
        group.clock.advance(0)
    slave.plane.dispatcher.dispatch_waiting()
    assert slave.plane.store.max_queue_offset("Topic", 0) == 1
    slave.plane.dispatcher.dispatch_waiting()
    group.settle()
    assert slave.plane.store.max_queue_offset("Topic", 0) == 1


def test_the_newest_message_is_compared_before_a_link_though_it_came_just_now() -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    group.send(b"first")
    for _ in range(5):
        group.clock.advance(0)
    store = slave.plane.store
    assert store.last_record_offset < 0
    slave.part.client.open_link()
    assert store.last_record_offset == 0


def test_not_even_by_itself() -> None:
    plane = MasterAndSlaves().slave_plane()
    plane.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    with pytest.raises(RequestError, match="stores nothing") as raised:
        plane.commit.append(make_message(), lambda code, appended: None)
    assert raised.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    version = plane.topics.data_version
    plane.topics.create_on_send_back("%RETRY%G", 1, 6)
    plane.topics.mark_ordered(["Topic"])
    assert plane.groups.get("new") is not None
    assert "new" not in plane.groups
    assert plane.topics.get("%RETRY%G") is None
    assert plane.topics.data_version == version


def pulled(plane: BrokerInMemory, offset: int, **options: Any) -> int | None:
    """The code of a pull's answer; None where it is held."""
    response = plane.pull(offset, **options)
    return None if response is None else response.code


def test_what_a_slave_lacks_is_asked_of_the_master_or_waited_for() -> None:
    group = MasterAndSlaves()
    plane = group.add_slave().plane
    group.send(b"first")
    group.settle()
    assert pulled(plane, 0) == ResponseCode.SUCCESS
    assert pulled(plane, 1) == ResponseCode.PULL_RETRY_IMMEDIATELY
    group.stop()
    assert pulled(plane, 1) == ResponseCode.PULL_NOT_FOUND
    assert pulled(plane, 7) == ResponseCode.PULL_NOT_FOUND, "an offset is never put back here"


def test_a_slave_that_serves_no_reads_sends_consumers_away() -> None:
    group = MasterAndSlaves()
    plane = group.add_slave().plane
    group.send(b"first")
    group.settle()
    change(plane.config, {"slaveReadEnable": "false"})
    response = plane.pull(0)
    assert response is not None
    assert response.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert response.ext_fields["suggestWhichBrokerId"] == "0"
    assert response.ext_fields["nextBeginOffset"] == "0"
    group.stop()
    assert pulled(plane, 0) == ResponseCode.SYSTEM_BUSY


def test_a_slave_that_retention_overtakes_is_let_go() -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    group.send(b"first")
    group.settle()
    slave.end.hold()
    while group.master.plane.store.written_offset < 40 * FILE_SIZE:
        group.send(b"x" * 500)
    assert [link.link.next_offset < 20 * FILE_SIZE for link in group.part.service.slaves] == [True]
    while group.master.plane.store.min_physical_offset < 30 * FILE_SIZE:
        group.master.plane.store._log.remove_first()
    slave.end.let_go()
    group.settle()
    assert not slave.part.client.linked


def test_907_shows_both_ends() -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    group.send(b"first")
    group.settle()
    group.send(b"x" * 100)
    for _ in range(3):
        group.network.settle()
    end = group.master.plane.store.written_offset

    def ask(replica: Replica) -> HARuntimeInfo:
        response = replica.plane.ask(RequestCode.GET_BROKER_HA_STATUS)
        return decode_body(HARuntimeInfo, response.body)

    master = ask(group.master)
    assert (master.master, master.master_commit_log_max_offset) == (True, end)
    (link,) = master.ha_connection_info
    assert (link.slave_ack_offset, link.diff, link.in_sync) == (end, 0, True)
    info = ask(slave)
    assert not info.master and info.ha_client_runtime_info is not None
    assert info.ha_client_runtime_info.master_addr == HA
    assert info.ha_client_runtime_info.max_offset == end
    age = slave.plane.now_ms() - info.ha_client_runtime_info.last_read_timestamp
    assert 0 <= age < 5000
