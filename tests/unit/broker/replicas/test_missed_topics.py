"""Topics of which a slave got messages and no word, when it becomes the master."""

from __future__ import annotations

import pytest

from rocketmq_tw.broker.cluster.name_server_links import Master
from rocketmq_tw.broker.replicas.part import COPY_SECONDS
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.message.names import dlq_topic, retry_topic
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.headers.topics import DeleteTopicRequestHeader
from rocketmq_tw.wire.permissions import READ, WRITE
from tests.support.broker import BrokerInMemory, fired, ok
from tests.support.master_and_slaves import MasterAndSlaves, Slave
from tests.support.sim.group import ElectedGroup

MASTER = RoleState(Role.MASTER, 0)


def pass_time(group: MasterAndSlaves, seconds: float) -> None:
    for _ in range(round(seconds / 0.01)):
        group.clock.advance(0.01)


def copied() -> tuple[MasterAndSlaves, Slave]:
    """A slave that has all that its master has."""
    group = MasterAndSlaves()
    slave = group.add_slave()
    pass_time(group, COPY_SECONDS)
    slave.copy()
    return group, slave


def promoted(slave: Slave) -> BrokerInMemory:
    """The slave as the master, once it has read its log."""
    slave.plane.become(MASTER)
    slave.plane.clock.advance(0.1)
    return slave.plane


def test_a_topic_whose_master_died_with_the_first_answer_has_a_route() -> None:
    group = ElectedGroup(all_ack_in_sync_state_set=True)
    group.controllers.leader()
    group.start(1)
    group.start(2)
    group.run_until(lambda: len(group.in_sync()) == 2)
    (master,) = group.masters()
    group.run(2 * COPY_SECONDS)
    group.send(master, b"first")
    group.run_until(lambda: group.acknowledged == [b"first"])
    group.kill(master)
    slave = 3 - master
    group.run_until(lambda: group.masters() == [slave])
    group.run_until(lambda: group.bodies(slave) == [b"first"])
    config = group.brokers[slave].topics.get("Topic")
    assert config is not None and config.perm == READ | WRITE
    group.run_until(lambda: group.name_server.table.queues.has("Topic", config_name(group, slave)))


@pytest.mark.parametrize("ahead_ms", [-30_000, 30_000])
def test_clocks_of_the_members_may_differ(ahead_ms: int) -> None:
    """The table's last change is of the first master's clock, the message of the second's."""
    group = ElectedGroup(all_ack_in_sync_state_set=True)
    group.controllers.leader()
    group.start(1).shift_ms = ahead_ms
    group.run_until(lambda: group.masters() == [1])
    for number in (2, 3):
        group.start(number)
    group.run_until(lambda: len(group.in_sync()) == 3)
    group.brokers[1].add_topic("Changed")
    group.brokers[1].add_topic("Deleted")
    group.brokers[1].put("Deleted", b"old")
    group.run(2 * COPY_SECONDS)
    group.brokers[1].ask(
        RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="Deleted")
    )
    group.run(2 * COPY_SECONDS)
    group.kill(1)
    group.run_until(lambda: group.masters() in ([2], [3]))
    (second,) = group.masters()
    third = 5 - second
    group.run_until(lambda: group.in_sync() == {2, 3})
    group.send(second, b"first")
    group.run_until(lambda: group.acknowledged == [b"first"])
    assert group.brokers[third].topics.get("Topic") is None
    group.kill(second)
    group.run_until(lambda: group.masters() == [third])
    group.run_until(lambda: group.bodies(third) == [b"first"])
    topics = group.brokers[third].topics
    assert topics.get("Topic") is not None and topics.get("Deleted") is None


def test_times_decide_for_a_table_without_a_place_of_the_log() -> None:
    """As where an older release, or stock, wrote the file: it has no place of the log."""
    group, slave = copied()
    ok(group.send(b"new", topic="Made"))
    pass_time(group, 0.05)
    assert slave.plane.topics.as_of.place is not None
    slave.plane.topics.as_of.place = None
    group.stop()
    assert promoted(slave).topics.get("Made") is not None


def test_where_the_log_is_cut_the_table_is_no_newer_than_its_end() -> None:
    broker = BrokerInMemory()
    broker.add_topic("Topic")
    for body in (b"stays", b"goes"):
        ok(broker.send(body))
    end = broker.store.end_offset
    ok(broker.send(b"goes too"))
    broker.clock.advance(0.1)
    broker.add_topic("Changed")
    broker.become(RoleState(Role.SLAVE, 1))
    fired(broker.broker[Writing].truncation.cut(end))
    broker.stop()
    again = BrokerInMemory(broker.files, clock=broker.clock, broker_role="SLAVE")
    assert again.topics.as_of.place == end


