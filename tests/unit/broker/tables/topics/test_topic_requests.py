"""Topics and groups, as requests make, change and delete them."""

import errno

import pytest
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.broker.tables.topics.requests import parse_attributes
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.store.errors import NotWritableError
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.queues import (
    TopicStatsTable,
)
from rocketmq_tw.wire.bodies.topics import CreateTopicListBody, TopicConfig, TopicConfigTable
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.headers.clients import (
    DeleteSubscriptionGroupRequestHeader,
)
from rocketmq_tw.wire.headers.topics import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from tests.support.asked import FULL_DISK, failure_of, refused
from tests.support.broker import BrokerInMemory, Threads, fired
from tests.support.stores import queues_of


def new_topic(name: str = "New", **fields: object) -> CreateTopicRequestHeader:
    values: dict[str, object] = {
        "topic": name, "default_topic": "TBW102", "read_queue_nums": 4, "write_queue_nums": 4,
        "perm": 6, "topic_filter_type": "SINGLE_TAG", "order": False,
    }  # fmt: skip
    return CreateTopicRequestHeader(**(values | fields))


def test_a_topic_is_created_and_its_attributes_kept(plane: BrokerInMemory) -> None:
    header = new_topic(attributes="+message.type=FIFO")
    assert plane.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).code == 0
    made = plane.topics.all()["New"]
    assert (made.write_queue_nums, made.attributes) == (4, {"message.type": "FIFO"})
    table = decode_body(TopicConfigTable, plane.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body)
    assert table.topic_config_table["New"] == made


def test_the_log_tells_of_attributes_that_change_alone(plane: BrokerInMemory) -> None:
    told = []
    for header in (
        new_topic(attributes="+message.type=FIFO"),
        new_topic(attributes="+message.type=FIFO", read_queue_nums=5),
        new_topic(read_queue_nums=6),
        new_topic(read_queue_nums=6, attributes="+message.type=NORMAL"),
    ):
        with capturedLogs() as logs:
            plane.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        (line,) = [line for line in map(formatEvent, logs) if "makes or changes" in line]
        told.append(line.partition("New with ")[2])
    assert "attributes={'message.type': 'FIFO'}" in told[0]
    assert told[1:] == [
        "readQueueNums=5 (was 4)",
        "readQueueNums=6 (was 5)",
        "attributes={'message.type': 'NORMAL'} (was {'message.type': 'FIFO'})",
    ]


@pytest.mark.parametrize(
    "header",
    [
        new_topic("../etc"),
        new_topic("t" * 128),
        new_topic("TBW102"),
        new_topic(perm=8),
        new_topic(write_queue_nums=-1),
        new_topic(read_queue_nums=10_000_000),
        new_topic(attributes="message.type"),
        new_topic(attributes="+message.type=MIXED"),
    ],
)
def test_a_wrong_topic_is_refused(plane: BrokerInMemory, header: CreateTopicRequestHeader) -> None:
    before = dict(plane.topics.all())
    with refused(ResponseCode.INVALID_PARAMETER):
        plane.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    assert plane.topics.all() == before


def test_a_list_of_topics_is_made_as_a_whole_or_not_at_all(plane: BrokerInMemory) -> None:
    wrong = CreateTopicListBody(
        topic_config_list=[TopicConfig(topic_name="A"), TopicConfig(topic_name="b c")]
    )
    with refused(ResponseCode.INVALID_PARAMETER):
        plane.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=wrong)
    assert plane.topics.get("A") is None
    right = CreateTopicListBody(
        topic_config_list=[TopicConfig(topic_name="A"), TopicConfig(topic_name="B")]
    )
    plane.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=right)
    assert plane.topics.get("B") is not None


def test_a_deleted_topic_takes_its_queues_and_offsets_along(plane: BrokerInMemory) -> None:
    plane.put("T", b"one")
    plane.groups.get("G")
    plane.offsets.commit("G", "T", 0, 1)
    plane.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="T"))
    assert plane.topics.get("T") is None
    assert plane.offsets.query("G", "T", 0) == -1
    assert "T" not in queues_of(plane.store)


