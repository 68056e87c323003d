"""What only masters change: topics, groups, offsets and progress, as slaves copy them."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.broker.assignment.part import Assignment
from rocketmq_tw.broker.cluster.name_server_links import Master
from rocketmq_tw.broker.replicas import part
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.queues import SetMessageRequestModeRequestBody
from rocketmq_tw.wire.bodies.topics import TopicConfig, TopicConfigTable
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.topics import DeleteTopicRequestHeader
from tests.support.broker import BrokerInMemory
from tests.support.master_and_slaves import HA, MASTER, NEXT_MASTER, MasterAndSlaves, Slave
from tests.support.stores import START_MS, queues_of


def test_topics_groups_and_progress_are_copied() -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    plane = group.master.plane
    plane.groups.update(SubscriptionGroupConfig(group_name="G", retry_max_times=3))
    group.send(b"first")
    plane.offsets.commit("G", "Topic", 0, 1)
    plane.delay_offsets.set(3, 7)
    mode = SetMessageRequestModeRequestBody(topic="Topic", consumer_group="G", mode="POP")
    plane.broker[Assignment].modes.set(mode)
    group.settle()
    slave.copy()
    copied = slave.plane
    assert copied.broker[Assignment].modes.get("Topic", "G") == mode
    assert copied.topics.table().data_version == plane.topics.table().data_version
    assert copied.topics.all() == plane.topics.all()
    known = copied.groups.get("G")
    assert known is not None and known.retry_max_times == 3
    assert copied.offsets.query("G", "Topic", 0) == 1
    assert copied.delay_offsets.get(3) == 7


def test_progress_waits_for_the_log_that_it_stands_for() -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    group.send(b"first")
    group.settle()
    near = slave.end
    near.hold()
    group.send(b"delivered")
    group.master.plane.delay_offsets.set(3, 7)
    slave.copy()
    assert slave.plane.delay_offsets.get(3) == 0
    near.let_go()
    group.settle()
    assert slave.plane.delay_offsets.get(3) == 7


def test_the_timer_of_a_master_is_followed_once_the_log_is_there() -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    slave.copy()
    before = slave.timer.checkpoint
    near = slave.end
    near.hold()
    group.send(b"delivered by the timer")
    later = START_MS + 100_000
    part = group.master.plane.broker[Timer]
    part.books.go_to(later)
    part.books.queue_offset = 7
    slave.copy()
    assert slave.timer.checkpoint == before
    near.let_go()
    group.settle()
    told = slave.timer.checkpoint
    assert told is not None
    assert (told.read_ms, told.master_queue_offset, told.queue_offset) == (later, 7, 0)


def test_offsets_are_the_masters() -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    master, copy = group.master.plane.offsets, slave.plane.offsets
    master.commit("G", "Topic", 0, 5)
    master.commit("G", "Topic", 1, 5)
    group.master.plane.delay_offsets.set(3, 7)
    slave.copy()
    copy.commit("G", "Topic", 0, 9)
    slave.plane.delay_offsets.set(3, 9)
    slave.copy()
    assert copy.query("G", "Topic", 0) == 5, "of the time when it was the master itself"
    assert slave.plane.delay_offsets.get(3) == 7
    master.commit("G", "Topic", 1, 2)
    slave.copy()
    assert copy.query("G", "Topic", 1) == 2, "a reset is followed"
    master.remove_group("G")
    slave.copy()
    assert copy.query("G", "Topic", 0) == -1, "what the master removed goes"


def test_large_offsets_are_followed_bit_by_bit() -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    master, copy = group.master.plane.offsets, slave.plane.offsets
    for number in range(20_000):
        master.commit(f"G{number}", "Topic", 0, 5)
    seen: list[int] = []
    in_slices = slave.plane.broker[Replicas]._copied._in_slices

    def watched(steps: Any) -> Any:
        def counting() -> Any:
            for step in steps:
                seen.append(len(copy.groups_of("Topic")))
                yield step

        return in_slices(counting())

    slave.plane.broker[Replicas]._copied._in_slices = watched
    slave.copy()
    assert len(seen) > 20 and seen[0] < 2_000
    assert copy.encode() == master.encode(), "with the version"
    for number in range(10_000):
        master.remove_group(f"G{number}")
    slave.copy()
    assert copy.groups_of("Topic") == {f"G{number}" for number in range(10_000, 20_000)}


def test_offsets_that_cannot_be_followed_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    group.master.plane.offsets.commit("G", "Topic", 0, 5)

    def fail(*_: object) -> None:
        raise OSError("no")

    with monkeypatch.context() as failing:
        failing.setattr(slave.plane.delay_offsets, "follow", fail)
        with capturedLogs() as logs:
            slave.copy()
    assert len([log for log in logs if "log_failure" in log]) == 1
    group.master.plane.offsets.commit("G", "Topic", 0, 6)
    slave.copy()
    assert slave.plane.offsets.query("G", "Topic", 0) == 6


def test_a_table_that_cannot_be_copied_keeps_no_other_back() -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    plane = group.master.plane
    plane.offsets.commit("G", "Topic", 0, 5)

    def refuse(request: RemotingCommand, peer: Any) -> RemotingCommand:
        return request.response(ResponseCode.SYSTEM_ERROR, "frames may have 16 (frameMaxLength)")

    plane.handlers[RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG] = refuse
    done: list[Any] = []
    slave.part.copy().addBoth(done.append)
    group.settle()
    assert "frameMaxLength" in str(done[0].value)
    assert slave.plane.offsets.query("G", "Topic", 0) == 5


def lose(offsets: OffsetTable, key: str) -> None:
    """As where the table was read from a file that has it not yet."""
    del offsets._offsets[key]


def test_a_master_that_restarts_removes_nothing_at_its_slave() -> None:
    """It writes offsets every few seconds only, or lost the file: what it lacks may be here only.
    What it has counts."""
    group = MasterAndSlaves()
    slave = group.add_slave()
    master, copy = group.master.plane.offsets, slave.plane.offsets
    master.commit("G", "Topic", 0, 9)
    master.commit("gone", "Topic", 0, 9)
    group.master.plane.delay_offsets.set(3, 7)
    slave.copy()
    group.restart()
    master.commit("G", "Topic", 0, 5)
    lose(master, "Topic@gone")
    group.master.plane.delay_offsets.set(3, 2)
    slave.copy()
    assert copy.query("gone", "Topic", 0) == 9
    assert copy.query("G", "Topic", 0) == 5
    assert slave.plane.delay_offsets.get(3) == 2


def test_offsets_that_a_restart_interrupts_are_asked_for_again() -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    group.master.plane.offsets.commit("G", "Topic", 0, 9)
    code = RequestCode.GET_ALL_CONSUMER_OFFSET
    handlers = group.master.plane.handlers
    answer = handlers[code]

    def restart_first(request: RemotingCommand, peer: Any) -> Any:
        group.restart()
        handlers[code] = answer
        return answer(request, peer)

    handlers[code] = restart_first
    slave.copy()
    assert slave.plane.offsets.query("G", "Topic", 0) == -1
    slave.copy()
    assert slave.plane.offsets.query("G", "Topic", 0) == 9


def test_a_topic_that_the_master_deletes_goes_with_its_messages() -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    group.send(b"first")
    group.settle()
    slave.copy()
    assert slave.bodies() == [b"first"]
    group.master.plane.topics.delete("Topic")
    group.master.plane.store.remove_topics(["Topic"])
    slave.copy()
    assert slave.plane.topics.get("Topic") is None
    assert "Topic" not in queues_of(slave.plane.store)


@pytest.mark.parametrize("lagging", [False, True])
def test_a_topic_made_again_has_its_new_messages_only(lagging: bool) -> None:
    """Deleted and made again between two copies of the tables, so that only the log tells."""
    group = MasterAndSlaves()
    slave = group.add_slave()
    plane = group.master.plane
    for number in range(40):
        group.send(b"old %d" % number, queue_id=number % 2)
    group.settle()
    slave.copy()
    if lagging:
        slave.end.hold()
        group.send(b"old, not there yet")
    plane.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="Topic"))
    plane.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    for number in range(5):
        group.send(b"new %d" % number)
    if lagging:
        slave.end.let_go()
    group.settle()
    new = [b"new %d" % number for number in range(5)]
    assert [message.body for message in slave.plane.consume("Topic", 0)] == new
    assert slave.plane.consume("Topic", 1) == []
    slave.stop()
    again = group.slave_plane(files=slave.plane.files)
    assert [message.body for message in again.consume("Topic", 0)] == new
    again.stop()
    # Whatever is built again.
    for name in again.files.list("/store/consumequeue"):
        again.files.remove_tree(f"/store/consumequeue/{name}")
    third = group.slave_plane(files=again.files)
    assert [message.body for message in third.consume("Topic", 0)] == new


def test_a_master_that_lost_its_tables_takes_nothing_from_its_slave() -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    plane = group.master.plane
    plane.groups.update(SubscriptionGroupConfig(group_name="G", retry_max_times=3))
    group.send(b"first")
    group.settle()
    slave.copy()
    # The same store with an empty config directory.
    fresh = BrokerInMemory(clock=group.clock)
    fresh.add_topic("New")
    plane.topics.replace_all(fresh.topics.table())
    plane.groups.replace_all(fresh.groups.table())
    for _ in range(2):
        slave.copy()
        assert slave.bodies() == [b"first"]
        known = slave.plane.groups.get("G")
        assert known is not None and known.retry_max_times == 3
        assert slave.plane.topics.get("New") is not None
        plane.add_topic("Newer")
    assert slave.plane.topics.get("Newer") is not None
    # Or its messages were on their way out: stock's master removes them after the topic.
    plane.store.remove_topics(["Topic"])
    slave.copy()
    assert slave.plane.topics.get("Topic") is None
    assert "Topic" not in queues_of(slave.plane.store)


def test_a_group_that_the_master_deletes_goes() -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    groups = group.master.plane.groups
    groups.update(SubscriptionGroupConfig(group_name="G"))
    slave.copy()
    assert "G" in slave.plane.groups
    groups.delete("G")
    slave.copy()
    assert "G" not in slave.plane.groups


def test_a_topic_of_a_kind_that_is_not_here_is_left_out_and_said_once() -> None:
    group = MasterAndSlaves()
    group.master.plane.topics.replace_all(
        TopicConfigTable(
            topic_config_table={
                **group.master.plane.topics.all(),
                "Batches": TopicConfig(topic_name="Batches", attributes={"queue.type": "BatchCQ"}),
            },
            data_version=group.master.plane.topics.data_version.next(1),
        )
    )
    with capturedLogs() as events:
        slave = group.add_slave()
        group.settle()
        group.master.plane.put("Batches", b"m")
        for _ in range(3):
            slave.copy()
    said = [text for text in map(formatEvent, events) if text and "queue.type=BatchCQ" in text]
    assert len(said) == 1 and "'Batches'" in said[0]
    assert slave.bytes() == group.master.bytes()
    assert slave.plane.topics.get("Batches") is None
    assert slave.plane.topics.get("Topic") is not None
    for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET):
        fields = {"topic": "Batches", "queueId": "0"}
        answer = slave.plane.request(RemotingCommand(code, ext_fields=fields))
        assert answer is not None and answer.code == ResponseCode.TOPIC_NOT_EXIST


def test_a_slave_that_stops_follows_nobody_any_more() -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    part = slave.part
    slave.plane.become(RoleState(Role.ISOLATED, 1))
    # The answer to a registration that was under way.
    part.learned(Master(MASTER, HA))
    group.settle()
    assert part.client.connection is None


def test_a_slave_whose_master_no_name_server_knows_says_so_once() -> None:
    group = MasterAndSlaves()
    slave = Slave(group, group.slave_plane())
    with capturedLogs() as logs:
        for _ in range(3):
            slave.part.learned(Master("", ""))
        slave.part.learned(Master(MASTER, HA))
        slave.part.learned(Master("", ""))
    lines = [formatEvent(event) for event in logs]
    assert sum("no name server knows a master" in line for line in lines) == 1
    group.settle()
    assert slave.part.client.linked


def test_nothing_is_copied_from_a_master_that_is_not_followed() -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    group.send(b"first")
    group.settle()
    slave.copy()
    topics = dict(slave.plane.topics.all())
    group.replace_master()
    group.settle()
    slave.copy()
    assert slave.plane.topics.all() == topics


def test_what_the_former_master_still_says_is_no_measure_for_the_next_one() -> None:
    """Otherwise what a next master lacks looks as if it had removed it."""
    group = MasterAndSlaves()
    slave = group.add_slave()
    offsets = group.master.plane.offsets
    offsets.commit("G", "Topic", 0, 100)
    slave.copy()
    slave.part.copy()
    slave.part.learned(Master(NEXT_MASTER, HA))
    group.settle()
    lose(offsets, "Topic@G")
    slave.copy()
    assert slave.plane.offsets.query("G", "Topic", 0) == 100


def test_a_new_topic_is_copied_when_its_first_message_arrives() -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    assert slave.plane.topics.get("Topic") is None
    group.send(b"first")
    group.settle()
    assert slave.plane.topics.get("Topic") is not None


def test_more_queues_are_copied_when_the_first_message_arrives_in_one() -> None:
    """If the slave is the master a moment later, nobody would read what is in them."""
    group = MasterAndSlaves()
    slave = group.add_slave()
    group.send(b"first")
    group.settle()
    before = slave.plane.topics.get("Topic")
    assert before is not None
    group.master.plane.add_topic("Topic", read_queue_nums=12, write_queue_nums=12)
    group.send(b"in a new queue", queue_id=11)
    group.settle()
    after = slave.plane.topics.get("Topic")
    assert after is not None and (before.read_queue_nums, after.read_queue_nums) == (4, 12)


def test_a_queue_that_the_master_lacks_as_well_is_asked_about_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nobody copies from time to time.
    monkeypatch.setattr(part, "COPY_SECONDS", 1000.0)
    group = MasterAndSlaves()
    slave = group.add_slave()
    group.master.plane.add_topic("Topic", read_queue_nums=8, write_queue_nums=8)
    for level in "123":
        group.send(b"late", queue_id=7, properties={"DELAY": level})
    group.master.plane.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    slave.copy()
    copies: list[str] = []
    copy = slave.part.copy
    monkeypatch.setattr(slave.part, "copy", lambda: copies.append("asked") or copy())
    for _ in range(12):
        group.settle()
    assert slave.plane.store.max_queue_offset("Topic", 7) == 3
    assert copies == ["asked"]