def config_name(group: ElectedGroup, number: int) -> str:
    return group.brokers[number].config.broker_name


def test_a_topic_with_queues_that_the_slave_has_not_heard_of_gets_them() -> None:
    group, slave = copied()
    master = group.master.plane
    ordered = TopicConfig(
        topic_name="Topic", read_queue_nums=8, write_queue_nums=8, order=True, perm=READ | WRITE
    )
    master.topics.update(ordered)
    ok(master.send(b"new", topic="Made", queue_id=3))
    ok(master.send(b"in a new queue", queue_id=7))
    pass_time(group, 0.05)
    assert slave.plane.topics.get("Made") is None
    group.stop()
    new = promoted(slave)
    made, grown = new.topics.get("Made"), new.topics.get("Topic")
    # Not one more: other members, stock's too, may know that there are only so many, and consumers
    # of one that leads next would not read what came into further ones.
    assert made is not None and (made.read_queue_nums, made.write_queue_nums) == (4, 4)
    assert grown is not None and (grown.read_queue_nums, grown.write_queue_nums) == (8, 8)
    assert [message.body for message in new.consume("Topic", 7)] == [b"in a new queue"]
    ok(new.pull(0, topic="Made", queue_id=3))


def test_a_slave_that_is_started_as_the_master_has_them_too() -> None:
    group, slave = copied()
    ok(group.send(b"new", topic="Made"))
    pass_time(group, 0.05)
    slave.stop()
    new = BrokerInMemory(slave.plane.files, clock=group.clock, **group.store)
    new.clock.advance(0.1)
    assert new.topics.get("Made") is not None
    new.stop()
    again = BrokerInMemory(slave.plane.files, clock=group.clock, **group.store)
    assert again.topics.get("Made") is not None


def test_a_slave_that_acts_for_its_master_has_them_meanwhile() -> None:
    group, slave = copied()
    ok(group.send(b"new", topic="Made"))
    pass_time(group, 0.05)
    group.stop()
    slave.plane.become(RoleState(Role.ACTING_MASTER, 1))
    slave.plane.clock.advance(0.1)
    assert slave.plane.topics.get("Made") is not None


def test_a_damaged_record_gives_no_topic_a_million_queues() -> None:
    group, slave = copied()
    for queue_id in (5, 1_000_000):
        group.master.plane.put("Topic", b"of a queue", queue_id=queue_id)
    ok(group.send(b"has the slave told of all"))
    pass_time(group, 0.05)
    group.stop()
    config = promoted(slave).topics.get("Topic")
    assert config is not None and config.read_queue_nums == config.write_queue_nums == 6


def test_retry_and_dead_letter_topics_have_one_queue() -> None:
    group, slave = copied()
    for topic in (retry_topic("G"), dlq_topic("G"), "%LMQ%light", "rmq_sys_own"):
        group.master.plane.put(topic, b"given back")
    ok(group.send(b"has the slave told of all"))
    pass_time(group, 0.05)
    group.stop()
    new = promoted(slave)
    for topic in (retry_topic("G"), dlq_topic("G")):
        config = new.topics.get(topic)
        assert config is not None and config.read_queue_nums == config.write_queue_nums == 1
    assert not {"%LMQ%light", "rmq_sys_own"} & new.topics.all().keys()


def test_what_the_master_deleted_or_made_smaller_stays_so() -> None:
    """Also with a slave that comes later and meets all of it in the log."""
    group = MasterAndSlaves()
    master = group.master.plane
    ok(group.send(b"old", topic="Deleted"))
    ok(group.send(b"old", queue_id=3))
    pass_time(group, 0.01)
    master.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="Deleted"))
    master.add_topic("Topic", read_queue_nums=2, write_queue_nums=2)
    slave = group.add_slave()
    pass_time(group, COPY_SECONDS)
    slave.copy()
    group.stop()
    new = promoted(slave)
    assert new.topics.get("Deleted") is None
    config = new.topics.get("Topic")
    assert config is not None and config.read_queue_nums == 2


def test_what_the_former_master_told_of_messages_that_never_came_counts_no_more() -> None:
    """Stock's tells of its log up to the end; the next master has other messages there."""
    group, slave = copied()
    topics = slave.plane.topics
    # It was told that, and the master died before these messages were sent to anybody.
    topics.as_of.place = slave.plane.store.end_offset + 100_000
    fired(topics.keep_place())
    end = slave.plane.store.end_offset
    group.stop()
    slave.part.learned(Master("10.0.0.3:10911", ""))
    assert topics.as_of.place == end
    slave.plane.put("Made", b"of the next master")
    slave.stop()
    new = BrokerInMemory(slave.plane.files, clock=group.clock, **group.store)
    new.clock.advance(0.1)
    assert new.topics.get("Made") is not None
