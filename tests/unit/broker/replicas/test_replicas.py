"""A master and its slaves on files in memory, the links between them over a network in memory."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.broker.assignment.part import Assignment
from rocketmq_tw.broker.cluster.membership import Master
from rocketmq_tw.broker.replicas import part
from rocketmq_tw.broker.replicas.kinship import newest_record
from rocketmq_tw.broker.replicas.master import MasterLinks
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.replicas.slave import MasterFollower
from rocketmq_tw.broker.role.state import Role, RoleState, configured_role
from rocketmq_tw.broker.sending.part import STORING
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.tables.offsets import OffsetTable
from rocketmq_tw.broker.tables.part import CHANGING
from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.broker.timer.progress import TimerProgress
from rocketmq_tw.broker.writing.commit import SLAVE_DISPATCH
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.change import change
from rocketmq_tw.config.properties import ConfigError
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.replication.links import service
from rocketmq_tw.wire.bodies.assignments import SetMessageRequestModeRequestBody
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.kv import KVTable
from rocketmq_tw.wire.bodies.stats import HARuntimeInfo
from rocketmq_tw.wire.bodies.topics import TopicConfig, TopicConfigTable
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.topics import DeleteTopicRequestHeader
from tests.support import broker as data_plane
from tests.support.broker import BrokerInMemory, Threads, messages_of, ok
from tests.support.network import MemoryNetwork, MemoryTransport
from tests.support.stores import START_MS, make_message, queues_of

MASTER, HA = "10.0.0.1:10911", "10.0.0.1:10912"
NEXT_MASTER = "10.0.0.2:10911"
FILE_SIZE = 4096


class Replica:
    """A broker of the group, on the group's clock and network."""

    def __init__(self, group: Group, plane: BrokerInMemory) -> None:
        self.group = group
        self.plane = plane

    def bytes(self, start: int = 0) -> bytes:
        """The log's bytes from an offset on."""
        store, pieces = self.plane.store, []
        while start < store.written_offset:
            pieces.append(store.read_log(start, FILE_SIZE))
            start += len(pieces[-1])
        return b"".join(pieces)


class Group:
    """A master, and slaves that learn of it when they are added."""

    def __init__(self, *, sync: bool = False, threads: Threads | None = None, **store: Any) -> None:
        self.clock = MemoryReactorClock()
        self.network = MemoryNetwork(self.clock)
        self.slaves = 0
        role = "SYNC_MASTER" if sync else "ASYNC_MASTER"
        self.store = {"mapped_file_size_commit_log": FILE_SIZE} | store
        self.master = self.new_master(threads=threads, broker_role=role, **self.store)

    def new_master(self, **options: Any) -> Replica:
        """A started broker with the topic `Topic` at the master's addresses."""
        plane = BrokerInMemory(clock=self.clock, network=self.network, address=MASTER, **options)
        plane.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
        self.network.listen(NEXT_MASTER, plane.broker.listener.factory)
        return Replica(self, plane)

    @property
    def part(self) -> MasterLinks:
        links = self.master.plane.broker[Replicas].master
        assert links is not None
        return links

    @property
    def timer(self) -> TimerProgress:
        return self.master.plane.timer

    def restart(self) -> None:
        """The master says that it was started again."""
        self.master.plane.broker[Stats].statistics.boot_timestamp += 1

    def add_slave(self, plane: BrokerInMemory | None = None, **changes: Any) -> Slave:
        slave = Slave(self, plane or self.slave_plane(**changes))
        slave.part.learned(Master(MASTER, HA))
        self.settle()
        return slave

    def slave_plane(self, **changes: Any) -> BrokerInMemory:
        self.slaves += 1
        return BrokerInMemory(
            clock=self.clock,
            network=self.network,
            address=f"10.0.1.{self.slaves}:10911",
            broker={"broker_id": self.slaves, "slave_read_enable": True},
            **{**self.store, "broker_role": "SLAVE", **changes},
        )

    def send(self, body: bytes, **options: Any) -> RemotingCommand | None:
        return self.master.plane.send(body, **options)

    def settle(self) -> None:
        """What is on its way arrives, timers of the next second included."""
        for _ in range(20):
            self.clock.advance(0.05)

    def stop(self) -> None:
        """The master is gone."""
        self.network.stop(HA)
        self.network.stop(MASTER)
        self.settle()


