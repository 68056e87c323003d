"""Consumer offsets, as clients commit them and ask for them."""

import os

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.wire.codes import ResponseCode
from tests.support.asked import commit_offset, query_offset, refused
from tests.support.broker import BrokerInMemory


def test_a_committed_offset_is_found(plane: BrokerInMemory) -> None:
    plane.groups.get("G")
    commit_offset(plane, 7)
    assert query_offset(plane) == 7


def test_a_new_group_starts_at_0_only_where_the_queue_is_at_hand(plane: BrokerInMemory) -> None:
    with refused(ResponseCode.QUERY_NOT_FOUND):
        query_offset(plane)
    plane.put("T", b"one")
    assert query_offset(plane) == 0
    with refused(ResponseCode.QUERY_NOT_FOUND):
        query_offset(plane, set_zero_if_not_found=False)


def test_a_new_group_does_not_start_at_0_far_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = {"SC_PAGE_SIZE": 300, "SC_PHYS_PAGES": 1}
    monkeypatch.setattr(os, "sysconf", memory.__getitem__)
    plane = BrokerInMemory()
    plane.add_topic("T", read_queue_nums=2, write_queue_nums=2)
    plane.put("T", b"x" * 200, b"x" * 200)
    with refused(ResponseCode.QUERY_NOT_FOUND):
        query_offset(plane)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "nope"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 99}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER),
        ({"offset": -1}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_a_wrong_commit_is_refused(
    plane: BrokerInMemory, fields: dict[str, object], code: ResponseCode
) -> None:
    plane.groups.get("G")
    with refused(code):
        commit_offset(plane, **({"offset": 1} | fields))  # type: ignore[arg-type]
    assert not plane.offsets.topics_of("G")


def test_a_commit_ahead_of_the_first_heartbeat_makes_its_group(plane: BrokerInMemory) -> None:
    plane.put("T", b"one")
    commit_offset(plane, 1)
    assert query_offset(plane) == 1


def test_a_commit_does_not_make_a_group_where_that_is_off() -> None:
    plane = BrokerInMemory(broker={"auto_create_subscription_group": False})
    plane.put("T", b"one")
    with refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
        commit_offset(plane, 1)


def test_no_offset_is_taken_that_will_not_be_written() -> None:
    """The log has failed: the file of offsets is not written any more, up to a restart."""
    files = FaultyFiles(MemoryFiles())
    plane = BrokerInMemory(files)
    plane.add_topic("T", read_queue_nums=1, write_queue_nums=1)
    commit_offset(plane, 1)
    files.faults = [Fault("pwrite", "commitlog")]
    plane.send(b"the disk fails", topic="T")
    with refused(ResponseCode.SERVICE_NOT_AVAILABLE):
        commit_offset(plane, 2)
    assert plane.offsets.query("G", "T", 0) == 1
