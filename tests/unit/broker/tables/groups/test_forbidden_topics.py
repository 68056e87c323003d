"""Topics that a group may not read."""

from rocketmq_tw.broker.assembly.host import ConfigFile
from rocketmq_tw.broker.tables.groups.table import GroupTable
from rocketmq_tw.files.faulty import FaultyFiles
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.groups import GroupForbidden
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.topics import (
    UpdateGroupForbiddenRequestHeader,
)
from tests.support.asked import FULL_DISK, failure_of, refused
from tests.support.broker import BrokerInMemory
from tests.support.roles import a_master


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
    assert readable("T", False) is readable("U", False) is readable("T") is False
    file = ConfigFile(files, "/store/config/subscriptionGroup.json")
    kept = GroupTable(plane.config, file, plane.now_ms, a_master())
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