class Slave(Replica):
    @property
    def part(self) -> MasterFollower:
        link = self.plane.broker[Replicas].slave
        assert link is not None
        return link

    @property
    def timer(self) -> TimerProgress:
        return self.plane.timer

    def copy(self) -> None:
        done: list[Any] = []
        self.part.copy().addBoth(done.append)
        self.group.settle()
        assert done == [None]

    def stop(self) -> None:
        """Goes down; its files stay."""
        self.plane.stop()

    @property
    def end(self) -> MemoryTransport:
        """The slave's end of its link."""
        connection = self.part.client.connection
        assert connection is not None
        transport = connection.transport
        assert isinstance(transport, MemoryTransport)
        return transport

    def bodies(self, topic: str = "Topic", **options: Any) -> list[bytes]:
        response = self.plane.pull(0, topic=topic, **options)
        ok(response)
        assert response is not None
        return [message.body for message in messages_of(response.body)]


# The log


def test_a_slave_has_the_masters_bytes_and_serves_them() -> None:
    group = Group()
    slave = group.add_slave()
    for number in range(40):
        group.send(b"%d" % number * 50)
    group.settle()
    slave.copy()
    assert slave.bytes() == group.master.bytes() != b""
    assert slave.bodies(max_msg_nums=3) == [b"%d" % number * 50 for number in range(3)]
    assert slave.plane.store.max_queue_offset("Topic", 0) == 40
    assert slave.part.client.linked


def test_an_empty_slave_starts_with_the_last_file() -> None:
    group = Group()
    while group.master.plane.store.written_offset < 2 * FILE_SIZE:
        group.send(b"x" * 500)
    slave = group.add_slave()
    assert slave.plane.store.min_physical_offset == 2 * FILE_SIZE
    assert slave.bytes(2 * FILE_SIZE) == group.master.bytes(2 * FILE_SIZE)
    group.send(b"y")
    group.settle()
    assert slave.bytes(2 * FILE_SIZE) == group.master.bytes(2 * FILE_SIZE)


def test_what_is_only_buffered_is_never_sent() -> None:
    group = Group()
    slave = group.add_slave()
    group.send(b"first")
    group.settle()
    end = group.master.plane.store.written_offset
    group.master.plane.store.append(make_message())
    assert group.master.plane.store.end_offset > end
    group.settle()
    assert slave.plane.store.written_offset == end
    assert group.part.runtime_info().master_commit_log_max_offset == end


def test_a_sync_flushing_master_sends_what_is_durable() -> None:
    threads = Threads(eager=False)
    group = Group(threads=threads, flush_disk_type="SYNC_FLUSH")
    slave = group.add_slave(flush_disk_type="ASYNC_FLUSH")
    group.send(b"first")
    group.settle()
    assert slave.plane.store.written_offset == 0
    while threads.run():
        group.settle()
    assert slave.bytes() == group.master.bytes() != b""


def test_a_sync_flushing_slave_acknowledges_what_is_durable() -> None:
    group = Group()
    threads = Threads(eager=False)
    plane = group.slave_plane(threads=threads, flush_disk_type="SYNC_FLUSH")
    slave = group.add_slave(plane)
    while threads.run():
        group.settle()
    group.send(b"first")
    group.settle()
    (link,) = [slave.link for slave in group.part.service.slaves]
    assert slave.plane.store.written_offset == group.master.plane.store.written_offset
    assert link.acknowledged == 0
    while threads.run():
        group.settle()
    assert link.acknowledged == group.master.plane.store.written_offset


