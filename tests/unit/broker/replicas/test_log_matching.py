"""Logs that are not one: a slave follows nobody whose log is another one."""

from __future__ import annotations

import pytest

from rocketmq_tw.broker.cluster.name_server_links import Master
from rocketmq_tw.broker.replicas.log_matching import newest_record
from rocketmq_tw.runtime.slices import Slices
from tests.support.master_and_slaves import FILE_SIZE, HA, MASTER, MasterAndSlaves, Slave
from tests.support.stores import make_message


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
    group = MasterAndSlaves()
    slave = group.add_slave()
    group.send(b"first")
    group.send(b"secnd")
    group.settle()
    before = slave.bytes()
    reasons: list[str] = []
    monkeypatch.setattr(slave.part.client, "note", reasons.append)
    group.clock.advance(1)
    group.replace_master(*bodies)
    for _ in range(10):
        group.settle()
    assert not slave.part.client.linked
    assert slave.bytes() == before
    assert any(why in reason and "docs/replication.md" in reason for reason in reasons), reasons


def test_part_of_a_record_that_the_master_lost_is_not_spliced_with_another() -> None:
    """An asynchronous master that loses its power may have other bytes there afterwards."""
    group = MasterAndSlaves()
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
    group = MasterAndSlaves()
    slave = group.add_slave()
    group.send(b"first")
    group.settle()
    slave.plane.store.remove_topics(["Topic"])
    slave.plane.store.fsync()
    reasons: list[str] = []
    monkeypatch.setattr(slave.part.client, "note", reasons.append)
    group.replace_master(b"OTHER", b"second")
    group.master.plane.store.remove_topics(["Topic"])
    group.master.plane.store.fsync()
    for _ in range(10):
        group.settle()
    assert not slave.part.client.linked
    assert any("another message" in reason for reason in reasons), reasons


def test_the_newest_record_is_found_by_the_log() -> None:
    group = MasterAndSlaves()
    plane = group.master.plane

    def newest() -> int:
        found: list[int] = []
        end = plane.store.written_offset
        newest_record(plane.store, FILE_SIZE, Slices(group.clock), end).addCallback(found.append)
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
    group = MasterAndSlaves()
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
    group = MasterAndSlaves()
    slave = Slave(group, group.slave_plane(mapped_file_size_commit_log=2 * FILE_SIZE))
    reasons: list[str] = []
    monkeypatch.setattr(slave.part.client, "note", reasons.append)
    slave.part.learned(Master(MASTER, HA))
    group.send(b"first")
    group.settle()
    assert "mappedFileSizeCommitLog is 8192 here and 4096 at the master" in reasons[0]
    assert slave.plane.store.written_offset == 0
