"""The table of groups, and topics that a group may not read."""

import pytest
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import ConfigFile
from rocketmq_tw.broker.tables.groups.table import GroupTable
from rocketmq_tw.broker.tables.versioned import TableContext
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.files.faulty import FaultyFiles
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.groups import GroupForbidden, SubscriptionGroupConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.topics import (
    UpdateGroupForbiddenRequestHeader,
)
from tests.support.asked import FULL_DISK, failure_of, refused
from tests.support.broker import BrokerInMemory
from tests.support.roles import a_master
from tests.support.state import MemoryStateFile


def make_table(file: MemoryStateFile | None = None, *, auto: bool = True) -> GroupTable:
    config = BrokerConfig(auto_create_subscription_group=auto)
    return GroupTable(file or MemoryStateFile(), TableContext(config, a_master(), lambda: 1_000))


def test_a_group_is_made_on_first_use() -> None:
    file = MemoryStateFile()
    made = make_table(file).get("G")
    assert made == SubscriptionGroupConfig(group_name="G")
    again = make_table(file, auto=False)
    again.load()
    assert again.get("G") == made
    assert again.data_version.counter == 1


def test_without_auto_creation_only_system_groups_are_made() -> None:
    table = make_table(auto=False)
    assert table.get("G") is None
    assert table.get("CID_RMQ_SYS_X") is not None
    assert table.get("TOOLS_CONSUMER") is not None


@pytest.mark.parametrize("group", ["../x", "", "a b", "g" * 300])
def test_an_illegal_group_is_not_made(group: str) -> None:
    table = make_table()
    assert table.get(group) is None
    with pytest.raises(RequestError):
        table.update(SubscriptionGroupConfig(group_name=group))


def test_an_update_replaces_and_a_delete_removes() -> None:
    table = make_table(auto=False)
    table.update(SubscriptionGroupConfig(group_name="G", consume_enable=False))
    found = table.get("G")
    assert found is not None
    assert not found.consume_enable
    table.delete("G")
    counter = table.data_version.counter
    table.delete("G")
    assert table.data_version.counter == counter, "it is gone already"
    assert "G" not in table


def test_the_file_of_stock_is_read() -> None:
    file = MemoryStateFile(
        b'{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":5},'
        b'"forbiddenTable":{"G":{"T":1}},"subscriptionGroupTable":{"G":{"attributes":{},'
        b'"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":false,'
        b'"groupName":"G","groupRetryPolicy":{"type":"CUSTOMIZED"},"retryMaxTimes":3,'
        b'"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}}}'
    )
    table = make_table(file)
    table.load()
    found = table.get("G")
    assert found is not None
    assert (found.consume_enable, found.retry_max_times) == (False, 3)
    assert table.data_version.counter == 3


def test_a_change_that_cannot_be_kept_is_none() -> None:
    file = MemoryStateFile()
    table = make_table(file)
    before = table.get("G")
    version = table.data_version
    file.full = True
    for kept in (
        table.update(SubscriptionGroupConfig(group_name="G", consume_enable=False)),
        table.delete("G"),
    ):
        failures: list[Failure] = []
        kept.addErrback(failures.append)
        assert "No space left" in failures[0].value.remark
    table.get("Another")
    assert table.get("G") == before
    assert "Another" not in table
    assert table.data_version == version


def test_a_group_is_kept_from_a_topic_and_let_to_it_again(
    plane: BrokerInMemory, files: FaultyFiles
) -> None:
    def readable(topic: str, change: bool | None = None) -> bool | None:
        header = UpdateGroupForbiddenRequestHeader(group="G", topic=topic, readable=change)
        answer = plane.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
        return decode_body(GroupForbidden, answer.body).readable

    assert readable("T") is True
    with refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
        readable("T", False)
    plane.groups.get("G")
    with refused(ResponseCode.TOPIC_NOT_EXIST):
        readable("U", False)
    plane.add_topic("U")
    assert readable("T", False) is readable("U", False) is readable("T") is False
    file = ConfigFile(files, "/store/config/subscriptionGroup.json")
    kept = GroupTable(file, TableContext(plane.config, a_master(), plane.now_ms))
    kept.load()
    assert not kept.may_read("G", "T") and kept.may_read("G", "V")
    assert readable("T", True) is readable("T") is True
    assert readable("U") is False, "stock lets the group read all topics again"
    with refused(ResponseCode.SYSTEM_ERROR):
        readable("../x", False)
    files.faults += FULL_DISK
    header = UpdateGroupForbiddenRequestHeader(group="G", topic="T", readable=False)
    failed = plane.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
    assert "No space left" in failure_of(failed).remark
    assert readable("T") is True and readable("U") is False
    files.faults.clear()
    plane.topics.delete("U")
    assert readable("U", True) is True


def test_a_slave_tells_what_a_group_may_read_and_changes_nothing() -> None:
    slave = BrokerInMemory(broker_role="SLAVE")
    slave.groups.get("G")

    def ask(**change: bool) -> RemotingCommand:
        header = UpdateGroupForbiddenRequestHeader(group="G", topic="T", **change)
        answer: RemotingCommand = slave.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
        return answer

    for readable in (False, True):
        with refused(ResponseCode.SYSTEM_ERROR) as refusal:
            ask(readable=readable)
        assert "the master's" in refusal.value.remark
        assert decode_body(GroupForbidden, ask().body).readable is True


def test_no_more_topics_are_kept_from_groups_than_there_is_room_for(
    plane: BrokerInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketmq_tw.broker.tables.groups.table.MAX_FORBIDDEN", 2)
    groups = plane.groups
    groups.update(*(SubscriptionGroupConfig(group_name=name) for name in ("G", "H")))

    def is_full() -> bool:
        with refused(ResponseCode.SYSTEM_ERROR) as refusal:
            groups.set_readable("H", "New", False)
        return "room for no more" in refusal.value.remark

    groups.set_readable("G", "T", False)
    groups.set_readable("G", "U", False)
    assert is_full()
    groups.set_readable("G", "T", False)
    groups.set_readable("G", "T", True)
    groups.set_readable("H", "T", False)
    assert is_full()
    groups.delete("H")
    groups.update(SubscriptionGroupConfig(group_name="H"))
    groups.set_readable("H", "T", False)
    assert is_full()
    groups.replace_all(groups.table())
    assert is_full()
    assert not groups.may_read("G", "U") and not groups.may_read("H", "T")