def test_a_slave_that_restarts_in_the_middle_of_a_frame_doubles_nothing() -> None:
    group = Group()
    slave = group.add_slave()
    files = slave.plane.files
    near = slave.end
    group.send(b"first" * 100)
    group.settle()
    whole = slave.plane.store.written_offset
    # Half of the next frame arrives, then the connection is gone.
    protocol = near.protocol
    data = group.master.plane.store
    group.network.stop(HA)
    group.send(b"second" * 100)
    frame = data.read_log(whole, 4096)
    protocol.dataReceived(whole.to_bytes(8, "big") + len(frame).to_bytes(4, "big") + frame[:99])
    slave.stop()
    plane = group.slave_plane(files=files)
    assert plane.store.written_offset == whole
    group.network.listen(HA, group.part.service)
    again = group.add_slave(plane)
    assert again.bytes() == group.master.bytes()
    assert again.plane.store.max_queue_offset("Topic", 0) == 2


def test_part_of_a_record_is_cut_off_by_a_restart_and_comes_again() -> None:
    group = Group(ha_flow_control_enable=True, max_ha_transfer_byte_in_second=100)
    slave = group.add_slave()
    group.send(b"first" * 100)
    files = slave.plane.files
    group.settle()
    assert 0 < slave.plane.store.written_offset < group.master.plane.store.written_offset
    slave.stop()
    plane = group.slave_plane(files=files)
    assert plane.store.written_offset == 0
    again = group.add_slave(plane)
    for _ in range(10):
        group.settle()
    assert again.bytes() == group.master.bytes()
    assert again.plane.store.max_queue_offset("Topic", 0) == 1


def test_several_slaves_each_at_its_own_place() -> None:
    group = Group()
    first = group.add_slave()
    group.send(b"first")
    group.settle()
    second = group.add_slave()
    group.send(b"second")
    group.settle()
    assert first.bytes() == second.bytes() == group.master.bytes()
    assert group.part.runtime_info().in_sync_slave_nums == 2


# Synchronous sends


def test_a_sync_master_answers_when_a_slave_has_the_message() -> None:
    group = Group(sync=True)
    slave = group.add_slave()
    near = slave.end
    near.hold()
    assert group.send(b"first") is None
    group.clock.advance(1)
    assert not group.master.plane.peer.replies
    near.let_go()
    group.clock.advance(0)
    group.clock.advance(0)
    (response,) = group.master.plane.peer.replies
    assert response.code == ResponseCode.SUCCESS


def test_a_sync_master_says_so_without_a_slave_and_when_one_is_slow() -> None:
    group = Group(sync=True, slave_timeout=3000)
    response = group.send(b"first")
    assert response is not None
    assert response.code == ResponseCode.SLAVE_NOT_AVAILABLE
    slave = group.add_slave()
    near = slave.end
    near.hold()
    assert group.send(b"second") is None
    group.clock.advance(2.9)
    assert len(group.master.plane.peer.replies) == 1
    group.clock.advance(0.2)
    assert group.master.plane.peer.replies[-1].code == ResponseCode.FLUSH_SLAVE_TIMEOUT


def test_a_send_may_wait_for_disk_and_slave() -> None:
    threads = Threads(eager=False)
    group = Group(sync=True, threads=threads, flush_disk_type="SYNC_FLUSH")
    slave = group.add_slave()
    slave.end.hold()
    assert group.send(b"first") is None
    while threads.run():
        group.clock.advance(0.1)
    replies = group.master.plane.peer.replies
    assert not replies, "it is on the disk, but nowhere else"
    slave.end.let_go()
    group.settle()
    assert [response.code for response in replies] == [ResponseCode.SUCCESS]


