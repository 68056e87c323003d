"""Slaves copy the log of their master, and senders wait for them."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.protocol import Factory, Protocol

from rocketmq_tw.replication.links import service
from rocketmq_tw.wire.codes import ResponseCode
from tests.support import broker as data_plane
from tests.support.broker import Threads
from tests.support.master_and_slaves import FILE_SIZE, HA, MasterAndSlaves
from tests.support.stores import START_MS, make_message


def test_a_slave_has_the_masters_bytes_and_serves_them() -> None:
    group = MasterAndSlaves()
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
    group = MasterAndSlaves()
    while group.master.plane.store.written_offset < 2 * FILE_SIZE:
        group.send(b"x" * 500)
    slave = group.add_slave()
    assert slave.plane.store.min_physical_offset == 2 * FILE_SIZE
    assert slave.bytes(2 * FILE_SIZE) == group.master.bytes(2 * FILE_SIZE)
    group.send(b"y")
    group.settle()
    assert slave.bytes(2 * FILE_SIZE) == group.master.bytes(2 * FILE_SIZE)


def test_what_is_only_buffered_is_never_sent() -> None:
    group = MasterAndSlaves()
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
    group = MasterAndSlaves(threads=threads, flush_disk_type="SYNC_FLUSH")
    slave = group.add_slave(flush_disk_type="ASYNC_FLUSH")
    group.send(b"first")
    group.settle()
    assert slave.plane.store.written_offset == 0
    for _ in range(10):
        threads.run()
        group.settle()
    assert slave.bytes() == group.master.bytes() != b""


def test_a_sync_flushing_slave_acknowledges_what_is_durable() -> None:
    group = MasterAndSlaves()
    threads = Threads(eager=False)
    plane = group.slave_plane(threads=threads, flush_disk_type="SYNC_FLUSH")
    slave = group.add_slave(plane)
    for _ in range(10):
        threads.run()
        group.settle()
    group.send(b"first")
    group.settle()
    (link,) = [slave.link for slave in group.part.service.slaves]
    assert slave.plane.store.written_offset == group.master.plane.store.written_offset
    assert link.acknowledged == 0
    for _ in range(10):
        threads.run()
        group.settle()
    assert link.acknowledged == group.master.plane.store.written_offset


def test_a_slave_that_restarts_in_the_middle_of_a_frame_doubles_nothing() -> None:
    group = MasterAndSlaves()
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
    group = MasterAndSlaves(ha_flow_control_enable=True, max_ha_transfer_byte_in_second=100)
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
    group = MasterAndSlaves()
    first = group.add_slave()
    group.send(b"first")
    group.settle()
    second = group.add_slave()
    group.send(b"second")
    group.settle()
    assert first.bytes() == second.bytes() == group.master.bytes()
    assert group.part.runtime_info().in_sync_slave_nums == 2


def test_a_sync_master_answers_when_a_slave_has_the_message() -> None:
    group = MasterAndSlaves(sync=True)
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
    group = MasterAndSlaves(sync=True, slave_timeout=3000)
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
    group = MasterAndSlaves(sync=True, threads=threads, flush_disk_type="SYNC_FLUSH")
    slave = group.add_slave()
    slave.end.hold()
    assert group.send(b"first") is None
    for _ in range(10):
        threads.run()
        group.clock.advance(0.1)
    replies = group.master.plane.peer.replies
    assert not replies, "it is on the disk, but nowhere else"
    slave.end.let_go()
    group.settle()
    assert [response.code for response in replies] == [ResponseCode.SUCCESS]


@pytest.mark.parametrize("hours", [-1, 1])
def test_setting_the_time_of_day_ends_no_link(hours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    group = MasterAndSlaves(sync=True)
    slave = group.add_slave()
    link = slave.end
    monkeypatch.setattr(data_plane, "START_MS", START_MS + hours * 3_600_000)
    for _ in range(60):
        group.settle()
    assert slave.end is link and not link.disconnected


def test_two_slaves_are_waited_for_where_three_copies_are_wanted() -> None:
    group = MasterAndSlaves(sync=True, in_sync_replicas=3)
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
    group = MasterAndSlaves()
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
    group = MasterAndSlaves()
    first = group.add_slave()
    for _ in range(10):
        group.network.connect("10.9.9.9", HA, Factory.forProtocol(Protocol))
        group.clock.advance(0)
    second = group.add_slave()
    group.send(b"first")
    group.settle()
    assert first.bytes() == second.bytes() == group.master.bytes()
    assert group.part.runtime_info().in_sync_slave_nums == 2