def test_a_deletion_that_cannot_be_kept_leaves_all_as_it_was(
    plane: BrokerInMemory, files: FaultyFiles
) -> None:
    plane.topics.update(TopicConfig(topic_name="T"))
    plane.groups.get("G")
    plane.put("T", b"one")
    plane.offsets.commit("G", "T", 0, 1)
    files.faults += FULL_DISK
    topic = DeleteTopicRequestHeader(topic="T")
    group = DeleteSubscriptionGroupRequestHeader(group_name="G", clean_offset=True)
    for code, header in (
        (RequestCode.DELETE_TOPIC_IN_BROKER, topic),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, group),
    ):
        assert "No space left" in failure_of(plane.ask(code, header)).remark
    assert plane.topics.get("T") is not None and "G" in plane.groups
    assert plane.store.max_queue_offset("T", 0) == 1
    assert plane.offsets.query("G", "T", 0) == 1

    files.faults.clear()
    plane.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic)
    assert "T" not in queues_of(plane.store) and plane.offsets.query("G", "T", 0) == -1
    plane.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, group)
    assert "G" not in plane.groups


def test_a_deletion_that_failed_half_way_is_finished_by_the_next_one(
    plane: BrokerInMemory, files: FaultyFiles
) -> None:
    retry = "%RETRY%G_T"
    for topic in ("T", retry):
        plane.topics.update(TopicConfig(topic_name=topic))
        plane.put(topic, b"one")
        plane.offsets.commit("G", topic, 0, 1)
    files.faults += [
        Fault(operation, "deletedtopics", errno.ENOSPC) for operation in ("create", "pwrite")
    ]
    header = DeleteTopicRequestHeader(topic="T")
    with pytest.raises(NotWritableError, match="No space left"):
        fired(plane.ask(RequestCode.DELETE_TOPIC_IN_BROKER, header))
    assert retry in queues_of(plane.store)
    files.faults.clear()
    plane.ask(RequestCode.DELETE_TOPIC_IN_BROKER, header)
    assert not {"T", retry} & queues_of(plane.store).keys()
    assert [plane.offsets.query("G", topic, 0) for topic in ("T", retry)] == [-1, -1]


def test_a_topic_made_again_while_it_is_deleted_keeps_what_it_has() -> None:
    threads = Threads(eager=False)
    plane = BrokerInMemory(threads=threads)
    plane.topics.update(TopicConfig(topic_name="T"))
    threads.run()
    deleted = plane.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="T"))
    assert plane.topics.get("T") is None
    assert plane.topics.create_on_send("T", "TBW102", "p", 4, 0) is not None
    plane.put("T", b"acknowledged")
    threads.run()
    assert deleted.result.code == 0
    assert plane.store.max_queue_offset("T", 0) == 1


@pytest.mark.parametrize("topic", ["TBW102", "../x", "SCHEDULE_TOPIC_XXXX"])
def test_what_must_not_be_deleted_is_not(plane: BrokerInMemory, topic: str) -> None:
    with refused(ResponseCode.INVALID_PARAMETER):
        plane.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))


def test_topic_stats_tell_offsets_and_times(plane: BrokerInMemory) -> None:
    plane.put("T", b"one", b"two", queue_id=1)
    header = GetTopicStatsInfoRequestHeader(topic="T")
    body = decode_body(TopicStatsTable, plane.ask(RequestCode.GET_TOPIC_STATS_INFO, header).body)
    offsets = {
        queue.queue_id: (offset.min_offset, offset.max_offset, offset.last_update_timestamp)
        for queue, offset in body.offset_table.items()
    }
    assert offsets == {0: (0, 0, 0), 1: (0, 2, plane.now_ms())}
    with refused(ResponseCode.TOPIC_NOT_EXIST):
        plane.ask(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic="nope"))


def test_a_deleted_group_may_leave_its_offsets(plane: BrokerInMemory) -> None:
    plane.groups.get("G")
    plane.offsets.commit("G", "T", 0, 1)
    keep = DeleteSubscriptionGroupRequestHeader(group_name="G")
    plane.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, keep)
    assert plane.offsets.query("G", "T", 0) == 1
    clean = DeleteSubscriptionGroupRequestHeader(group_name="G", clean_offset=True)
    plane.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, clean)
    assert plane.offsets.query("G", "T", 0) == -1


def test_attributes_are_parsed() -> None:
    assert parse_attributes("+a=1, -b") == {"+a": "1", "-b": ""}
    assert parse_attributes(None) == {}
    for wrong in ("a=1", "+a", "+a=1,+a=2"):
        with refused(ResponseCode.INVALID_PARAMETER):
            parse_attributes(wrong)