@pytest.mark.parametrize("hours", [-1, 1])
def test_setting_the_time_of_day_ends_no_link(hours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(sync=True)
    slave = group.add_slave()
    link = slave.end
    monkeypatch.setattr(data_plane, "START_MS", START_MS + hours * 3_600_000)
    for _ in range(60):
        group.settle()
    assert slave.end is link and not link.disconnected


def test_two_slaves_are_waited_for_where_three_copies_are_wanted() -> None:
    group = Group(sync=True, in_sync_replicas=3)
    first, second = group.add_slave(), group.add_slave()
    second.end.hold()
    assert group.send(b"first") is None
    group.clock.advance(1)
    assert first.bytes() == group.master.bytes()
    assert not group.master.plane.peer.replies
    second.end.let_go()
    group.settle()
    assert group.master.plane.peer.replies[0].code == ResponseCode.SUCCESS


def test_a_stop_hands_the_whole_log_to_the_slaves() -> None:
    group = Group()
    slave = group.add_slave()
    near = slave.end
    near.hold()
    group.send(b"last")
    stopped: list[Any] = []
    group.part.service.stop().addCallback(stopped.append)
    group.clock.advance(1)
    assert not stopped
    near.let_go()
    group.settle()
    assert stopped
    assert slave.bytes() == group.master.bytes()


def test_connections_that_say_nothing_keep_no_slave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_SLAVES", 3)
    group = Group()
    first = group.add_slave()
    for _ in range(10):
        group.network.connect("10.9.9.9", HA, Factory.forProtocol(Protocol))
        group.clock.advance(0)
    second = group.add_slave()
    group.send(b"first")
    group.settle()
    assert first.bytes() == second.bytes() == group.master.bytes()
    assert group.part.runtime_info().in_sync_slave_nums == 2


# Logs that are not one


def another_master(group: Group, *bodies: bytes) -> None:
    """A broker with other messages takes the master's place."""
    group.stop()
    group.master = group.new_master(mapped_file_size_commit_log=FILE_SIZE)
    for body in bodies:
        group.send(body)


@pytest.mark.parametrize(
    "bodies, why",
    [
        ([b"first"], "ends at"),
        ([b"other", b"OTHER", b"third"], "another message"),
    ],
)
def test_a_slave_of_another_log_is_not_linked(
    bodies: list[bytes], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group()
    slave = group.add_slave()
    group.send(b"first")
    group.send(b"secnd")
    group.settle()
    before = slave.bytes()
    reasons: list[str] = []
    monkeypatch.setattr(slave.part.client, "note", reasons.append)
    group.clock.advance(1)
    another_master(group, *bodies)
    for _ in range(10):
        group.settle()
    assert not slave.part.client.linked
    assert slave.bytes() == before
    assert any(why in reason and "docs/replication.md" in reason for reason in reasons), reasons


def test_part_of_a_record_that_the_master_lost_is_not_spliced_with_another() -> None:
    """An asynchronous master that loses its power may have other bytes there afterwards."""
    group = Group()
    slave = group.add_slave()
    group.send(b"first")
    group.settle()
    end = group.master.plane.store.end_offset
    files = group.master.plane.files.kill()  # type: ignore[attr-defined]
    group.stop()
    group.send(b"second")
    lost = group.master.plane.store.read_log(end, 100)
    slave.plane.commit.append_raw(end, lost[:60])
    group.master = group.new_master(files=files, mapped_file_size_commit_log=FILE_SIZE)
    group.send(b"another one")
    for _ in range(10):
        group.settle()
    assert slave.part.client.linked
    assert slave.bytes() == group.master.bytes()
    slave.copy()
    assert slave.bodies() == [b"first", b"another one"]


def test_messages_of_a_topic_that_was_deleted_are_compared_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Group()
    slave = group.add_slave()
    group.send(b"first")
    group.settle()
    slave.plane.store.remove_topics(["Topic"])
    slave.plane.store.fsync()
    reasons: list[str] = []
    monkeypatch.setattr(slave.part.client, "note", reasons.append)
    another_master(group, b"OTHER", b"second")
    group.master.plane.store.remove_topics(["Topic"])
    group.master.plane.store.fsync()
    for _ in range(10):
        group.settle()
    assert not slave.part.client.linked
    assert any("another message" in reason for reason in reasons), reasons


def test_the_newest_record_is_found_by_the_log() -> None:
    group = Group()
    plane = group.master.plane

    def newest() -> int:
        found: list[int] = []
        end = plane.store.written_offset
        newest_record(plane.store, FILE_SIZE, group.clock, end).addCallback(found.append)
        group.settle()
        return found[0]

    assert newest() == -1
    offsets = []
    for number in range(30):
        offsets.append(plane.store.append(make_message(b"%d" % number * 100)).physical_offset)
        plane.store.write_pending()
        assert newest() == offsets[-1]
    plane.store.dispatch()
    plane.store.remove_topics(["Topic"])
    plane.store.fsync()
    assert newest() == offsets[-1] > FILE_SIZE


def test_a_slave_in_front_of_the_masters_first_file_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Group()
    slave = group.add_slave()
    group.send(b"first")
    group.settle()
    files = slave.plane.files
    slave.stop()
    while group.master.plane.store.written_offset < 2 * FILE_SIZE:
        group.send(b"x" * 500)
    group.master.plane.store._log.remove_first()
    again = Slave(group, group.slave_plane(files=files))
    reasons: list[str] = []
    monkeypatch.setattr(again.part.client, "note", reasons.append)
    again.part.learned(Master(MASTER, HA))
    group.settle()
    assert not again.part.client.linked
    assert any("starts only at" in reason for reason in reasons), reasons


def test_files_of_another_size_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group()
    slave = Slave(group, group.slave_plane(mapped_file_size_commit_log=2 * FILE_SIZE))
    reasons: list[str] = []
    monkeypatch.setattr(slave.part.client, "note", reasons.append)
    slave.part.learned(Master(MASTER, HA))
    group.send(b"first")
    group.settle()
    assert "mappedFileSizeCommitLog is 8192 here and 4096 at the master" in reasons[0]
    assert slave.plane.store.written_offset == 0


# What only masters change


def test_topics_groups_and_progress_are_copied() -> None:
    group = Group()
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
    group = Group()
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
    group = Group()
    slave = group.add_slave()
    slave.copy()
    before = slave.timer.checkpoint
    near = slave.end
    near.hold()
    group.send(b"delivered by the timer")
    later = START_MS + 100_000
    part = group.master.plane.broker[Timer]
    part.delivery.go_to(later)
    part.queue.offset = 7
    slave.copy()
    assert slave.timer.checkpoint == before
    near.let_go()
    group.settle()
    told = slave.timer.checkpoint
    assert told is not None
    assert (told.read_ms, told.master_queue_offset, told.queue_offset) == (later, 7, 0)


def test_offsets_are_the_masters() -> None:
    group = Group()
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
    group = Group()
    slave = group.add_slave()
    master, copy = group.master.plane.offsets, slave.plane.offsets
    for number in range(20_000):
        master.commit(f"G{number}", "Topic", 0, 5)
    seen: list[int] = []
    in_slices = slave.plane.broker[Replicas]._metadata._in_slices

    def watched(steps: Any) -> Any:
        def counting() -> Any:
            for step in steps:
                seen.append(len(copy.groups_of("Topic")))
                yield step

        return in_slices(counting())

    slave.plane.broker[Replicas]._metadata._in_slices = watched
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
    group = Group()
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
    group = Group()
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
    group = Group()
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
    group = Group()
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
    group = Group()
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
    group = Group()
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
    group = Group()
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
    group = Group()
    slave = group.add_slave()
    groups = group.master.plane.groups
    groups.update(SubscriptionGroupConfig(group_name="G"))
    slave.copy()
    assert slave.plane.groups.contains("G")
    groups.delete("G")
    slave.copy()
    assert not slave.plane.groups.contains("G")


def test_a_topic_of_a_kind_that_is_not_here_is_left_out_and_said_once() -> None:
    group = Group()
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
    group = Group()
    slave = group.add_slave()
    stopped: list[None] = []
    slave.part.stop().addCallback(stopped.append)
    # The answer to a registration that was under way.
    slave.part.learned(Master(MASTER, HA))
    group.settle()
    assert stopped == [None]
    assert slave.part.client.connection is None


def test_nothing_is_copied_from_a_master_that_is_not_followed() -> None:
    group = Group()
    slave = group.add_slave()
    group.send(b"first")
    group.settle()
    slave.copy()
    topics = dict(slave.plane.topics.all())
    another_master(group)
    group.settle()
    slave.copy()
    assert slave.plane.topics.all() == topics


def test_what_the_former_master_still_says_is_no_measure_for_the_next_one() -> None:
    """Otherwise what a next master lacks looks as if it had removed it."""
    group = Group()
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
    group = Group()
    slave = group.add_slave()
    assert slave.plane.topics.get("Topic") is None
    group.send(b"first")
    group.settle()
    assert slave.plane.topics.get("Topic") is not None


def test_more_queues_are_copied_when_the_first_message_arrives_in_one() -> None:
    """If the slave is the master a moment later, nobody would read what is in them."""
    group = Group()
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
    group = Group()
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


# Requests to a slave


def test_a_slave_stores_nothing() -> None:
    plane = Group().slave_plane()
    for code in STORING:
        with pytest.raises(RequestError, match="master") as raised:
            plane.ask(code)
        assert raised.value.code == ResponseCode.SYSTEM_BUSY


def test_what_a_slave_is_asked_to_change_is_left_to_its_master() -> None:
    """Stock's tools ask slaves too, and fail where one refuses."""
    plane = Group().slave_plane()
    before = dict(plane.topics.all()), dict(plane.groups.all())
    for code in CHANGING:
        answer = plane.request(RemotingCommand(code, ext_fields={"topic": "T", "groupName": "G"}))
        assert answer is not None and answer.code == ResponseCode.SUCCESS
        assert "master" in (answer.remark or "")
    assert (plane.topics.all(), plane.groups.all()) == before


def test_a_slave_is_not_active() -> None:
    group = Group()
    shown = [
        decode_body(KVTable, plane.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
        for plane in (group.master.plane, group.slave_plane())
    ]
    assert [table["brokerActive"] for table in shown] == ["true", "false"]


def test_many_appends_of_a_slave_share_the_work_of_its_queues() -> None:
    group = Group()
    slave = group.add_slave()
    store = slave.plane.store
    for number in range(1, 4):
        group.send(b"message")
        for _ in range(5):
            group.clock.advance(0)
        (link,) = group.part.service.slaves
        assert link.link.acknowledged == group.master.plane.store.written_offset
        assert store.max_queue_offset("Topic", 0) == 0, f"{number} acknowledged, none in its queue"
    group.clock.advance(SLAVE_DISPATCH)
    assert store.max_queue_offset("Topic", 0) == 3


def test_whoever_asks_need_not_wait_for_it() -> None:
    group = Group()
    slave = group.add_slave()
    group.send(b"first")
    for _ in range(5):
        group.clock.advance(0)
    slave.plane.commit.dispatch_now()
    assert slave.plane.store.max_queue_offset("Topic", 0) == 1
    slave.plane.commit.dispatch_now()
    group.settle()
    assert slave.plane.store.max_queue_offset("Topic", 0) == 1


def test_the_newest_message_is_compared_before_a_link_though_it_came_just_now() -> None:
    group = Group()
    slave = group.add_slave()
    group.send(b"first")
    for _ in range(5):
        group.clock.advance(0)
    store = slave.plane.store
    assert store.last_record_offset < 0
    slave.part.client.open_link()
    assert store.last_record_offset == 0


def test_not_even_by_itself() -> None:
    plane = Group().slave_plane()
    plane.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    with pytest.raises(RequestError, match="stores nothing") as raised:
        plane.commit.append(make_message(), lambda code, appended: None)
    assert raised.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    version = plane.topics.data_version
    plane.topics.create_on_send_back("%RETRY%G", 1, 6)
    plane.topics.mark_ordered(["Topic"])
    assert plane.groups.get("new") is not None
    assert not plane.groups.contains("new")
    assert plane.topics.get("%RETRY%G") is None
    assert plane.topics.data_version == version


def pulled(plane: BrokerInMemory, offset: int, **options: Any) -> int | None:
    """The code of a pull's answer; None where it is held."""
    response = plane.pull(offset, **options)
    return None if response is None else response.code


def test_what_a_slave_lacks_is_asked_of_the_master_or_waited_for() -> None:
    group = Group()
    plane = group.add_slave().plane
    group.send(b"first")
    group.settle()
    assert pulled(plane, 0) == ResponseCode.SUCCESS
    assert pulled(plane, 1) == ResponseCode.PULL_RETRY_IMMEDIATELY
    group.stop()
    assert pulled(plane, 1) == ResponseCode.PULL_NOT_FOUND
    assert pulled(plane, 7) == ResponseCode.PULL_NOT_FOUND, "an offset is never put back here"


def test_a_slave_that_serves_no_reads_sends_consumers_away() -> None:
    group = Group()
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
    group = Group()
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
    group = Group()
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


# Configuration


class TakenPort(MemoryReactorClock):
    """A reactor where port 20001 is taken."""

    def listenTCP(self, port: int, *args: Any, **options: Any) -> Any:
        if port == 20001:
            raise CannotListenError("127.0.0.1", port, OSError(98, "Address already in use"))
        return super().listenTCP(port, *args, **options)


def test_the_ha_port_is_the_one_above_unless_it_is_named() -> None:
    for ha_port, expected in ((0, 10912), (10999, 10999)):
        plane = BrokerInMemory(ha_listen_port=ha_port)
        assert [server[0] for server in plane.clock.tcpServers] == [10911, 10909, expected]


def test_an_ha_port_that_is_taken_is_named_unless_the_kernel_chose() -> None:
    with pytest.raises(OSError, match=r"127.0.0.1:20001 .*already in use.*haListenPort"):
        BrokerInMemory(clock=TakenPort(), address="127.0.0.1:20000")
    plane = BrokerInMemory(clock=TakenPort(), address="127.0.0.1:0", ha_listen_port=0)
    assert plane.clock.tcpServers


@pytest.mark.parametrize("role, broker_id", [("SLAVE", 0), ("SYNC_MASTER", 1), ("ASYNC_MASTER", 2)])
def test_roles_and_ids_that_do_not_fit_are_refused(role: str, broker_id: int) -> None:
    with pytest.raises(ConfigError, match=f"brokerRole={role} with brokerId={broker_id}"):
        configured_role(BrokerConfig(broker_id=broker_id), MessageStoreConfig(broker_role=role))


@pytest.mark.parametrize(
    "role, broker_id, expected",
    [
        ("SLAVE", 1, RoleState(Role.SLAVE, 1)),
        ("SYNC_MASTER", 0, RoleState(Role.MASTER, 0, synchronous=True)),
        ("ASYNC_MASTER", 0, RoleState(Role.MASTER, 0)),
    ],
)
def test_roles_and_ids_that_fit(role: str, broker_id: int, expected: RoleState) -> None:
    config = BrokerConfig(broker_id=broker_id)
    assert configured_role(config, MessageStoreConfig(broker_role=role)) == expected


def test_both_names_of_the_gap() -> None:
    assert MessageStoreConfig().max_gap == 256 << 20
    assert MessageStoreConfig(ha_slave_fallbehind_max=5).max_gap == 5
    assert MessageStoreConfig(ha_max_gap_not_in_sync=7).max_gap == 7
